"""``knnpress predict``: classes of images or points."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command, add_groups_to_recenter, add_image_options, add_run_options
from knnpress.cli.output import check_apart, print_facts, print_table

_COLUMNS = ("item", "prediction", "probability")


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "predict",
        "predict the classes of images or points",
        "knnpress predict model.knnp new_photos/ -o out.csv",
        "The columns are item (the path in FOLDER, or the row), prediction, probability; with --reject, rejected.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.knnp")
    parser.add_argument("inputs", type=Path, nargs="+", metavar="FOLDER|IMAGE|POINTS")
    parser.add_argument("-o", "--output", type=Path, metavar="OUT.csv", help="without it, the output is printed")
    parser.add_argument(
        "--reject",
        type=float,
        metavar="SHARE",
        help="mark items farther from the prototypes of every class than all but this share of its training points",
    )
    add_groups_to_recenter(parser)
    add_image_options(parser)
    add_run_options(parser)


def run(args: argparse.Namespace) -> None:
    """Predict; write a CSV file, or print a table (on a terminal) or CSV (elsewhere)."""
    import numpy as np

    from knnpress.cli.queries import open_model, read_queries
    from knnpress.estimators.outliers import check_reject
    from knnpress.files import check_output, csv_text, replacing

    check_output(args.output)
    check_apart(args.output, args.model, *args.inputs, args.masks, args.depth)
    if args.model.is_dir():
        raise ValueError(f"{args.model} is a folder; the model comes first, the file that knnpress compress wrote")
    model = open_model(args.model, args.jobs)
    queries = read_queries(model, args, labelled=False)
    labels = model.classifier_.predict(queries.X)
    shares = model.classifier_.predict_proba(queries.X)
    winners = shares[np.arange(len(labels)), np.searchsorted(model.classifier_.classes_, labels)]
    rows = [
        [item, str(label), f"{share:.4f}"] for item, label, share in zip(queries.items, labels, winners, strict=True)
    ]
    columns: tuple[str, ...] = _COLUMNS
    if args.reject is not None:
        if not hasattr(model.classifier_, "outlier_score"):
            raise ValueError(
                f"{args.model} holds a {type(model.classifier_).__name__}, which rejects nothing; use SCC, SHC or SNC"
            )
        rejected = model.classifier_.outlier_score(queries.X) > 1.0 - check_reject(args.reject)
        columns = (*_COLUMNS, "rejected")
        rows = [[*row, "yes" if far else "no"] for row, far in zip(rows, rejected, strict=True)]
    if args.output is None and sys.stdout.isatty():
        print_table(columns, rows, right=(2,))
    elif args.output is None:
        sys.stdout.write(csv_text([columns, *rows]))
    else:
        with replacing(args.output) as file:
            file.write(csv_text([columns, *rows]).encode("utf-8", errors="backslashreplace"))
        print_facts({"predictions": str(args.output), "items": str(len(rows))})

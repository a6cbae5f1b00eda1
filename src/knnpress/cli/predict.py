"""``knnpress predict``: classes of images or points."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys

import numpy as np

from knnpress.cli.output import print_facts, print_table
from knnpress.cli.queries import open_model, read_queries
from knnpress.files import check_output, replacing

__all__ = ["run"]

_COLUMNS = ("item", "prediction", "probability")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", re.IGNORECASE)


def run(args: argparse.Namespace) -> None:
    """Predict; write a CSV file, or print a table (on a terminal) or CSV (elsewhere)."""
    check_output(args.output)
    model = open_model(args.model, args.jobs)
    queries = read_queries(model, args, labelled=False)
    labels = model.classifier.predict(queries.X)
    shares = model.classifier.predict_proba(queries.X)
    winners = shares[np.arange(len(labels)), np.searchsorted(model.classifier.classes_, labels)]
    rows = [
        [item, str(label), f"{share:.4f}"] for item, label, share in zip(queries.items, labels, winners, strict=True)
    ]
    if args.output is None and sys.stdout.isatty():
        print_table(_COLUMNS, rows, right=(2,))
    elif args.output is None:
        sys.stdout.write(_as_csv(rows))
    else:
        with replacing(args.output) as file:
            file.write(_as_csv(rows).encode("utf-8", errors="backslashreplace"))
        print_facts({"predictions": str(args.output), "items": str(len(rows))})


def _as_csv(rows: list[list[str]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_COLUMNS)
    writer.writerows([_inert(cell) for cell in row] for row in rows)
    return text.getvalue()


def _inert(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula; numbers are none."""
    return (
        f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) and not _NUMBER.fullmatch(cell) else cell
    )

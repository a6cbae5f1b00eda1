"""``knnpress compress``: a small model from images or points."""

from __future__ import annotations

import argparse
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command, add_groups_to_hold_out, add_training_options, count, one_of
from knnpress.cli.output import check_apart
from knnpress.names import LEARNED, METHODS, METRICS


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "compress",
        "learn a small model from images or points",
        "knnpress compress photos/ -o model.knnp --ratio 0.02",
        "FOLDER holds a sub-folder of images for each class; the model takes images then. POINTS is a file, or a zarr "
        "group with the arrays X and y, which may be larger than memory.",
    )
    add_training_options(parser, METHODS)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL.knnp")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="file that keeps the state of the learning: the same command goes on where it was stopped",
    )
    parser.add_argument("--batch-size", type=count, metavar="N", help="points in a step of learning (default: all)")
    parser.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="learn from a zarr store on a Dask cluster, e.g. tcp://host:8786, or local for one on this machine",
    )
    parser.add_argument(
        "--metric",
        type=one_of(METRICS),
        metavar="NAME",
        help=f"{', '.join(METRICS)} (default: what suits the points best)",
    )
    add_groups_to_hold_out(parser)
    parser.add_argument(
        "--recenter",
        action="store_true",
        help="of covariance matrices, bring the mean of each group (--groups) to the identity first",
    )


def run(args: argparse.Namespace) -> None:
    """Learn a model and write it to a file."""
    from knnpress.cli.training import fit_and_save, make_classifier, read_training_set
    from knnpress.compression import StochasticCompression
    from knnpress.execution.dask import connect
    from knnpress.files import check_output

    check_output(args.output)
    check_apart(args.output, args.input, args.labels, args.masks, args.depth)
    check_output(args.checkpoint)
    if args.checkpoint is not None and args.method not in (None, *LEARNED):
        raise ValueError(f"--checkpoint is for {', '.join(LEARNED)}, which learn; {args.method} goes without")
    if args.checkpoint is not None and args.auto:
        raise ValueError("--auto is many fits, and a checkpoint serves one; give --ratio or --prototypes")
    if args.batch_size is not None and args.method not in (None, *LEARNED):
        raise ValueError(f"--batch-size is for {', '.join(LEARNED)}, which learn; {args.method} goes without")
    with nullcontext() if args.scheduler is None else connect(args.scheduler):
        data = read_training_set(args)
        classifier = make_classifier(args, data)
        if args.checkpoint is not None:
            classifier.set_params(checkpoint=args.checkpoint)
        if args.batch_size is not None:
            classifier.set_params(compressor=StochasticCompression(batch_size=args.batch_size))
        fit_and_save(classifier, data, args.output)

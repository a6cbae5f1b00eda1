"""``knnpress compress``: a small model from images or points."""

from __future__ import annotations

import argparse
from contextlib import nullcontext

from knnpress.cli.training import fit_and_save, make_classifier, read_training_set
from knnpress.compression import StochasticCompression
from knnpress.execution.dask import connect
from knnpress.files import check_output
from knnpress.names import LEARNED

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Learn a model and write it to a file."""
    check_output(args.output)
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

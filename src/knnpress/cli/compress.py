"""``knnpress compress``: a small model from images or points."""

from __future__ import annotations

import argparse

from knnpress.cli.training import fit_and_save, make_classifier, read_training_set
from knnpress.files import check_output

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Learn a model and write it to a file."""
    check_output(args.output)
    data = read_training_set(args)
    fit_and_save(make_classifier(args, data), data, args.output)

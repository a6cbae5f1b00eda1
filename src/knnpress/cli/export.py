"""``knnpress export``: a model as source code."""

from __future__ import annotations

import argparse

from knnpress.cli.output import notice
from knnpress.cli.queries import open_model
from knnpress.export import export_c, export_js
from knnpress.files import check_output

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Write a model as C or JavaScript."""
    check_output(args.output)
    model = open_model(args.model, None)
    try:
        {"c": export_c, "js": export_js}[args.to](model.classifier, args.output, dtype=args.dtype)
    except TypeError as error:
        raise ValueError(f"{args.model}: {error}") from error
    if model.descriptors:
        names = ", ".join(type(step).__name__ for step in model.descriptors)
        notice(f"{args.output} takes points as {names} gives them, not what {names} takes: descriptors stay in Python")

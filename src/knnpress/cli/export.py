"""``knnpress export``: a model as source code."""

from __future__ import annotations

import argparse

from sklearn.pipeline import make_pipeline

from knnpress.cli.output import notice
from knnpress.cli.queries import open_model
from knnpress.descriptors import Recenter, SignalCovariance
from knnpress.export import export_c, export_js
from knnpress.files import check_output

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Write a model as C or JavaScript; descriptors of images stay in Python."""
    check_output(args.output)
    model = open_model(args.model, None)
    chain, stays = list(model.descriptors), []
    while any(not isinstance(step, Recenter | SignalCovariance) for step in chain):
        stays.append(chain.pop(0))
    group = next((name for step in chain for name in _names(step) if str(name) == args.group), args.group)
    try:
        {"c": export_c, "js": export_js}[args.to](
            make_pipeline(*chain, model.classifier), args.output, dtype=args.dtype, reject=args.reject, group=group
        )
    except TypeError as error:
        raise ValueError(f"{args.model}: {error}") from error
    if stays:
        names = ", ".join(type(step).__name__ for step in stays)
        notice(f"{args.output} takes points as {names} gives them, not what {names} takes: descriptors stay in Python")


def _names(step: object) -> list[object]:
    """Groups that a step knows by name."""
    groups = getattr(step, "groups_", None)
    return [] if groups is None else groups.tolist()

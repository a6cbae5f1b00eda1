"""``knnpress export``: a model as source code."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command
from knnpress.cli.output import check_apart, notice, print_facts

_LANGUAGES = {".c": "c", ".h": "c", ".hpp": "c", ".cpp": "c", ".js": "js", ".mjs": "js"}


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "export",
        "write a model as C or JavaScript that needs nothing else",
        "knnpress export model.knnp -o model.c",
        "A name that ends in .js makes JavaScript, one in .c makes C, and one in .h a header for C99 and C++17. The "
        "file says how it is called and what it needs.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.knnp")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    parser.add_argument("--to", choices=("c", "js"), help="language (default: by the ending of FILE)")
    parser.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        default="float64",
        help="of the tables and the arithmetic with them (default: float64)",
    )
    parser.add_argument(
        "--reject",
        type=float,
        metavar="R",
        help="answer -1 where a point is farther from every class than all but a share R of its training points",
    )
    parser.add_argument("--group", metavar="NAME", help="whose mean Recenter moves matrices by, where it knows several")


def run(args: argparse.Namespace) -> None:
    """Write a model as C or JavaScript; descriptors of images stay in Python."""
    from sklearn.pipeline import make_pipeline

    from knnpress.cli.queries import open_model
    from knnpress.descriptors import Recenter, SignalCovariance
    from knnpress.export import export_c, export_js
    from knnpress.files import check_output

    language = args.to or _LANGUAGES.get(args.output.suffix.lower())
    if language is None:
        raise ValueError(f"{args.output} should end in {', '.join(_LANGUAGES)}; or say --to c or --to js")
    check_output(args.output)
    check_apart(args.output, args.model)
    model = open_model(args.model, None)
    chain, stays = list(model.descriptors_), []
    while any(not isinstance(step, Recenter | SignalCovariance) for step in chain):
        stays.append(chain.pop(0))
    group = next((name for step in chain for name in _names(step) if str(name) == args.group), args.group)
    try:
        {"c": export_c, "js": export_js}[language](
            make_pipeline(*chain, model.classifier_), args.output, dtype=args.dtype, reject=args.reject, group=group
        )
    except TypeError as error:
        raise ValueError(f"{args.model}: {error}") from error
    if stays:
        names = ", ".join(type(step).__name__ for step in stays)
        notice(f"{args.output} takes the points that {names} makes, not images: descriptors of images stay in Python")
    print_facts({"source": str(args.output), "file size": f"{args.output.stat().st_size / 1000:.1f} KB"})


def _names(step: object) -> list[object]:
    """Groups that a step knows by name."""
    groups = getattr(step, "groups_", None)
    return [] if groups is None else groups.tolist()

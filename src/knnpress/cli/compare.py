"""``knnpress compare``: what works on the user's data."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from knnpress.cli.options import (
    add_command,
    add_groups_to_hold_out,
    add_image_options,
    add_labels,
    add_run_options,
    minutes,
)
from knnpress.cli.output import print_table


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "compare",
        "find out which descriptor, metric and size work on your data",
        "knnpress compare photos/ --minutes 5 -o comparison.html",
        "Tries candidates on held-out parts of the data, the cheapest first, prints a table of them, and recommends "
        "one with the command that makes it. FOLDER and POINTS as for compress.",
    )
    parser.add_argument("input", type=Path, metavar="FOLDER|POINTS")
    parser.add_argument("-o", "--output", type=Path, metavar="PAGE.html", help="write a page, too")
    parser.add_argument(
        "--minutes", type=minutes, default=5.0, metavar="M", help="nothing new is begun after so many (default: 5)"
    )
    parser.add_argument(
        "--descriptors", nargs="+", metavar="NAME", help="which to try on images (default: all that suit them)"
    )
    add_groups_to_hold_out(parser)
    add_labels(parser)
    add_image_options(parser)
    add_run_options(parser, seed=True)


def run(args: argparse.Namespace) -> None:
    """Compare candidates; print a table, a recommendation and the command that follows it."""
    from knnpress.cli.pictures import named
    from knnpress.comparison import compare
    from knnpress.files import check_output

    if args.output is not None and args.output.suffix not in (".html", ".htm"):
        raise ValueError(f"{args.output} should end in .html")
    check_output(args.output)
    X, y, settings = _read(args)
    try:
        found = compare(
            X,
            y,
            minutes=args.minutes,
            refit=False,
            random_state=args.seed,
            n_jobs=args.jobs,
            verbose=int(args.shown),
            **settings,
        )
    except ValueError as error:
        raise named(error, X) from error
    command = found.command(args.input, more=_options(args))
    left = {"", "descriptor", "points", "metric", "model", "folds"}
    header = found.header()
    print_table(header, found.rows(), right=[k for k, name in enumerate(header) if name not in left])
    print()
    recommendation, *rest = found.sentences()
    for sentence in rest:
        print(sentence)
    print(f"\n{recommendation}\n\n  {command}")
    if args.output is not None:
        found.save_page(args.output, command)
        print(f"\nThe page: {args.output}")


def _read(args: argparse.Namespace) -> tuple[Any, Any, dict[str, Any]]:
    """Images or points, the names of their classes, and what else `compare` is to know."""
    import numpy as np

    from knnpress.cli.pictures import describe
    from knnpress.cli.training import read_groups
    from knnpress.datasets import load_image_folder, load_points
    from knnpress.datasets.stored import is_zarr
    from knnpress.descriptors.by_name import make_descriptor

    if not args.input.exists():
        raise FileNotFoundError(f"{args.input} is not there; give a folder of images, or a file of points")
    if is_zarr(args.input):
        raise ValueError(f"{args.input} is a zarr store, which is not compared; save a part of it as .npz")
    if not args.input.is_dir():
        if args.descriptors is not None:
            raise ValueError(f"{args.input} holds points, which need no --descriptors; they are for folders of images")
        data = load_points(args.input, args.labels)
        kind = "matrices" if getattr(data.X, "ndim", 0) == 3 else "auto"  # clouds have no dimensions
        more = {"ground_cost": data.ground_cost, "groups": read_groups(args), "kind": kind}
        return data.X, np.array(data.class_names)[data.y], more
    if args.labels is not None:
        raise ValueError("--labels is for points; the class of an image is the sub-folder that it is in")
    folder = load_image_folder(args.input, masks=args.masks, depth=args.depth)
    groups, images = read_groups(args, folder), list(folder.images)
    rows = np.arange(len(images))
    if args.skip_bad:
        quickest = make_descriptor("grid-histogram", args.seed, args.jobs)
        _, rows = describe(quickest, images, fit=True, skip_bad=True, shown=False)
    settings: dict[str, Any] = {
        "groups": None if groups is None else groups[rows],
        "descriptors": args.descriptors,
        "kind": "images",
    }
    return [images[k] for k in rows], np.array(folder.class_names)[folder.y[rows]], settings


def _options(args: argparse.Namespace) -> list[str]:
    """Options of this command that the recommended one needs, too."""
    told: list[str] = []
    for name in ("labels", "masks", "depth", "groups"):
        if getattr(args, name) is not None:
            told += [f"--{name}", str(getattr(args, name))]
    told += ["--skip-bad"] if args.skip_bad else []
    return told if args.seed == 0 else [*told, "--seed", str(args.seed)]

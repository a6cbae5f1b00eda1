"""``knnpress describe``: points of the images of a folder."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command, add_descriptor, add_image_options, add_run_options
from knnpress.cli.output import notice, print_facts


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "describe",
        "turn images into points",
        "knnpress describe photos/ -o points.npz --descriptor bag-of-words",
        "FOLDER holds a sub-folder of images for each class. The file holds X, y, class_names and, for histograms, "
        "ground_cost.",
    )
    parser.add_argument("input", type=Path, metavar="FOLDER")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="POINTS.npz")
    add_descriptor(parser)
    add_image_options(parser)
    add_run_options(parser, seed=True)


def run(args: argparse.Namespace) -> None:
    """Describe images; write X, and y and class_names where sub-folders tell the classes, to a .npz file."""
    import numpy as np

    from knnpress.cli.pictures import describe, find_pictures, usual_descriptor
    from knnpress.clouds import Clouds
    from knnpress.descriptors import BagOfWords
    from knnpress.descriptors.by_name import make_descriptor
    from knnpress.files import check_output, replacing

    if args.output.suffix != ".npz":
        raise ValueError(f"{args.output} should end in .npz")
    check_output(args.output)
    pictures = find_pictures([args.input], args.masks, args.depth)
    labelled = any(folder is not None for folder in pictures.folders)
    chosen = [k for k, folder in enumerate(pictures.folders) if folder is not None or not labelled]
    images = [pictures.files[k] for k in chosen]
    descriptor = make_descriptor(args.descriptor or usual_descriptor(images), args.seed, args.jobs)
    X, rows = describe(descriptor, images, fit=True, skip_bad=args.skip_bad, shown=args.shown)
    arrays: dict[str, Any] = X.arrays() if isinstance(X, Clouds) else {"X": X}
    if labelled:
        names, y = np.unique([str(pictures.folders[chosen[row]]) for row in rows], return_inverse=True)
        arrays |= {"y": y, "class_names": names}
    if hasattr(descriptor, "ground_cost_"):
        arrays["ground_cost"] = descriptor.ground_cost_
    with replacing(args.output) as file:
        np.savez(file, **arrays)
    if isinstance(descriptor, BagOfWords):
        notice(
            "the vocabulary was made from these images and is not kept, so points of other images will not match; "
            "knnpress compress FOLDER keeps it in the model"
        )
    classes = f"{len(arrays['class_names'])} classes" if labelled else "no classes, since there are no sub-folders"
    shape = repr(X) if isinstance(X, Clouds) else " x ".join(map(str, X.shape))
    print_facts({"points": str(args.output), "X": shape, "y": classes})

"""``knnpress inspect``: what a model contains."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command, add_groups_to_recenter


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "inspect",
        "show what a model contains",
        "knnpress inspect model.knnp",
        "For covariance matrices, a bar for each channel says how much it contributes to decisions; below zero, it "
        "speaks against them. With --points, decisions about these, and an array 'channels' of the file names the "
        "channels; otherwise about the prototypes.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.knnp")
    parser.add_argument("--points", type=Path, metavar="POINTS", help="a .npz, .npy or .mat file to explain")
    add_groups_to_recenter(parser)


def run(args: argparse.Namespace) -> None:
    """Print what a model file holds."""
    from knnpress.cli.contents import print_contents

    print_contents(args.model, args.points, args.groups)

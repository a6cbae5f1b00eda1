"""Options that several commands share, and how their numbers are read. Quick to import, so that help comes at once."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from knnpress.names import DESCRIPTORS, command_name

Number = TypeVar("Number", int, float)


class CommandParser(argparse.ArgumentParser):
    """A parser whose errors end with what its help ends with: the example of a command."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong, and end with status 2."""
        super().error(f"{message}\n{self.epilog}")

    def refuse(self, words: Sequence[str]) -> NoReturn:
        """Say why words were left over."""
        options = [word for word in words if word.startswith("-")]
        if not options:
            self.error(f"{words[0]!r} is one argument too many")
        known = re.findall(r"--[a-z][a-z-]+", self.format_help())
        close = get_close_matches(options[0], known, n=1)
        advice = f"did you mean {close[0]}?" if close else f"{self.prog} --help shows all options"
        self.error(f"there is no {options[0]}; {advice}")


def add_command(commands: Any, name: str, summary: str, example: str, more: str = "") -> CommandParser:
    """The parser of a command, with what every command has."""
    parser: CommandParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {more}", epilog=f"Example: {example}"
    )
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    parser.set_defaults(parser=parser)
    return parser


def add_training_options(parser: argparse.ArgumentParser, methods: dict[str, str]) -> None:
    """What a model is made of, and how: `methods` is `METHODS` or a part of it."""
    parser.add_argument("input", type=Path, metavar="FOLDER|POINTS")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--ratio", type=share, metavar="R", help="prototypes, as a share of the data (default: 0.02)")
    size.add_argument("--prototypes", type=count, metavar="N", help="how many prototypes")
    size.add_argument("--auto", action="store_true", help="as few prototypes as lose little")
    parser.add_argument(
        "--method",
        type=one_of(methods),
        metavar="NAME",
        help=f"{', '.join(methods)} (default: scc for matrices, swc for clouds, shc where there is a ground cost, else "
        "snc)",
    )
    add_labels(parser)
    add_descriptor(parser)
    add_image_options(parser)
    add_run_options(parser, seed=True)


def add_groups_to_hold_out(parser: argparse.ArgumentParser) -> None:
    """Groups that cross-validation keeps together."""
    parser.add_argument(
        "--groups",
        metavar="NAME",
        help="hold whole groups out: an array of POINTS or a column of the labels' file, e.g. subject; for images "
        "laid out as <class>/<group>/<name>.png, parent-folder",
    )


def add_groups_to_recenter(parser: argparse.ArgumentParser) -> None:
    """Groups that a model re-centres by."""
    parser.add_argument(
        "--groups",
        metavar="NAME",
        help="for models that re-centre: the subject or session of all points, or an array of the file, one for each",
    )


def add_labels(parser: argparse.ArgumentParser) -> None:
    """A file of labels."""
    parser.add_argument("--labels", type=Path, metavar="CSV", help="labels of the points, if they are in another file")


def add_descriptor(parser: argparse.ArgumentParser) -> None:
    """What describes images."""
    names = ", ".join(DESCRIPTORS)
    parser.add_argument(
        "--descriptor",
        type=one_of(DESCRIPTORS),
        metavar="NAME",
        help=f"{names} (default: color-texture; for gray images, gradient)",
    )


def add_companions(parser: argparse.ArgumentParser) -> None:
    """What belongs to images."""
    parser.add_argument("--masks", type=Path, metavar="FOLDER", help="masks, laid out like the images")
    parser.add_argument("--depth", type=Path, metavar="FOLDER", help="depth maps, laid out like the images")


def add_image_options(parser: argparse.ArgumentParser) -> None:
    """What belongs to images, and whether bad ones matter."""
    add_companions(parser)
    parser.add_argument("--skip-bad", action="store_true", help="leave out images that cannot be read")


def add_run_options(parser: argparse.ArgumentParser, seed: bool = False) -> None:
    """Threads, progress and, for what is random, a seed."""
    if seed:
        parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all that is random (default: 0)")
    parser.add_argument("--jobs", type=threads, metavar="N", help="threads (default: all cores)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show progress even where there is no terminal")


def one_of(table: Mapping[str, Any]) -> Callable[[str], str]:
    """Read a name of `DESCRIPTORS`, `METHODS` or `METRICS`, however it is written."""

    def read(text: str) -> str:
        name = command_name(text, table)
        if name not in table:
            raise argparse.ArgumentTypeError(f"{text!r} is unknown; {choice(text, table)}")
        return name

    return read


def choice(text: str, known: Iterable[str]) -> str:
    """What the user may have meant, or all that there is to choose from."""
    known = list(known)
    close = get_close_matches(text.lower(), known, n=1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"


def share(text: str) -> float:
    """A number above 0, up to 1."""
    return _number(text, float, lambda x: 0 < x <= 1, "is not a share; give a number above 0, up to 1, e.g. 0.02")


def minutes(text: str) -> float:
    """A number above 0."""
    return _number(text, float, lambda x: x > 0, "is not a time; give minutes, e.g. 5")


def threads(text: str) -> int:
    """Any whole number but 0."""
    return _number(text, int, lambda x: x != 0, "is not a number of threads; give 1 or more, or -1 for all cores")


def count(text: str) -> int:
    """A whole number from 1."""
    return _number(text, int, lambda x: x >= 1, "is not a count; give 1 or more")


def _number(text: str, kind: type[Number], fits: Callable[[Number], bool], otherwise: str) -> Number:
    try:
        value = kind(text)
    except ValueError:
        value = None
    if value is None or not fits(value):
        raise argparse.ArgumentTypeError(f"{text} {otherwise}")
    return value

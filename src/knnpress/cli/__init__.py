"""The command line: images or points in, small models and predictions out."""

from __future__ import annotations

import argparse
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from knnpress import _core
from knnpress.cli.output import drop_output, notice, open_streams
from knnpress.names import DESCRIPTORS, LEARNED, METHODS, METRICS, command_name

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0: done. 1: `doctor` has found something wrong. 2: an error of the user's. 130: Ctrl-C. 143: SIGTERM.
    """
    open_streams()
    args = _parser().parse_args(argv)
    status: int | None = 0
    args.shown = getattr(args, "verbose", False) or sys.stderr.isatty()
    try:
        with warnings.catch_warnings(), _termination_as_interrupt():
            warnings.simplefilter("ignore")
            warnings.simplefilter("default", UserWarning)
            warnings.showwarning = lambda message, *_, **__: notice(str(message))
            status = import_module(f"knnpress.cli.{args.command}").run(args)
            sys.stdout.flush()
    except BrokenPipeError:  # whoever read our output has seen enough
        drop_output()
    except (ValueError, OSError, ImportError, KeyboardInterrupt) as error:
        if args.debug:
            raise
        stopped = isinstance(error, KeyboardInterrupt)
        notice("stopped" if stopped else _sentence(error))
        if isinstance(error, OSError):  # a full disk behind the output would speak up again at the end
            drop_output()
        return 143 if isinstance(error, _Terminated) else 130 if stopped else 2
    return status or 0


class _Terminated(KeyboardInterrupt):
    """What a SIGTERM becomes."""


@contextmanager
def _termination_as_interrupt() -> Iterator[None]:
    """Let a SIGTERM end the block as Ctrl-C does: half-written files are removed on the way."""

    def stop(*_: object) -> None:
        raise _Terminated

    try:
        before = signal.signal(signal.SIGTERM, stop)
    except ValueError:  # not in the main thread, where signals are not for us to take
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _sentence(error: BaseException) -> str:
    """What went wrong; the system's own errors name the file first."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="knnpress",
        description="Nearest-neighbour classification of images, covariance matrices and histograms from a few learned "
        "prototypes.",
        epilog="knnpress COMMAND --help shows the options of a command and an example.",
    )
    about = f"knnpress {version('knnpress')} (instruction set {_core.target()}, of {', '.join(_core.targets())})"
    parser.add_argument("--version", action="version", version=about)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    _add(commands, "demo", "classify the digits that ship with scikit-learn", "knnpress demo")

    describe = _add(
        commands,
        "describe",
        "make points of images",
        "knnpress describe photos/ -o points.npz --descriptor bag-of-words",
        "FOLDER holds a sub-folder of images for each class. The file holds X, y, class_names and, for histograms, "
        "ground_cost.",
    )
    describe.add_argument("input", type=Path, metavar="FOLDER")
    describe.add_argument("-o", "--output", type=Path, required=True, metavar="POINTS.npz")
    _add_descriptor(describe)
    _add_image_options(describe)
    _add_run_options(describe, seed=True)

    compress = _add(
        commands,
        "compress",
        "learn a small model from images or points",
        "knnpress compress photos/ -o model.knnp --ratio 0.02",
        "FOLDER holds a sub-folder of images for each class; the model takes images then. POINTS is a file, or a zarr "
        "group with the arrays X and y, which may be larger than memory.",
    )
    _add_training(compress, METHODS)
    compress.add_argument("-o", "--output", type=Path, required=True, metavar="MODEL.knnp")
    compress.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="file that keeps the state of the learning: the same command goes on where it was stopped",
    )
    compress.add_argument("--batch-size", type=_count, metavar="N", help="points in a step of learning (default: all)")
    compress.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="learn from a zarr store on a Dask cluster, e.g. tcp://host:8786, or local for one on this machine",
    )

    compress.add_argument(
        "--metric", choices=METRICS, metavar="NAME", help=f"{', '.join(METRICS)} (default: what suits the points best)"
    )
    _add_held_out_groups(compress)

    compare = _add(
        commands,
        "compare",
        "find out which descriptor, metric and size work on your data",
        "knnpress compare photos/ --minutes 5 -o comparison.html",
        "Tries candidates on held-out parts of the data, the cheapest first, prints a table of them, and recommends "
        "one with the command that makes it. FOLDER and POINTS as for compress.",
    )
    compare.add_argument("input", type=Path, metavar="FOLDER|POINTS")
    compare.add_argument("-o", "--output", type=Path, metavar="PAGE.html", help="write a page, too")
    compare.add_argument(
        "--minutes", type=_minutes, default=5.0, metavar="M", help="begin nothing new after that (default: 5)"
    )
    compare.add_argument(
        "--descriptors", nargs="+", metavar="NAME", help="which to try on images (default: all that suit them)"
    )
    _add_held_out_groups(compare)
    _add_labels(compare)
    _add_image_options(compare)
    _add_run_options(compare, seed=True)

    predict = _add(
        commands,
        "predict",
        "tell the classes of images or points",
        "knnpress predict model.knnp new_photos/ -o out.csv",
        "The columns are item (the path in FOLDER, or the row), prediction, probability; with --reject, rejected.",
    )
    predict.add_argument("model", type=Path, metavar="MODEL.knnp")
    predict.add_argument("inputs", type=Path, nargs="+", metavar="FOLDER|IMAGE|POINTS")
    predict.add_argument("-o", "--output", type=Path, metavar="OUT.csv", help="without it, the output is printed")
    predict.add_argument(
        "--reject",
        type=float,
        metavar="SHARE",
        help="mark items farther from the prototypes of every class than all but this share of its training points",
    )
    _add_groups(predict)
    _add_image_options(predict)
    _add_run_options(predict)

    evaluate = _add(
        commands,
        "evaluate",
        "measure the error and the speed of a model",
        "knnpress evaluate model.knnp held_out_photos/",
        "Prints the error with a 95 % interval, how often each class was taken for each, and microseconds a query.",
    )
    evaluate.add_argument("model", type=Path, metavar="MODEL.knnp")
    evaluate.add_argument("inputs", type=Path, nargs=1, metavar="FOLDER|POINTS")
    _add_labels(evaluate)
    _add_groups(evaluate)
    _add_image_options(evaluate)
    _add_run_options(evaluate)

    tune = _add(
        commands,
        "tune",
        "search for good settings of a learned model",
        "knnpress tune photos/ --trials 30 --storage search.db -o model.knnp",
        "With --storage, the same command goes on where it was stopped.",
    )
    _add_training(tune, LEARNED)
    tune.add_argument("-o", "--output", type=Path, metavar="MODEL.knnp", help="learn and save a model with the best")
    tune.add_argument("--trials", type=_count, default=20, metavar="N", help="settings to try (default: 20)")
    tune.add_argument("--storage", type=Path, metavar="FILE", help="file that keeps the trials")

    experiment = _add(
        commands,
        "experiment",
        "compare methods, sizes and data as a plan says",
        "knnpress experiment digits -o results/",
        "PLAN is a .toml file, or the name of a plan that ships with knnpress: demo, digits, eth80, coil20, mpeg7, "
        "kylberg, scene15, kth, fpha, or paper for all of the paper's; or a folder of images or a file of points, on "
        "which the usual methods are tried. The same command goes on where it was stopped.",
    )
    experiment.add_argument("plan", metavar="PLAN|FOLDER|POINTS")
    experiment.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="of the records")
    experiment.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="local copies of research data (default: KNNPRESS_DATA)"
    )
    experiment.add_argument("--only", nargs="+", metavar="DATA", help="data sets to run now (default: all)")
    experiment.add_argument(
        "--jobs", type=_threads, metavar="N", help="runs at a time (default: 1, each on all cores, to time them)"
    )

    report = _add(
        commands,
        "report",
        "make a page of the results of an experiment",
        "knnpress report results/ -o report.html",
        "The page needs nothing else, no network either. Its figures and tables are also written as files.",
    )
    report.add_argument("results", type=Path, metavar="RESULTS", help="folder that knnpress experiment wrote")
    report.add_argument("-o", "--output", type=Path, required=True, metavar="REPORT.html")
    report.add_argument("--files", type=Path, metavar="FOLDER", help="of figures and tables (default: REPORT_files)")
    report.add_argument("--no-images", dest="images", action="store_false", help="show no images of the data")

    inspect = _add(
        commands,
        "inspect",
        "show what a model contains",
        "knnpress inspect model.knnp",
        "Of covariance matrices, a bar for each channel says how much it has to do with what is decided; below zero, "
        "it speaks against. With --points about these, and an array 'channels' of the file names them; else about the "
        "prototypes.",
    )
    inspect.add_argument("model", type=Path, metavar="MODEL.knnp")
    inspect.add_argument("--points", type=Path, metavar="POINTS", help="a .npz, .npy or .mat file to explain")
    _add_groups(inspect)

    export = _add(
        commands,
        "export",
        "write a model as C or JavaScript that needs nothing else",
        "knnpress export model.knnp -o model.c",
        "A name that ends in .h makes a header for C99 and C++17. The file says how it is called and what it needs.",
    )
    export.add_argument("model", type=Path, metavar="MODEL.knnp")
    export.add_argument("-o", "--output", type=Path, required=True, metavar="FILE")
    export.add_argument("--to", choices=("c", "js"), default="c", help="language (default: c)")
    export.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        default="float64",
        help="of the tables and the arithmetic with them (default: float64)",
    )
    export.add_argument(
        "--reject",
        type=float,
        metavar="R",
        help="answer -1 where a point is farther from every class than all but a share R of its training points",
    )
    export.add_argument("--group", metavar="NAME", help="whose mean Recenter moves matrices by, where it knows several")

    doctor = _add(
        commands,
        "doctor",
        "say what is wrong with images or points and how to mend it",
        "knnpress doctor points.npz --fix -o mended.npz",
        "POINTS is a .npz, .npy or .mat file, or a zarr group; FOLDER holds a sub-folder of images for each class. The "
        "exit status is 0 where all is well, and 1 where something is wrong. Nothing is ever changed.",
    )
    doctor.add_argument("input", type=Path, metavar="POINTS|FOLDER")
    _add_labels(doctor)
    doctor.add_argument(
        "--fix", action="store_true", help="write a mended copy; with it, the exit status is the copy's"
    )
    doctor.add_argument("-o", "--output", type=Path, metavar="MENDED.npz")
    doctor.add_argument(
        "--shrinkage", type=_share, metavar="S", help="of all matrices of the copy (default: what is needed, if it is)"
    )
    return parser


def _add(commands: Any, name: str, summary: str, example: str, more: str = "") -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}. {more}", epilog=f"Example: {example}"
    )
    parser.add_argument("--debug", action="store_true", help="show where an error comes from")
    return parser


def _add_training(parser: argparse.ArgumentParser, methods: dict[str, str]) -> None:
    parser.add_argument("input", type=Path, metavar="FOLDER|POINTS")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--ratio", type=_share, metavar="R", help="prototypes, as a share of the data (default: 0.02)")
    size.add_argument("--prototypes", type=_count, metavar="N", help="how many prototypes")
    size.add_argument("--auto", action="store_true", help="as few prototypes as lose little")
    parser.add_argument(
        "--method",
        type=lambda name: command_name(name, methods),
        choices=methods,
        metavar="NAME",
        help=f"{', '.join(methods)} (default: scc for matrices, swc for clouds, shc where there is a ground cost, else "
        "snc)",
    )
    _add_labels(parser)
    _add_descriptor(parser)
    _add_image_options(parser)
    _add_run_options(parser, seed=True)


def _add_held_out_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--groups",
        metavar="NAME",
        help="hold whole groups out: an array of POINTS or a column of the labels' file, e.g. subject; for images "
        "laid out as <class>/<group>/<name>.png, parent-folder",
    )


def _add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=Path, metavar="CSV", help="labels of the points, if they are in another file")


def _add_descriptor(parser: argparse.ArgumentParser) -> None:
    names = ", ".join(DESCRIPTORS)
    parser.add_argument(
        "--descriptor",
        type=lambda name: command_name(name, DESCRIPTORS),
        choices=DESCRIPTORS,
        metavar="NAME",
        help=f"{names} (default: color-texture; of gray images, gradient)",
    )


def _add_groups(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--groups",
        metavar="NAME",
        help="for models that re-centre: the subject or session of all points, or an array of the file, one for each",
    )


def _add_image_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--masks", type=Path, metavar="FOLDER", help="masks, laid out like the images")
    parser.add_argument("--depth", type=Path, metavar="FOLDER", help="depth maps, laid out like the images")
    parser.add_argument("--skip-bad", action="store_true", help="leave out images that cannot be read")


def _add_run_options(parser: argparse.ArgumentParser, seed: bool = False) -> None:
    if seed:
        parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all that is random (default: 0)")
    parser.add_argument("--jobs", type=_threads, metavar="N", help="threads (default: all cores)")
    parser.add_argument("-v", "--verbose", action="store_true", help="show progress even where there is no terminal")


def _share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share; give a number above 0, up to 1, e.g. 0.02")
    return value


def _minutes(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} is no time; give minutes, e.g. 5")
    return value


def _threads(text: str) -> int:
    value = int(text)
    if value == 0:
        raise argparse.ArgumentTypeError("0 is no number of threads; give 1 or more, or -1 for all cores")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is no count; give 1 or more")
    return value

"""The command line: images or points in, small models and predictions out.

A command is a module here: `add_parser` says what it takes, `run` does it and imports there what is slow to import, so
that help comes at once.
"""

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

from knnpress import _core
from knnpress.cli.options import CommandParser, choice
from knnpress.cli.output import drop_output, notice, open_streams

__all__ = ["COMMANDS", "main"]

#: In the order of the help
COMMANDS = (
    *("demo", "describe", "compress", "compare", "predict", "evaluate"),
    *("tune", "experiment", "report", "inspect", "export", "doctor"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    0: done. 1: `doctor` has found something wrong. 2: an error of the user's. 129: SIGHUP, of a closed terminal. 130:
    Ctrl-C. 143: SIGTERM.
    """
    open_streams()
    args = _parse(argv)
    status: int | None = 0
    args.shown = getattr(args, "verbose", False) or sys.stderr.isatty()
    try:
        with warnings.catch_warnings(), _ends_as_interrupts():
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
        return error.status if isinstance(error, _Ended) else 130 if stopped else 2
    return status or 0


class _Ended(KeyboardInterrupt):
    """What a SIGTERM or SIGHUP becomes."""

    def __init__(self, number: int = signal.SIGTERM) -> None:
        super().__init__()
        self.status = 128 + number


@contextmanager
def _ends_as_interrupts() -> Iterator[None]:
    """Let SIGTERM, and SIGHUP of a closed terminal, end the block as Ctrl-C does.

    Half-written files are removed on the way, and so are processes that were started.
    """

    def stop(number: int, _: object) -> None:
        raise _Ended(number)

    numbers = [
        getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)
    ]  # Windows has no SIGHUP
    before = {}
    try:
        for number in numbers:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup wants it
                before[number] = signal.signal(number, stop)
    except ValueError:  # not in the main thread, where signals are not for us to take
        pass
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sentence(error: BaseException) -> str:
    """What went wrong; the system's own errors name the file first."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser, words = _parser(), list(sys.argv[1:] if argv is None else argv)
    if not words:
        parser.print_help(sys.stderr)
        parser.exit(2)
    first = words[0]
    if not first.startswith("-") and first not in COMMANDS:
        if Path(first).exists():
            parser.error(
                f"{first} is a folder or file; say first what to do with it, e.g. knnpress compress {first} -o "
                "model.knnp"
            )
        parser.error(f"{first!r} is not a command; {choice(first, COMMANDS)}")
    args, unknown = parser.parse_known_args(words)
    if unknown:
        args.parser.refuse(unknown)
    return args


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="knnpress",
        description="Nearest-neighbour classification of images, covariance matrices and histograms from a few learned "
        "prototypes.",
        epilog="knnpress COMMAND --help shows the options of a command and an example.",
    )
    about = f"knnpress {version('knnpress')} (instruction set {_core.target()}, of {', '.join(_core.targets())})"
    parser.add_argument("--version", action="version", version=about)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        import_module(f"knnpress.cli.{name}").add_parser(commands)
    return parser

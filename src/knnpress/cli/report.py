"""``knnpress report``: a page of the results of an experiment."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command
from knnpress.cli.output import check_apart, notice, print_facts

_READ = (".json", ".jsonl", ".npz")  # endings of what an experiment writes


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "report",
        "make a page of the results of an experiment",
        "knnpress report results/ -o report.html",
        "The page needs nothing else, no network either. Its figures and tables are also written as files.",
    )
    parser.add_argument("results", type=Path, metavar="RESULTS", help="folder that knnpress experiment wrote")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="REPORT.html")
    parser.add_argument("--files", type=Path, metavar="FOLDER", help="of figures and tables (default: REPORT_files)")
    parser.add_argument("--no-images", dest="images", action="store_false", help="show no images of the data")


def run(args: argparse.Namespace) -> None:
    """Write the page and its files, and say how ours fares."""
    from knnpress.report import write_report

    check_apart(args.output, *(path for path in args.results.glob("**/*") if path.suffix in _READ))
    written = write_report(args.results, args.output, args.files, images=args.images)
    for text in written.notices:
        notice(text)
    print_facts({"page": str(written.page), "figures and tables": str(written.files)})
    print(written.verdict)

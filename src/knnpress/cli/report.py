"""``knnpress report``: a page of the results of an experiment."""

from __future__ import annotations

import argparse

from knnpress.cli.output import notice, print_facts
from knnpress.report import write_report

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Write the page and its files, and say how ours fares."""
    written = write_report(args.results, args.output, args.files, images=args.images)
    for text in written.notices:
        notice(text)
    print_facts({"page": str(written.page), "figures and tables": str(written.files)})
    print(written.verdict)

"""``knnpress demo``: all methods on the digits that ship with scikit-learn, and a page of what came out."""

from __future__ import annotations

import argparse
from pathlib import Path

from knnpress.cli.experiment import work_off
from knnpress.cli.output import notice, print_table
from knnpress.experiments import load_plan
from knnpress.parallel import resolve_n_jobs
from knnpress.report import write_report

__all__ = ["run"]

_FOLDER = Path("knnpress-demo")


def run(args: argparse.Namespace) -> None:
    """Run the plan "demo", print ours against the full set, and write the report."""
    print("Handwritten digits, half to train and half to test, twice: 600 as covariances, 300 as histograms")
    work_off(load_plan("demo"), _FOLDER, n_jobs=min(2, resolve_n_jobs()))  # side by side no core waits
    written = write_report(_FOLDER, _FOLDER / "report.html")
    for text in written.notices:
        notice(text)
    for table in written.overview:
        print(f"\n{table.title}")
        rows = [[cell.text for cell in row] for _, group in table.groups for row in group]
        print_table([column.title for column in table.columns], rows, right=range(1, len(table.columns)))
    print(f"\n{written.verdict}\nreport: {written.page}")

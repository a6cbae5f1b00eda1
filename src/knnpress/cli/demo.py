"""``knnpress demo``: learned prototypes on the digits that ship with scikit-learn, and a page of what came out."""

from __future__ import annotations

import argparse
import textwrap
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command
from knnpress.cli.output import notice

_FOLDER = Path("knnpress-demo")


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    add_command(commands, "demo", "classify the digits that ship with scikit-learn", "knnpress demo")


def run(args: argparse.Namespace) -> None:
    """Run the plan "demo", write the report, and say what came out on each data set."""
    from knnpress.cli.experiment import run_with_progress
    from knnpress.execution.threads import resolve_n_jobs
    from knnpress.experiments import load_plan
    from knnpress.report import write_report

    print("400 handwritten digits, half to train and half to test, five times over: about a minute", flush=True)
    run_with_progress(load_plan("demo"), _FOLDER, n_jobs=min(2, resolve_n_jobs()))  # side by side no core waits
    written = write_report(_FOLDER, _FOLDER / "report.html")
    for text in written.notices:
        notice(text)
    for title, message in written.messages.items():
        print(f"\n{title}\n  {message.headline}")
        for text in filter(None, (message.judgement, message.speed)):
            print(textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  "))
    print(f"\nCurves, prototypes and a box to draw a digit in: {written.page}")

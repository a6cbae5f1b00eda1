"""``knnpress experiment``: run a plan, or go on with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knnpress.cli.options import add_command, threads
from knnpress.cli.output import notice

if TYPE_CHECKING:
    from knnpress.experiments import Plan


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "experiment",
        "compare methods, sizes and data as a plan says",
        "knnpress experiment digits -o results/",
        "PLAN is a .toml file, or the name of a plan that ships with knnpress: demo, digits, eth80, coil20, mpeg7, "
        "kylberg, scene15, kth, fpha, or paper for all of the paper's; or a folder of images or a file of points, on "
        "which the usual methods are tried. The same command goes on where it was stopped.",
    )
    parser.add_argument("plan", metavar="PLAN|FOLDER|POINTS")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="of the records")
    parser.add_argument(
        "--data-dir", type=Path, metavar="FOLDER", help="local copies of research data (default: KNNPRESS_DATA)"
    )
    parser.add_argument("--only", nargs="+", metavar="DATA", help="data sets to run now (default: all)")
    parser.add_argument(
        "--jobs", type=threads, metavar="N", help="runs at a time (default: 1, each on all cores, to time them)"
    )


def run(args: argparse.Namespace) -> None:
    """Run the plan, and say what can be made of it."""
    from knnpress.experiments import load_plan

    try:
        path = run_with_progress(load_plan(args.plan), args.output, args.data_dir, args.jobs or 1, args.only)
    except ValueError as error:
        if not str(error).startswith("images["):
            raise
        raise ValueError(f"{error}; knnpress doctor {args.plan} names all such images") from error
    print(f"records: {path}")
    print(f"a page of them: knnpress report {args.output} -o report.html")


def run_with_progress(
    plan: Plan, folder: Path, data_dir: Path | None = None, n_jobs: int = 1, only: list[str] | None = None
) -> Path:
    """Run what is left of a plan; a bar on a terminal, a line for each run elsewhere."""
    from knnpress.experiments import run_plan
    from knnpress.progress import progress_bar

    with progress_bar(plan.name, sys.stderr.isatty()) as bar:

        def follow(step: int, total: int | None, facts: dict[str, Any]) -> None:
            if bar is None:
                notice(f"{step}/{total} {facts['now']}; {facts['left']}")
            else:
                bar(step, total, facts)

        return run_plan(plan, folder, data_dir=data_dir, only=only, n_jobs=n_jobs, callback=follow, tell=notice)

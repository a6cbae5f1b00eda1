"""``knnpress experiment``: run a plan, or go on with it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from knnpress.cli.output import notice
from knnpress.experiments import Plan, load_plan, run_plan
from knnpress.progress import progress_bar

__all__ = ["run", "work_off"]


def run(args: argparse.Namespace) -> None:
    """Work off the plan, and say what can be made of it."""
    path = work_off(load_plan(args.plan), args.output, args.data_dir, args.jobs or 1, args.only)
    print(f"records: {path}")
    print(f"a page of them: knnpress report {args.output} -o report.html")


def work_off(
    plan: Plan, folder: Path, data_dir: Path | None = None, n_jobs: int = 1, only: list[str] | None = None
) -> Path:
    """Run what is left of a plan; a bar on a terminal, a line a run elsewhere."""
    with progress_bar(plan.name, sys.stderr.isatty()) as bar:

        def follow(step: int, total: int | None, facts: dict[str, Any]) -> None:
            if bar is None:
                notice(f"{step}/{total} {facts['now']}; {facts['left']}")
            else:
                bar(step, total, facts)

        return run_plan(plan, folder, data_dir=data_dir, only=only, n_jobs=n_jobs, callback=follow, tell=notice)

"""``knnpress experiment``: run a plan, or go on with it."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from knnpress.cli.output import notice
from knnpress.experiments import load_plan, run_plan
from knnpress.progress import progress_bar

__all__ = ["run"]


def run(args: argparse.Namespace) -> None:
    """Work off the plan; a bar on a terminal, a line a run elsewhere."""
    plan = load_plan(args.plan)
    terminal = sys.stderr.isatty()

    def tell(sentence: str) -> None:
        notice(sentence)

    with progress_bar(plan.name, terminal) as bar:

        def follow(step: int, total: int | None, facts: dict[str, Any]) -> None:
            if bar is not None:
                bar(step, total, facts)
            else:
                notice(f"{step}/{total} {facts['now']}; {facts['left']}")

        path = run_plan(plan, args.output, data_dir=args.data_dir, n_jobs=args.jobs or 1, callback=follow, tell=tell)
    print(f"records: {path}")
    print(f"a page of them: knnpress report {args.output} -o report.html")

"""``knnpress tune``: a search for good settings of a learned model."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from knnpress.cli.options import add_command, add_training_options, count
from knnpress.cli.output import check_apart, print_facts, print_table
from knnpress.names import LEARNED


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "tune",
        "search for good settings of a learned model",
        "knnpress tune photos/ --trials 30 --storage search.db -o model.knnp",
        "With --storage, the same command goes on where it was stopped.",
    )
    add_training_options(parser, LEARNED)
    parser.add_argument("-o", "--output", type=Path, metavar="MODEL.knnp", help="learn and save a model with the best")
    parser.add_argument("--trials", type=count, default=20, metavar="N", help="settings to try (default: 20)")
    parser.add_argument("--storage", type=Path, metavar="FILE", help="file that keeps the trials")


def run(args: argparse.Namespace) -> None:
    """Try settings, print how well each did, and learn a model with the best, if a file for it is given."""
    from knnpress.cli.training import fit_and_save, make_classifier, read_training_set
    from knnpress.compression.tuning import tune
    from knnpress.files import check_output

    check_output(args.output)
    check_apart(args.output, args.input, args.labels, args.masks, args.depth)
    data = read_training_set(args)
    classifier = make_classifier(args, data)
    found = tune(
        classifier,
        data.X,
        data.y,
        n_trials=args.trials,
        storage=args.storage,
        random_state=args.seed,
        n_jobs=args.jobs,
        verbose=int(args.shown),
    )
    rows = [
        [
            str(number),
            "failed" if trial["failure"] else f"{1 - trial['score']:.2%}",
            f"{trial['seconds']:.1f}",
            _settings(trial["params"]),
        ]
        for number, trial in enumerate(found.trials, 1)
    ]
    print_table(["trial", "held-out error", "seconds", "settings"], rows, right=(0, 1, 2))
    print()
    print_facts({"best": _settings(found.best_params), "error in the search": f"{1 - found.best_score:.2%}, held out"})
    if args.output is not None:
        print()
        fit_and_save(found.estimator, data, args.output)


def _settings(params: dict[str, Any]) -> str:
    return ", ".join(
        f"{name}={f'{value:.4g}' if isinstance(value, float) else value}" for name, value in params.items()
    )

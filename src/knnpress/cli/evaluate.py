"""``knnpress evaluate``: how often a model errs, and where, and how fast it is."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from knnpress.cli.options import add_command, add_groups_to_recenter, add_image_options, add_labels, add_run_options
from knnpress.cli.output import notice, print_facts, print_table

if TYPE_CHECKING:
    from knnpress.typing import Labels

_WIDEST = 16  # classes of which a table can be read
_WORST = 20
_ENOUGH = 0.5  # seconds that are timed well


def add_parser(commands: Any) -> None:
    """Say what the command takes."""
    parser = add_command(
        commands,
        "evaluate",
        "measure the error and the speed of a model",
        "knnpress evaluate model.knnp held_out_photos/",
        "Prints the error with a 95 % interval, how often each class was taken for another, and the time per query.",
    )
    parser.add_argument("model", type=Path, metavar="MODEL.knnp")
    parser.add_argument("inputs", type=Path, nargs=1, metavar="FOLDER|POINTS")
    add_labels(parser)
    add_groups_to_recenter(parser)
    add_image_options(parser)
    add_run_options(parser)


def run(args: argparse.Namespace) -> None:
    """Compare predictions with the true classes."""
    import numpy as np
    from scipy.stats import binomtest

    from knnpress.cli.queries import open_model, read_queries

    model = open_model(args.model, args.jobs)
    queries = read_queries(model, args, labelled=True)
    assert queries.labels is not None
    times: list[float] = []
    while not times or (len(times) < 3 and sum(times) < _ENOUGH):
        start = time.perf_counter()
        predicted = model.classifier_.predict(queries.X).astype(str)
        times.append(time.perf_counter() - start)
    truth, n = queries.labels.astype(str), len(queries.labels)
    classes = model.classifier_.classes_.astype(str)
    strangers = np.setdiff1d(truth, classes)
    if len(strangers):
        notice(f"the model does not know {', '.join(map(repr, strangers.tolist()))}; all of these count as errors")
    wrong = int((truth != predicted).sum())
    interval = binomtest(wrong, n).proportion_ci(method="wilson")
    facts = {
        "items": str(n),
        "wrong": str(wrong),
        "error": f"{wrong / n:.2%}",
        "95 % interval": f"{interval.low:.2%} to {interval.high:.2%} (Wilson)",
        "to classify": f"{1e6 * min(times) / n:.1f} µs per query",
    }
    if model.descriptors_:
        facts["to describe"] = f"{1e3 * queries.seconds / n:.1f} ms per {'image' if model.takes_images else 'point'}"
    print_facts(facts)
    print()
    _print_confusion(truth, predicted, [*classes, *strangers])


def _print_confusion(truth: Labels, predicted: Labels, classes: list[str]) -> None:
    """How often each class was taken for each; with many classes, the most frequent errors."""
    counts = Counter(zip(truth.tolist(), predicted.tolist(), strict=True))
    if len(classes) <= _WIDEST:
        rows = [[true, *(str(counts[true, guess]) for guess in classes)] for true in classes]
        print_table(["true \\ predicted", *classes], rows, right=range(1, len(classes) + 1))
        return
    errors = [(pair, k) for pair, k in counts.most_common() if pair[0] != pair[1]]
    print_table(["true", "predicted", "times"], [[*pair, str(k)] for pair, k in errors[:_WORST]], right=(2,))

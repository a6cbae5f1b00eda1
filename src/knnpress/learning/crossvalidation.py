"""Cross-validation of whole fits: which geometry and which setting do best on held-out points."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from knnpress.learning.descent import DescentOptions
from knnpress.learning.job import Job, View
from knnpress.learning.selection import (
    HeldOut,
    HeldOutResult,
    Setting,
    Vote,
    best_result,
    better_vote,
    candidates,
    is_better,
    is_hopeless,
    settings_between,
)
from knnpress.learning.trainer import Trainer
from knnpress.typing import Array, Indices

Folds = list[tuple[Indices, Indices]]

# Settings can be told apart shortly before a descent has ended, not earlier: with 40 iterations weak priors and no
# smoothing looked worse than they are (COIL-20, KTH-TIPS2-b)
_ITERATIONS, _TOL = 100, 1e-2


@dataclass(frozen=True)
class Choice:
    """What was chosen by the held-out points.

    Attributes
    ----------
    view : View
    setting : Setting
    vote : {"nearest", "soft"}
    temperature : float
        Factor of the log-odds.
    selection : list of dict
        A summary of each setting's result.
    held_out : HeldOutResult or None
        That of the chosen setting under the chosen geometry; None where it was not tried there.
    """

    view: View
    setting: Setting
    vote: Vote
    temperature: float
    selection: list[dict[str, Any]]
    held_out: HeldOutResult | None = None


def choose(
    view: View, quick: View | None, may_learn_in_quick: bool, folds: Folds, groups: Array | None, job: Job
) -> Choice:
    """Search the candidate settings, in the quick geometry if there is one; then see what is best in the wanted one.

    With `may_learn_in_quick`, the quick geometry itself is taken where it `is_better`.
    """
    label_noise, default = job.descent.label_noise, job.constraints.default
    comparison_vote = job.constraints.comparison_vote
    first = quick or view
    results, trainers = {}, _trainers(first, folds, job)
    results[first.name] = _search(first, trainers, folds, groups, job)
    best = {first.name: best_result(results[first.name], default, comparison_vote, label_noise)}
    shortlist = settings_between(default, best[first.name].setting)
    if quick is not None and (may_learn_in_quick or len(shortlist) > 1):
        results[view.name] = _search(view, _trainers(view, folds, job, trainers), folds, groups, job, shortlist)
        best[view.name] = best_result(results[view.name], default, comparison_vote, label_noise)
    winner = view
    if quick is not None and may_learn_in_quick:
        losses, others = (best[name].losses(comparison_vote, label_noise) for name in (quick.name, view.name))
        winner = quick if is_better(losses, others, best[quick.name].points()) else view
    # where the quick search kept the default, the wanted view may not have been scored: the quick result stands for it
    winning = best.get(winner.name, best[first.name])
    vote = job.constraints.vote or better_vote(winning, label_noise)
    selection = [
        {"metric": name, **result.summary(comparison_vote, label_noise), "chosen": result is winning}
        for name, of_view in results.items()
        for result in of_view
    ]
    held_out = best.get(winner.name)
    return Choice(winner, winning.setting, vote, winning.temperature(vote), selection, held_out)


def _trainers(view: View, folds: Folds, job: Job, quick: list[Trainer] | None = None) -> list[Trainer]:
    """A trainer for each fold, on the points that it does not hold out."""
    job = replace(job, descent=_short(job))
    rows = [view.sample.subset(kept) for kept, _ in folds]
    views = [replace(view, sample=some, rows=some, blocks=some.cut(job.n_prototypes)) for some in rows]
    return [Trainer(fold, job, quick[k] if quick else None) for k, fold in enumerate(views)]


def _search(
    view: View,
    trainers: list[Trainer],
    folds: Folds,
    groups: Array | None,
    job: Job,
    shortlist: list[Setting] | None = None,
) -> list[HeldOutResult]:
    """The result of each candidate on the held-out points; hopeless ones are dropped after their first folds."""
    label_noise, comparison_vote = job.descent.label_noise, job.constraints.comparison_vote
    n_classes = int(view.sample.y.max()) + 1
    results: list[HeldOutResult] = []

    def best() -> HeldOutResult:
        return best_result(results, job.constraints.default, comparison_vote, label_noise)

    settings: Iterable[Setting] = shortlist or candidates(
        job.constraints.settings,
        job.n_prototypes > n_classes,
        job.constraints.allow_one_per_class,
        lambda: best().setting,
        lambda: is_hopeless(results[-1], results[-2], comparison_vote, label_noise),
    )
    for setting in settings:
        if any(other.setting == setting for other in results):
            continue
        result = HeldOutResult(setting)
        for trainer, (_, out) in zip(trainers, folds, strict=True):
            held_out = view.sample.subset(out)
            weight = np.ones(len(out)) if held_out.weight is None else held_out.weight
            points = HeldOut(held_out.y, weight, out if groups is None else groups[out])
            result.add(*trainer.scores(setting, held_out, n_classes), points, trainer.gamma(setting))
            if results and result.n_folds < len(folds) and is_hopeless(result, best(), comparison_vote, label_noise):
                break
        results.append(result)
        job.progress.note(view.name, result.summary(comparison_vote, label_noise))
    return results


def _short(job: Job) -> DescentOptions:
    """Options of the descents within folds: on all points at once, and stopped early."""
    descent = job.descent
    return replace(
        descent,
        optimizer="auto" if descent.optimizer == "adam" else descent.optimizer,
        batch_size=None,
        max_iter=min(descent.max_iter, _ITERATIONS),
        tol=max(descent.tol, _TOL),
    )

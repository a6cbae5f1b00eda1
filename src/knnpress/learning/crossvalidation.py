"""Cross-validation of whole fits: which geometry and which setting serve held-out points best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from knnpress.learning.descent import Descent
from knnpress.learning.job import Job, View
from knnpress.learning.part import Part
from knnpress.learning.selection import (
    HeldOut,
    Seen,
    Setting,
    Vote,
    better_vote,
    between,
    candidates,
    chosen,
    is_better,
    is_hopeless,
)
from knnpress.typing import Array, Indices

__all__ = ["Choice", "choose"]

Folds = list[tuple[Indices, Indices]]

# Settings can be told apart shortly before a descent has ended, not earlier: with 40 iterations weak priors and no
# smoothing looked worse than they are (COIL-20, KTH-TIPS2-b)
_ITERATIONS, _TOL = 100, 1e-2


@dataclass(frozen=True)
class Choice:
    """What held-out points speak for.

    Attributes
    ----------
    view : View
    setting : Setting
    vote : {"nearest", "soft"}
    temperature : float
    selection : list of dict
        What they said of each setting.
    held_out : Seen or None
        The setting chosen, as they saw it under the geometry chosen; None where they did not.
    """

    view: View
    setting: Setting
    vote: Vote
    temperature: float
    selection: list[dict[str, Any]]
    held_out: Seen | None = None


def choose(view: View, quick: View | None, either: bool, folds: Folds, groups: Array | None, job: Job) -> Choice:
    """Search all settings, in the quick geometry if there is one; then see what is best in the one that is wanted.

    With `either`, the quick geometry itself is taken where it is better by more than noise.
    """
    noise, default, judge = job.descent.label_noise, job.wishes.default, job.wishes.judge
    first = quick or view
    seen, parts = {}, _parts(first, folds, job)
    seen[first.name] = _search(first, parts, folds, groups, job)
    best = {first.name: chosen(seen[first.name], default, judge, noise)}
    shortlist = between(default, best[first.name].setting)
    if quick is not None and (either or len(shortlist) > 1):
        seen[view.name] = _search(view, _parts(view, folds, job, parts), folds, groups, job, shortlist)
        best[view.name] = chosen(seen[view.name], default, judge, noise)
    winner = view
    if quick is not None and either:
        losses, others = (best[name].losses(judge, noise)[0] for name in (quick.name, view.name))
        winner = quick if is_better(losses, others, best[quick.name].points()) else view
    # where the quick search kept the default, the view wanted was never scored: the quick result stands for it
    best_one = best.get(winner.name, best[first.name])
    vote = job.wishes.vote or better_vote(best_one, noise)
    selection = [
        {"metric": name, **one.summary(judge, noise), "chosen": one is best_one}
        for name, several in seen.items()
        for one in several
    ]
    held_out = best.get(winner.name)
    return Choice(winner, best_one.setting, vote, best_one.losses(vote, noise)[1], selection, held_out)


def _parts(view: View, folds: Folds, job: Job, quick: list[Part] | None = None) -> list[Part]:
    """What is learned from in each fold."""
    job = replace(job, descent=_short(job))
    rows = [view.sample.subset(kept) for kept, _ in folds]
    views = [replace(view, sample=some, rows=some, blocks=some.cut(job.n_prototypes)) for some in rows]
    return [Part(one, job, quick[k] if quick else None) for k, one in enumerate(views)]


def _search(
    view: View,
    parts: list[Part],
    folds: Folds,
    groups: Array | None,
    job: Job,
    shortlist: list[Setting] | None = None,
) -> list[Seen]:
    """What the held-out points of the folds say of each candidate; the hopeless are left after their first folds."""
    noise, judge, n_classes = job.descent.label_noise, job.wishes.judge, int(view.sample.y.max()) + 1
    seen: list[Seen] = []

    def best() -> Seen:
        return chosen(seen, job.wishes.default, judge, noise)

    settings: Iterable[Setting] = shortlist or candidates(
        job.wishes.settings,
        job.n_prototypes > n_classes,
        job.wishes.fewer,
        lambda: best().setting,
        lambda: is_hopeless(seen[-1], seen[-2], judge, noise),
    )
    for setting in settings:
        if any(one.setting == setting for one in seen):
            continue
        one = Seen(setting)
        for part, (_, out) in zip(parts, folds, strict=True):
            held_out = view.sample.subset(out)
            weight = np.ones(len(out)) if held_out.weight is None else held_out.weight
            points = HeldOut(held_out.y, weight, out if groups is None else groups[out])
            one.add(*part.scores(setting, held_out, n_classes), points, part.gamma(setting))
            if seen and one.n_folds < len(folds) and is_hopeless(one, best(), judge, noise):
                break
        seen.append(one)
        job.progress.note(view.name, one.summary(judge, noise))
    return seen


def _short(job: Job) -> Descent:
    """How folds go down: on all points at once, and not to the very end."""
    descent = job.descent
    return replace(
        descent,
        optimizer="auto" if descent.optimizer == "adam" else descent.optimizer,
        batch_size=None,
        max_iter=min(descent.max_iter, _ITERATIONS),
        tol=max(descent.tol, _TOL),
    )

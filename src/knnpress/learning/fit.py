"""The whole of learning: choose a setting by cross-validation of whole fits, then fit once on all points.

`StochasticCompression` prepares a `View` (the training set under one geometry), perhaps a quick one, and calls `learn`.

1. `folds.make_folds` says which points are held out. Where nothing is left to choose, or points are too few, all
   that is done is 4.
2. `crossvalidation.choose`: for each setting of `selection.candidates` and each fold, `Trainer.scores` makes a start,
   descends, and scores the held-out points; first in the quick geometry, then a shortlist in the one wanted.
3. The default setting, the wanted geometry and the soft vote stay, unless others are better: their held-out loss is
   less by more than one standard error of the difference (`selection.is_better`; another geometry only if
   `may_learn_in_quick`).
4. `_descend_once`: one descent (`descent.Problem.learn`) with that setting, from the start, on all points.

Where gamma is chosen: `descent.Problem` measures the usual one at the start (`usual_gamma`); a setting's `sharpness`
(`selection.SEARCH_GRID`) multiplies its square, and `crossvalidation.choose` compares settings by their held-out
loss; `job.Constraints.gamma_at`, called by `Trainer.gamma`, combines the two, unless the user gave a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from knnpress.learning.checkpoint import Checkpoint
from knnpress.learning.crossvalidation import Choice, choose
from knnpress.learning.descent import DescentOptions, LabelledPrototypes, nearest_of_own_class
from knnpress.learning.folds import make_folds
from knnpress.learning.job import Constraints, Job, Progress, View
from knnpress.learning.selection import HeldOutResult, Setting, Vote
from knnpress.learning.state import Arrays, DescentState, SaveState
from knnpress.learning.trainer import Trainer
from knnpress.typing import Array, Callback, Labels


@dataclass(frozen=True)
class Learned:
    """What was learned, and how it was chosen.

    Attributes
    ----------
    view : View
        The view it was learned in.
    points, labels
        Prototypes.
    gamma : float
    setting : Setting
    vote : {"nearest", "soft"}
    temperature : float
        Factor of the log-odds that makes probabilities right for held-out points.
    loss_curve : list of float
    reason : str
        Why the last descent ended.
    weights : ndarray of shape (m,)
        Weight of the training points that each prototype stands for.
    selection : list of dict
        A summary of each setting's result on held-out points.
    held_out : HeldOutResult or None
        That of the chosen setting; None where nothing was held out.
    """

    view: View
    points: Array
    labels: Labels
    gamma: float
    setting: Setting
    vote: Vote
    temperature: float
    loss_curve: list[float]
    reason: str
    weights: Array
    selection: list[dict[str, Any]]
    held_out: HeldOutResult | None = None


def learn(
    view: View,
    quick: View | None,
    may_learn_in_quick: bool,
    n_prototypes: int,
    descent: DescentOptions,
    constraints: Constraints,
    *,
    groups: Array | None = None,
    checkpoint: Checkpoint,
    callback: Callback | None = None,
) -> Learned:
    """Learn prototypes: choose the setting by cross-validation, then descend once on all points.

    Parameters
    ----------
    view : View
        The training set under the geometry that is wanted.
    quick : View or None
        The same under a quicker geometry, in which settings are searched first.
    may_learn_in_quick : bool
        Whether the prototypes may be learned in the quick geometry, where that is better.
    n_prototypes : int
    descent : DescentOptions
    constraints : Constraints
    groups : ndarray of shape (n,) or None
        The group of each point of the sample.
    checkpoint : Checkpoint
    callback : callable or None
    """
    job = Job(n_prototypes, descent, constraints, checkpoint, Progress(callback, checkpoint.reported))
    choice = Choice(view, constraints.default, constraints.comparison_vote, 1.0, [])
    if constraints.leave_anything_open or may_learn_in_quick:
        folds = make_folds(view.sample.y, groups, descent.seed)
        if folds:
            choice = choose(view, quick, may_learn_in_quick, folds, groups, job)
    return _descend_once(choice, job)


def _descend_once(choice: Choice, job: Job) -> Learned:
    """The fit on all points, with the setting that was chosen.

    Not warm-started: that only saves time in cross-validation.
    """
    view, setting = choice.view, choice.setting
    trainer = Trainer(view, job)
    problem, gamma = trainer.problem(setting), trainer.gamma(setting)

    def descend(state: DescentState | None, keep: SaveState | None) -> Arrays:
        found = trainer.descend(problem, setting, gamma, None, state, keep)
        curve, reason = np.array(found.loss_curve), np.frombuffer(found.reason.encode(), np.uint8)
        return {"u": found.u, "curve": curve, "reason": reason}

    found = job.checkpoint.step(descend)
    learned = LabelledPrototypes(problem.scale.points(found["u"]), problem.start.labels)
    own = nearest_of_own_class(view.rows, view.blocks, view.geometry, learned)
    return Learned(
        view=view,
        points=learned.points,
        labels=learned.labels,
        gamma=gamma,
        setting=setting,
        vote=choice.vote,
        temperature=choice.temperature,
        loss_curve=found["curve"].tolist(),
        reason=found["reason"].tobytes().decode(),
        weights=np.bincount(own, view.rows.weight, minlength=len(learned.points)).astype(np.float64),
        selection=choice.selection,
        held_out=choice.held_out,
    )

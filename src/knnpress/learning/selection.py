"""Which setting serves held-out points best: candidates, their results, one paired comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, Literal

import numpy as np
from scipy.optimize import minimize_scalar

from knnpress.learning.loss import log_softmax
from knnpress.typing import Array, Indices

Vote = Literal["nearest", "soft"]

_HOPELESS = 2.0  # standard errors by which a setting may trail before its other folds, or weaker priors, are left out
_MIN_LOG = np.log(1e-12)  # of a probability: a class may have no prototypes
_TEMPERATURES = (1e-3, 1e2)  # factors of the scores: log-odds are multiplied by a temperature here, not divided


@dataclass(frozen=True)
class Setting:
    """What a descent depends on besides the data.

    Attributes
    ----------
    sharpness : float
        gamma^2 in units of the usual one.
    prior : float
        How strongly prototypes are held at their start; infinity: they stay there.
    smoothing : float
        Share of the loss that keeps all prototypes within reach of all points.
    start : {"centroids", "single", "grown", "given"}
        Centroids of k-means within each class; the centroid of each class, one prototype per class being all that is
        learned; one learned prototype per class, grown apart towards the centroids; or what the user gave.
    """

    sharpness: float = 1.0
    prior: float = 1.0
    smoothing: float = 0.02
    start: Literal["centroids", "single", "grown", "given"] = "centroids"


#: What is taken unless the data speak against it; it suited digits, ETH-80 and FPHA
DEFAULT = Setting()

#: Values that cross-validation tries: every sharpness with every smoothing, since what suits one need not suit another.
#: Priors from strong to weak: in a fold each descent begins where the last one of the same path ended
SEARCH_GRID: dict[str, tuple[Any, ...]] = {
    "sharpness": (1.0, 0.25),
    "smoothing": (0.02, 0.0),
    "prior": (10.0, 1.0, 0.1, 0.01),
    "start": ("centroids", "single", "grown"),
}


@dataclass
class HeldOutResult:
    """How a setting served points that it was not learned from.

    Attributes
    ----------
    setting : Setting
    scores : dict
        For each vote, the scores of the classes, (n, C), of the points held out so far, fold after fold.
    held_out : list of HeldOut
        These points, fold after fold.
    gammas : list of float
        gamma of each fold, which its scores were computed with.
    """

    setting: Setting
    scores: dict[Vote, list[Array]] = field(default_factory=lambda: {"nearest": [], "soft": []})
    held_out: list[HeldOut] = field(default_factory=list)
    gammas: list[float] = field(default_factory=list)
    _losses: dict[Any, Array] = field(default_factory=dict, repr=False)  # a cache

    @property
    def n_folds(self) -> int:
        """Folds that were tried."""
        return len(self.held_out)

    def add(self, nearest: Array, soft: Array, held_out: HeldOut, gamma: float = 1.0) -> None:
        """Add the result of one more fold."""
        self.scores["nearest"].append(nearest)
        self.scores["soft"].append(soft)
        self.held_out.append(held_out)
        self.gammas.append(gamma)

    def own_distances(self) -> Array:
        """How far each point is from the nearest prototype of its own class, learned without it, (n,)."""
        folds = zip(self.scores["nearest"], self.held_out, self.gammas, strict=True)
        return np.concatenate([-S[np.arange(len(S)), out.labels] / gamma**2 for S, out, gamma in folds])

    def points(self, n_folds: int | None = None) -> HeldOut:
        """The points of all folds, or of the first ones."""
        some = self.held_out[:n_folds]
        return HeldOut(
            *(np.concatenate([getattr(one, name) for one in some]) for name in ("labels", "weight", "group"))
        )

    def errors(self, vote: Vote) -> Array:
        """Whether each point got another label than its own."""
        return np.concatenate(self.scores[vote]).argmax(axis=1) != self.points().labels

    def losses(self, vote: Vote, label_noise: float, n_folds: int | None = None) -> Array:
        """Loss of each point when scores are multiplied by whatever number suits all of them best.

        The loss is the one that learning minimises, without smoothing. The number makes settings comparable, since
        sharpness and smoothing change the scale of scores more than their order.
        """
        key = (vote, label_noise, self.n_folds if n_folds is None else n_folds)
        if key not in self._losses:
            self._losses[key] = self._compute_losses(*key)
        return self._losses[key]

    def _compute_losses(self, vote: Vote, label_noise: float, n_folds: int) -> Array:
        scores, points = np.concatenate(self.scores[vote][:n_folds]), self.points(n_folds)
        floor = label_noise / (1.0 - label_noise) / scores.shape[1]
        rows = np.arange(len(scores))

        def at(temperature: float) -> Array:
            p = log_softmax(temperature * scores)[1][rows, points.labels]
            return -np.log((p + max(floor, 1e-12)) / (1.0 + floor))

        return at(_best_temperature(lambda t: float(points.weight @ at(t))))

    def temperature(self, vote: Vote) -> float:
        """What to multiply scores by, so that probabilities are right for the held-out points.

        It has the least log loss where each of N points counts N + 1 parts for its own class and one part for each
        other (Platt 1999): thirty points that are all right do not make the next one certain.
        """
        scores, points = np.concatenate(self.scores[vote]), self.points()
        n_seen, n_classes = np.count_nonzero(points.weight), scores.shape[1]
        target = np.full(scores.shape, 1.0 / (n_seen + n_classes))
        target[np.arange(len(scores)), points.labels] += n_seen / (n_seen + n_classes)

        def loss(temperature: float) -> float:
            logits = temperature * scores
            log_p = np.maximum(logits - log_softmax(logits)[0][:, None], _MIN_LOG)
            return float(-(points.weight @ (target * log_p).sum(axis=1)))

        return _best_temperature(loss)

    def summary(self, vote: Vote, label_noise: float) -> dict[str, Any]:
        """The result as one entry of ``selection_``."""
        points = self.points()
        wrong = self.errors(vote).astype(float)
        error, standard_error = mean_and_standard_error(wrong, points)
        return {
            **vars(self.setting),
            "error": error,
            "standard_error": standard_error,
            "loss": float(np.average(self.losses(vote, label_noise), weights=points.weight)),
            "n_folds": self.n_folds,
            "chosen": False,
        }


@dataclass(frozen=True)
class HeldOut:
    """Points that were not learned from: class indices, weights, and what group each belongs to, (n,) each.

    Points without groups are each a group of their own.
    """

    labels: Indices
    weight: Array
    group: Indices


def _best_temperature(loss: Callable[[float], float]) -> float:
    bounds = np.log(_TEMPERATURES)
    best = minimize_scalar(lambda t: loss(float(np.exp(t))), bounds=bounds, method="bounded", options={"xatol": 0.01})
    return float(np.exp(best.x))


def mean_and_standard_error(values: Array, points: HeldOut) -> tuple[float, float]:
    """Weighted mean of one value per point, and its standard error; points of a group may err together."""
    total = float(points.weight.sum())
    mean = float(points.weight @ values) / total
    _, group = np.unique(points.group, return_inverse=True)
    off = np.bincount(group, points.weight * (values - mean))
    return mean, float(np.sqrt((off**2).sum())) / total


def is_better(losses: Array, others: Array, points: HeldOut, by: float = 1.0) -> bool:
    """Whether losses are below others of the same points by more than `by` standard errors of the difference.

    The one place where it is asked, during a fit, whether a difference is more than noise. `by` is 1 but for settings
    that are given up early (`is_hopeless`).
    """
    mean, error = mean_and_standard_error(others - losses, points)
    return mean > by * error


def candidates(
    fixed: dict[str, Any],
    can_grow: bool,
    allow_one_per_class: bool,
    best: Callable[[], Setting],
    got_worse: Callable[[], bool],
) -> Iterator[Setting]:
    """Settings worth trying, in order; what the user fixed stays.

    First the start itself, then priors from strong to weak at each sharpness and smoothing, until one is worse than the
    stronger one before it by two standard errors (`got_worse`). Where there are more prototypes than classes, one per
    class is tried too with `allow_one_per_class`, beginning with the centroids of the classes themselves; and then the
    `best` so far with prototypes grown from one per class.
    """
    axes = {name: (fixed[name],) if name in fixed else values for name, values in SEARCH_GRID.items()}
    first = replace(DEFAULT, **{name: values[0] for name, values in axes.items() if name != "prior"})

    def path(setting: Setting) -> Iterator[Setting]:
        for k, prior in enumerate(axes["prior"]):
            yield replace(setting, prior=prior)
            if k > 0 and got_worse():
                break

    if "prior" not in fixed:
        yield replace(first, prior=np.inf)
    for sharpness, smoothing in product(axes["sharpness"], axes["smoothing"]):
        yield from path(replace(first, sharpness=sharpness, smoothing=smoothing))
    if can_grow and "start" not in fixed:
        if allow_one_per_class:
            if "prior" not in fixed:
                yield replace(first, start="single", prior=np.inf)
            yield from path(replace(first, start="single"))
        if np.isfinite(best().prior):  # what does not move cannot grow
            yield replace(best(), start="grown")


def settings_between(default: Setting, other: Setting) -> list[Setting]:
    """The default, the default with each prior between its own and the other's, and the other."""
    priors = sorted({default.prior, *SEARCH_GRID["prior"], other.prior}, reverse=other.prior < default.prior)
    way = priors[priors.index(default.prior) : priors.index(other.prior) + 1]
    return list(dict.fromkeys([*(replace(default, prior=prior) for prior in way), other]))


def best_result(results: Sequence[HeldOutResult], default: Setting, vote: Vote, label_noise: float) -> HeldOutResult:
    """The setting of least held-out loss; the default, unless that `is_better` than it."""
    complete = [result for result in results if result.n_folds == max(other.n_folds for other in results)]
    losses = [result.losses(vote, label_noise) for result in complete]
    points = complete[0].points()
    best = int(np.argmin([np.average(loss, weights=points.weight) for loss in losses]))
    usual = next((k for k, result in enumerate(complete) if result.setting == default), best)
    return complete[best if is_better(losses[best], losses[usual], points) else usual]


def is_hopeless(one: HeldOutResult, other: HeldOutResult, vote: Vote, label_noise: float) -> bool:
    """Whether a setting trails another by so much, in the folds that both were tried in, that no more need be tried."""
    n_folds = min(one.n_folds, other.n_folds)
    mine, its = (result.losses(vote, label_noise, n_folds) for result in (one, other))
    return is_better(its, mine, one.points(n_folds), _HOPELESS)


def better_vote(result: HeldOutResult, label_noise: float) -> Vote:
    """The soft vote, which learning optimises, unless the vote of the nearest prototype `is_better`."""
    votes: tuple[Vote, Vote] = ("soft", "nearest")
    soft, nearest = (result.losses(vote, label_noise) for vote in votes)
    return "nearest" if is_better(nearest, soft, result.points()) else "soft"

"""Learning prototypes by the soft nearest-neighbour loss: SCC, SHC and SNC are this compressor on three geometries."""

from __future__ import annotations

import os
import warnings
from contextlib import closing
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import ClassCentroids
from knnpress.geometries import Geometry, SmoothGeometry
from knnpress.learning.checkpoint import checkpoint_at
from knnpress.learning.descent import Descent, Optimizer, Start
from knnpress.learning.fingerprint import describe_all
from knnpress.learning.fit import Learned, Wishes, learn
from knnpress.rows import LocalRows, Rows, digest, local_rows
from knnpress.typing import Array, Callback, Indices, Labels

__all__ = ["StochasticCompression"]


class StochasticCompression(BaseEstimator):
    """Learn prototypes by descent on the soft nearest-neighbour loss.

    Whatever is "auto" is chosen by cross-validation of whole fits, on training points only.

    Parameters
    ----------
    gamma : float, "scale" or "auto"
        Sharpness of the soft neighbourhood. "scale": the usual one, by how far the classes are apart at the start.
        "auto": that one, or half of it.
    prior : float or "auto"
        How strongly prototypes are held at their start, in points (see `knnpress.learning.prior.Prior`); 0 is the
        paper's loss, infinity leaves the start as it is. "auto": 1, or 10, 0.1 or infinity.
    smoothing : float or "auto"
        Share of the loss that keeps all prototypes within reach of all points (see
        `knnpress.learning.loss.SoftNeighborLoss`); 0 is the paper's loss. "auto": 0.02, or 0 or 0.05.
    vote : {"nearest", "soft", "auto"}
        Whether points are to be classified by the nearest prototype or by the probabilities of all.
    init : Compressor or None
        Where to start; None: `ClassCentroids`, or one learned prototype per class that is grown apart towards them.
    chart : {"normal", "paper"}
        What parameters stand for: normal coordinates of the geometry at each start, or what the paper learns (Cholesky
        factors of matrices, logarithms of bins).
    optimizer : {"auto", "lbfgs", "cg", "descent", "adam"}
        "auto": "lbfgs"; "adam" where `batch_size` is given; "descent" where the gradient is approximate.
    max_iter : int
        Iterations of the optimiser; for "adam", passes over the data.
    tol : float
        A descent ends when ten iterations took off less than this share of the loss.
    learning_rate : float
        First step of "descent" and "adam", relative to their own choice.
    batch_size : int or None
        Points in a step of "adam"; None: all.
    label_noise : float
        Share of labels that may be wrong. It bounds the loss of a single point, so that wrong labels and outliers do
        not draw prototypes to them; 0 is the paper's loss.
    checkpoint : str, path or None
        A file that `compress` keeps its state in, rewritten every few seconds and deleted at the end. The same call
        goes on from it where an earlier one was broken off, and ends with the same prototypes to the last bit. A file
        of other data, parameters or version is refused. `random_state` None: as it was drawn then; a Generator must
        be in the same state as it was. `callback` is not called again for iterations that are done. The file may be
        large where distances are solved for (Sinkhorn): it holds the potentials of all pairs.
    """

    def __init__(
        self,
        *,
        gamma: float | Literal["scale", "auto"] = "auto",
        prior: float | Literal["auto"] = "auto",
        smoothing: float | Literal["auto"] = "auto",
        vote: Literal["nearest", "soft", "auto"] = "auto",
        init: Compressor | None = None,
        chart: Literal["normal", "paper"] = "normal",
        optimizer: Optimizer = "auto",
        max_iter: int = 300,
        tol: float = 5e-3,
        learning_rate: float = 1.0,
        batch_size: int | None = None,
        label_noise: float = 0.2,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> None:
        self.gamma = gamma
        self.prior = prior
        self.smoothing = smoothing
        self.vote = vote
        self.init = init
        self.chart = chart
        self.optimizer = optimizer
        self.max_iter = max_iter
        self.tol = tol
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.label_noise = label_noise
        self.checkpoint = checkpoint

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        groups: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` learned prototypes (one per class, if None), classes in sorted order.

        Neither the order of the points nor the names of the classes matter where points are in memory. `groups`, (n,),
        are never divided between what is learned from and what is held out. `callback` is called after each iteration
        of every descent, the last one being that on all points, with the facts "loss" and "error" (of the training
        set); a true answer ends that descent. Its fact "note" tells what held-out points said of a setting.
        """
        smooth = self._check(geometry)
        rng = np.random.default_rng() if random_state is None else random_state
        seed = int(rng.integers(2**31))
        classes, codes = np.unique(y, return_inverse=True)
        m = len(classes) if n_prototypes is None else _at_most(n_prototypes, len(y))
        with closing(local_rows(X, codes, sample_weight, n_jobs)) as rows:
            if self.checkpoint is not None and random_state is None:
                seed = 0  # what resumes must begin as it did
            order, names = _canonical_order(rows, smooth, seed)
            if self.init is not None:
                names = np.arange(len(classes))  # what is given may know the classes by their indices
            if order is not None:
                assert isinstance(rows, LocalRows)
                rows = rows.some(order)
                rows = LocalRows(rows.X, np.argsort(names)[rows.y], rows.weight, rows.n_jobs, rows.budget)
                groups = None if groups is None else groups[order]
            learned = self._learn(rows, smooth, m, seed, groups, n_jobs, callback)
        if learned.reason == "max_iter" and self._falls_still(learned.loss_curve):
            warnings.warn(
                f"the loss was still falling after max_iter={self.max_iter} iterations; raise max_iter",
                ConvergenceWarning,
                stacklevel=2,
            )
        labels = names[learned.labels]
        by_class = np.argsort(labels, kind="stable")
        trace = {
            "loss_curve": learned.loss_curve,
            "n_iter": max(0, len(learned.loss_curve) - 1),
            "reason": learned.reason,
            "weights": learned.weights[by_class],
            "setting": learned.setting,
            "prior": learned.setting.prior,
            "vote": learned.vote,
            "temperature": learned.temperature,
            "selection": learned.selection,
        }
        return Prototypes(learned.points[by_class], classes[labels[by_class]], gamma=learned.gamma, trace=trace)

    def _learn(
        self,
        rows: Rows,
        geometry: SmoothGeometry,
        m: int,
        seed: int,
        groups: Array | None,
        n_jobs: int | None,
        callback: Callback | None,
    ) -> Learned:
        blocks = rows.cut(m, self.batch_size)

        def about() -> dict[str, str]:
            X = rows.X if isinstance(rows, LocalRows) and rows.in_memory else digest(rows, blocks)
            data = {"X": X, "y": rows.y, "sample_weight": rows.weight, "groups": groups, "n_prototypes": m}
            params = {name: value for name, value in self.get_params(deep=False).items() if name != "checkpoint"}
            drawn = {"random_state": f"one that draws {seed}"}
            return {**describe_all({**data, "geometry": geometry, **params}), **drawn}

        def make_start(sample: LocalRows, n_prototypes: int) -> Start:
            found = self.start(
                sample.X, sample.y, geometry, n_prototypes, np.random.default_rng(seed), n_jobs, sample.weight
            )
            return Start(found.points, found.labels)

        with checkpoint_at(self.checkpoint, about) as checkpoint:
            return learn(
                rows,
                blocks,
                geometry,
                m,
                make_start,
                self.descent(seed),
                self.wishes(),
                groups=groups,
                checkpoint=checkpoint,
                callback=callback,
            )

    def start(
        self,
        X: Array,
        y: Labels,
        geometry: SmoothGeometry,
        n_prototypes: int,
        rng: np.random.Generator,
        n_jobs: int | None = None,
        sample_weight: Array | None = None,
    ) -> Prototypes:
        """Where the descent starts."""
        init = ClassCentroids(geometry.start_geometry, quotas="need") if self.init is None else self.init
        return init.compress(
            X,
            y,
            geometry=geometry,
            n_prototypes=n_prototypes,
            sample_weight=sample_weight,
            random_state=rng,
            n_jobs=n_jobs,
        )

    def descent(self, seed: int) -> Descent:
        """How to go down, whatever the setting."""
        return Descent(
            optimizer=self.optimizer,
            max_iter=self.max_iter,
            tol=self.tol,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            label_noise=self.label_noise,
            paper=self.chart == "paper",
            seed=seed,
        )

    def wishes(self) -> Wishes:
        """What is fixed, and what is to be chosen."""
        fixed: dict[str, Any] = {} if self.gamma == "auto" else {"sharpness": 1.0}
        fixed |= {} if self.prior == "auto" else {"prior": float(self.prior)}
        fixed |= {} if self.smoothing == "auto" else {"smoothing": float(self.smoothing)}
        fixed |= {} if self.init is None and self.chart == "normal" else {"start": "given"}
        return Wishes(
            settings=fixed,
            gamma=None if isinstance(self.gamma, str) else float(self.gamma),
            vote=None if self.vote == "auto" else self.vote,
        )

    def _check(self, geometry: Geometry) -> SmoothGeometry:
        if not isinstance(geometry, SmoothGeometry):
            raise TypeError(f"{type(geometry).__name__} has no derivatives; learn with JBLD, LogEuclidean, Sinkhorn, …")
        if self.optimizer in ("lbfgs", "cg") and not geometry.exact_gradient:
            raise ValueError(
                f"optimizer={self.optimizer!r} needs an exact gradient, which value='transport' has not; use "
                "optimizer='descent', or learn on value='divergence' or 'dual'"
            )
        if self.batch_size is not None and self.optimizer not in ("auto", "adam"):
            raise ValueError(f"batch_size is for optimizer='adam', not {self.optimizer!r}")
        if self.batch_size is not None and self.batch_size < 1:
            raise ValueError(f"batch_size is {self.batch_size!r}; give a positive number of points, or None for all")
        if self.chart not in ("normal", "paper"):
            raise ValueError(f"chart is {self.chart!r}; choose 'normal' or 'paper'")
        if self.vote not in ("nearest", "soft", "auto"):
            raise ValueError(f"vote is {self.vote!r}; choose 'nearest', 'soft' or 'auto'")
        _check_number("label_noise", self.label_noise, 0.0, 1.0, "a share of the labels, from 0 to below 1")
        if self.smoothing != "auto":
            _check_number("smoothing", self.smoothing, 0.0, 1.0, "a share of the loss, from 0 to below 1, or 'auto'")
        if self.prior != "auto" and self.prior != np.inf:
            _check_number("prior", self.prior, 0.0, 1e12, "0 or a positive number, infinity, or 'auto'")
        if self.gamma not in ("scale", "auto"):
            _check_number("gamma", self.gamma, 1e-12, 1e12, "a positive number, 'scale' or 'auto'")
        return geometry

    def _falls_still(self, curve: list[float]) -> bool:
        """Whether the last tenth of a descent took off more than a hundredth of what all of it did."""
        tenth = max(1, len(curve) // 10)
        return len(curve) > 1 and curve[-1 - tenth] - curve[-1] > 0.01 * (curve[0] - curve[-1])


def _check_number(name: str, value: Any, low: float, high: float, wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) < high:
        raise ValueError(f"{name} is {value!r}; give {wanted}")


def _at_most(n_prototypes: int, n_points: int) -> int:
    if n_prototypes > n_points:
        warnings.warn(
            f"n_prototypes is {n_prototypes}, but there are {n_points} points; learning {n_points}", stacklevel=4
        )
    return min(n_prototypes, n_points)


def _canonical_order(rows: Rows, geometry: SmoothGeometry, seed: int) -> tuple[Indices | None, Indices]:
    """An order of the points in memory that does not depend on the one they came in, and one of the classes.

    Points are sorted by how far they are from the mean of all, which no congruence of matrices and no permutation of
    bins changes, and then shuffled. Classes are in the order of their first points; the second result names them.
    """
    n_classes = int(rows.y.max()) + 1
    if not (isinstance(rows, LocalRows) and rows.in_memory):
        return None, np.arange(n_classes)
    to_mean = geometry.start_geometry.distances_to(rows.X.mean(axis=0, keepdims=True))
    key = np.concatenate(rows.map(lambda: lambda X, *_: (to_mean(X)[:, 0], None), rows.cut(1)))
    order = np.argsort(key, kind="stable")[np.random.default_rng(seed).permutation(len(key))]
    _, first = np.unique(rows.y[order], return_index=True)
    return order, np.argsort(first)

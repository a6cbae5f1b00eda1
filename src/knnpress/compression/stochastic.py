"""Learning prototypes by the soft nearest-neighbour loss: SCC, SHC and SNC are this compressor on three geometries."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import ClassCentroids
from knnpress.compression.views import Views, in_reproducible_order, sample_of
from knnpress.exceptions import warn_user
from knnpress.execution.rows import LocalRows, Rows, fingerprint, local_rows
from knnpress.geometries import EmbeddedGeometry, Geometry, SmoothGeometry
from knnpress.geometries.base import SmoothCloudGeometry
from knnpress.learning.checkpoint import checkpoint_at
from knnpress.learning.descent import DescentOptions, LabelledPrototypes, Optimizer
from knnpress.learning.fingerprint import describe_all
from knnpress.learning.fit import Learned, learn
from knnpress.learning.job import Constraints, MakeStart, View
from knnpress.parameters import check_parameters
from knnpress.typing import Array, Callback, Indices, Labels

_MAX_WORK = 5e9  # of all pairs, half a minute or so for a fit: above it only the quick geometry is tried


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
        paper's loss, infinity leaves the start as it is. "auto": 1, or 10, 0.1, 0.01 or infinity.
    smoothing : float or "auto"
        Share of the loss that keeps all prototypes within reach of all points (see
        `knnpress.learning.loss.SoftNeighborLoss`); 0 is the paper's loss. "auto": 0.02, or 0.
    vote : {"nearest", "soft", "auto"}
        Whether points are to be classified by the nearest prototype or by the probabilities of all.
    init : Compressor or None
        Where to start; None: `ClassCentroids`, or one prototype per class, alone or grown apart towards them.
    chart : {"normal", "paper"}
        What parameters stand for: normal coordinates of the geometry at each start, or what the paper learns (Cholesky
        factors of matrices, logarithms of bins).
    optimizer : {"auto", "lbfgs", "cg", "descent", "adam"}
        "auto": "lbfgs"; "adam" where `batch_size` is given; "descent" where the gradient is approximate.
    max_iter : int or None
        Iterations of the optimiser; for "adam", passes over the data. None: 300 iterations, 30 passes.
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
        A file in which `compress` keeps its state, rewritten every few seconds and deleted at the end. The same call
        resumes from it after an interruption, and ends with the same prototypes to the last bit. A file
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
        max_iter: int | None = None,
        tol: float = 2e-3,
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
        may_learn_in_quick: bool = False,
        allow_one_per_class: bool = False,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` learned prototypes (one per class, if None), classes in sorted order.

        With `allow_one_per_class`, one per class where that serves held-out points better, as decided by
        `knnpress.learning.selection.is_better`.

        Neither the order of the points nor the names of the classes matter where points are in memory. `groups`, (n,),
        are never divided between what is learned from and what is held out. With `may_learn_in_quick`, prototypes are
        learned in the `quick_geometry` of the given one where that serves held-out points better, or
        where the given one would take too long. The trace has the "geometry" they were learned under, and their
        "vectors", (m, p), where it embeds points. `callback` is called after each iteration of every descent, the last
        one being that on all points, with the facts "loss" and "error" (of the training set); a true answer ends that
        descent. Its fact "note" gives a setting's held-out error.
        """
        self._check(geometry)
        rng = np.random.default_rng() if random_state is None else random_state
        seed = int(rng.integers(2**31))
        if self.checkpoint is not None and random_state is None:
            seed = 0  # a fit that resumes must begin as it did
        classes, codes = np.unique(y, return_inverse=True)
        n_present = len(y) if sample_weight is None else int(np.count_nonzero(sample_weight))
        m = len(classes) if n_prototypes is None else _at_most(n_prototypes, n_present)
        with closing(local_rows(X, codes, sample_weight, n_jobs)) as rows:
            rows, groups, names = in_reproducible_order(rows, groups, geometry, seed, self.init is None)
            constraints = replace(self.constraints(), allow_one_per_class=allow_one_per_class)
            learned, geometry, vectors = self._learn(
                rows, geometry, may_learn_in_quick, m, constraints, seed, groups, n_jobs, callback
            )
        if learned.reason == "max_iter" and _still_falls(learned.loss_curve):
            warn_user(
                f"the loss was still falling after max_iter={self._max_iter()} iterations; raise max_iter",
                ConvergenceWarning,
            )
        labels = names[learned.labels]
        order = np.argsort(labels, kind="stable")
        points = learned.points if vectors is None else geometry.unembed(vectors)  # type: ignore[attr-defined]
        trace = {
            "geometry": geometry,
            "vectors": None if vectors is None else vectors[order],
            "weights": learned.weights[order],
            **_trace_of(learned, names),
        }
        return Prototypes(points[order], classes[labels[order]], gamma=learned.gamma, trace=trace)

    def _learn(
        self,
        rows: Rows,
        geometry: Geometry,
        may_learn_in_quick: bool,
        m: int,
        constraints: Constraints,
        seed: int,
        groups: Array | None,
        n_jobs: int | None,
        callback: Callback | None,
    ) -> tuple[Learned, Geometry, Array | None]:
        """What was learned, under which geometry, and its vectors where that embeds points."""
        blocks = rows.cut(m, self.batch_size)
        sample, groups = sample_of(rows, blocks, groups, seed)
        asked = {
            "geometry": geometry,
            "may_learn_in_quick": may_learn_in_quick,
            "allow_one_per_class": constraints.allow_one_per_class,
        }
        about = partial(self._about, rows, blocks, groups, m, seed, asked)
        make_start = partial(self._start_maker, seed, n_jobs)
        with Views(rows, blocks, sample, m, self.batch_size, make_start, n_jobs) as views:
            view, quick = self._views(views, geometry, constraints, may_learn_in_quick)
            with checkpoint_at(self.checkpoint, about) as checkpoint:
                learned = learn(
                    view,
                    quick,
                    may_learn_in_quick,
                    m,
                    self.descent(seed),
                    constraints,
                    groups=groups,
                    checkpoint=checkpoint,
                    callback=callback,
                )
        embedding = views.embeddings.get(learned.view.name)
        if embedding is None:
            return learned, geometry, None
        return learned, embedding.geometry, embedding.to_vectors(learned.points)

    def _views(
        self, views: Views, geometry: Geometry, constraints: Constraints, may_learn_in_quick: bool
    ) -> tuple[View, View | None]:
        """The training set under the geometry that is wanted, and under a quick one where settings are searched there.

        Where the one wanted would take too long, and another will do, the quick one takes its place.
        """
        if not isinstance(geometry, SmoothGeometry):
            assert isinstance(geometry, EmbeddedGeometry)
            return views.embedded(geometry), None
        view, quick_geometry = views.of(geometry), geometry.quick_geometry
        search = constraints.leave_anything_open or may_learn_in_quick
        if quick_geometry is None or not search or self.chart == "paper":
            return view, None
        quick = views.embedded(quick_geometry, sample_only=not may_learn_in_quick)
        too_long = may_learn_in_quick and views.work(geometry) > _MAX_WORK
        return (quick, None) if too_long else (view, quick)

    def _about(
        self, rows: Rows, blocks: Sequence[slice], groups: Array | None, m: int, seed: int, asked: dict[str, Any]
    ) -> dict[str, str]:
        """What makes a fit this one and no other, for its checkpoint."""
        X = rows.X if isinstance(rows, LocalRows) and isinstance(rows.X, np.ndarray) else fingerprint(rows, blocks)
        data = {"X": X, "y": rows.y, "sample_weight": rows.weight, "groups": groups, "n_prototypes": m}
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "checkpoint"}
        drawn = {"random_state": f"one that draws {seed}"}
        return {**drawn, **describe_all({**data, **asked, **params})}

    def _start_maker(
        self, seed: int, n_jobs: int | None, geometry: SmoothGeometry, quotas: Literal["size", "need"]
    ) -> MakeStart:
        def make_start(sample: LocalRows, n_prototypes: int) -> LabelledPrototypes:
            rng = np.random.default_rng(seed)
            found = self.start(sample.X, sample.y, geometry, n_prototypes, rng, n_jobs, sample.weight, quotas)
            return LabelledPrototypes(found.points, found.labels)

        return make_start

    def start(
        self,
        X: Array,
        y: Labels,
        geometry: SmoothGeometry,
        n_prototypes: int,
        rng: np.random.Generator,
        n_jobs: int | None = None,
        sample_weight: Array | None = None,
        quotas: Literal["size", "need"] | None = None,
    ) -> Prototypes:
        """Where the descent starts."""
        usual = ClassCentroids(geometry.start_geometry, quotas=quotas or geometry.start_quotas)
        init = usual if self.init is None else self.init
        return init.compress(
            X,
            y,
            geometry=geometry,
            n_prototypes=n_prototypes,
            sample_weight=sample_weight,
            random_state=rng,
            n_jobs=n_jobs,
        )

    def descent(self, seed: int) -> DescentOptions:
        """Options of the descent, whatever the setting."""
        return DescentOptions(
            optimizer=self.optimizer,
            max_iter=self._max_iter(),
            tol=self.tol,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            label_noise=self.label_noise,
            paper=self.chart == "paper",
            seed=seed,
        )

    def _max_iter(self) -> int:
        if self.max_iter is not None:
            return self.max_iter
        return 30 if self.optimizer == "adam" or self.batch_size is not None else 300

    def constraints(self) -> Constraints:
        """What is fixed, and what is to be chosen."""
        fixed: dict[str, Any] = {} if self.gamma == "auto" else {"sharpness": 1.0}
        fixed |= {} if self.prior == "auto" else {"prior": float(self.prior)}
        fixed |= {} if self.smoothing == "auto" else {"smoothing": float(self.smoothing)}
        if self.init is not None or self.chart == "paper":
            fixed["start"] = "given"
        elif len(fixed) == 3 and self.vote != "auto":
            fixed["start"] = "centroids"  # everything is given: one plain descent
        return Constraints(
            settings=fixed,
            gamma=None if isinstance(self.gamma, str) else float(self.gamma),
            vote=None if self.vote == "auto" else self.vote,
        )

    def _check(self, geometry: Geometry) -> None:
        check_parameters(self)
        if not isinstance(geometry, (SmoothGeometry, EmbeddedGeometry)):
            raise TypeError(f"{type(geometry).__name__} has no derivatives; learn with JBLD, Tangent, Sinkhorn, …")
        if self.init is None and isinstance(geometry, SmoothCloudGeometry):
            raise TypeError(
                "StochasticCompression starts from centroids of each class, which clouds have none of; learn with SWC, "
                "or give init=CloudCentroids(n_points)"
            )
        if self.optimizer in ("lbfgs", "cg") and isinstance(geometry, SmoothGeometry) and not geometry.exact_gradient:
            raise ValueError(
                f"optimizer={self.optimizer!r} needs an exact gradient, which value='transport' does not have; use "
                "optimizer='descent', or learn on value='divergence' or 'dual'"
            )
        if self.batch_size is not None and self.optimizer not in ("auto", "adam"):
            raise ValueError(f"batch_size is for optimizer='adam', not {self.optimizer!r}")
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


def _trace_of(learned: Learned, names: Indices) -> dict[str, Any]:
    """What the trace says of a fit, prototypes apart; `names` are the class indices that those of the fit stand for."""
    held_out = None
    if learned.held_out is not None:  # classes, distances to the nearest prototype of the own one, and weights
        out = learned.held_out.points()
        held_out = names[out.labels], learned.held_out.own_distances(), out.weight
    return {
        "loss_curve": learned.loss_curve,
        "n_iter": max(0, len(learned.loss_curve) - 1),
        "reason": learned.reason,
        "setting": learned.setting,
        "vote": learned.vote,
        "temperature": learned.temperature,
        "selection": learned.selection,
        "held_out": held_out,
    }


def _still_falls(curve: list[float]) -> bool:
    """Whether the last tenth of a descent took off more than a hundredth of what all of it did."""
    tenth = max(1, len(curve) // 10)
    return len(curve) > 1 and curve[-1 - tenth] - curve[-1] > 0.01 * (curve[0] - curve[-1])


def _check_number(name: str, value: Any, low: float, high: float, wanted: str) -> None:
    if isinstance(value, bool) or not isinstance(value, Real) or not low <= float(value) < high:
        raise ValueError(f"{name} is {value!r}; give {wanted}")


def _at_most(n_prototypes: int, n_points: int) -> int:
    if n_prototypes > n_points:
        warn_user(f"n_prototypes is {n_prototypes}, but there are {n_points} points; learning {n_points}")
    return min(n_prototypes, n_points)

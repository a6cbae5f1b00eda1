"""What SCC, SHC and SNC share: prototypes learned by the soft nearest-neighbour loss, at once or batch by batch."""

from __future__ import annotations

import inspect
import os
import warnings
from typing import Any, Literal, TypeVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression import Compressor, Prototypes, StochasticCompression
from knnpress.compression.loss import log_softmax
from knnpress.compression.problem import Problem
from knnpress.compression.tuning import tune
from knnpress.estimators.checks import as_generator, check_training_set, remember_features
from knnpress.estimators.model import PrototypeModel, both
from knnpress.geometries import Geometry, SmoothGeometry, SquaredEuclidean
from knnpress.progress import progress_bar
from knnpress.rows import LocalRows, is_dask
from knnpress.typing import Array, ArrayLike, Callback, Indices, Labels

__all__ = ["LearnedModel", "Optimizer", "documented"]

Model = TypeVar("Model", bound="LearnedModel")
Optimizer = Literal["auto", "lbfgs", "cg", "descent", "adam"]

_PARAMETERS = """
n_prototypes : int, float or "auto"
    How many prototypes (at least one a class), or what share of the training set. "auto": the smallest of 2, 4, 8, 16
    and 32 % that loses at most one standard error, and one point, to the full set in 5-fold cross-validation; what
    was seen is kept in ``selection_``.
gamma : float, "scale", "auto" or "tune"
    Sharpness of the soft neighbourhood. "scale": the usual one, by how far the classes are apart at the start. "auto":
    that one, or a softer one if it makes fewer errors on held-out parts of the training set. "tune": as the paper does
    for SHC, gamma and the learning rate by Bayesian optimisation of the training error (needs the extra ``tune``).
n_neighbors : int
    Neighbours that vote.
max_iter : int
    Iterations of the optimiser; for "adam", passes over the data.
init : Compressor or None
    Where to start; None: centroids of k-means within each class.
optimizer : {"auto", "lbfgs", "cg", "descent", "adam"}
    "auto": "lbfgs"; "adam" where `batch_size` is given; "descent" where the gradient is approximate.
tol : float
    Stop when no entry of the gradient exceeds it.
learning_rate : float
    First step of "descent" and "adam", relative to their own choice.
batch_size : int or None
    Points in a step of "adam"; None: all.
label_noise : float
    Share of labels that may be wrong: bounds the loss of a single point, so that wrong labels and outliers do not draw
    prototypes to them. 0 is the paper's loss.
smoothing : float
    Share of the loss that keeps all prototypes within reach of all points, which is what makes them serve new points as
    well as old. 0 is the paper's loss.
attraction : float or "auto"
    How much of the loss is added that holds prototypes among the points of their class; 0 is the paper's loss.
    "auto": 0; with at most five points a prototype 0.1, unless 0 makes clearly fewer errors on held-out parts.
early_stopping : bool
    Learn until the loss has gone flat, keep the iterations that were best on held-out parts, none included, and go on
    from there with all points.
warm_start : bool
    Whether `fit` starts from the prototypes of the last one, where there are any of the same classes and size.
callback : callable or None
    ``callback(step, total, facts)`` after each iteration, facts a dict with "loss" and "error" of the training set; a
    true answer ends that descent.
checkpoint : str, path or None
    A file that `fit` keeps its state in, rewritten every few seconds and deleted when it ends. The same call goes on
    from it where an earlier one was broken off, be it by ``kill -9``, and ends with the same prototypes. A file of
    other data, parameters or version is refused. `callback` is not called again for iterations that are done. A
    `random_state` of None is as it was drawn then; a generator must be in the state that it was in. Not with
    ``n_prototypes="auto"`` and ``gamma="tune"``, which are many fits; `partial_fit` ignores it.
vote : {"nearest", "soft"}
    "nearest" as in the paper; "soft": the class with the largest sum of probabilities.
random_state : int, RandomState, Generator or None
n_jobs : int or None
    Threads; None: all cores this process may use. Results do not depend on it.
verbose : int
    1 shows a bar with the loss and the training error.
"""

_ATTRIBUTES = """
prototypes_ : ndarray of shape (m, ...)
prototype_labels_ : ndarray of shape (m,)
prototype_weights_ : ndarray of shape (m,)
    Weight of the training points that each prototype stands for; `partial_fit` adds to it.
classes_ : ndarray of shape (n_classes,)
compression_ratio_ : float
    m / n.
gamma_ : float
n_iter_ : int
    Iterations of the last descent, that on all points.
loss_curve_ : list of float
    Mean loss at its start and after each of them.
selection_ : list of dict
    With ``n_prototypes="auto"``, the sizes tried and their held-out errors.
n_features_in_ : int
    d, the size of a point.
"""


def documented(cls: type[Model]) -> type[Model]:
    """Write what all learned models share into the docstring of one."""
    text = inspect.cleandoc(cls.__doc__ or "")
    cls.__doc__ = text.replace("<parameters>", _PARAMETERS.strip()).replace("<attributes>", _ATTRIBUTES.strip())
    return cls


class LearnedModel(PrototypeModel):
    """What SCC, SHC and SNC share: prototypes learned by the soft nearest-neighbour loss."""

    _learns = True

    def __init__(
        self,
        n_prototypes: int | float | Literal["auto"] = 0.02,
        gamma: float | Literal["scale", "auto", "tune"] = "auto",
        n_neighbors: int = 1,
        max_iter: int = 100,
        init: Compressor | None = None,
        optimizer: Optimizer = "auto",
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        batch_size: int | None = None,
        label_noise: float = 0.2,
        smoothing: float = 0.05,
        attraction: float | Literal["auto"] = 0.0,
        early_stopping: bool = True,
        warm_start: bool = False,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        vote: Literal["nearest", "soft"] = "nearest",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.gamma = gamma
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.init = init
        self.optimizer = optimizer
        self.tol = tol
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.label_noise = label_noise
        self.smoothing = smoothing
        self.attraction = attraction
        self.early_stopping = early_stopping
        self.warm_start = warm_start
        self.callback = callback
        self.checkpoint = checkpoint
        self.vote = vote
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self: Model, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Model:
        """Learn prototypes of the training set.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
            Points of the geometry. A dask array stays on the workers of the current client; without a client it is
            read block by block, as are memory maps, zarr arrays and HDF5 datasets larger than 256 MB. Then the start,
            gamma and the number of iterations are chosen by 20,000 of the points, at most.
        y : array of shape (n,)
            Labels of any kind, of at least two classes.
        sample_weight : array of shape (n,) or None
        """
        self._fit(X, y, sample_weight)
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        if self.vote not in ("nearest", "soft"):
            raise ValueError(f"vote is {self.vote!r}; choose 'nearest' or 'soft'")
        compressor = self._compressor()
        if self.gamma == "tune" and self.checkpoint is not None:
            raise ValueError(
                'gamma="tune" is many fits, and a checkpoint serves one; search by knnpress.compression.tune, with its '
                "own storage, and give what it finds"
            )
        if is_dask(X) and (self.gamma == "tune" or self.n_prototypes == "auto"):
            what = 'gamma="tune"' if self.gamma == "tune" else 'n_prototypes="auto"'
            raise ValueError(f"{what} is many fits, and X is a dask array; search on a part of it that fits in memory")
        if self.gamma == "tune":
            compressor.set_params(**self._tuned(X, y))
        if self.warm_start and hasattr(self, "gamma_"):
            last = Prototypes(self.prototypes_, self._codes())
            # nothing can be held out from a start that has seen it
            compressor.set_params(init=_Last(last, compressor.init), gamma=self.gamma_, early_stopping=False)
        prototypes = self._compress(compressor, self.n_prototypes, X, y, sample_weight)
        self.gamma_: float = prototypes.gamma or 1.0
        self.n_iter_ = prototypes.trace["n_iter"]
        self.loss_curve_ = prototypes.trace["loss_curve"]
        self.prototype_weights_ = prototypes.trace["weights"]

    def _tuned(self, X: ArrayLike, y: ArrayLike) -> dict[str, float]:
        """gamma and learning rate of least training error, by Bayesian optimisation around the usual gamma."""
        plain = clone(self).set_params(gamma="auto", callback=None, verbose=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            usual = clone(plain).set_params(max_iter=1).fit(X, y).gamma_
            space = {"gamma": (usual / 4, usual * 4, "log"), "learning_rate": (0.1, 10.0, "log")}
            settings = {"random_state": self.random_state, "n_jobs": self.n_jobs, "verbose": self.verbose}
            return tune(plain, X, y, space=space, criterion="training", **settings).best_params

    def partial_fit(self: Model, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Model:
        """Learn from one more batch of points.

        The centroids of the points that the current prototypes stand for join the batch, weighted by their number, so
        that what earlier batches taught is not forgotten. (A prototype may learn to stand far off those points; after
        `fit` or `load`, which do not keep their centroids, the prototypes themselves join.) gamma and the chart stay
        those of the first call.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
        y : array of shape (n,)
        classes : array or None
            At the first call, all classes that will ever come; None: those in y.
        """
        geometry = self._geometry()
        if not isinstance(self.n_prototypes, (int, np.integer)) or isinstance(self.n_prototypes, bool):
            raise ValueError(
                f"n_prototypes is {self.n_prototypes!r}; partial_fit cannot know a share of all points to come: give a "
                "whole number"
            )
        points, labels = check_training_set(self, geometry, X, y)
        known = self.classes_ if hasattr(self, "classes_") else np.unique(labels if classes is None else classes)
        if classes is not None and not np.array_equal(known, np.unique(classes)):
            raise ValueError(f"classes is {np.unique(classes)}, but the first call said {known}")
        new = np.setdiff1d(labels, known)
        if len(new):
            raise ValueError(f"y contains {new.tolist()}, which the first call did not announce; it said {known}")
        if self.n_prototypes < len(known):
            raise ValueError(
                f"n_prototypes is {self.n_prototypes}, but there are {len(known)} classes; give each at least one"
            )
        if hasattr(self, "n_features_in_") and points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        self._absorb(geometry, known, points, np.searchsorted(known, labels))
        remember_features(self, X, points)
        return self

    def _absorb(self, geometry: Geometry, classes: Labels, X: Array, y: Indices) -> None:
        """Move the prototypes, after adding some for classes that lack them, to serve the batch and themselves."""
        assert isinstance(geometry, SmoothGeometry)
        compressor, rng = self._compressor(), as_generator(self.random_state)
        first = not hasattr(self, "prototypes_")
        old = X[:0] if first else self.prototypes_
        anchors = X[:0] if first else getattr(self, "_anchors", old)
        codes = y[:0] if first else self._codes()
        weights = np.zeros(0) if first else self.prototype_weights_
        share = int(self.n_prototypes) // len(classes)
        added: list[Prototypes] = []
        for c in np.unique(y):
            missing = min(share - int((codes == c).sum()), int((y == c).sum()))
            if missing > 0:
                rows = y == c
                added.append(compressor.start(X[rows], y[rows], geometry, missing, rng, self.n_jobs))
        start = Prototypes(
            np.concatenate([old, *(a.points for a in added)]), np.concatenate([codes, *(a.labels for a in added)])
        )
        chart = getattr(self, "_chart", None) or geometry.chart(X if first else old)
        points, weight = np.concatenate([X, anchors]), np.concatenate([np.ones(len(X)), weights])
        rows = LocalRows(points, np.concatenate([y, codes]), weight, self.n_jobs)
        seed = int(rng.integers(2**31))
        problem = Problem(compressor, geometry, chart, rows, rows.cut(len(start.points)), start, seed)
        ready = len(np.unique(start.labels)) > 1  # one class alone has nothing to be told apart from
        moved, curve = start.points, [0.0]
        if ready:
            if not hasattr(self, "gamma_"):
                gamma = problem.usual_gamma() if isinstance(self.gamma, str) else float(self.gamma)
            else:
                gamma = self.gamma_
            with progress_bar(type(self).__name__, self.verbose > 0) as bar:
                report = both(bar, self.callback)
                found = problem.learn(
                    gamma,
                    self.max_iter,
                    lambda k, _, now: report and report(k, self.max_iter, {"loss": now.loss, "error": now.error}),
                )
            moved, curve = chart.to_point(found.theta), found.loss_curve
        W = np.zeros((len(points), len(moved)))
        W[np.arange(len(points)), problem.represented(moved)] = weight
        near = np.concatenate([anchors, *(a.points for a in added)])
        means = geometry if geometry.point_ndim == 2 else SquaredEuclidean()  # as for the start
        used = W.sum(axis=0) > 0
        near[used] = means.centroid_step(points, W[:, used] / W[:, used].sum(axis=0), near[used], self.n_jobs)
        self._chart, self._anchors = chart, near
        self.classes_ = classes
        self.prototypes_ = moved
        self.prototype_labels_ = classes[start.labels]
        self.prototype_weights_ = W.sum(axis=0)
        self.n_iter_, self.loss_curve_ = len(curve) - 1, curve
        self.compression_ratio_ = len(moved) / float(self.prototype_weights_.sum())
        if ready:
            self.gamma_ = gamma

    def _compressor(self) -> StochasticCompression:
        return StochasticCompression(
            gamma="auto" if self.gamma == "tune" else self.gamma,
            init=self.init,
            optimizer=self.optimizer,
            max_iter=self.max_iter,
            tol=self.tol,
            learning_rate=self.learning_rate,
            batch_size=self.batch_size,
            label_noise=self.label_noise,
            smoothing=self.smoothing,
            attraction=self.attraction,
            early_stopping=self.early_stopping,
            checkpoint=self.checkpoint,
        )

    def _decide(self, X: ArrayLike) -> tuple[Indices, Array]:
        if self.vote == "nearest" and self.n_neighbors > 1:
            return super()._decide(X)
        # A class counts by its nearest prototype, or by all of its prototypes
        D, codes = self.transform(X), self._codes()
        logits = np.full((len(D), len(self.classes_)), -np.inf)  # a class may wait for its first prototype
        combine = np.max if self.vote == "nearest" else logsumexp
        gamma = getattr(self, "gamma_", 1.0)  # not known before a second class has come
        for c in np.unique(codes):
            logits[:, c] = combine(-(gamma**2) * D[:, codes == c], axis=1)
        _, share = log_softmax(logits)
        return share.argmax(axis=1), share


class _Last(BaseEstimator):
    """Start from the last prototypes where they fit the new task, else as `other` does."""

    def __init__(self, last: Prototypes, other: Compressor | None) -> None:
        self.last, self.other = last, other

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        fits = n_prototypes == len(self.last.points) and X.shape[1:] == self.last.points.shape[1:]
        if fits and np.array_equal(np.unique(y), np.unique(self.last.labels)):
            return self.last
        rng = np.random.default_rng() if random_state is None else random_state
        m = n_prototypes or len(np.unique(y))
        return StochasticCompression(init=self.other).start(X, y, geometry, m, rng, n_jobs, sample_weight)

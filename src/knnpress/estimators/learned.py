"""What SCC, SHC, SNC and SWC share: prototypes learned by the soft nearest-neighbour loss, at once or by batches."""

from __future__ import annotations

import os
import warnings
from inspect import signature
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import ConvergenceWarning

from knnpress.arrays import as_float_array
from knnpress.compression import Compressor, Prototypes, StochasticCompression
from knnpress.compression.tuning import tune
from knnpress.estimators.batches import SETTING, WeightedPrototypes, learn_from_batch
from knnpress.estimators.checks import (
    as_generator,
    check_labels,
    check_sample_weight,
    check_training_set,
    is_large,
    present,
    remember_features,
)
from knnpress.estimators.model import PrototypeModel, combine_callbacks, whole_or_unchanged
from knnpress.estimators.outliers import (
    LEVELS,
    average_levels,
    check_reject,
    class_levels,
    nearest_of_class,
    outlier_scores,
    rejecting,
    some_rows,
)
from knnpress.estimators.prepared import Prepared
from knnpress.execution.rows import LocalRows
from knnpress.execution.stored import is_dask
from knnpress.geometries import EmbeddedGeometry, Geometry, SmoothGeometry, SquaredEuclidean, geometry_name
from knnpress.geometries.base import CloudGeometry, FittableGeometry
from knnpress.learning.loss import log_softmax
from knnpress.parameters import check_parameters
from knnpress.progress import progress_bar
from knnpress.typing import Array, ArrayLike, Callback, Indices, Labels

Model = TypeVar("Model", bound="LearnedModel")

_TIE = 1e-13  # log-odds that rounding of a sum over prototypes makes

_REMOVED = {
    "early_stopping": "descents end by themselves, held near their start by `prior`",
    "validation_fraction": "settings are cross-validated; see `selection_`",
    "attraction": "`prior` holds prototypes near their start",
    "whiten": "the paper's parameters are compressor=StochasticCompression(chart='paper')",
    "roots": "the paper's parameters are compressor=StochasticCompression(chart='paper')",
    **{
        name: f"it is a parameter of the compressor: compressor=StochasticCompression({name}=...)"
        for name in ("init", "optimizer", "tol", "learning_rate", "batch_size", "label_noise")
    },
}


def paper_settings(settings: dict[str, Any], **paper: Any) -> dict[str, Any]:
    """The paper's settings of a compressor, with those that the user gives instead, and the model's own settings."""
    own = {name: settings.pop(name) for name in list(settings) if name in _REMOVED and name in _COMPRESSOR}
    plain = {"prior": 0.0, "smoothing": 0.0, "label_noise": 0.0, "vote": "nearest", "chart": "paper", "tol": 0.0}
    return {"compressor": StochasticCompression(**{**plain, **paper, **own}), **settings}


_COMPRESSOR = frozenset(StochasticCompression().get_params(deep=False))


class LearnedModel(PrototypeModel):
    """What SCC, SHC, SNC and SWC share: prototypes learned by the soft nearest-neighbour loss."""

    _learns = True

    # a Pipeline passes these on without a request, where metadata routing is enabled
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"reject": True, "reject_label": True}

    def __new__(cls, *args: Any, **settings: Any) -> LearnedModel:
        """Say what has replaced a parameter of earlier versions."""
        for name in settings.keys() & _REMOVED.keys():
            raise TypeError(f"{cls.__name__} has no parameter {name!r}; {_REMOVED[name]}")
        return super().__new__(cls)

    def __init__(
        self,
        n_prototypes: int | float | Literal["auto"] = 0.02,
        *,
        gamma: float | Literal["scale", "auto", "tune"] = "auto",
        prior: float | Literal["auto"] = "auto",
        smoothing: float | Literal["auto"] = "auto",
        vote: Literal["nearest", "soft", "auto"] = "auto",
        n_neighbors: int = 1,
        max_iter: int | None = None,
        class_weight: dict[Any, float] | Literal["balanced"] | None = None,
        warm_start: bool = False,
        compressor: StochasticCompression | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callback | None = None,
        random_state: Any = 0,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_prototypes = n_prototypes
        self.gamma = gamma
        self.prior = prior
        self.smoothing = smoothing
        self.vote = vote
        self.n_neighbors = n_neighbors
        self.max_iter = max_iter
        self.class_weight = class_weight
        self.warm_start = warm_start
        self.compressor = compressor
        self.checkpoint = checkpoint
        self.callback = callback
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(
        self: Model,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Model:
        """Learn prototypes of the training set.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d); for `SWC`, Clouds or StoredClouds
            Points of the geometry. A dask array stays on the workers of the current client; without a client it is
            read block by block, as are memory maps, zarr arrays and HDF5 datasets larger than 256 MB. The start and the
            setting are chosen by 20,000 of the points, at most.
        y : array of shape (n,)
            Labels of any kind, of at least two classes.
        sample_weight : array of shape (n,) or None
            A point of weight 0 is absent (where points are not in memory, it is still read and checked), one of weight
            2 counts as two.
        groups : array of shape (n,) or None
            E.g. subjects, sessions or objects: no group is both learned from and held out, so that settings are chosen
            for groups never seen.
        """
        check_parameters(self)
        with whole_or_unchanged(self):
            self._fit(X, y, sample_weight, groups)
        return self

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None) -> None:
        compressor, geometry = self._compressor(), None
        self._refuse_many_fits(X)
        if self.gamma == "tune":
            compressor.set_params(**self._tuned(X, y, sample_weight))
        if self.warm_start and hasattr(self, "gamma_") and self._has_its_classes(y, sample_weight):
            self._start_from_last(compressor)
            geometry = self.geometry_
        prototypes = self._compress(
            compressor, self.n_prototypes, X, y, sample_weight, groups, self.class_weight, geometry
        )
        trace = prototypes.trace
        self.metric_: str = geometry_name(self.geometry_)
        self.gamma_: float = prototypes.gamma or 1.0
        self.prior_: float = trace["setting"].prior
        self.smoothing_: float = trace["setting"].smoothing
        self.vote_: str = "nearest" if self.n_neighbors > 1 and self.vote == "auto" else trace["vote"]
        self.temperature_: float = trace["temperature"]
        self.n_iter_ = trace["n_iter"]
        self.loss_curve_ = trace["loss_curve"]
        self.stopped_by_: str = trace["reason"]
        self.prototype_weights_ = trace["weights"]
        best = next((seen for seen in trace["selection"] if seen["chosen"]), None)
        self.calibration_: dict[str, Any] = _calibration(self.temperature_, best, len(trace["selection"]))
        self.distance_levels_ = self._distance_levels(X, y, sample_weight, trace["held_out"])
        self._set_reg()

    def _refuse_many_fits(self, X: ArrayLike) -> None:
        """Refuse searches that are many fits where a checkpoint, or points elsewhere, allow one."""
        if self.gamma == "tune" and self.checkpoint is not None:
            raise ValueError(
                'gamma="tune" is many fits, and a checkpoint serves one; search by knnpress.compression.tune, with its '
                "own storage, and give what it finds"
            )
        if is_dask(X) and (self.gamma == "tune" or self.n_prototypes == "auto"):
            what = 'gamma="tune"' if self.gamma == "tune" else 'n_prototypes="auto"'
            raise ValueError(f"{what} is many fits, and X is a dask array; search on a part of it that fits in memory")

    def _start_from_last(self, compressor: StochasticCompression) -> None:
        """Let a compressor start from the last prototypes.

        Nothing can be held out from a start that has seen it: the setting stays what it was.
        """
        vectors = self.prototype_vectors_
        last = Prototypes(self.prototypes_ if vectors is None else vectors, self._codes())
        known = {"gamma": self.gamma_, "prior": self.prior_, "smoothing": self.smoothing_, "vote": self.vote_}
        params = compressor.get_params(deep=False)
        kept = {name: value for name, value in known.items() if params[name] == "auto"}
        compressor.set_params(init=_Last(last, compressor.init), **kept)

    def _distance_levels(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        held_out: tuple[Indices, Array, Array] | None,
    ) -> Array:
        """Levels of the training points, or of the points held out where those are farther from prototypes."""
        labels = np.asarray(y).reshape(-1)
        weight = check_sample_weight(sample_weight, self.class_weight, labels)
        some, rows = some_rows(X, is_dask(X) or is_large(X), weight)
        levels = self._levels(some, labels[rows], None if weight is None else weight[rows])
        if held_out is None:
            return levels
        codes, distances, out_weight = held_out  # points learned from are nearer than new ones will be
        return np.fmax(levels, class_levels(distances, codes, len(self.classes_), out_weight))

    def _has_its_classes(self, y: ArrayLike, sample_weight: ArrayLike | None) -> bool:
        """Whether the points of weight above zero are of the classes that were learned last."""
        labels = np.asarray(y).reshape(-1)
        weight = check_sample_weight(sample_weight, self.class_weight, labels)
        return np.array_equal(np.unique(labels if weight is None else labels[weight > 0]), self.classes_)

    def _levels(self, X: ArrayLike, y: Labels, weight: Array | None = None) -> Array:
        near = nearest_of_class(self._distances(X), self._codes(), len(self.classes_))
        codes = np.searchsorted(self.classes_, y)
        return class_levels(near[np.arange(len(near)), codes], codes, len(self.classes_), weight)

    def _compressor(self) -> StochasticCompression:
        """The compressor, with the model's own parameters in place of its own."""
        if not isinstance(self.compressor, (StochasticCompression, type(None))):
            raise TypeError(
                f"compressor is a {type(self.compressor).__name__}; {type(self).__name__} learns with a "
                "StochasticCompression. For others use PrototypeClassifier(geometry, compressor)"
            )
        if isinstance(self.gamma, str) and self.gamma not in ("scale", "auto", "tune"):
            raise ValueError(f"gamma is {self.gamma!r}; give a positive number, 'scale', 'auto' or 'tune'")
        compressor = StochasticCompression() if self.compressor is None else clone(self.compressor)
        own = {"gamma": self.gamma, "prior": self.prior, "smoothing": self.smoothing, "vote": self.vote}
        given = {name: value for name, value in own.items() if value not in ("auto", "tune")}
        more = {"max_iter": self.max_iter, "checkpoint": self.checkpoint}
        return compressor.set_params(**given, **{name: value for name, value in more.items() if value is not None})

    def _tuned(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> dict[str, float]:
        """gamma and learning rate of least training error, by Bayesian optimisation around the usual gamma.

        Errors are counted, not weighted, among the points whose weight is not zero.
        """
        if sample_weight is not None or self.class_weight is not None:
            geometry = self._geometry()
            points = geometry.check(X) if isinstance(geometry, CloudGeometry) else as_float_array(X, "X")
            labels = check_labels(y, len(points))
            X, y, *_ = present(points, labels, check_sample_weight(sample_weight, self.class_weight, labels), None)
        compressor = self._compressor()
        plain = clone(self).set_params(gamma="scale", callback=None, verbose=0, compressor=compressor)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            usual = clone(plain).set_params(max_iter=1).fit(X, y).gamma_
            space = {
                "gamma": (usual / 4, usual * 4, "log"),
                "compressor__learning_rate": (0.1, 10.0, "log"),
            }
            settings = {"random_state": self.random_state, "n_jobs": self.n_jobs, "verbose": self.verbose}
            found = tune(plain, X, y, space=space, criterion="training", **settings).best_params
        return {"gamma": found["gamma"], "learning_rate": found["compressor__learning_rate"]}

    def partial_fit(self: Model, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None) -> Model:
        """Learn from one more batch of points.

        Each prototype is held where it is by as many points as it stands for, so that what earlier batches taught is
        not forgotten. gamma stays as in the first call; nothing is chosen by cross-validation.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
        y : array of shape (n,)
        classes : array or None
            In the first call, all classes that will ever come; None: the classes in y.
        """
        check_parameters(self)
        geometry = self._fitted_geometry()
        self._check_batch_settings()
        points, labels = check_training_set(self, geometry, X, y)
        known = self._known_classes(labels, classes)
        if hasattr(self, "n_features_in_") and points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        codes = np.searchsorted(known, labels)
        before = getattr(self, "distance_levels_", np.full((len(known), len(LEVELS)), np.nan))
        weight = self._class_weights(len(known))
        with whole_or_unchanged(self):
            self._update_from_batch(geometry, known, points, codes)
            remember_features(self, X, points)
            counts = np.bincount(codes, minlength=len(known))
            self.distance_levels_ = average_levels(before, weight, self._levels(points, labels), counts)
            if not hasattr(self, "calibration_"):
                self.calibration_ = _calibration(getattr(self, "temperature_", 1.0), None, 0)
        return self

    def _check_batch_settings(self) -> None:
        """Refuse what would need all points at once."""
        if not isinstance(self.n_prototypes, (int, np.integer)) or isinstance(self.n_prototypes, bool):
            raise ValueError(
                f"n_prototypes is {self.n_prototypes!r}; partial_fit cannot know a share of all points to come: give a "
                "whole number"
            )
        if self.gamma == "tune":
            raise ValueError(
                'gamma is "tune", which is many fits on all points, and partial_fit sees a batch; give a number, or '
                '"scale" for the usual gamma of the first batch'
            )

    def _known_classes(self, y: Labels, classes: ArrayLike | None) -> Labels:
        """All classes that will ever come, as the first call said; refuses others."""
        known = self.classes_ if hasattr(self, "classes_") else np.unique(y if classes is None else classes)
        if classes is not None and not np.array_equal(known, np.unique(classes)):
            raise ValueError(f"classes is {np.unique(classes)}, but the first call said {known}")
        new = np.setdiff1d(y, known)
        if len(new):
            raise ValueError(f"y contains {new.tolist()}, which the first call did not announce; it said {known}")
        if int(self.n_prototypes) < len(known):
            raise ValueError(
                f"n_prototypes is {self.n_prototypes}, but there are {len(known)} classes; give each at least one"
            )
        return known

    def _class_weights(self, n_classes: int) -> Array:
        """Weight of the training points of each class so far."""
        if not hasattr(self, "prototypes_"):
            return np.zeros(n_classes)
        return np.bincount(self._codes(), self.prototype_weights_, minlength=n_classes)

    def predict(self, X: ArrayLike, *, reject: float | None = None, reject_label: Any = None) -> Labels:
        """Labels of the points X, (n,); for a dask array a lazy one, chunk by chunk.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
        reject : float or None
            Share r of the training points of a class that may be refused: points that are farther from the prototypes
            of every class than all but r of its training points get `reject_label`. None: every point gets a class.
        reject_label : label or None
            Where one array cannot hold it and the classes as they are, e.g. None, the result is an array of objects.
        """
        labels = super().predict(X)
        if reject is None:
            return labels
        share = check_reject(reject)
        if is_dask(X):
            raise TypeError("reject is given, and X is a dask array; compare its outlier_score(X) with 1 - reject")
        return rejecting(labels, self.outlier_score(X) > 1.0 - share, reject_label)

    def outlier_score(self, X: ArrayLike) -> Array:
        """How strange each point is, (n,): larger is stranger. For a dask array a lazy one, chunk by chunk.

        Up to 1, the share of the training points of a class that are nearer to its prototypes than the point is; above
        1, how many times farther it is than the farthest of them. The class that gives the least counts.
        """
        if is_dask(X) or is_large(X):
            return self._by_chunk("outlier_score", X)
        near = nearest_of_class(self._distances(X), self._codes(), len(self.classes_))
        if not hasattr(self, "distance_levels_"):
            raise ValueError("this model was fitted by a knnpress that did not keep distance_levels_; fit it again")
        return outlier_scores(near, self.distance_levels_)

    def score_samples(self, X: ArrayLike) -> Array:
        r"""Log-density of each point, up to a constant, (n,): :math:`\log \frac{1}{m} \sum_j \exp(-\gamma^2 D_{ij})`.

        Larger is more usual. It compares points under one model, not models. For a dask array a lazy one, chunk by
        chunk.
        """
        if is_dask(X) or is_large(X):
            return self._by_chunk("score_samples", X)
        logits = -(getattr(self, "gamma_", 1.0) ** 2) * self._distances(X)
        return logsumexp(logits, axis=1) - np.log(logits.shape[1])

    def _update_from_batch(self, geometry: Geometry, classes: Labels, X: Array, y: Indices) -> None:
        """Move the prototypes, after adding some for classes that lack them, to serve the batch."""
        fitted = metric = geometry.fitted_to(X) if isinstance(geometry, FittableGeometry) else geometry
        embeds = isinstance(fitted, EmbeddedGeometry)
        if isinstance(fitted, EmbeddedGeometry):
            metric, X = SquaredEuclidean(), fitted.embed(X, self.n_jobs)
        assert isinstance(metric, SmoothGeometry)
        before = None
        if hasattr(self, "prototypes_"):
            points = np.asarray(self.prototype_vectors_) if embeds else self.prototypes_
            before = WeightedPrototypes(points, self._codes(), self.prototype_weights_)
        with progress_bar(type(self).__name__, self.verbose > 0) as bar:
            found = learn_from_batch(
                LocalRows(X, y, None, self.n_jobs),
                metric,
                before,
                self._compressor(),
                per_class=int(self.n_prototypes) // len(classes),
                setting={name: getattr(self, name) for name in SETTING if hasattr(self, name)},
                rng=as_generator(self.random_state),
                callback=combine_callbacks(bar, self.callback),
            )
        for name, value in found.setting.items():  # last, in case the work is interrupted
            setattr(self, name, value)
        learned = found.prototypes
        self.classes_ = classes
        self.geometry_, self.metric_ = fitted, geometry_name(fitted)
        self.prototype_vectors_ = learned.points if embeds else None
        self.prototypes_ = fitted.unembed(learned.points) if isinstance(fitted, EmbeddedGeometry) else learned.points
        self.prototype_labels_ = classes[learned.labels]
        self.prototype_weights_ = learned.weights
        self.n_iter_, self.loss_curve_ = len(found.loss_curve) - 1, found.loss_curve
        self.compression_ratio_ = len(learned.points) / float(learned.weights.sum())
        self._set_reg()

    def _set_reg(self) -> None:
        """Set the fitted attributes that the geometry alone decides, where there are any."""

    def _winners(self, X: ArrayLike) -> Indices:
        if getattr(self, "vote_", "nearest") == "soft" or self.n_neighbors > 1:
            return super()._winners(X)
        gamma = getattr(self, "gamma_", 1.0)
        return self._by_block(X, lambda ready, D: ready.by_class.nearest(D, gamma))

    def _decide(self, X: ArrayLike) -> tuple[Indices, Array]:
        vote = getattr(self, "vote_", "nearest")
        if vote == "nearest" and self.n_neighbors > 1:
            return super()._decide(X)
        # A class counts by its nearest prototype, or by all of its prototypes; gamma comes with the second class
        gamma, temperature = getattr(self, "gamma_", 1.0), getattr(self, "temperature_", 1.0)

        def scores(ready: Prepared, D: Array) -> Array:
            nearest, soft = ready.by_class.scores(D, gamma)
            return np.stack([nearest, soft if vote == "soft" else nearest], axis=1)

        found = self._by_block(X, scores)
        logits = temperature * found[:, 1]
        _, share = log_softmax(logits)
        # a tiny gamma makes all shares alike, and their sums too, but not all distances: ties go to the nearest
        tied = logits >= logits.max(axis=1, keepdims=True) - _TIE * (vote == "soft")
        return np.where(tied, found[:, 0], -np.inf).argmax(axis=1), share


def shared_parameters(arguments: dict[str, Any]) -> dict[str, Any]:
    """Of the arguments of a model's `__init__`, which must name them all for scikit-learn, those of `LearnedModel`."""
    return {name: value for name, value in arguments.items() if name in _SHARED}


_SHARED = frozenset(signature(LearnedModel.__init__).parameters) - {"self"}


def _calibration(temperature: float, best: dict[str, Any] | None, n_settings: int) -> dict[str, Any]:
    """The value of ``calibration_``; `best` is the held-out result of the chosen setting."""
    return {
        "method": "none" if best is None else "temperature",
        "temperature": float(temperature),
        "n_settings": n_settings,
        "held_out_loss": None if best is None else float(best["loss"]),
    }


class _Last(BaseEstimator):
    """Start from the last prototypes where they fit the new task, else as `other` does."""

    def __init__(self, last: Prototypes, other: Compressor | None) -> None:
        self.last, self.other = last, other

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: SmoothGeometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        if n_prototypes == len(self.last.points) and X.shape[1:] == self.last.points.shape[1:]:
            return self.last
        rng = np.random.default_rng() if random_state is None else random_state
        m = n_prototypes or len(np.unique(y))
        return StochasticCompression(init=self.other).start(X, y, geometry, m, rng, n_jobs, sample_weight)

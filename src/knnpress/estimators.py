"""The thin scikit-learn layer over geometries, compressors and neighbours."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from numbers import Integral
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_is_fitted, column_or_1d, validate_data

from knnpress.compression import Compressor, KeepAll, Prototypes, StochasticCompression
from knnpress.compression.loss import log_softmax
from knnpress.geometries import JBLD, Geometry, LogEuclidean, Sinkhorn, SquaredEuclidean, as_geometry
from knnpress.neighbors import nearest, vote
from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array, ArrayLike, Indices, Labels

__all__ = ["SCC", "SHC", "SNC", "PrototypeClassifier", "PrototypeSampler"]


class _PrototypeModel(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """What every classifier here does once it has prototypes."""

    _learns = False  # learning needs something to tell apart

    # set by the subclasses' __init__
    n_neighbors: int
    random_state: Any
    n_jobs: int | None

    @abstractmethod
    def _geometry(self) -> Geometry:
        """The geometry that the parameters describe."""

    def _compress(
        self,
        compressor: Compressor,
        n_prototypes: int | float | None,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> Prototypes:
        """Check the training set, compress it, and set the fitted attributes."""
        geometry = self._geometry()
        points, labels = check_training_set(self, geometry, X, y)
        weight = None if sample_weight is None else check_sample_weight(sample_weight, len(points))
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) == 1 and self._learns:
            raise ValueError(f"{type(self).__name__} needs at least two classes; y has one class, {classes[0]!r}")
        prototypes = compressor.compress(
            points,
            codes,
            geometry=geometry,
            n_prototypes=resolve_n_prototypes(n_prototypes, len(points), len(classes)),
            sample_weight=weight,
            random_state=as_generator(self.random_state),
            n_jobs=self.n_jobs,
        )
        check_n_neighbors(self.n_neighbors, len(prototypes.points))
        self.classes_ = classes
        self.prototypes_ = prototypes.points
        self.prototype_labels_ = classes[prototypes.labels]
        self.compression_ratio_ = len(prototypes.points) / len(points)
        return prototypes

    def predict(self, X: ArrayLike) -> Labels:
        """Labels of the points X, (n,)."""
        winner, _ = self._decide(X)
        return self.classes_[winner]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class, (n, n_classes); its largest entry is the prediction.

        Without a gamma, and with several neighbours: the share of the neighbours' votes.
        """
        _, share = self._decide(X)
        return share

    def kneighbors(
        self, X: ArrayLike, n_neighbors: int | None = None, return_distance: bool = True
    ) -> tuple[Array, Indices] | Indices:
        """The nearest prototypes of each point, nearest first.

        Returns
        -------
        distance : ndarray of shape (n, k)
            Only with ``return_distance=True``.
        index : ndarray of shape (n, k)
            Rows of ``prototypes_``.
        """
        distance, index = self._nearest(X, self.n_neighbors if n_neighbors is None else n_neighbors)
        return (distance, index) if return_distance else index

    def transform(self, X: ArrayLike) -> Array:
        """Distances of the points to every prototype, (n, m)."""
        points, distances = self._check_query(X)
        blocks = row_blocks(len(points), 8 * len(self.prototypes_))
        return np.concatenate(map_blocks(lambda rows: distances(points[rows]), blocks, self.n_jobs))

    @property
    def _n_features_out(self) -> int:
        return len(self.prototypes_)

    def _decide(self, X: ArrayLike) -> tuple[Indices, Array]:
        """Class index and probabilities of each point."""
        _, index = self._nearest(X, self.n_neighbors)
        return vote(self._codes()[index], len(self.classes_))

    def _codes(self) -> Indices:
        return np.searchsorted(self.classes_, self.prototype_labels_)

    def _nearest(self, X: ArrayLike, k: int) -> tuple[Array, Indices]:
        points, distances = self._check_query(X)
        check_n_neighbors(k, len(self.prototypes_))
        return nearest(distances, points, len(self.prototypes_), k, self.n_jobs)

    def _check_query(self, X: ArrayLike) -> tuple[Array, Callable[[Array], Array]]:
        check_is_fitted(self)
        geometry = self._geometry()
        points = geometry.check(X, n_jobs=self.n_jobs)
        validate_data(self, X, reset=False, skip_check_array=True)  # the names of features, where X has any
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        return points, geometry.distances_to(self.prototypes_)


class PrototypeClassifier(_PrototypeModel):
    """Nearest-prototype classification under any geometry, with any compressor.

    Parameters
    ----------
    geometry : Geometry or str
        E.g. ``JBLD()`` or ``"jbld"``; see `knnpress.geometries`.
    compressor : Compressor or None
        How to make prototypes of the training set; None is ``KeepAll()``, full nearest neighbours.
    n_prototypes : int or None
        None: what the compressor yields.
    n_neighbors : int
        k. Ties in the vote go to the nearer class.
    random_state : int, RandomState, Generator or None
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.
    verbose : int

    Attributes
    ----------
    prototypes_ : ndarray of shape (m, ...)
    prototype_labels_ : ndarray of shape (m,)
    classes_ : ndarray of shape (n_classes,)
    compression_ratio_ : float
        m / n.
    n_features_in_ : int
        d, the size of a point.

    Examples
    --------
    >>> import knnpress as kp
    >>> data = kp.datasets.load_digits_covariances()
    >>> clf = kp.PrototypeClassifier("jbld").fit(data.X[:1000], data.y[:1000])
    >>> clf.score(data.X[1000:], data.y[1000:]) > 0.9
    True
    """

    def __init__(
        self,
        geometry: Geometry | str,
        compressor: Compressor | None = None,
        n_prototypes: int | None = None,
        n_neighbors: int = 1,
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.geometry = geometry
        self.compressor = compressor
        self.n_prototypes = n_prototypes
        self.n_neighbors = n_neighbors
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike) -> PrototypeClassifier:
        """Compress the training set.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
            Points of the geometry.
        y : array of shape (n,)
            Labels of any kind.
        """
        self._compress(KeepAll() if self.compressor is None else self.compressor, self.n_prototypes, X, y)
        return self

    def _geometry(self) -> Geometry:
        return as_geometry(self.geometry)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        ndim = as_geometry(self.geometry).point_ndim
        tags.input_tags.two_d_array = ndim == 1
        tags.input_tags.three_d_array = ndim == 2
        return tags


class PrototypeSampler(BaseEstimator):
    """A compressor as a resampler, in the manner of imbalanced-learn.

    Parameters
    ----------
    geometry : Geometry or str
    compressor : Compressor
    n_prototypes : int, float or None
        How many, or what share of the training set; None: what the compressor yields.
    random_state : int, RandomState, Generator or None
    n_jobs : int or None

    Attributes
    ----------
    sample_indices_ : ndarray of shape (m,) or None
        Rows of X that were chosen; None where the prototypes were made and not chosen.
    n_features_in_ : int
    """

    def __init__(
        self,
        geometry: Geometry | str,
        compressor: Compressor,
        n_prototypes: int | float | None = None,
        random_state: Any = None,
        n_jobs: int | None = None,
    ) -> None:
        self.geometry = geometry
        self.compressor = compressor
        self.n_prototypes = n_prototypes
        self.random_state = random_state
        self.n_jobs = n_jobs

    def fit_resample(self, X: ArrayLike, y: ArrayLike) -> tuple[Array, Labels]:
        """Return prototypes, (m, ...), and their labels, (m,)."""
        geometry = as_geometry(self.geometry)
        points, labels = check_training_set(self, geometry, X, y)
        prototypes = self.compressor.compress(
            points,
            labels,
            geometry=geometry,
            n_prototypes=resolve_n_prototypes(self.n_prototypes, len(points), len(np.unique(labels))),
            random_state=as_generator(self.random_state),
            n_jobs=self.n_jobs,
        )
        self.sample_indices_ = prototypes.indices
        return prototypes.points, prototypes.labels


class _LearnedModel(_PrototypeModel):
    """What SCC, SHC and SNC share: prototypes learned by the soft nearest-neighbour loss."""

    _learns = True

    def __init__(
        self,
        n_prototypes: int | float = 0.02,
        gamma: float | Literal["auto"] = "auto",
        n_neighbors: int = 1,
        max_iter: int = 100,
        init: Compressor | None = None,
        optimizer: Literal["lbfgs", "cg", "descent"] = "lbfgs",
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        early_stopping: bool = True,
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
        self.early_stopping = early_stopping
        self.vote = vote
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> _LearnedModel:
        """Learn prototypes of the training set.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
            Points of the geometry.
        y : array of shape (n,)
            Labels of any kind, of at least two classes.
        sample_weight : array of shape (n,) or None
        """
        if self.vote not in ("nearest", "soft"):
            raise ValueError(f"vote is {self.vote!r}; choose 'nearest' or 'soft'")
        compressor = StochasticCompression(
            gamma=self.gamma,
            init=self.init,
            optimizer=self.optimizer,
            max_iter=self.max_iter,
            tol=self.tol,
            learning_rate=self.learning_rate,
            early_stopping=self.early_stopping,
        )
        prototypes = self._compress(compressor, self.n_prototypes, X, y, sample_weight)
        self.gamma_: float = prototypes.gamma or 1.0
        self.n_iter_ = prototypes.trace["n_iter"]
        self.loss_curve_ = prototypes.trace["loss_curve"]
        return self

    def _decide(self, X: ArrayLike) -> tuple[Indices, Array]:
        if self.vote == "nearest" and self.n_neighbors > 1:
            return super()._decide(X)
        # A class counts by its nearest prototype, or by all of its prototypes
        D, codes = self.transform(X), self._codes()
        logits = -(self.gamma_**2) * D
        of_class = [logits[:, codes == c] for c in range(len(self.classes_))]
        combine = np.max if self.vote == "nearest" else logsumexp
        _, share = log_softmax(np.stack([combine(block, axis=1) for block in of_class], axis=1))
        return share.argmax(axis=1), share


class SCC(_LearnedModel):
    """Stochastic covariance compression: a few learned prototypes of symmetric positive definite matrices.

    Parameters
    ----------
    n_prototypes : int or float
        How many prototypes (at least one a class), or what share of the training set.
    gamma : float or "auto"
        Sharpness of the soft neighbourhood; "auto" chooses on a held-out part of the training set.
    n_neighbors : int
        Neighbours that vote.
    max_iter : int
        Iterations of the optimiser.
    init : Compressor or None
        Where to start; None: centroids of k-means within each class.
    optimizer : {"lbfgs", "cg", "descent"}
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent".
    early_stopping : bool
        Keep the iterations that were best on a held-out part, none included.
    vote : {"nearest", "soft"}
        "nearest" as in the paper; "soft": the class with the largest sum of probabilities.
    random_state : int, RandomState, Generator or None
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.
    verbose : int
    metric : {"jbld", "logeuclid"}
        The geometry, by name.

    Attributes
    ----------
    prototypes_ : ndarray of shape (m, ...)
    prototype_labels_ : ndarray of shape (m,)
    classes_ : ndarray of shape (n_classes,)
    compression_ratio_ : float
        m / n.
    gamma_ : float
    n_iter_ : int
    loss_curve_ : list of float
        Mean -log p at the start and after each iteration.
    n_features_in_ : int
        d, the size of a point.

    References
    ----------
    Kusner, Kolkin, Tyree, Weinberger. Image data compression for covariance and histogram descriptors. ICCV 2015.

    Examples
    --------
    >>> import knnpress as kp
    >>> data = kp.datasets.load_digits_covariances()
    >>> clf = kp.SCC(n_prototypes=20, gamma=5.0, max_iter=20, random_state=0).fit(data.X[:900], data.y[:900])
    >>> clf.prototypes_.shape, bool(clf.score(data.X[900:], data.y[900:]) > 0.9)
    ((20, 11, 11), True)
    """

    def __init__(
        self,
        n_prototypes: int | float = 0.02,
        gamma: float | Literal["auto"] = "auto",
        n_neighbors: int = 1,
        max_iter: int = 100,
        init: Compressor | None = None,
        optimizer: Literal["lbfgs", "cg", "descent"] = "lbfgs",
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        early_stopping: bool = True,
        vote: Literal["nearest", "soft"] = "nearest",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        metric: Literal["jbld", "logeuclid"] = "jbld",
    ) -> None:
        super().__init__(
            n_prototypes=n_prototypes,
            gamma=gamma,
            n_neighbors=n_neighbors,
            max_iter=max_iter,
            init=init,
            optimizer=optimizer,
            tol=tol,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            vote=vote,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.metric = metric

    def _geometry(self) -> Geometry:
        if self.metric not in _SCC_METRICS:
            raise ValueError(f"metric is {self.metric!r}; choose one of {', '.join(map(repr, _SCC_METRICS))}")
        return _SCC_METRICS[self.metric]()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags


_SCC_METRICS: dict[str, type[Geometry]] = {"jbld": JBLD, "logeuclid": LogEuclidean}


class SHC(_LearnedModel):
    """Stochastic histogram compression: a few learned prototypes of histograms, under entropic transport.

    Parameters
    ----------
    ground_cost : array of shape (d, d)
        Cost of moving mass between bins.
    reg : float or "auto"
        Entropic regularisation in units of the ground cost; "auto": a tenth of the median positive cost.
    n_prototypes : int or float
        How many prototypes (at least one a class), or what share of the training set.
    gamma : float or "auto"
        Sharpness of the soft neighbourhood; "auto" chooses on a held-out part of the training set.
    n_neighbors : int
        Neighbours that vote.
    max_iter : int
        Iterations of the optimiser.
    init : Compressor or None
        Where to start; None: centroids of k-means within each class.
    optimizer : {"lbfgs", "cg", "descent"}
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent".
    early_stopping : bool
        Keep the iterations that were best on a held-out part, none included.
    vote : {"nearest", "soft"}
        "nearest" as in the paper; "soft": the class with the largest sum of probabilities.
    random_state : int, RandomState, Generator or None
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.
    verbose : int
    value : {"divergence", "dual", "transport"}
        What is learned on and classified with; see `knnpress.geometries.Sinkhorn`.

    Attributes
    ----------
    prototypes_ : ndarray of shape (m, ...)
    prototype_labels_ : ndarray of shape (m,)
    classes_ : ndarray of shape (n_classes,)
    compression_ratio_ : float
        m / n.
    gamma_ : float
    n_iter_ : int
    loss_curve_ : list of float
        Mean -log p at the start and after each iteration.
    reg_ : float
        `reg` in units of the ground cost.
    n_features_in_ : int
        d, the size of a point.

    References
    ----------
    Kusner, Kolkin, Tyree, Weinberger. Image data compression for covariance and histogram descriptors. ICCV 2015.
    """

    def __init__(
        self,
        ground_cost: ArrayLike | None = None,
        reg: float | Literal["auto"] = "auto",
        n_prototypes: int | float = 0.02,
        gamma: float | Literal["auto"] = "auto",
        n_neighbors: int = 1,
        max_iter: int = 100,
        init: Compressor | None = None,
        optimizer: Literal["lbfgs", "cg", "descent"] = "lbfgs",
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        early_stopping: bool = True,
        vote: Literal["nearest", "soft"] = "nearest",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        value: Literal["divergence", "dual", "transport"] = "divergence",
    ) -> None:
        super().__init__(
            n_prototypes=n_prototypes,
            gamma=gamma,
            n_neighbors=n_neighbors,
            max_iter=max_iter,
            init=init,
            optimizer=optimizer,
            tol=tol,
            learning_rate=learning_rate,
            early_stopping=early_stopping,
            vote=vote,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.ground_cost = ground_cost
        self.reg = reg
        self.value = value

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> SHC:
        """Learn prototypes of histograms X, (n, d), with labels y, (n,)."""
        super().fit(X, y, sample_weight)
        self.reg_ = Sinkhorn(self.ground_cost, self.reg).effective_reg
        return self

    def _geometry(self) -> Geometry:
        return Sinkhorn(self.ground_cost, self.reg, self.value)


class SNC(_LearnedModel):
    """Stochastic neighbour compression: a few learned prototypes of vectors, under the squared Euclidean distance.

    Parameters
    ----------
    n_prototypes : int or float
        How many prototypes (at least one a class), or what share of the training set.
    gamma : float or "auto"
        Sharpness of the soft neighbourhood; "auto" chooses on a held-out part of the training set.
    n_neighbors : int
        Neighbours that vote.
    max_iter : int
        Iterations of the optimiser.
    init : Compressor or None
        Where to start; None: centroids of k-means within each class.
    optimizer : {"lbfgs", "cg", "descent"}
    tol : float
        Stop when no entry of the gradient exceeds it.
    learning_rate : float
        First step of "descent".
    early_stopping : bool
        Keep the iterations that were best on a held-out part, none included.
    vote : {"nearest", "soft"}
        "nearest" as in the paper; "soft": the class with the largest sum of probabilities.
    random_state : int, RandomState, Generator or None
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.
    verbose : int

    Attributes
    ----------
    prototypes_ : ndarray of shape (m, ...)
    prototype_labels_ : ndarray of shape (m,)
    classes_ : ndarray of shape (n_classes,)
    compression_ratio_ : float
        m / n.
    gamma_ : float
    n_iter_ : int
    loss_curve_ : list of float
        Mean -log p at the start and after each iteration.
    n_features_in_ : int
        d, the size of a point.

    References
    ----------
    Kusner, Tyree, Weinberger, Agrawal. Stochastic neighbor compression. ICML 2014.
    """

    def _geometry(self) -> Geometry:
        return SquaredEuclidean()


def check_training_set(
    estimator: BaseEstimator, geometry: Geometry, X: ArrayLike, y: ArrayLike
) -> tuple[Array, Labels]:
    """Checked points and labels; sets the estimator's ``n_features_in_`` (and ``feature_names_in_``)."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    points = geometry.check(X, n_jobs=estimator.n_jobs)
    validate_data(estimator, X, skip_check_array=True)
    labels = check_labels(y, len(points))
    estimator.n_features_in_ = points.shape[1]
    return points, labels


def check_n_neighbors(k: int, n_prototypes: int) -> None:
    """Refuse a k below one or above the number of prototypes."""
    if not isinstance(k, Integral) or not 1 <= k <= n_prototypes:
        raise ValueError(f"n_neighbors is {k!r}, but there are {n_prototypes} prototypes; choose 1 to {n_prototypes}")


def as_generator(random_state: Any) -> np.random.Generator:
    """A Generator from whatever scikit-learn users give as random_state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(random_state)
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))


def check_labels(y: ArrayLike, n: int) -> Labels:
    """Labels of n points: numbers or strings, none missing."""
    labels = column_or_1d(y, warn=True)
    if len(labels) != n:
        raise ValueError(f"X has {n} points and y {len(labels)} labels; give one label for each point")
    if labels.dtype.kind == "f":
        assert_all_finite(labels, input_name="y")
    elif labels.dtype.kind == "O" and any(label is None or label != label for label in labels):
        raise ValueError("y contains missing labels (None or NaN); remove those points")
    check_classification_targets(labels)
    return labels


def check_sample_weight(weight: ArrayLike, n: int) -> Array:
    """Weights of n training points: finite, non-negative, not all zero."""
    array = np.asarray(weight, dtype=np.float64)
    if array.shape != (n,):
        raise ValueError(f"sample_weight has shape {array.shape}; give one weight for each of the {n} points")
    if not (np.isfinite(array).all() and (array >= 0).all() and array.any()):
        raise ValueError("sample_weight must be finite and non-negative, and not all zero")
    return array


def resolve_n_prototypes(n_prototypes: int | float | None, n: int, n_classes: int) -> int | None:
    """The number of prototypes meant by a count, a share of n, or None."""
    if n_prototypes is None:
        return None
    if isinstance(n_prototypes, (bool, str)) or not n_prototypes > 0:
        raise ValueError(f"n_prototypes is {n_prototypes!r}; give a positive count, or a share between 0 and 1")
    if isinstance(n_prototypes, (int, np.integer)):
        return int(n_prototypes)
    if n_prototypes > 1:
        raise ValueError(f"n_prototypes is {n_prototypes}; a share is at most 1, a count a whole number")
    count = round(n_prototypes * n)
    if count < n_classes:
        warnings.warn(
            f"{n_prototypes:g} of {n} points is fewer than the {n_classes} classes: learning one prototype for each",
            stacklevel=4,
        )
    return max(count, n_classes)

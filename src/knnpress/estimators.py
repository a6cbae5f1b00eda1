"""The thin scikit-learn layer over geometries, compressors and neighbours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from knnpress.compression import Compressor, KeepAll
from knnpress.geometries import Geometry, as_geometry
from knnpress.neighbors import nearest, vote
from knnpress.typing import Array, ArrayLike, Indices, Labels

__all__ = ["PrototypeClassifier"]


class PrototypeClassifier(ClassifierMixin, BaseEstimator):
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
        geometry = as_geometry(self.geometry)
        points, labels = check_training_set(self, geometry, X, y)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        compressor = KeepAll() if self.compressor is None else self.compressor
        prototypes = compressor.compress(
            points,
            codes,
            geometry=geometry,
            n_prototypes=self.n_prototypes,
            random_state=as_generator(self.random_state),
            n_jobs=self.n_jobs,
        )
        check_n_neighbors(self.n_neighbors, len(prototypes.points))
        self.prototypes_ = prototypes.points
        self.prototype_labels_ = self.classes_[prototypes.labels]
        self.compression_ratio_ = len(prototypes.points) / len(points)
        return self

    def predict(self, X: ArrayLike) -> Labels:
        """Labels of the points X, (n,)."""
        return self.classes_[self._vote(X)[0]]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Share of the k neighbours' votes of each class, (n, n_classes)."""
        return self._vote(X)[1]

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
        points, _ = self._check_query(X)
        return as_geometry(self.geometry).pairwise(points, self.prototypes_, n_jobs=self.n_jobs)

    def _vote(self, X: ArrayLike) -> tuple[Indices, Array]:
        _, index = self._nearest(X, self.n_neighbors)
        codes = np.searchsorted(self.classes_, self.prototype_labels_)
        return vote(codes[index], len(self.classes_))

    def _nearest(self, X: ArrayLike, k: int) -> tuple[Array, Indices]:
        points, distances = self._check_query(X)
        check_n_neighbors(k, len(self.prototypes_))
        return nearest(distances, points, len(self.prototypes_), k, self.n_jobs)

    def _check_query(self, X: ArrayLike) -> tuple[Array, Callable[[Array], Array]]:
        check_is_fitted(self)
        geometry = as_geometry(self.geometry)
        validate_data(self, X, reset=False, skip_check_array=True)
        points = geometry.check(X)
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        return points, geometry.distances_to(self.prototypes_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        ndim = getattr(self.geometry, "point_ndim", 2)
        tags.input_tags.two_d_array = ndim == 1
        tags.input_tags.three_d_array = ndim == 2
        return tags


def check_training_set(
    estimator: BaseEstimator, geometry: Geometry, X: ArrayLike, y: ArrayLike
) -> tuple[Array, Labels]:
    """Checked points and labels; sets the estimator's ``n_features_in_`` (and ``feature_names_in_``)."""
    if y is None:
        raise ValueError(f"{type(estimator).__name__} requires y to be passed, but the target y is None")
    validate_data(estimator, X, skip_check_array=True)
    points = geometry.check(X)
    labels = column_or_1d(y, warn=True)
    check_consistent_length(points, labels)
    check_classification_targets(labels)
    estimator.n_features_in_ = points.shape[1]
    return points, labels


def check_n_neighbors(k: int, n_prototypes: int) -> None:
    """Refuse a k below one or above the number of prototypes."""
    if not 1 <= k <= n_prototypes:
        raise ValueError(f"n_neighbors is {k}, but there are {n_prototypes} prototypes; choose 1 to {n_prototypes}")


def as_generator(random_state: Any) -> np.random.Generator:
    """A Generator from whatever scikit-learn users give as random_state."""
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is None or isinstance(random_state, (int, np.integer)):
        return np.random.default_rng(random_state)
    return np.random.default_rng(check_random_state(random_state).randint(2**31, size=4))

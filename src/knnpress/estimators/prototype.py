"""Any compressor on any geometry, as a classifier and as a sampler."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression import Compressor, KeepAll
from knnpress.estimators.checks import as_generator, check_training_set, remember_features, resolve_n_prototypes
from knnpress.estimators.model import PrototypeModel, whole_or_unchanged
from knnpress.geometries import Geometry, as_geometry
from knnpress.parameters import check_parameters
from knnpress.typing import Array, ArrayLike, Labels


class PrototypeClassifier(PrototypeModel):
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

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}  # a Pipeline passes them without a request

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

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> PrototypeClassifier:
        """Compress the training set.

        Parameters
        ----------
        X : array of shape (n, d) or (n, d, d)
            Points of the geometry.
        y : array of shape (n,)
            Labels of any kind.
        sample_weight : array of shape (n,) or None
            A point of weight 0 is absent; compressors that average or learn weigh the others.
        groups : array of shape (n,) or None
            For a compressor that cross-validates: no group is divided between folds.
        """
        check_parameters(self)
        compressor = KeepAll() if self.compressor is None else self.compressor
        with whole_or_unchanged(self):
            self._compress(compressor, self.n_prototypes, X, y, sample_weight, groups)
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
        check_parameters(self)
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
        remember_features(self, X, points)
        self.sample_indices_ = prototypes.indices
        return prototypes.points, prototypes.labels

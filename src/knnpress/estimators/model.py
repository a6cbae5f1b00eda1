"""What every classifier does once it has prototypes."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import estimator_html_repr
from sklearn.utils.validation import check_is_fitted, validate_data

from knnpress.compression import Compressor, Prototypes, StochasticCompression
from knnpress.compression.sizing import try_sizes
from knnpress.estimators.checks import (
    as_generator,
    check_groups,
    check_n_neighbors,
    check_sample_weight,
    check_training_set,
    is_large,
    present,
    remember_features,
    resolve_n_prototypes,
)
from knnpress.estimators.notebook import model_summary
from knnpress.estimators.prepared import Prepared, prepared
from knnpress.execution.dask import lazily
from knnpress.execution.rows import is_in_memory
from knnpress.execution.stored import check_block, is_dask, read_block, reading_blocks
from knnpress.execution.threads import at_most, map_blocks, one_blas_thread, row_blocks
from knnpress.geometries import EmbeddedGeometry, Geometry
from knnpress.geometries.base import FittableGeometry, SearchableGeometry
from knnpress.geometries.search import MIN_QUERIES
from knnpress.model_file import save
from knnpress.neighbors import nearest, vote
from knnpress.progress import progress_bar
from knnpress.typing import Array, ArrayLike, Callback, Indices, Labels

_MIN_SHARE = 1e-300  # a smaller one may have no finite logarithm
_TIE_BREAK = 1e-12


class PrototypeModel(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):
    """Prediction from prototypes; subclasses say how these are made."""

    _learns = False  # whether at least two classes are needed
    _may_choose = False  # whether prototypes may be learned in a similar geometry

    # set by the subclasses' __init__
    n_neighbors: int
    random_state: Any
    n_jobs: int | None
    verbose: int

    @abstractmethod
    def _geometry(self) -> Geometry:
        """The geometry that the parameters describe."""

    def _compress(
        self,
        compressor: Compressor,
        n_prototypes: int | float | str | None,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        class_weight: Any = None,
        geometry: Geometry | None = None,
    ) -> Prototypes:
        """Check the training set, compress it, and only then set the fitted attributes."""
        may_learn_in_quick = self._may_choose and geometry is None
        geometry = self._geometry() if geometry is None else geometry
        learns = isinstance(compressor, StochasticCompression)
        points, labels = check_training_set(self, geometry, X, y, learns and n_prototypes != "auto")
        weight = check_sample_weight(sample_weight, class_weight, labels)
        group = None if groups is None else check_groups(groups, len(points))
        points, labels, weight, group = present(points, labels, weight, group)
        if isinstance(geometry, FittableGeometry) and not (learns and isinstance(geometry, EmbeddedGeometry)):
            with at_most(self.n_jobs):
                geometry = geometry.fitted_to(points if is_in_memory(points) else points.array, weight)
        compressor = self._compressor_for(compressor, n_prototypes, points, labels)
        n_points = len(labels) if weight is None else int(np.count_nonzero(weight))
        classes, codes = np.unique(labels, return_inverse=True)
        checkpoint = getattr(compressor, "checkpoint", None)
        self._check_task(classes, n_prototypes, checkpoint)
        # a compressor that goes on from a checkpoint has its own draws in there: None is handed on to it
        goes_on = checkpoint is not None and self.random_state is None
        rng = None if goes_on else as_generator(self.random_state)
        sizes: list[dict[str, Any]] = []
        with progress_bar(type(self).__name__, self.verbose > 0) as bar:
            context: dict[str, Any] = {
                "geometry": geometry,
                "sample_weight": weight,
                "random_state": rng,
                "n_jobs": self.n_jobs,
                "callback": combine_callbacks(bar, getattr(self, "callback", None)),
            }
            if learns:
                context |= {"groups": group, "may_learn_in_quick": may_learn_in_quick}
            if n_prototypes == "auto" and isinstance(compressor, StochasticCompression):
                sizes = try_sizes(compressor, points, codes, **context)
                n_prototypes = next(size["n_prototypes"] for size in sizes if size["chosen"])
            elif learns:  # a share says how many at most, a number how many
                context["allow_one_per_class"] = isinstance(n_prototypes, float) and self.n_neighbors == 1
            m = resolve_n_prototypes(n_prototypes, n_points, len(classes))
            with at_most(self.n_jobs):
                prototypes = compressor.compress(points, codes, n_prototypes=m, **context)
        check_n_neighbors(self.n_neighbors, len(prototypes.points))
        remember_features(self, X, points)
        self._keep_prototypes(prototypes, geometry, classes, n_points)
        if learns:
            self.selection_ = [*sizes, *prototypes.trace["selection"]]
        return prototypes

    def _keep_prototypes(self, prototypes: Prototypes, geometry: Geometry, classes: Labels, n_points: int) -> None:
        """Set the fitted attributes that all models have."""
        self.classes_ = classes
        self.geometry_ = prototypes.trace.get("geometry", geometry)
        self.prototypes_ = prototypes.points
        self.prototype_vectors_ = prototypes.trace.get("vectors")
        self.prototype_labels_ = classes[prototypes.labels]
        self.compression_ratio_ = len(prototypes.points) / n_points

    def _check_task(self, classes: Labels, n_prototypes: int | float | str | None, checkpoint: Any) -> None:
        """Refuse one class where something is to be learned, and many fits with one checkpoint."""
        if len(classes) == 1 and self._learns:
            raise ValueError(
                f"{type(self).__name__} needs at least two classes; y has one class, {classes.tolist()[0]!r}"
            )
        if n_prototypes == "auto" and checkpoint is not None:
            raise ValueError(
                'n_prototypes="auto" is many fits, and a checkpoint serves one; find the size first, and give it with '
                "the checkpoint"
            )

    def _compressor_for(
        self, compressor: Compressor, n_prototypes: int | float | str | None, points: Any, labels: Labels
    ) -> Compressor:
        """The compressor for a training set that has been checked."""
        return compressor

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `knnpress.load` reads; see `knnpress.save`."""
        save(self, path)

    def predict(self, X: ArrayLike) -> Labels:
        """Labels of the points X, (n,); for a dask array a lazy one, chunk by chunk."""
        if is_dask(X) or is_large(X):
            return self._by_chunk("predict", X)
        winner = self._winners(X)
        return self.classes_[winner]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Probability of each class, (n, n_classes); its largest entry is the prediction.

        Without a gamma, and with several neighbours: the share of the neighbours' votes. For a dask array a lazy one,
        chunk by chunk.
        """
        if is_dask(X) or is_large(X):
            return self._by_chunk("predict_proba", X)
        _, share = self._decide(X)
        return share

    def decision_function(self, X: ArrayLike) -> Array:
        """Log-probability of each class, (n, n_classes); with two classes the log-odds of the second, (n,).

        Its largest entry (with two classes its sign) is the prediction, ties settled. Without a gamma these are
        logarithms of shares of votes, as in `predict_proba`. For a dask array a lazy one, chunk by chunk.
        """
        if is_dask(X) or is_large(X):
            return self._by_chunk("decision_function", X)
        winner, share = self._decide(X)
        scores = np.log(np.maximum(share, _MIN_SHARE))
        rows = np.arange(len(scores))
        scores[rows, winner] = np.maximum(scores[rows, winner], scores.max(axis=1)) + _TIE_BREAK
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

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
        """Distances of the points to every prototype, (n, m); for a dask array a lazy one, chunk by chunk."""
        if is_dask(X) or is_large(X):
            return self._by_chunk("_distances", X)
        return self._distances(X)

    def _distances(self, X: ArrayLike) -> Array:
        """Distances of points in memory to every prototype, (n, m)."""
        return self._by_block(X, lambda ready, D: D)

    def _by_block(self, X: ArrayLike, function: Callable[[Prepared, Array], Array]) -> Array:
        """A function of the distances of each block of points in memory, rows together again."""
        with one_blas_thread:
            points, ready = self._check_query(X)
            blocks = row_blocks(len(points), 8 * len(self.prototypes_))
            parts = map_blocks(lambda block: function(ready, ready.distances(points[block])), blocks, self.n_jobs)
            return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _by_chunk(self, method: str, X: Any) -> Any:
        """The result of a method for points that are not in memory: lazily for dask arrays, else block by block."""
        check_is_fitted(self)
        if is_dask(X):
            alone = getattr(copy(self).set_params(n_jobs=1), method)  # chunks are worked on side by side
            if method == "predict":
                return lazily(alone, X, self.classes_.dtype, ())
            binary = method == "decision_function" and len(self.classes_) == 2
            if binary or method in ("outlier_score", "score_samples"):
                return lazily(alone, X, np.float64, ())
            by_class = method in ("predict_proba", "decision_function")
            return lazily(alone, X, np.float64, (len(self.classes_ if by_class else self.prototypes_),))
        one = getattr(self, method)
        return np.concatenate([check_block(one, read_block(X, block), block.start) for block in reading_blocks(X)])

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and below it what the model has learned; notebooks show it."""
        return estimator_html_repr(self) + (model_summary(self) if hasattr(self, "prototypes_") else "")

    @property
    def _n_features_out(self) -> int:
        return len(self.prototypes_)

    def _winners(self, X: ArrayLike) -> Indices:
        """Class index of each point, as `_decide` finds it, in less time where there is a way."""
        return self._decide(X)[0]

    def _decide(self, X: ArrayLike) -> tuple[Indices, Array]:
        """Class index and probabilities of each point."""
        _, index = self._nearest(X, self.n_neighbors)
        return vote(self._codes()[index], len(self.classes_))

    def _codes(self) -> Indices:
        return np.searchsorted(self.classes_, self.prototype_labels_)

    def _nearest(self, X: ArrayLike, k: int) -> tuple[Array, Indices]:
        points, ready = self._check_query(X)
        check_n_neighbors(k, len(self.prototypes_))
        geometry, distances = self._fitted_geometry(), ready.distances
        if len(points) >= MIN_QUERIES and isinstance(geometry, SearchableGeometry):
            distances = geometry.nearest_to(self.prototypes_, k)
        return nearest(distances, points, len(self.prototypes_), k, self.n_jobs)

    def _check_query(self, X: ArrayLike) -> tuple[Array, Prepared]:
        """Checked points, and what the model has ready for them."""
        if "prototypes_" not in self.__dict__:
            check_is_fitted(self)
        geometry = self._fitted_geometry()
        points = geometry.check(X, n_jobs=self.n_jobs)
        if type(X) is not np.ndarray or hasattr(self, "feature_names_in_"):
            validate_data(self, X, reset=False, skip_check_array=True)  # the names of features, where X has any
        if points.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {points.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input"
            )
        with at_most(self.n_jobs):
            return points, prepared(self, geometry)

    def _fitted_geometry(self) -> Geometry:
        """The geometry that the prototypes belong to."""
        return getattr(self, "geometry_", None) or self._geometry()


@contextmanager
def whole_or_unchanged(model: BaseEstimator) -> Iterator[None]:
    """Leave a model as it was where fitting fails or is interrupted, not half of one and half of the other."""
    before = dict(vars(model))
    try:
        yield
    except BaseException:
        model.__dict__.clear()
        model.__dict__.update(before)
        raise


def combine_callbacks(bar: Callback | None, user: Callback | None) -> Callback | None:
    """One callback that serves the bar and the user; the user's answer counts."""
    if bar is None or user is None:
        return bar if user is None else user

    def follow(step: int, total: int | None, facts: dict[str, float]) -> Any:
        bar(step, total, facts)
        return user(step, total, facts)

    return follow

"""SWC: learned prototypes of clouds."""

from __future__ import annotations

import os
from typing import Any, Literal, TypeVar

import numpy as np
from sklearn.base import clone

from knnpress.clouds import Clouds, StoredClouds
from knnpress.compression import CloudCentroids, Compressor, StochasticCompression
from knnpress.estimators.documentation import documented
from knnpress.estimators.learned import LearnedModel, shared_parameters
from knnpress.estimators.prepared import Prepared
from knnpress.execution.stored import is_dask, is_stored
from knnpress.geometries import CloudSinkhorn, Geometry
from knnpress.geometries.cloud_points import as_clouds
from knnpress.learning.selection import DEFAULT
from knnpress.typing import ArrayLike, Callback, Labels

Model = TypeVar("Model", bound="SWC")

_MANY = 2000  # clouds from which they are taken batch by batch
_BATCH = 256
_MAX_SEARCHED = 3e8  # multiplications for all costs, up to which settings are searched: a minute or so
_USUAL_SHARE = 0.02  # of the clouds, as prototypes


@documented
class SWC(LearnedModel):
    """Stochastic Wasserstein compression: a few learned prototypes of clouds, each a cloud itself.

    X is a `knnpress.Clouds`: documents as sets of word vectors, images as sets of local features, any sets of weighted
    points; or, where these do not fit in memory, `knnpress.StoredClouds`. Prototypes have `n_points` points each, whose
    positions and weights are learned. Above 2000 clouds they are taken in batches of 256. There, and where clouds have
    so many points that a search would take minutes, nothing is searched: "auto" is then gamma="scale", prior=1,
    smoothing=0.02, vote="nearest".

    Parameters
    ----------
    n_points : int
        Points of each prototype.
    reg : float or "auto"
        Entropic regularisation in units of the ground cost; "auto": a twentieth of the median cost between points.
    cost : {"sqeuclidean", "euclidean", "cosine"}
        Between points.
    value : {"divergence", "dual"}
        What is learned on and classified with; see `knnpress.geometries.CloudSinkhorn`.
    <parameters>

    Attributes
    ----------
    <attributes>
    reg_ : float
        `reg` in units of the ground cost.

    Notes
    -----
    ``prototypes_`` has the shape (m, n_points, d + 1); the last column holds the weights of the points.
    `prototype_clouds` gives them as `knnpress.Clouds`.

    Examples
    --------
    >>> import numpy as np
    >>> import knnpress as kp
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 20)
    >>> X = kp.Clouds.from_list([rng.normal(3 * label, 1, (5, 2)) for label in y])
    >>> clf = kp.SWC(n_prototypes=2, n_points=3, prior=1.0, smoothing=0.02, gamma="scale", vote="nearest").fit(X, y)
    >>> clf.prototypes_.shape
    (2, 3, 3)
    >>> float(clf.score(X, y))
    1.0
    """

    def __init__(
        self,
        n_prototypes: int | float | Literal["auto"] = 0.02,
        *,
        n_points: int = 32,
        reg: float | Literal["auto"] = "auto",
        cost: Literal["sqeuclidean", "euclidean", "cosine"] = "sqeuclidean",
        value: Literal["divergence", "dual"] = "divergence",
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
        super().__init__(**shared_parameters(locals()))
        self.n_points = n_points
        self.reg = reg
        self.cost = cost
        self.value = value

    @property
    def prototype_clouds(self) -> Clouds:
        """The prototypes as `knnpress.Clouds`."""
        return as_clouds(self.prototypes_)

    def partial_fit(self: Model, X: Any, y: ArrayLike, classes: ArrayLike | None = None) -> Model:
        """Learn from one more batch of clouds, as `SCC.partial_fit` does: how to learn from more than memory holds."""
        _refuse_others(X)
        return super().partial_fit(X, y, classes)

    def _check_query(self, X: Any) -> tuple[Any, Prepared]:
        _refuse_others(X)
        return super()._check_query(X)

    def _by_chunk(self, method: str, X: Any) -> Any:
        _refuse_others(X)
        return super()._by_chunk(method, X)

    def _compressor(self) -> StochasticCompression:
        compressor = super()._compressor()
        return compressor.set_params(init=CloudCentroids(self.n_points)) if compressor.init is None else compressor

    def _compressor_for(
        self, compressor: Any, n_prototypes: int | float | str | None, points: Any, labels: Labels
    ) -> Compressor:
        many = len(points) > _MANY and compressor.optimizer == "auto" and compressor.batch_size is None
        if many:
            compressor = clone(compressor).set_params(batch_size=_BATCH)
        if many or self._work(n_prototypes, points, labels) > _MAX_SEARCHED:
            usual = {"gamma": "scale", "prior": DEFAULT.prior, "smoothing": DEFAULT.smoothing, "vote": "nearest"}
            params = compressor.get_params(deep=False)
            left_open = {name: value for name, value in usual.items() if params[name] == "auto"}
            compressor = clone(compressor).set_params(**left_open)
        return compressor

    def _work(self, n_prototypes: int | float | str | None, X: Any, y: ArrayLike) -> float:
        """Multiplications for the costs between the points of all pairs."""
        clouds = X if isinstance(X, Clouds) else X.array
        share = n_prototypes if isinstance(n_prototypes, float) else _USUAL_SHARE
        m = n_prototypes if isinstance(n_prototypes, int) else max(len(np.unique(y)), share * len(X))
        return float(m) * int(clouds.sizes.sum()) * self.n_points * X.shape[1]

    def _fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, groups: ArrayLike | None) -> None:
        _refuse_others(X)
        super()._fit(X, y, sample_weight, groups)

    def _set_reg(self) -> None:
        self.reg_: float = self.geometry_.reg

    def _geometry(self) -> Geometry:
        return CloudSinkhorn(self.reg, self.cost, self.value, n_points=self.n_points)


def _refuse_others(X: Any) -> None:
    """Refuse what is no clouds."""
    if isinstance(X, (Clouds, StoredClouds)):
        return
    shape = f" of shape {X.shape}" if hasattr(X, "shape") else ""
    kind = f"a {type(X).__name__}"
    if is_dask(X) or is_stored(X):
        kind = "a dask array" if is_dask(X) else "an array in a store"
    raise TypeError(
        f"X is {kind}{shape}; SWC takes clouds: give knnpress.Clouds, e.g. Clouds.from_list(list of (k_i, d) arrays) "
        "or, where their points are in a store or a dask array, knnpress.StoredClouds(points, offsets)"
    )

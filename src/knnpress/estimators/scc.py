"""SCC: learned prototypes of covariance matrices."""

from __future__ import annotations

import os
from typing import Any, Literal

from knnpress.compression import StochasticCompression, Subsample
from knnpress.estimators.learned import LearnedModel, documented, paper_settings
from knnpress.geometries import JBLD, Geometry, LogEuclidean, Tangent
from knnpress.typing import Callback

__all__ = ["SCC"]

_METRICS: dict[str, Any] = {"auto": JBLD, "jbld": JBLD, "tangent": Tangent, "logeuclid": LogEuclidean}


@documented
class SCC(LearnedModel):
    """Stochastic covariance compression: a few learned prototypes of symmetric positive definite matrices.

    Parameters
    ----------
    <parameters>
    metric : {"auto", "jbld", "tangent", "logeuclid"}
        The geometry: the paper's divergence, the tangent space at the mean of the training set, or logarithms. "auto":
        "jbld", unless "tangent" serves held-out points better by more than noise, or "jbld" would take too long.

    Attributes
    ----------
    <attributes>

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
        n_prototypes: int | float | Literal["auto"] = 0.02,
        *,
        metric: Literal["auto", "jbld", "tangent", "logeuclid"] = "auto",
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
        super().__init__(
            n_prototypes,
            gamma=gamma,
            prior=prior,
            smoothing=smoothing,
            vote=vote,
            n_neighbors=n_neighbors,
            max_iter=max_iter,
            class_weight=class_weight,
            warm_start=warm_start,
            compressor=compressor,
            checkpoint=checkpoint,
            callback=callback,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.metric = metric

    @classmethod
    def paper(cls, n_prototypes: int | float | Literal["auto"] = 0.02, **settings: Any) -> SCC:
        """SCC with the paper's settings: random points of each class as the start, Cholesky factors learned by
        conjugate gradients, gamma chosen on held-out points, nothing added to the loss. Other settings as given, those
        of the compressor included.
        """
        settings = {"metric": "jbld", **settings}
        return cls(n_prototypes, **paper_settings(settings, init=Subsample(), optimizer="cg", max_iter=100))

    @property
    def _may_choose(self) -> bool:  # type: ignore[override]
        return self.metric == "auto"

    def _geometry(self) -> Geometry:
        if self.metric not in _METRICS:
            raise ValueError(f"metric is {self.metric!r}; choose one of {', '.join(map(repr, _METRICS))}")
        return _METRICS[self.metric]()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

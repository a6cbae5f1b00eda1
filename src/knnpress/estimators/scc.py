"""SCC: learned prototypes of covariance matrices."""

from __future__ import annotations

import os
from typing import Any, Literal

from knnpress.compression import Compressor, Subsample
from knnpress.estimators.learned import LearnedModel, Optimizer, documented
from knnpress.geometries import JBLD, Geometry, LogEuclidean
from knnpress.typing import Callback

__all__ = ["SCC"]

_METRICS: dict[str, Any] = {"jbld": JBLD, "logeuclid": LogEuclidean}


@documented
class SCC(LearnedModel):
    """Stochastic covariance compression: a few learned prototypes of symmetric positive definite matrices.

    Parameters
    ----------
    <parameters>
    metric : {"jbld", "logeuclid"}
        The geometry, by name.
    whiten : bool
        Whether prototypes are learned relative to the mean of the data, which conditions the descent; False: as in the
        paper.

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
        metric: Literal["jbld", "logeuclid"] = "jbld",
        whiten: bool = True,
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
            batch_size=batch_size,
            label_noise=label_noise,
            smoothing=smoothing,
            attraction=attraction,
            early_stopping=early_stopping,
            warm_start=warm_start,
            callback=callback,
            checkpoint=checkpoint,
            vote=vote,
            random_state=random_state,
            n_jobs=n_jobs,
            verbose=verbose,
        )
        self.metric = metric
        self.whiten = whiten

    @classmethod
    def paper(cls, **settings: Any) -> SCC:
        """SCC with the paper's settings: random points of each class as the start, no whitening, conjugate gradients,
        gamma chosen on held-out points, all iterations kept. Other settings as given.
        """
        return cls(
            **{
                "init": Subsample(),
                "whiten": False,
                "optimizer": "cg",
                "label_noise": 0.0,
                "smoothing": 0.0,
                "early_stopping": False,
                **settings,
            }
        )

    def _geometry(self) -> Geometry:
        if self.metric not in _METRICS:
            raise ValueError(f"metric is {self.metric!r}; choose one of {', '.join(map(repr, _METRICS))}")
        return _METRICS[self.metric](whiten=self.whiten)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

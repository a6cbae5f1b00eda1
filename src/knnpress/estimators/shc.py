"""SHC: learned prototypes of histograms."""

from __future__ import annotations

import os
from typing import Any, Literal

from knnpress.compression import Compressor, RandomMutation
from knnpress.estimators.learned import LearnedModel, Optimizer, documented
from knnpress.geometries import Geometry, Sinkhorn
from knnpress.typing import ArrayLike, Callback

__all__ = ["SHC"]


@documented
class SHC(LearnedModel):
    """Stochastic histogram compression: a few learned prototypes of histograms, under entropic transport.

    Parameters
    ----------
    ground_cost : array of shape (d, d)
        Cost of moving mass between bins.
    reg : float or "auto"
        Entropic regularisation in units of the ground cost; "auto": a tenth of the median positive cost.
    <parameters>
    value : {"divergence", "dual", "transport"}
        What is learned on and classified with; see `knnpress.geometries.Sinkhorn`.
    roots : bool
        Learn the square roots of the bins, which takes half as many iterations; False: their logarithms, as the paper.

    Attributes
    ----------
    <attributes>
    reg_ : float
        `reg` in units of the ground cost.

    References
    ----------
    Kusner, Kolkin, Tyree, Weinberger. Image data compression for covariance and histogram descriptors. ICCV 2015.

    Examples
    --------
    >>> import knnpress as kp
    >>> data = kp.datasets.load_digits_histograms()
    >>> clf = kp.SHC(data.ground_cost, n_prototypes=10, gamma=6.0, max_iter=5, random_state=0)
    >>> clf.fit(data.X[:200], data.y[:200]).prototypes_.shape
    (10, 64)
    """

    def __init__(
        self,
        ground_cost: ArrayLike | None = None,
        reg: float | Literal["auto"] = "auto",
        n_prototypes: int | float | Literal["auto"] = 0.02,
        gamma: float | Literal["scale", "auto", "tune"] = "auto",
        n_neighbors: int = 1,
        max_iter: int = 60,
        init: Compressor | None = None,
        optimizer: Optimizer = "auto",
        tol: float = 1e-6,
        learning_rate: float = 1.0,
        batch_size: int | None = None,
        label_noise: float = 0.2,
        smoothing: float = 0.01,
        attraction: float | Literal["auto"] = "auto",
        early_stopping: bool = True,
        warm_start: bool = False,
        callback: Callback | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        vote: Literal["nearest", "soft"] = "nearest",
        random_state: Any = None,
        n_jobs: int | None = None,
        verbose: int = 0,
        value: Literal["divergence", "dual", "transport"] = "divergence",
        roots: bool = True,
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
        self.ground_cost = ground_cost
        self.reg = reg
        self.value = value
        self.roots = roots

    @classmethod
    def paper(cls, ground_cost: ArrayLike | None = None, **settings: Any) -> SHC:
        """SHC with the paper's settings: a start from random mutation, logarithms of bins learned on the transport
        value along its approximate gradient by adaptive descent, the iterate of least training error kept, gamma and
        the step found by Bayesian optimisation of the training error. Other settings as given.
        """
        return cls(
            ground_cost,
            **{
                "init": RandomMutation(),
                "value": "transport",
                "roots": False,
                "optimizer": "descent",
                "max_iter": 100,
                "gamma": "tune",
                "label_noise": 0.0,
                "smoothing": 0.0,
                "attraction": 0.0,
                "early_stopping": False,
                **settings,
            },
        )

    def _fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None) -> None:
        super()._fit(X, y, sample_weight)
        self.reg_ = Sinkhorn(self.ground_cost, self.reg).effective_reg

    def _geometry(self) -> Geometry:
        return Sinkhorn(self.ground_cost, self.reg, self.value, roots=self.roots)

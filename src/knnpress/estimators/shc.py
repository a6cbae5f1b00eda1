"""SHC: learned prototypes of histograms."""

from __future__ import annotations

import os
from typing import Any, Literal

from knnpress.compression import RandomMutation, StochasticCompression
from knnpress.estimators.documentation import documented
from knnpress.estimators.learned import LearnedModel, paper_settings, shared_parameters
from knnpress.geometries import Geometry, Hellinger, Sinkhorn
from knnpress.parameters import brief_repr
from knnpress.typing import ArrayLike, Callback


@documented
class SHC(LearnedModel):
    """Stochastic histogram compression: a few learned prototypes of histograms, under entropic transport.

    Parameters
    ----------
    ground_cost : array of shape (d, d) or None
        Cost of moving mass between bins.
    reg : float or "auto"
        Entropic regularisation in units of the ground cost; "auto": a tenth of the median positive cost.
    metric : {"auto", "sinkhorn", "hellinger"}
        Entropic transport, or the squared distance of roots of bins, which needs no ground cost and takes microseconds.
        "auto": "sinkhorn", unless "hellinger" serves held-out points better, or there is no ground cost, or
        "sinkhorn" would take too long.
    <parameters>
    value : {"divergence", "dual", "transport"}
        What is learned on and classified with; see `knnpress.geometries.Sinkhorn`.

    Attributes
    ----------
    <attributes>
    reg_ : float
        `reg` in units of the ground cost, where the metric is "sinkhorn".

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
        *,
        reg: float | Literal["auto"] = "auto",
        metric: Literal["auto", "sinkhorn", "hellinger"] = "auto",
        n_prototypes: int | float | Literal["auto"] = 0.02,
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
        value: Literal["divergence", "dual", "transport"] = "divergence",
    ) -> None:
        super().__init__(**shared_parameters(locals()))
        self.ground_cost = ground_cost
        self.reg = reg
        self.metric = metric
        self.value = value

    @classmethod
    def paper(cls, ground_cost: ArrayLike | None = None, **settings: Any) -> SHC:
        """SHC with the paper's settings: a start from random mutation, logarithms of bins learned on the transport
        value along its approximate gradient by adaptive descent, the iterate of least training error kept, gamma and
        the step found by Bayesian optimisation of the training error. Other settings, including the compressor's, as
        given.
        """
        settings = {"metric": "sinkhorn", "value": "transport", "gamma": "tune", **settings}
        return cls(ground_cost, **paper_settings(settings, init=RandomMutation(), optimizer="descent", max_iter=100))

    def _set_reg(self) -> None:
        if isinstance(self.geometry_, Sinkhorn):
            self.reg_ = self.geometry_.effective_reg
        elif hasattr(self, "reg_"):  # of an earlier fit
            del self.reg_

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """As scikit-learn has it, but with the shape of the ground cost for its numbers."""
        return brief_repr(self, N_CHAR_MAX)

    @property
    def _may_choose(self) -> bool:  # type: ignore[override]
        return self.metric == "auto" and self.ground_cost is not None

    def _geometry(self) -> Geometry:
        if self.metric not in ("auto", "sinkhorn", "hellinger"):
            raise ValueError(f"metric is {self.metric!r}; choose 'auto', 'sinkhorn' or 'hellinger'")
        if self.metric == "hellinger" or (self.metric == "auto" and self.ground_cost is None):
            return Hellinger()
        return Sinkhorn(self.ground_cost, self.reg, self.value)

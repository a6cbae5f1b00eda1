"""SCC: learned prototypes of covariance matrices."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from knnpress.compression import StochasticCompression, Subsample
from knnpress.estimators.documentation import documented
from knnpress.estimators.learned import LearnedModel, paper_settings, shared_parameters
from knnpress.estimators.outliers import nearest_of_class
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import JBLD, Geometry, LogEuclidean, Tangent
from knnpress.geometries.relevance import channel_shares, pair_shares
from knnpress.typing import Array, ArrayLike, Callback, Indices

_METRICS: dict[str, Any] = {"auto": JBLD, "jbld": JBLD, "tangent": Tangent, "logeuclid": LogEuclidean}


@dataclass(frozen=True)
class Explanation:
    """Why a matrix got its class and not the next.

    Attributes
    ----------
    label, other : label
        The class that was given, and the likeliest other one.
    prototypes : ndarray of shape (2,)
        The nearest prototype of each, rows of ``prototypes_``.
    margin : float
        How much farther the matrix is from the second than from the first, by JBLD.
    channels : ndarray of shape (d,)
        What the margin loses when a channel is left out; above zero, the channel speaks for `label`.
    pairs : ndarray of shape (d, d)
        What it loses when two channels are left out, beyond what it loses by each alone.
    """

    label: Any
    other: Any
    prototypes: Indices
    margin: float
    channels: Array
    pairs: Array


@documented
class SCC(LearnedModel):
    """Stochastic covariance compression: a few learned prototypes of symmetric positive definite matrices.

    Parameters
    ----------
    <parameters>
    metric : {"auto", "jbld", "tangent", "logeuclid"}
        The geometry: the paper's divergence, the tangent space at the mean of the training set, or logarithms. "auto":
        "jbld", unless "tangent" serves held-out points better, or "jbld" would take too long.

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
        super().__init__(**shared_parameters(locals()))
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

    def explain(self, x: ArrayLike) -> Explanation:
        """Which channels speak for the class of one matrix x, (d, d), against the runner-up.

        The margin is how much farther x is, by JBLD, from the nearest prototype of the second class than from the
        nearest of the first. (Squared distances in the tangent space are eight times that, to second order.) A
        channel's share is what the margin loses when the channel is left out of all three matrices.
        """
        matrix = np.asarray(x)
        if matrix.ndim != 2:
            raise ValueError(f"x has shape {matrix.shape}; give one matrix (d, d), such as X[0]")
        points, rivals = self._rivals(matrix[None])
        near, far = (self.prototypes_[rows] for rows in rivals.T)
        channels = channel_shares(points, far) - channel_shares(points, near)
        pairs = pair_shares(points, far) - pair_shares(points, near)
        geometry = JBLD()
        margin = geometry.pairwise(points, far, self.n_jobs) - geometry.pairwise(points, near, self.n_jobs)
        labels = self.prototype_labels_[rivals[0]]
        return Explanation(labels[0], labels[1], rivals[0], float(margin[0, 0]), channels[0], pairs[0])

    def feature_relevance(self, X: ArrayLike) -> Array:
        """How much each channel has to do with the decisions about matrices X, (d,); absolute values sum to one.

        The mean of `explain`'s shares of channels. Below zero: a channel that speaks against what is decided.
        """
        points, rivals = self._rivals(X)
        near, far = (self.prototypes_[rows] for rows in rivals.T)
        total = (channel_shares(points, far) - channel_shares(points, near)).mean(axis=0)
        return total / max(np.abs(total).sum(), np.finfo(np.float64).tiny)

    def _rivals(self, X: ArrayLike) -> tuple[Array, Indices]:
        """Checked points, and the nearest prototypes of the two likeliest classes, (n, 2)."""
        points, _ = self._check_query(X)
        if len(np.unique(self.prototype_labels_)) < 2:
            raise ValueError("there are prototypes of one class only; nothing was decided between")
        try:
            JBLD().check(self.prototypes_, "prototypes_", 1)
        except InvalidPointError as error:  # learned as vectors, far from the data
            raise InvalidPointError(
                f"{str(error).split(',')[0]}, so nothing can be explained by it; learn with a stronger prior, e.g. "
                "prior=1.0"
            ) from error
        D, codes = self._distances(points), self._codes()
        first, share = self._decide(points)
        rows, near = np.arange(len(points)), nearest_of_class(D, codes, len(self.classes_))
        # the likeliest other class; of equally likely ones the nearer
        share[rows, first] = -1.0
        second = np.lexsort((near, -share), axis=1)[:, 0]
        of_class = [np.where(codes == c[:, None], D, np.inf).argmin(axis=1) for c in (first, second)]
        return points, np.stack(of_class, axis=1)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags

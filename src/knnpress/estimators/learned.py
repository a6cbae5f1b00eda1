"""SCC, SHC and SNC: learned prototypes of covariances, histograms and vectors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from knnpress.compression import Compressor, StochasticCompression
from knnpress.compression.loss import log_softmax
from knnpress.estimators.model import PrototypeModel
from knnpress.geometries import JBLD, Geometry, LogEuclidean, Sinkhorn, SquaredEuclidean
from knnpress.typing import Array, ArrayLike, Indices

__all__ = ["SCC", "SHC", "SNC"]


class _LearnedModel(PrototypeModel):
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

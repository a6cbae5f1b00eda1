"""Covariances of signals of several channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.covariance import empirical_covariance, ledoit_wolf, oas

from knnpress.descriptors.covariance import singular_rows
from knnpress.exceptions import InvalidPointError
from knnpress.geometries.base import as_real_array
from knnpress.parallel import map_blocks, row_blocks
from knnpress.typing import Array, ArrayLike

__all__ = ["SignalCovariance"]

_ESTIMATORS: dict[str, Callable[[Array], Array]] = {
    "empirical": empirical_covariance,
    "ledoit_wolf": lambda samples: ledoit_wolf(samples)[0],
    "oas": lambda samples: oas(samples)[0],
}


class SignalCovariance(TransformerMixin, BaseEstimator):
    r"""A signal as the covariance of its channels over time, (n, channels, channels).

    .. math:: C = \frac{1}{T} \sum_t (x_t - \bar x)(x_t - \bar x)^\top, \qquad
              X = (1 - s)\, C + s\, \frac{\operatorname{tr} C}{d}\, I

    with s = 0 for "empirical", and estimated from each signal for "ledoit_wolf" and "oas" (scikit-learn's).
    `pyriemann.estimation.Covariances` works in its place.

    Parameters
    ----------
    estimator : {"ledoit_wolf", "oas", "empirical"}
    n_jobs : int or None
        Threads; None: all cores this process may use.

    References
    ----------
    Ledoit, Wolf. A well-conditioned estimator for large-dimensional covariance matrices. JMVA 2004. Chen, Wiesel,
    Eldar, Hero. Shrinkage algorithms for MMSE covariance estimation. IEEE TSP 2010.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import SignalCovariance
    >>> signals = np.random.default_rng(0).normal(size=(5, 3, 200))
    >>> SignalCovariance("oas").fit_transform(signals).shape
    (5, 3, 3)
    """

    def __init__(
        self, estimator: Literal["ledoit_wolf", "oas", "empirical"] = "ledoit_wolf", n_jobs: int | None = None
    ) -> None:
        self.estimator = estimator
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: Any = None) -> SignalCovariance:
        """Check the parameters; nothing is learned."""
        self._check_settings()
        return self

    def transform(self, X: ArrayLike) -> Array:
        """Covariances, (n, channels, channels).

        Parameters
        ----------
        X : array of shape (n, channels, times)
        """
        estimate = self._check_settings()
        signals = as_real_array(X, 3, "X", "(n_signals, channels, times)")
        if signals.shape[2] < 2:
            raise ValueError(f"X has {signals.shape[2]} time(s) (shape={signals.shape}); a covariance needs at least 2")

        def covariances(rows: slice) -> Array:
            return np.stack([estimate(signal.T) for signal in signals[rows]])

        C = np.concatenate(map_blocks(covariances, row_blocks(len(signals), signals[0].nbytes), self.n_jobs))
        C = 0.5 * (C + C.transpose(0, 2, 1))
        singular = singular_rows(C)
        if len(singular):
            raise InvalidPointError(
                f"the covariance of X[{singular[0]}] is singular, as are {len(singular)} of {len(C)}: constant or "
                "dependent channels, or fewer times than channels; drop such channels, or use "
                "SignalCovariance('ledoit_wolf')"
            )
        return C

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def _check_settings(self) -> Callable[[Array], Array]:
        if self.estimator not in _ESTIMATORS:
            raise ValueError(f"estimator is {self.estimator!r}; choose one of {', '.join(map(repr, _ESTIMATORS))}")
        return _ESTIMATORS[self.estimator]

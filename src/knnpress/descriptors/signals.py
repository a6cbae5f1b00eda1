"""Covariances of signals of several channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Real
from typing import Any, Literal

import numpy as np
from scipy.signal import butter, sosfiltfilt
from sklearn.base import BaseEstimator, TransformerMixin

from knnpress.arrays import as_float_array
from knnpress.descriptors.covariance import singular_rows
from knnpress.descriptors.estimation import ESTIMATORS
from knnpress.exceptions import InvalidPointError, how_many, warn_user
from knnpress.execution.dask import lazily
from knnpress.execution.stored import check_block, is_dask, is_stored, read_block
from knnpress.execution.threads import map_blocks, row_blocks
from knnpress.geometries.checks import as_real_array, check_not_empty
from knnpress.typing import Array, ArrayLike, Labels

_SHAPE = "(n_signals, channels, times)"
_ORDER = 4  # of the Butterworth filters
_SPARE = 2  # blocks of half the usual bytes: large enough for what a block costs, small enough for a cache
_STACKS = ("block", "full", "bank")


class SignalCovariance(TransformerMixin, BaseEstimator):
    r"""A signal as the covariance of its channels over time, (n, d, d).

    .. math:: C = \frac{1}{T} \sum_t (x_t - \bar x)(x_t - \bar x)^\top, \qquad
              X = (1 - s)\, C + s\, \frac{\operatorname{tr} C}{d}\, I

    with s = 0 for "empirical", and estimated from each signal for "ledoit_wolf" and "oas" (as scikit-learn does, but
    many signals at a time). `pyriemann.estimation.Covariances` works in its place.

    What the channels are can be widened, in this order: by frequency `bands`, by `evoked` responses, by `delays`.

    Parameters
    ----------
    estimator : {"ledoit_wolf", "oas", "empirical"}
    delays : int
        Copies of each channel, each `lag` samples later than the last, so that the matrix captures rhythms, not only
        amplitudes: the augmented covariance, of d = delays * channels. 1: the channels as they are. The times
        without all copies are left out.
    lag : int
        Samples from one copy to the next.
    bands : list of (low, high) or None
        Frequencies in Hz, from each of which a Butterworth filter of order 4, run forwards and backwards, makes a
        signal of its own. None: signals are as wanted, or have their bands as an axis, (n, bands, channels, times). A
        filter that sees one window alone knows little of its ends: filter whole recordings where you can.
    rate : float or None
        Samples per second; needed with `bands`.
    stack : {"block", "full", "bank"}
        What to make of several bands: one matrix with a block for each on its diagonal, of d = bands * channels; one
        with the covariances between bands too; or a matrix for each, (n, bands, d, d), for a classifier of your own per
        band.
    evoked : list of classes, "all" or None
        Classes whose mean signal, found by ``fit(X, y)``, is added to every signal as further channels: the covariance
        then says how much of an evoked response is in it, and when. None: none, and `fit` learns nothing.
    components : int or None
        Principal components of each mean signal that are added in place of all its channels.
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    Attributes
    ----------
    evoked_ : ndarray of shape (bands, k, times)
        Channels to be added; only with `evoked`.
    evoked_classes_ : ndarray
        The classes that they are of.
    n_channels_ : int
        Of the signals that they were found in; only with `evoked`.

    Notes
    -----
    Single precision, memory maps, zarr arrays and HDF5 datasets are read block by block, and computed with in double
    precision. For a dask array `transform` returns a lazy one, chunk by chunk.

    References
    ----------
    Ledoit, Wolf. A well-conditioned estimator for large-dimensional covariance matrices. JMVA 2004. Chen, Wiesel,
    Eldar, Hero. Shrinkage algorithms for MMSE covariance estimation. IEEE TSP 2010. Carrara, Papadopoulo.
    Classification of BCI-EEG based on the augmented covariance matrix. IEEE TBME 2024. Congedo, Barachant, Andreev. A
    new generation of brain-computer interface based on Riemannian geometry. 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import SignalCovariance
    >>> signals = np.random.default_rng(0).normal(size=(5, 3, 200))
    >>> SignalCovariance("oas").fit_transform(signals).shape
    (5, 3, 3)
    >>> SignalCovariance("oas", delays=4, lag=8).fit_transform(signals).shape
    (5, 12, 12)
    >>> SignalCovariance("oas", bands=[(8, 12), (12, 30)], rate=100).fit_transform(signals).shape
    (5, 6, 6)
    """

    def __init__(
        self,
        estimator: Literal["ledoit_wolf", "oas", "empirical"] = "ledoit_wolf",
        *,
        delays: int = 1,
        lag: int = 1,
        bands: Sequence[tuple[float, float]] | None = None,
        rate: float | None = None,
        stack: Literal["block", "full", "bank"] = "block",
        evoked: Sequence[Any] | Literal["all"] | None = None,
        components: int | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.delays = delays
        self.lag = lag
        self.bands = bands
        self.rate = rate
        self.stack = stack
        self.evoked = evoked
        self.components = components
        self.n_jobs = n_jobs

    def fit(self, X: Any = None, y: ArrayLike | None = None) -> SignalCovariance:
        """Check the parameters, and with `evoked` find the mean signals of the classes.

        Parameters
        ----------
        X : array of shape (n, channels, times)
        y : array of shape (n,) or None
            Classes; needed with `evoked`.
        """
        self._check_settings()
        if self.evoked is None:
            return self
        signals = _as_signals(X)
        self._check_times(signals.shape)
        labels = self._check_labels(y, signals.shape[0])
        known = np.unique(labels)
        classes = known if isinstance(self.evoked, str) else np.asarray(self.evoked)
        missing = [c for c in classes.tolist() if c not in known.tolist()]
        if missing:
            raise ValueError(f"evoked has {missing[0]!r}, which is not in y; its classes are {known.tolist()}")

        def sums(rows: slice) -> Array:
            S = self._filtered(check_block(_checked, read_block(signals, rows, "synchronous"), rows.start))
            return np.stack([S[labels[rows] == c].sum(axis=0) for c in classes])

        total = sum(map_blocks(sums, self._blocks(signals.shape), self.n_jobs))  # (classes, bands, channels, times)
        means = total / np.array([(labels == c).sum() for c in classes])[:, None, None, None]
        if self.components is not None:
            if self.components > means.shape[2]:
                raise ValueError(f"components is {self.components}, but signals have {means.shape[2]} channels")
            # the main directions of each mean response in the space of channels, as pyRiemann takes them
            U = np.linalg.svd(means, full_matrices=False)[0][..., : self.components]
            means = U.swapaxes(-1, -2) @ means
        self.evoked_ = means.swapaxes(0, 1).reshape(means.shape[1], -1, means.shape[3])
        self.evoked_classes_ = classes
        self.n_channels_: int = signals.shape[-2]
        return self

    def transform(self, X: Any) -> Array:
        """Covariances, (n, d, d), or (n, bands, d, d) with ``stack="bank"``.

        Parameters
        ----------
        X : array of shape (n, channels, times) or (n, bands, channels, times)
        """
        self._check_settings()
        if self.evoked is not None and not hasattr(self, "evoked_"):
            raise ValueError("evoked responses are not known yet; call fit(X, y) first")
        signals = _as_signals(X)
        self._check_times(signals.shape)
        if is_dask(signals):
            return lazily(self._of_chunk, signals, np.float64, self._shape_of(signals.shape))
        blocks = self._blocks(signals.shape)

        def covariances(rows: slice) -> tuple[Array, Array] | InvalidPointError:
            look: Any = partial(check_block, start=rows.start) if len(blocks) > 1 else lambda check, block: check(block)
            try:
                return look(self._covariances, read_block(signals, rows, "synchronous"))
            except InvalidPointError as error:  # the first of them is raised, whichever thread is first
                return error

        found = map_blocks(covariances, blocks, self.n_jobs)
        for part in found:
            if isinstance(part, InvalidPointError):
                raise part
        C, flat = (np.concatenate([part[k] for part in found]) for k in (0, 1))  # type: ignore[index]
        _warn_of_flat(flat)
        return C

    def _of_chunk(self, X: Array) -> Array:
        """Covariances of a chunk of a dask array, whose chunks are worked on side by side."""
        C, flat = self._covariances(X)
        _warn_of_flat(flat)
        return C

    def __sklearn_is_fitted__(self) -> bool:
        return self.evoked is None or hasattr(self, "evoked_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        tags.target_tags.required = self.evoked is not None
        return tags

    def _covariances(self, X: Array) -> tuple[Array, Array]:
        """Covariances of one block, and the first flat channel of each signal, -1 where there is none."""
        S = self._filtered(as_float_array(X, "X"))
        if self.evoked is not None:
            if S.shape[2] != getattr(self, "n_channels_", S.shape[2]):
                raise ValueError(f"X has {S.shape[2]} channels, and fit saw {self.n_channels_}; give the same")
            if S.shape[1:2] + S.shape[3:] != self.evoked_.shape[::2]:
                raise ValueError(
                    f"X has {S.shape[1]} band(s) of {S.shape[3]} times, and fit saw {self.evoked_.shape[0]} of "
                    f"{self.evoked_.shape[2]}; evoked responses need windows of one length"
                )
            added = np.broadcast_to(self.evoked_, (len(S), *self.evoked_.shape))
            S = np.concatenate([added, S], axis=2)
        n_plain, S = S.shape[2], self._delayed(S)
        if self.stack == "full":
            S = S.reshape(len(S), 1, -1, S.shape[3])
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            C, flat = ESTIMATORS[self.estimator](S)
        first = np.where(flat.any(axis=(1, 2)), flat.any(axis=1).argmax(axis=1) % n_plain, -1)
        if self.evoked is not None:
            first = np.where(first >= 0, first - self.evoked_.shape[1], -1)  # counted as the user does
        d = C.shape[-1]
        endless = np.flatnonzero(~np.isfinite(C.sum(axis=(1, 2, 3))))
        if len(endless):
            _checked(X)  # which names NaN and infinity; to look for them before would take as long as the rest
            raise InvalidPointError(
                f"the covariance of X[{endless[0]}] overflows, {how_many(len(endless), len(C), verb='do')}; scale "
                "the signals, e.g. divide by X.std()"
            )
        rows = np.unique(singular_rows(C.reshape(-1, d, d)) // C.shape[1])
        if self.estimator == "empirical":  # rounding can make a flat channel look like a very quiet one
            rows = np.union1d(rows, np.flatnonzero(first >= 0))
        if len(rows):
            k = int(first[rows[0]])
            why = f"channel {k} is flat" if k >= 0 else "constant or dependent channels, or fewer times than channels"
            cure = "drop such channels, or use SignalCovariance('ledoit_wolf')"
            if self.estimator != "empirical":  # which nothing but numbers near zero can make singular
                cure = "drop such channels or signals, and scale those whose squares are below 1e-290"
            raise InvalidPointError(
                f"the covariance of X[{rows[0]}] is singular, {how_many(len(rows), len(C))}: {why}; {cure}"
            )
        if self.stack == "bank":
            return C, first
        if C.shape[1] == 1:
            return C[:, 0], first
        out = np.zeros((len(C), C.shape[1] * d, C.shape[1] * d))
        for k in range(C.shape[1]):
            out[:, k * d : (k + 1) * d, k * d : (k + 1) * d] = C[:, k]
        return out, first

    def _filtered(self, S: Array) -> Array:
        """Signals of every band, (n, bands, channels, times)."""
        if self.bands is None:
            return S if S.ndim == 4 else S[:, None]
        return np.stack([sosfiltfilt(_filter(band, self.rate), S, axis=-1) for band in self.bands], axis=1)

    def _delayed(self, S: Array) -> Array:
        if self.delays == 1:
            return S
        length = S.shape[3] - (self.delays - 1) * self.lag
        return np.concatenate([S[..., k * self.lag : k * self.lag + length] for k in range(self.delays)], axis=2)

    def _blocks(self, shape: tuple[int, ...]) -> list[slice]:
        wider = self.delays * (1 if self.bands is None else len(self.bands))
        return row_blocks(shape[0], 8 * _SPARE * wider * int(np.prod(shape[1:])))

    def _shape_of(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Shape of what one signal becomes, by the shape of all signals."""
        n_bands = shape[1] if len(shape) == 4 else 1 if self.bands is None else len(self.bands)
        d = self.delays * (shape[-2] + (0 if self.evoked is None else self.evoked_.shape[1]))
        return (n_bands, d, d) if self.stack == "bank" else (n_bands * d, n_bands * d)

    def _check_times(self, shape: tuple[int, ...]) -> None:
        """Refuse windows that are too short for what is to be made of them."""
        if len(shape) == 4 and self.bands is not None:
            raise ValueError(f"X has shape {shape}, with bands of its own, and bands is given; use one or the other")
        least = 2 + (self.delays - 1) * self.lag
        if shape[-1] < least:
            why = (
                f"{self.delays} delays of {self.lag} and a covariance need" if self.delays > 1 else "a covariance needs"
            )
            raise ValueError(f"X has {shape[-1]} time(s) (shape={shape}); {why} at least {least}")
        if self.bands is not None:
            least = 3 * (2 * _ORDER + 1) + 1  # what sosfiltfilt adds at either end, and one more
            if shape[-1] < least:
                raise ValueError(
                    f"X has {shape[-1]} time(s) (shape={shape}); filters need at least {least}: filter the whole "
                    "recording before it is cut"
                )

    def _check_labels(self, y: ArrayLike | None, n: int) -> Labels:
        if y is None:
            raise ValueError("y is None; evoked responses are means of classes: call fit(X, y), or use evoked=None")
        labels = np.asarray(y)
        if labels.shape != (n,):
            raise ValueError(f"y has shape {labels.shape}; give one label for each of the {n} signals")
        if (missing := labels != labels).any():  # NaN or NaT
            raise ValueError(f"y[{int(np.flatnonzero(missing)[0])}] is missing; remove such signals")
        return labels

    def _check_settings(self) -> None:
        if self.estimator not in ESTIMATORS:
            raise ValueError(f"estimator is {self.estimator!r}; choose one of {', '.join(map(repr, ESTIMATORS))}")
        for name in ("delays", "lag", "components"):
            value = getattr(self, name)
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and value >= 1
            if not whole and not (name == "components" and value is None):
                raise ValueError(f"{name} is {value!r}; give a whole number, 1 or more")
        if self.stack not in _STACKS:
            raise ValueError(f"stack is {self.stack!r}; choose one of {', '.join(map(repr, _STACKS))}")
        if isinstance(self.evoked, str) and self.evoked != "all":
            raise ValueError(f"evoked is {self.evoked!r}; give a list of classes, 'all' or None")
        if self.evoked is not None and not np.size(self.evoked):
            raise ValueError("evoked is empty; give a list of classes, 'all' or None")
        if self.evoked is not None and self.delays > 1:
            raise ValueError(
                f"evoked is given, and delays is {self.delays}; a response is locked in time, and delays blur it: "
                "use one or the other"
            )
        if self.bands is not None:
            self._check_bands()

    def _check_bands(self) -> None:
        if not isinstance(self.rate, Real) or not 0 < self.rate < np.inf:
            raise ValueError(f"bands are given, and rate is {self.rate!r}; give the samples per second, e.g. rate=250")
        if not np.iterable(self.bands) or not len(self.bands):
            raise ValueError(f"bands is {self.bands!r}; give some, e.g. bands=[(8, 12), (12, 30)], or None")
        for k, band in enumerate(self.bands):
            numbers = np.shape(band) == (2,) and all(isinstance(edge, Real) for edge in band)
            fits = numbers and 0 < band[0] < band[1] < self.rate / 2
            if not fits:
                raise ValueError(
                    f"bands[{k}] is {band!r}; give (low, high) in Hz, with 0 < low < high < {self.rate / 2:g}, half "
                    "the rate"
                )


def _warn_of_flat(flat: Array) -> None:
    if (rows := np.flatnonzero(flat >= 0)).size:
        warn_user(
            f"channel {flat[rows[0]]} of X[{rows[0]}] is flat, as in {rows.size} of {len(flat)} signals; its variance "
            "is made up by shrinkage: drop the channel, or such signals"
        )


def _filter(band: Any, rate: Any) -> Array:
    return butter(_ORDER, band, "bandpass", fs=rate, output="sos")


def _as_signals(X: Any) -> Any:
    """X itself, once its shape and type fit signals: nothing of an array is read or copied."""
    plain = isinstance(X, np.ndarray) and not isinstance(X, np.ma.MaskedArray)
    if not (plain or is_dask(X) or is_stored(X)) or X.dtype.kind not in "fiubc":
        X = as_float_array(X, "X")
    if X.dtype.kind == "c":
        raise ValueError(
            f"Complex data not supported: X has dtype {X.dtype}; take X.real, or both parts as channels of their own, "
            "np.concatenate([X.real, X.imag], axis=-2)"
        )
    if X.ndim not in (3, 4):
        hint = "X[None] for a single signal" if X.ndim == 2 else "(n_signals, bands, channels, times) with bands"
        raise ValueError(f"X has shape {X.shape}; expected {_SHAPE}. Reshape your data, e.g. {hint}")
    check_not_empty(X, "X")
    return X


def _checked(X: Array) -> Array:
    return as_real_array(X, X.ndim, "X", _SHAPE)

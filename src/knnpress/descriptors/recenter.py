"""Subjects and sessions brought to one place: matrices re-centred group by group."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, Literal

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from knnpress.arrays import named_groups
from knnpress.exceptions import how_many, warn_user
from knnpress.execution.threads import map_blocks
from knnpress.geometries.airm import AIRM
from knnpress.geometries.checks import check_weights
from knnpress.geometries.jbld import JBLD
from knnpress.geometries.log_euclidean import LogEuclidean
from knnpress.geometries.matrices import check_spd
from knnpress.geometries.spectral import eigh, matrix_exp, matrix_inverse_sqrt, matrix_log, matrix_sqrt
from knnpress.typing import Array, ArrayLike, Indices, Labels

_METRICS: dict[str, type[AIRM | JBLD | LogEuclidean]] = {"airm": AIRM, "logdet": JBLD, "logeuclid": LogEuclidean}
_STEPS, _TOL = 100, 1e-8  # of means; each step of AIRM takes off more than nine tenths of what is left
_HOW = (
    "give groups=, one entry per matrix or one name for all: a name known from fit or partial_fit has its mean, a new "
    "one takes the mean of the matrices given. In a Pipeline: sklearn.set_config(enable_metadata_routing=True), then "
    "predict(X, groups=...)"
)


class Recenter(TransformerMixin, BaseEstimator):
    r"""Move the SPD matrices of each group (a subject, a session) to where the others are, (n, d, d).

    .. math:: Y_i = T^{1/2}\, M_g^{-1/2}\, X_i\, M_g^{-1/2}\, T^{1/2}

    with :math:`M_g` the mean of i's group g, and T the identity or the grand mean. The roots are the symmetric ones:
    any other, such as a Cholesky factor, turns each group its own way, and undoes the alignment. No labels are needed,
    so a group that was never seen is re-centred by its own matrices.

    Parameters
    ----------
    metric : {"airm", "logdet", "logeuclid"}
        Whose mean: affine-invariant, JBLD (log-det) or log-Euclidean.
    target : {"identity", "mean"}
        T. The grand mean is the mean of the groups' means, each counting as one.
    shrinkage : float
        How many matrices the grand mean counts for in the mean of a group: the mean of n matrices is moved by the share
        shrinkage / (n + shrinkage) of the way to the grand mean. It steadies groups of a few trials.
    balanced : bool
        Whether all classes count alike in the means that `fit` finds, by the labels it is given. Else a group with more
        trials of one class is moved as if that were how it differs. Groups that `transform` or `partial_fit` meets have
        no labels: each of their matrices counts alike.
    forgetting : float
        Least share of a new matrix in the running mean of `partial_fit`. 0: all matrices count alike; 0.05: trials more
        than about 20 back fade, so that the mean follows a drift.
    n_jobs : int or None
        Threads; None: all cores this process may use. Results do not depend on it.

    Attributes
    ----------
    groups_ : ndarray of shape (g,) or None
        Names of the groups; None: there is one, without a name.
    means_ : ndarray of shape (g, d, d)
        Their means, before shrinkage.
    counts_ : ndarray of shape (g,)
        Matrices that each was made of.
    mean_ : ndarray of shape (d, d)
        The grand mean; `partial_fit` leaves it as `fit` found it.
    n_features_in_ : int
        d.

    Notes
    -----
    In a Pipeline, `groups` go to this step, and to the `fit` of `SCC` after it, once metadata routing is on, without a
    request: ``sklearn.set_config(enable_metadata_routing=True)``.

    References
    ----------
    Zanini, Congedo, Jutten, Said, Berthoumieu. Transfer learning: a Riemannian geometry framework with applications to
    brain-computer interfaces. IEEE TBME 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from knnpress.descriptors import Recenter
    >>> X = np.array([np.diag([1.0, 4.0]), np.diag([4.0, 1.0]), np.diag([100.0, 400.0]), np.diag([400.0, 100.0])])
    >>> Recenter().fit_transform(X, groups=["a", "a", "b", "b"])[::2].round(6)
    array([[[0.5, 0. ],
            [0. , 2. ]],
    <BLANKLINE>
           [[0.5, 0. ],
            [0. , 2. ]]])
    """

    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__partial_fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(
        self,
        metric: Literal["airm", "logdet", "logeuclid"] = "airm",
        *,
        target: Literal["identity", "mean"] = "identity",
        shrinkage: float = 0.0,
        balanced: bool = False,
        forgetting: float = 0.0,
        n_jobs: int | None = None,
    ) -> None:
        self.metric = metric
        self.target = target
        self.shrinkage = shrinkage
        self.balanced = balanced
        self.forgetting = forgetting
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None) -> Recenter:
        """Find the mean of each group.

        Parameters
        ----------
        X : array of shape (n, d, d)
        y : array of shape (n,) or None
            Classes; needed with ``balanced=True``. Otherwise they are looked at only to warn of groups that have one
            class where others have more: re-centring takes away what tells it from the rest.
        groups : array of shape (n,), a name for all, or None
            None: all matrices are one group.
        """
        self._check_settings()
        matrices = self._check(X)
        names, member = _check_groups(groups, len(matrices))
        weights = self._weights(y, names, member)
        means = self._means(matrices, member, len(names), weights)
        self.groups_: Labels | None = None if groups is None else names
        self.means_ = means
        self.counts_ = np.bincount(member, minlength=len(names)).astype(np.float64)
        self.mean_ = means[0] if len(means) == 1 else _METRICS[self.metric]().centroid(means)
        self.n_features_in_ = matrices.shape[1]
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None) -> Recenter:
        r"""Take in matrices one after the other, in their order, each moving the mean of its group.

        The n-th matrix of a group moves the mean the share :math:`\max(1 / n, \text{forgetting})` of the way to itself,
        along the geodesic of the metric. A name that is new begins a group. The grand mean stays as it is.

        Parameters
        ----------
        X : array of shape (n, d, d)
        y : array of shape (n,) or None
            Ignored: one trial after the other cannot be balanced.
        groups : array of shape (n,), a name for all, or None
            None: only where there is one group, without a name.
        """
        self._check_settings()
        first = not hasattr(self, "means_")
        matrices = self._check(X, None if first else self.n_features_in_)
        names, member = _check_groups(groups, len(matrices))
        if first:
            known, means, counts = None if groups is None else names[:0], [], []
        else:
            if groups is None and self.groups_ is not None:
                raise ValueError(f"groups is None, but {self._who()}; {_HOW}")
            known, means, counts = self.groups_, list(self.means_), list(self.counts_)
        if groups is not None and known is None:
            raise ValueError("groups are given, but the earlier fit had none; fit again, with groups")
        place = self._places(names, known) if len(means) else np.full(len(names), -1)
        for k in np.flatnonzero(place < 0):
            place[k] = len(means)
            means.append(matrices[np.flatnonzero(member == k)[0]])
            counts.append(0.0)
            known = known if known is None else np.concatenate([known, names[k : k + 1]])
        for row, k in enumerate(place[member]):
            counts[k] += 1.0
            share = max(1.0 / counts[k], self.forgetting)
            means[k] = self._between(means[k][None], matrices[row], np.array([share]))[0]
        if first:
            self.mean_ = means[0] if len(means) == 1 else _METRICS[self.metric]().centroid(np.stack(means))
            self.n_features_in_ = matrices.shape[1]
        self.groups_, self.means_, self.counts_ = known, np.stack(means), np.array(counts)
        return self

    def transform(self, X: ArrayLike, groups: ArrayLike | None = None) -> Array:
        """Matrices of each group around the target, (n, d, d); nothing is remembered of them.

        Parameters
        ----------
        X : array of shape (n, d, d)
        groups : array of shape (n,), a name for all, or None
            A name known from `fit` or `partial_fit` has its mean. Matrices of any other name are re-centred by their
            own mean, all that are given at once. None: only after a `fit` without groups.
        """
        check_is_fitted(self)
        self._check_settings()
        matrices = self._check(X, self.n_features_in_)
        if groups is None and self.groups_ is not None:
            raise ValueError(f"groups is None, but {self._who()}; {_HOW}")
        names, member = _check_groups(groups, len(matrices))
        place = self._places(names, self.groups_) if groups is not None else np.zeros(1, dtype=np.intp)
        new = np.flatnonzero(place < 0)
        means, counts = self.means_[place], self.counts_[place]
        if len(new):
            own = np.bincount(member, minlength=len(names))[new]
            alone = new[own == 1]
            if len(alone) and not self.shrinkage:
                raise ValueError(
                    f"group {names.tolist()[alone[0]]!r} is new and has one matrix, "
                    f"{how_many(len(alone), len(names), 'groups', 'do')}; its own mean would take it to the "
                    "identity, whatever it is. Give more of its matrices, or partial_fit them as they come, or shrink "
                    "to the grand mean, e.g. Recenter(shrinkage=5)"
                )
            renumbered = np.full(len(names), -1)
            renumbered[new] = np.arange(len(new))
            rows = np.flatnonzero(renumbered[member] >= 0)
            means[new] = self._means(matrices[rows], renumbered[member[rows]], len(new), None)
            counts[new] = own
        out = np.empty(matrices.shape)
        for k, A in enumerate(self._moves(means, counts)):
            rows = np.flatnonzero(member == k)
            moved = A @ matrices[rows] @ A.T
            out[rows] = 0.5 * (moved + moved.transpose(0, 2, 1))
        return out

    def matrix_of(self, group: Any = None) -> Array:
        """The matrix A that moves a group known from `fit` or `partial_fit`: X to A X A', (d, d).

        Parameters
        ----------
        group : name, or None
            None: only where there is one group, without a name.
        """
        check_is_fitted(self)
        self._check_settings()
        known = [None] if self.groups_ is None else self.groups_.tolist()
        if group not in known:
            if self.groups_ is None:
                raise ValueError(f"group is {group!r}, and Recenter was fitted without groups; leave it out")
            some = ", ".join(map(repr, known[:5])) + (", ..." if len(known) > 5 else "")
            raise ValueError(f"group is {group!r}, and {self._who()}: {some}; give one of them")
        place = known.index(group)
        return self._moves(self.means_[place : place + 1], self.counts_[place : place + 1])[0]

    def fit_transform(self, X: ArrayLike, y: ArrayLike | None = None, groups: ArrayLike | None = None) -> Array:
        """`fit`, then `transform` of the same matrices and groups."""
        return self.fit(X, y, groups).transform(X, groups)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.three_d_array = False, True
        return tags

    def _check_settings(self) -> None:
        if self.metric not in _METRICS:
            raise ValueError(f"metric is {self.metric!r}; choose one of {', '.join(map(repr, _METRICS))}")
        if self.target not in ("identity", "mean"):
            raise ValueError(f"target is {self.target!r}; choose 'identity' or 'mean'")
        if not isinstance(self.shrinkage, Real) or not 0 <= self.shrinkage < np.inf:
            raise ValueError(f"shrinkage is {self.shrinkage!r}; give a number of matrices, 0 or more")
        if not isinstance(self.forgetting, Real) or not 0 <= self.forgetting < 1:
            raise ValueError(f"forgetting is {self.forgetting!r}; give a share from 0 to below 1")

    def _check(self, X: ArrayLike, d: int | None = None) -> Array:
        matrices = check_spd(X, n_jobs=self.n_jobs)
        if d is not None and matrices.shape[1] != d:
            raise ValueError(f"X holds matrices of size {matrices.shape[1]}; Recenter was fitted on {d}")
        return matrices

    def _who(self) -> str:
        return f"Recenter knows {len(self.means_)} groups by name"

    def _weights(self, y: ArrayLike | None, names: Labels, member: Indices) -> Array | None:
        """Weights that make the classes of each group count alike; None: all matrices do."""
        if y is None:
            if self.balanced:
                raise ValueError(
                    "balanced=True needs labels; call fit(X, y, groups=...), or use balanced=False where there are none"
                )
            return None
        labels = np.asarray(y)
        if labels.shape != (len(member),):
            raise ValueError(f"y has shape {labels.shape}; give one label for each of the {len(member)} matrices")
        classes, codes = np.unique(labels, return_inverse=True)
        counts = np.zeros((len(names), len(classes)))
        np.add.at(counts, (member, codes), 1.0)
        if not self.balanced:
            one = np.flatnonzero((np.count_nonzero(counts, axis=1) == 1) & (counts.sum(axis=1) > 1))
            if len(classes) > 1 and one.size:
                warn_user(
                    f"group {names.tolist()[one[0]]!r} has matrices of class "
                    f"{classes[counts[one[0]] > 0].tolist()[0]!r} only, as {one.size} of {len(names)} groups have one "
                    "class; re-centring takes away what tells it from the others. Leave such groups out, or re-centre "
                    "them by other matrices of theirs, e.g. at rest"
                )
            return None
        if (bad := np.flatnonzero((counts == 0).any(axis=1))).size:
            lacking = classes[counts[bad[0]] == 0].tolist()
            raise ValueError(
                f"group {names.tolist()[bad[0]]!r} has no matrix of class {lacking[0]!r}, as {bad.size} of "
                f"{len(names)} groups lack some class; a balanced mean needs all of them. Leave such groups out, "
                "or use balanced=False"
            )
        return 1.0 / counts[member, codes]

    def _means(self, X: Array, member: Indices, n_groups: int, weights: Array | None) -> Array:
        """The mean of each group, (g, d, d)."""
        geometry = _METRICS[self.metric]()
        rows = [np.flatnonzero(member == k) for k in range(n_groups)]

        def mean(group: slice) -> Array:
            own = rows[group.start]
            shares = check_weights(None if weights is None else weights[own], len(own))
            return X[own[0]] if len(own) == 1 else _mean(geometry, X[own], shares)

        return np.stack(map_blocks(mean, [slice(k, k + 1) for k in range(n_groups)], self.n_jobs))

    def _between(self, A: Array, B: Array, share: Array) -> Array:
        """The points at the given shares of the way from each A, (g, d, d), to B, (d, d): weighted means of both."""
        if self.metric == "logeuclid":
            t = share[:, None, None]
            return matrix_exp((1.0 - t) * matrix_log(A) + t * matrix_log(B[None]))
        if self.metric == "logdet":
            both = zip(A, share, strict=True)
            return np.stack([JBLD().centroid(np.stack([a, B]), [1.0 - t, t]) if t < 1 else B for a, t in both])
        root, inverse = matrix_sqrt(A), matrix_inverse_sqrt(A)
        values, vectors = eigh(inverse @ B @ inverse)
        powers = np.maximum(values, np.finfo(np.float64).tiny) ** share[:, None]
        half = root @ (vectors * np.sqrt(powers)[:, None, :])
        return half @ half.transpose(0, 2, 1)

    def _moves(self, means: Array, counts: Array) -> Array:
        """The matrix A of each group, (g, d, d), which moves X to A X A', from its mean and number of matrices."""
        if self.shrinkage:
            means = self._between(means, self.mean_, self.shrinkage / (counts + self.shrinkage))
        roots = matrix_inverse_sqrt(means, self.n_jobs)
        return matrix_sqrt(self.mean_[None])[0] @ roots if self.target == "mean" else roots

    def _places(self, names: Labels, known: Labels | None) -> Indices:
        """Where each name is among those known; -1 where it is not."""
        if known is None:
            return np.full(len(names), -1)
        kinds = {"text" if array.dtype.kind in "US" else "numbers" for array in (names, known)}
        if len(kinds) > 1 and "O" not in (names.dtype.kind, known.dtype.kind):
            raise ValueError(
                f"groups has {names.tolist()[0]!r}, and fit had {known.tolist()[0]!r}: text in one and "
                "numbers in the other; use the same"
            )
        index = {name: k for k, name in enumerate(known.tolist())}
        return np.array([index.get(name, -1) for name in names.tolist()], dtype=np.intp)


def _mean(geometry: AIRM | JBLD | LogEuclidean, X: Array, shares: Array) -> Array:
    """The centroid of checked X to about nine digits, (d, d): from the log-Euclidean mean, which is near."""
    C = LogEuclidean().centroid_step(X, shares[:, None], X[:1], 1)[0]
    if isinstance(geometry, LogEuclidean):
        return C
    for _ in range(_STEPS):
        last, C = C, geometry.centroid_step(X, shares[:, None], C[None], 1)[0]
        whiten = np.linalg.inv(np.linalg.cholesky(last))
        if np.linalg.norm(whiten @ (C - last) @ whiten.T) < _TOL:
            return C
    return geometry.centroid(X, shares)  # which warns, should it not end either


def _check_groups(groups: ArrayLike | None, n: int) -> tuple[Labels, Indices]:
    """Names of the groups, sorted, and which one each of n matrices belongs to."""
    array = np.zeros(n, dtype=np.intp) if groups is None else np.asanyarray(groups)
    if array.ndim == 0:
        array = np.repeat(array, n)
    if array.shape != (n,):
        raise ValueError(f"groups has shape {array.shape}, and X has {n} matrices; give one group for each matrix")
    return named_groups(array, "matrix")

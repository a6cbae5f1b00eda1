"""What works on these data: candidates from cheap to costly, on held-out points, within a few minutes."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from knnpress.arrays import as_float_array
from knnpress.clouds import Clouds
from knnpress.comparison.candidates import COLOUR, KINDS, RECENTERED, Candidate, descriptor_of, kind_of
from knnpress.comparison.result import Comparison, recommend, table_of
from knnpress.comparison.search import Search, are_mixed, recentered
from knnpress.comparison.trials import Clock, Points, Trials
from knnpress.descriptors.images import check_images
from knnpress.estimators.checks import check_groups, check_labels
from knnpress.estimators.described import joined
from knnpress.geometries.matrices import check_spd
from knnpress.parameters import check_values
from knnpress.progress import progress_bar
from knnpress.typing import Array, ArrayLike, Callback, Indices, Labels

_MAX_IMAGES = 4000  # to compare; where there are more, a sample


def compare(
    X: Any,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    ground_cost: ArrayLike | None = None,
    kind: str = "auto",
    descriptors: Sequence[str] | None = None,
    minutes: float = 5.0,
    n_splits: int = 5,
    max_points: int | None = None,
    refit: bool = True,
    random_state: int = 0,
    n_jobs: int | None = None,
    verbose: int = 0,
) -> Comparison:
    """Find out what works on your data: descriptors, metrics and sizes, compared on held-out points.

    Descriptors get a first look, the cheapest first: class means, full 1-NN and a learned model in the quickest metric,
    on one fold. Those that do best are tried at other sizes and in other metrics, and what is not far behind then goes
    through the other folds. All are judged by the same held-out points. Recommended is the smallest model that is not
    worse than the best by more than noise.

    Parameters
    ----------
    X : images, array of shape (n, d, d) or (n, d), or Clouds
        Images as for `knnpress.descriptors`: a list of arrays, files or paths, or an array (n, h, w[, c]). Or points:
        covariance matrices, histograms, vectors, clouds.
    y : array of shape (n,)
        Labels of any kind, of at least two classes.
    groups : array of shape (n,) or None
        E.g. subjects, films or objects: no group is divided between what is learned from and what is held out, so that
        errors are those on groups never seen. Covariance matrices are tried as they are, and also with each group
        re-centred by its own mean (see `knnpress.descriptors.Recenter`).
    ground_cost : array of shape (d, d) or None
        For histograms: the cost of moving mass between bins.
    kind : {"auto", "images", "matrices", "histograms", "vectors", "clouds"}
        What X holds. "auto": by its shape; (n, d) with a ground cost, or with rows that sum to one, are histograms.
    descriptors : sequence of str or None
        Which to try on images, by their names on the command line, e.g. "color-texture"; None: all that suit them.
    minutes : float
        No candidate is begun after this time; `left_out_` says what was left out. Learning `best_` takes time on top.
    n_splits : int
        Folds; fewer, where there are fewer groups.
    max_points : int or None
        Of more points, a sample of this size is compared. None: 4000, or 1000 clouds. `best_` is learned from all.
    refit : bool
        Whether to learn `best_`.
    random_state : int
    n_jobs : int or None
        Threads; None: all cores this process may use.
    verbose : int
        1 shows a bar, and what was seen of each candidate.

    Returns
    -------
    Comparison
        `best_`, the recommended model, ready to use; `table_`, what was seen of all.

    Examples
    --------
    >>> import knnpress as kp
    >>> data = kp.datasets.load_digits_covariances()
    >>> found = kp.compare(data.X[:300], data.y[:300], minutes=0.02)
    >>> bool(found.best_.score(data.X[300:], data.y[300:]) > 0.8)
    True
    """
    check_values(
        descriptors=descriptors,
        minutes=minutes,
        n_splits=n_splits,
        max_points=max_points,
        random_state=random_state,
        n_jobs=n_jobs,
        verbose=verbose,
    )
    _check_settings(kind, descriptors, minutes, n_splits, max_points)
    kind = kind_of(X, ground_cost) if kind == "auto" else kind
    X = _checked(X, kind)
    labels, classes, codes = _checked_labels(y, len(X))
    group = None if groups is None else check_groups(groups, len(X))
    cost = None if ground_cost is None else as_float_array(ground_cost, "ground_cost")
    most = KINDS[kind].max_points if max_points is None and kind in KINDS else max_points or _MAX_IMAGES
    rows = _sample(codes, most, random_state)
    some_groups = None if group is None else group[rows]
    folds = _folds(codes[rows], some_groups, n_splits, random_state)
    clock = Clock(60.0 * minutes)
    with progress_bar("comparing", verbose > 0) as bar:
        tell = partial(_tell, bar, clock)
        trials = Trials(codes[rows], some_groups, folds, len(X), clock, random_state, n_jobs, tell)
        search = Search(trials)
        if kind == "images":
            search.run_on_images([X[int(k)] for k in rows], rows, descriptors)
        else:
            views: dict[str | None, Points] = {None: Points(X[rows], kind, cost)}
            if kind == "matrices" and some_groups is not None and are_mixed(codes[rows], some_groups):
                views[RECENTERED] = recentered(X[rows], some_groups, random_state, n_jobs)
            search.run_on_points(views)
    chosen = recommend(trials)
    found = Comparison(
        table_of(trials, search.views, chosen),
        classes=classes,
        n_points=len(X),
        n_compared=len(rows),
        n_folds=len(folds),
        kind=kind,
        guessing=1.0 - float(np.bincount(codes).max()) / len(codes),
        has_groups=group is not None,
        left_out=trials.left_out,
        seconds=clock.used,
        options=chosen.candidate.options(),
    )
    if refit:
        found.best_ = _refit(chosen.candidate, X, labels, groups, cost, random_state, n_jobs)
    return found


def _tell(bar: Callback | None, clock: Clock, note: str) -> None:
    if bar is not None:
        bar(round(min(clock.used, clock.seconds)), round(clock.seconds), {"note": note})


def _check_settings(
    kind: str, names: Sequence[str] | None, minutes: float, n_splits: int, max_points: int | None
) -> None:
    if kind not in ("auto", "images", *KINDS):
        choices = ", ".join(map(repr, ("auto", "images", *KINDS)))
        raise ValueError(f"kind is {kind!r}; choose one of {choices}")
    strange = [name for name in names or () if name not in COLOUR]
    if strange:
        raise ValueError(f"descriptors has {strange[0]!r}; choose from {', '.join(map(repr, COLOUR))}")
    if not minutes > 0:
        raise ValueError(f"minutes is {minutes!r}; give a number above 0, e.g. 5")
    if n_splits < 2:
        raise ValueError(f"n_splits is {n_splits!r}; give at least 2")
    if max_points is not None and max_points < 10:
        raise ValueError(f"max_points is {max_points!r}; give at least 10")


def _checked(X: Any, kind: str) -> Any:
    """Images, clouds, or numbers as an array."""
    if kind == "images":
        return check_images(X)
    if kind == "clouds" or isinstance(X, Clouds):
        if kind == "clouds" and isinstance(X, Clouds):
            return X
        raise TypeError(f"X is {type(X).__name__} and kind is {kind!r}; clouds are given as knnpress.Clouds")
    array = as_float_array(X, "X")
    if kind == "matrices" and not (array.ndim == 3 and array.shape[1] == array.shape[2]):
        check_spd(array)  # says what is wrong with the shape, once instead of once for every candidate
    return array


def _checked_labels(y: ArrayLike, n: int) -> tuple[Labels, Labels, Indices]:
    """Labels of n points, their classes, and the class index of each point."""
    labels = check_labels(y, n)
    classes, codes = np.unique(labels, return_inverse=True)
    if not len(classes):
        raise ValueError("X has 0 points; give some, with their labels")
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes.tolist()[0]!r}; there is nothing to tell apart")
    return labels, classes, codes


def _sample(y: Indices, most: int, seed: int) -> Indices:
    """Rows to compare by: all, or a share of each class, at least two of each."""
    if len(y) <= most:
        return np.arange(len(y))
    rng, kept = np.random.default_rng(seed), []
    for c in np.unique(y):
        own = rng.permutation(np.flatnonzero(y == c))
        kept.append(own[: max(2, round(len(own) * most / len(y)))])
    return np.sort(np.concatenate(kept))


def _folds(y: Indices, groups: Labels | None, n_splits: int, seed: int) -> list[tuple[Indices, Indices]]:
    """Rows to learn from and rows held out; what is learned from has at least two classes."""
    if groups is None:
        n_splits = min(n_splits, int(np.bincount(y).max()))
        if n_splits < 2:
            raise ValueError("every class has one point only; give at least two of some, so that one can be held out")
        splitter: Any = StratifiedKFold(n_splits, shuffle=True, random_state=seed)
    else:
        n_splits = min(n_splits, len(np.unique(groups)))
        if n_splits < 2:
            raise ValueError("groups has one group only, which cannot be held out; leave groups away, or give more")
        splitter = StratifiedGroupKFold(n_splits, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # classes smaller than the folds are in some of them only
        folds = [(kept, out) for kept, out in splitter.split(y, y, groups) if len(out) and len(np.unique(y[kept])) > 1]
    if not folds:
        raise ValueError("without any one group, one class is left; give groups that hold points of several classes")
    return folds


def _refit(
    candidate: Candidate,
    X: Any,
    y: Labels,
    groups: ArrayLike | None,
    ground_cost: Array | None,
    seed: int,
    n_jobs: int | None,
) -> Any:
    """The model that ``knnpress compress`` would make, of all data."""
    descriptor = None
    if candidate.descriptor is not None:
        descriptor = descriptor_of(candidate.descriptor, seed, n_jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the comparison took these images as they are
            X = descriptor.fit_transform(X, **({"groups": groups} if candidate.descriptor == RECENTERED else {}))
        ground_cost = getattr(descriptor, "ground_cost_", None)
    model = candidate.build(ground_cost, seed, n_jobs)
    model.fit(X, y, **({} if groups is None else {"groups": groups}))
    model.set_params(n_jobs=None)
    return model if descriptor is None else joined(descriptor.set_params(n_jobs=None), model)

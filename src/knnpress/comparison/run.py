"""What works on these data: candidates from cheap to dear, on held-out points, within a few minutes."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

from knnpress.arrays import as_float_array
from knnpress.clouds import Clouds
from knnpress.comparison.candidates import (
    COLOUR,
    GRAY,
    KINDS,
    RECENTERED,
    Candidate,
    kind_of,
    make_descriptor,
    sizes_of,
)
from knnpress.comparison.result import Comparison, recommend, table_of
from knnpress.comparison.trials import FAR_BEHIND, NO_TIME, Clock, Points, Trials, hopeless
from knnpress.descriptors.images import are_gray, as_picture, check_images
from knnpress.estimators.checks import check_groups, check_labels
from knnpress.estimators.described import joined
from knnpress.geometries.spd import check_spd
from knnpress.parameters import check_values
from knnpress.progress import progress_bar
from knnpress.typing import Array, ArrayLike, Indices, Labels

_LAST = 3  # descriptors that are looked at closely
_SCREENING, _FIRST = 0.5, 0.65  # shares of the time for a first look at descriptors, and for first folds in all
_MOST_IMAGES = 4000  # that are compared; of more, a sample
_PROBES = 4  # images by which descriptors are timed


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
        Nothing new is begun after that; `left_out_` says what was left out. `best_` is learned on top of it.
    n_splits : int
        Folds; fewer, where there are fewer groups.
    max_points : int or None
        Of more points, a sample of so many is compared; None: 4000, and of clouds 1000. `best_` is learned from all.
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
    labels = check_labels(y, len(X))
    classes, codes = np.unique(labels, return_inverse=True)
    if not len(classes):
        raise ValueError("X has 0 points; give some, with their labels")
    if len(classes) < 2:
        raise ValueError(f"y has one class, {classes.tolist()[0]!r}; there is nothing to tell apart")
    group = None if groups is None else check_groups(groups, len(X))
    cost = None if ground_cost is None else as_float_array(ground_cost, "ground_cost")
    most = KINDS[kind].max_points if max_points is None and kind in KINDS else max_points or _MOST_IMAGES
    rows = _sample(codes, most, random_state)
    some_groups = None if group is None else group[rows]
    folds = _folds(codes[rows], some_groups, n_splits, random_state)
    clock = Clock(60.0 * minutes)
    with progress_bar("comparing", verbose > 0) as bar:

        def tell(note: str) -> None:
            if bar is not None:
                bar(round(min(clock.used, clock.seconds)), round(clock.seconds), {"note": note})

        trials = Trials(codes[rows], some_groups, folds, len(X), clock, random_state, n_jobs, tell)
        views: dict[str | None, Points] = {}
        if kind == "images":
            _screen(trials, [X[int(k)] for k in rows], rows, descriptors, views, random_state, n_jobs)
        else:
            views[None] = Points(X[rows], kind, cost)
            if kind == "matrices" and _are_mixed(codes[rows], some_groups):
                views[RECENTERED] = _recentered(X[rows], some_groups, random_state, n_jobs)
            _look_at(trials, views, list(views), len(X), _FIRST)
        if not trials.tried:
            raise ValueError(
                f"nothing could be tried: {'; '.join(f'{what}: {why}' for what, why in trials.left_out)}; give more "
                "minutes, or see to what failed"
            )
        _look_closer(trials, views, len(X))
        _go_through_folds(trials, views)
    chosen = recommend(trials)
    found = Comparison(
        table_of(trials, views, chosen),
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


def _are_mixed(y: Indices, groups: Labels | None) -> bool:
    """Whether groups hold points of several classes, so that re-centring each of them can leave the classes apart."""
    if groups is None:
        return False
    return len(np.unique(np.column_stack([np.unique(groups, return_inverse=True)[1], y]), axis=0)) > len(
        np.unique(groups)
    )


def _recentered(X: Array, groups: Labels | None, seed: int, n_jobs: int | None) -> Points:
    """Matrices of which each group was re-centred by its own mean, also those held out: that takes no labels."""
    descriptor, start = make_descriptor(RECENTERED, seed, n_jobs), time.perf_counter()
    Z = descriptor.fit_transform(X, groups=groups)
    return Points(Z, "matrices", None, descriptor.set_params(n_jobs=None), time.perf_counter() - start)


def _screen(
    trials: Trials,
    images: list[Any],
    rows: Indices,
    names: Sequence[str] | None,
    views: dict[str | None, Points],
    seed: int,
    n_jobs: int | None,
) -> None:
    """A first look at each descriptor, the cheapest first; `rows` are the places of these images among all."""
    few = np.linspace(0, len(images) - 1, min(_PROBES, len(images))).astype(int)
    if names is None:
        names = GRAY if are_gray(images) else COLOUR
    for name in sorted(names, key=COLOUR.index):
        if trials.tried and not trials.clock.has(share=_SCREENING):
            trials.left_out.append((name, NO_TIME))
            continue
        try:
            # Dear ones take long even to probe: only when it is their turn
            cost = _probe(name, [images[k] for k in few], seed, n_jobs)
        except ValueError as error:
            trials.left_out.append((name, _why_not(error, images, few, rows)))
            continue
        if trials.tried and not trials.clock.has(cost * len(images), _SCREENING):
            why = f"describing {len(images)} images by it takes about {cost * len(images):.0f} s"
            trials.left_out.append((name, why))
            continue
        descriptor, start = make_descriptor(name, seed, n_jobs), time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                X = descriptor.fit_transform(images)
        except ValueError as error:
            trials.left_out.append((name, _why_not(error, images, np.arange(len(images)), rows)))
            continue
        seconds = time.perf_counter() - start
        trials.tell(f"{name}: {len(images)} images described in {seconds:.1f} s")
        ground_cost = getattr(descriptor, "ground_cost_", None)
        views[name] = Points(X, "matrices" if X.ndim == 3 else "histograms", ground_cost, descriptor, seconds)
        _look_at(trials, views, [name], trials.n_all, _SCREENING)
        _drop_worst(trials, views)


def _why_not(error: ValueError, images: list[Any], described: Indices, rows: Indices) -> str:
    """Why a descriptor cannot describe these images; an image that cannot be read is bad for all, and raised.

    The error names an image by its place among those `described`, and the user knows it by its place among `rows`.
    """
    place = re.match(r"images\[(\d+)\]", str(error))
    if place is None:
        return f"failed: {error}"
    k = int(described[int(place[1])])
    why = f"images[{rows[k]}]{str(error)[place.end() :]}"
    try:
        as_picture(images[k], "alpha", max_side=64)
    except ValueError:
        raise ValueError(why) from error
    return why


def _probe(name: str, few: list[Any], seed: int, n_jobs: int | None) -> float:
    """Seconds to describe an image, by a few of them."""
    descriptor = make_descriptor(name, seed, n_jobs)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        descriptor.fit_transform(few[:1] if "n_words" not in descriptor.get_params() else few)  # imports come first
        start = time.perf_counter()
        descriptor.fit_transform(few)
    return (time.perf_counter() - start) / len(few)


def _drop_worst(trials: Trials, views: dict[str | None, Points]) -> None:
    """Forget the points of descriptors that will not be looked at any more; they may be large."""
    last = _best_names(trials, views)
    for name in views.keys() - {*last}:
        views[name].X = None


def _best_names(trials: Trials, views: dict[str | None, Points]) -> list[str | None]:
    """Descriptors that are worth a closer look, the best first."""
    there = [trial for trial in trials.tried if views[trial.candidate.descriptor].X is not None]
    ranked = sorted(there, key=lambda trial: trial.error)
    close = [trial for trial in ranked if not hopeless(trial, ranked[0], trials)]
    return list(dict.fromkeys(trial.candidate.descriptor for trial in close))[:_LAST]


def _candidates(name: str | None, points: Points, metric: str, n: int, n_all: int, n_classes: int) -> list[Candidate]:
    """Means, all points, and learned models with the middle size first; of what has no means, the smallest first."""
    first, *more = sizes_of(n, n_classes)
    full = Candidate(name, points.kind, "full", metric, n_all)
    sizes = [more[0], first, *more[1:]] if more and KINDS[points.kind].has_means else [first, *more]
    smallest, *learned = (Candidate(name, points.kind, "learned", metric, size) for size in sizes)
    if not KINDS[points.kind].has_means:
        return [smallest, full, *learned]
    return [Candidate(name, points.kind, "means", metric, n_classes), full, smallest, *learned]


def _metrics(points: Points) -> list[str]:
    """Of the kind, the quickest first; without a ground cost there is no transport."""
    names = list(KINDS[points.kind].metrics)
    return names[:1] if points.kind == "histograms" and points.ground_cost is None else names


def _look_at(
    trials: Trials, views: dict[str | None, Points], names: list[str | None], n_all: int, share: float
) -> None:
    """The quickest metric, one size; learned from only where the quicker models leave hope."""
    n_classes = len(np.unique(trials.y))
    for number in range(3):
        hopeful = names if len(names) == 1 or number < 2 else _best_names(trials, views)
        for name in hopeful:
            points = views[name]
            candidates = _candidates(name, points, _metrics(points)[0], len(trials.y), n_all, n_classes)
            if number < len(candidates):
                trials.add(candidates[number], points, share)


def _look_closer(trials: Trials, views: dict[str | None, Points], n_all: int) -> None:
    """Other sizes and metrics of what did best."""
    names, n_classes = _best_names(trials, views), len(np.unique(trials.y))
    for number in range(max(len(_metrics(views[name])) for name in names)):
        for name in names:
            metrics = _metrics(views[name])
            if number < len(metrics):
                candidates = _candidates(name, views[name], metrics[number], len(trials.y), n_all, n_classes)
                for candidate in candidates[3:] if number == 0 else candidates:
                    if candidate.method == "means" and _means_are_hopeless(trials, name):
                        continue  # barycenters in the dearer metric may take longer than all else
                    trials.add(candidate, views[name], _FIRST)


def _means_are_hopeless(trials: Trials, name: str | None) -> bool:
    """Whether the means of classes under a quicker metric, of the same points, are far behind."""
    best = min(trials.tried, key=lambda trial: trial.error)
    means = [t for t in trials.tried if t.candidate.descriptor == name and t.candidate.method == "means"]
    return any(hopeless(trial, best, trials) for trial in means)


def _go_through_folds(trials: Trials, views: dict[str | None, Points]) -> None:
    """The other folds, for what is not far behind, and for class means and all points beside the best."""
    for number in range(1, len(trials.folds)):
        running = [trial for trial in trials.tried if len(trial.wrong) == number]
        if not running:  # the time was up
            break
        best = min(running, key=lambda trial: trial.error)
        for trial in sorted(running, key=lambda trial: trial.error):
            beside = trial.candidate.method != "learned" and trial.candidate.descriptor == best.candidate.descriptor
            if views[trial.candidate.descriptor].X is None or (hopeless(trial, best, trials) and not beside):
                trial.stopped = FAR_BEHIND
            elif not trials.clock.has(trial.learning[-1]):
                trial.stopped = NO_TIME
            else:
                trials.go_on(trial, views[trial.candidate.descriptor], number)


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
        descriptor = make_descriptor(candidate.descriptor, seed, n_jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the comparison took these images as they are
            X = descriptor.fit_transform(X, **({"groups": groups} if candidate.descriptor == RECENTERED else {}))
        ground_cost = getattr(descriptor, "ground_cost_", None)
    model = candidate.build(ground_cost, seed, n_jobs)
    model.fit(X, y, **({} if groups is None else {"groups": groups}))
    model.set_params(n_jobs=None)
    return model if descriptor is None else joined(descriptor.set_params(n_jobs=None), model)

"""The search for good settings of a learned model, by Bayesian optimisation."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.utils.validation import check_consistent_length, column_or_1d

from knnpress.arrays import as_float_array
from knnpress.clouds import Clouds, StoredClouds
from knnpress.compression.tuning_space import Space, Suggest, check_space, suggester
from knnpress.learning.fingerprint import changes, describe
from knnpress.progress import progress_bar
from knnpress.typing import ArrayLike, Callback, Indices, Labels

_STUDY = "knnpress"
_OF_ONE_RUN = {"n_jobs": None, "verbose": False, "callback": None, "checkpoint": None}  # they change no result


@dataclass(frozen=True)
class Tuning:
    """What `tune` found.

    Attributes
    ----------
    estimator : estimator
        A clone of the given one with the best parameters, not fitted.
    best_params : dict
    best_score : float
        Accuracy.
    trials : list of dict
        In order, each with "params", "score" (NaN where the trial failed), "seconds" and "failure" (the reason, or
        None).
    """

    estimator: Any
    best_params: dict[str, Any]
    best_score: float
    trials: list[dict[str, Any]]


def tune(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    space: Space | None = None,
    n_trials: int = 20,
    criterion: Literal["held-out", "training"] = "held-out",
    validation_fraction: float = 0.25,
    n_splits: int = 1,
    storage: str | os.PathLike[str] | None = None,
    timeout: float | None = None,
    random_state: Any = None,
    n_jobs: int | None = None,
    verbose: int = 0,
    callback: Callback | None = None,
) -> Tuning:
    """Search for the parameters with the highest accuracy, by a tree-structured Parzen estimator (Optuna).

    Parameters
    ----------
    estimator : SCC, SHC, SNC or SWC; or any classifier, also a pipeline, with a space
        Not changed. Parameters outside the space keep its values.
    X : array of shape (n, d) or (n, d, d), or Clouds
    y : array of shape (n,)
    space : dict, callable or None
        For each parameter a list of choices, or ``(low, high)``, or ``(low, high, "log")``; two whole numbers stand for
        whole numbers. A callable takes an Optuna trial and returns the parameters. None: gamma around that of
        ``gamma="scale"``, prior, smoothing, and the reg of SHC.
    n_trials : int
        Those that a storage already holds included.
    criterion : {"held-out", "training"}
        Where the accuracy is taken: on a part that is not learned from, or (as in the paper, for SHC) on the training
        set itself.
    validation_fraction : float
        Size of the held-out part, a share of each class.
    n_splits : int
        Held-out parts to average over. They are drawn once and are the same for all trials.
    storage : str, path or None
        A file (SQLite) that keeps every finished trial. The same call goes on where the last one stopped, also after
        Ctrl-C, and ends where an uninterrupted one would.
    timeout : float or None
        Seconds after which no new trial begins.
    random_state : int, RandomState, Generator or None
        Draws the parts and the trials; also the estimator's random_state where it has none.
    n_jobs : int or None
        Threads of each trial; trials run one after another.
    verbose : int
        Above 0: a bar.
    callback : callable or None
        Called after each trial with the facts "score" and "best"; a true answer ends the search.

    Examples
    --------
    >>> import knnpress as kp
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> found = tune(kp.SNC(n_prototypes=6), X, y, space={"gamma": (0.1, 10.0, "log")}, n_trials=3, random_state=0)
    >>> len(found.trials), found.best_score > 0.8
    (3, True)
    """
    try:
        import optuna
    except ImportError as error:
        raise ImportError("tune needs Optuna: pip install knnpress[tune]") from error
    points: Any = X[:] if isinstance(X, (Clouds, StoredClouds)) else as_float_array(X, "X")
    labels = column_or_1d(y)
    check_consistent_length(points, labels)
    _check_settings(estimator, space, n_trials, criterion)
    plain = _with_parameters(estimator, _OF_ONE_RUN)
    about = {f"{type(estimator).__name__}.{k}": describe(v) for k, v in plain.get_params(deep=False).items()}
    about |= {"X": describe(points), "y": describe(labels.tolist()), "space": describe(space)}
    about |= {"criterion": f"{criterion}, {validation_fraction} of {n_splits}"}
    with _quiet(optuna), _open(optuna, storage) as study:
        seed = _agree(study, about, random_state, storage)
        base = _prepared(estimator, seed, n_jobs)
        suggest = suggester(space, base, points, labels)
        parts = _parts(labels, criterion, validation_fraction, n_splits, seed)

        def score(params: dict[str, Any]) -> float:
            scores = []
            for rows, held_out in parts:
                model = clone(base).set_params(**params).fit(points[rows], labels[rows])
                scores.append(model.score(points[held_out], labels[held_out]))
            return float(np.mean(scores))

        with progress_bar("tune", verbose > 0) as bar:
            followers = [follower for follower in (bar, callback) if follower is not None]
            _search(optuna, study, suggest, score, n_trials, timeout, seed, followers)
        trials = [_record(trial, suggest(optuna.trial.FixedTrial(trial.params))) for trial in _finished(study)]
    scored = [trial for trial in trials if trial["failure"] is None]
    if not scored:
        raise ValueError(f"all {len(trials)} trials failed; the last one: {trials[-1]['failure']}")
    best = max(scored, key=lambda trial: trial["score"])
    return Tuning(clone(estimator).set_params(**best["params"]), best["params"], best["score"], trials)


def _prepared(estimator: BaseEstimator, seed: int, n_jobs: int | None) -> BaseEstimator:
    """A clone that differs from trial to trial in nothing but the parameters tried."""
    base = _with_parameters(estimator, {name: value for name, value in _OF_ONE_RUN.items() if name != "n_jobs"})
    base = base if n_jobs is None else _with_parameters(base, {"n_jobs": n_jobs})
    unseeded = [name for name, value in base.get_params().items() if _own(name) == "random_state" and value is None]
    return base.set_params(**dict.fromkeys(unseeded, seed))


def _with_parameters(estimator: BaseEstimator, values: Mapping[str, Any]) -> BaseEstimator:
    """A clone in which all parameters of these names have these values, also in the steps of a pipeline."""
    names = [name for name in estimator.get_params() if _own(name) in values]
    return clone(estimator).set_params(**{name: values[_own(name)] for name in names})


def _own(name: str) -> str:
    """The name of a parameter within the step that it belongs to."""
    return name.rpartition("__")[2]


def _check_settings(estimator: BaseEstimator, space: Space | None, n_trials: int, criterion: str) -> None:
    """Refuse what no trial could use."""
    if not isinstance(n_trials, Integral) or n_trials < 1:
        raise ValueError(f"n_trials is {n_trials!r}; give a positive whole number")
    if criterion not in ("held-out", "training"):
        raise ValueError(f"criterion is {criterion!r}; choose 'held-out' or 'training'")
    name, params = type(estimator).__name__, estimator.get_params()
    if space is None and not {"gamma", "prior", "smoothing"} <= params.keys():
        raise ValueError(f"{name} is not a learned model, so it has no usual space; give `space`")
    check_space(space, name, params)


@contextmanager
def _quiet(optuna: Any) -> Iterator[None]:
    """Keep Optuna's log still, and leave it as it was."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


@contextmanager
def _open(optuna: Any, path: str | os.PathLike[str] | None) -> Iterator[Any]:
    """The study that a file holds, a new one where there is none."""
    if path is None:
        yield optuna.create_study(direction="maximize")
        return
    file = Path(path).absolute()
    if not file.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {file.parent} for the storage; make it first")
    if "?" in str(file):
        raise ValueError(f"storage {path} contains a question mark, which Optuna cannot take; give another name")
    try:
        storage = optuna.storages.RDBStorage(f"sqlite:///{file}")
        study = optuna.create_study(study_name=_STUDY, storage=storage, direction="maximize", load_if_exists=True)
    except Exception as error:  # of SQLite, SQLAlchemy or Optuna: each has its own
        what = str(error).partition("\n")[0]
        raise ValueError(f"storage {path} cannot be used ({what}); give a new file, or one that tune wrote") from error
    try:
        yield study
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _agree(study: Any, about: dict[str, str], random_state: Any, path: Any) -> int:
    """The seed of the search; refuses a study of another search."""
    known = study.user_attrs
    if _finished(study):
        now = about | ({"random_state": str(random_state)} if isinstance(random_state, Integral) else {})
        changed = changes(known.get("about", {}), now)
        if changed:
            raise ValueError(f"storage {path} holds another search: {changed}. Give another file")
        return int(known["about"]["random_state"])
    if isinstance(random_state, Integral):
        seed = int(random_state)
    elif isinstance(random_state, np.random.RandomState):
        seed = random_state.randint(2**31)
    else:
        seed = int(np.random.default_rng(random_state).integers(2**31))
    study.set_user_attr("about", about | {"random_state": str(seed)})
    return seed


def _parts(y: Labels, criterion: str, fraction: float, n_splits: int, seed: int) -> list[tuple[Indices, Indices]]:
    """Rows to learn from and rows to score, for each split. A class of one is learned from."""
    everything = np.arange(len(y))
    if criterion == "training":
        return [(everything, everything)]
    _, codes, counts = np.unique(y, return_inverse=True, return_counts=True)
    divided = np.flatnonzero(counts[codes] > 1)
    if not len(divided):
        raise ValueError("every class has one point only; give at least two of some, so that one can be held out")
    splitter = StratifiedShuffleSplit(n_splits, test_size=fraction, random_state=seed % 2**32)
    held_out = [divided[rows] for _, rows in splitter.split(divided, codes[divided])]
    return [(np.setdiff1d(everything, rows), np.sort(rows)) for rows in held_out]


def _finished(study: Any) -> list[Any]:
    """Trials with a score or with a reason for having none; not those that were interrupted."""
    return [t for t in study.get_trials(deepcopy=False) if t.state.name == "COMPLETE" or "failure" in t.user_attrs]


def _search(
    optuna: Any,
    study: Any,
    suggest: Suggest,
    score: Callable[[dict[str, Any]], float],
    n_trials: int,
    timeout: float | None,
    seed: int,
    followers: list[Callback],
) -> None:
    """Run trials until the study holds enough of them."""
    begin = time.monotonic()
    while (n := len(_finished(study))) < n_trials:
        if n > 0 and timeout is not None and time.monotonic() - begin > timeout:
            return
        # seeded again for each trial, so that a search that was interrupted goes on as if it had not been
        trial_seed = int(np.random.SeedSequence([seed, n]).generate_state(1)[0])
        study.sampler = optuna.samplers.TPESampler(seed=trial_seed, constant_liar=False)
        trial, start, value, failure = study.ask(), time.monotonic(), np.nan, None
        failed = optuna.trial.TrialState.FAIL
        try:
            params = suggest(trial)
            try:
                value = score(params)
            except (ValueError, ArithmeticError) as error:
                failure = str(error)
        except BaseException:  # interrupted, so it does not count
            study.tell(trial, state=failed)
            raise
        trial.set_user_attr("seconds", time.monotonic() - start)
        if failure is None:
            study.tell(trial, value)
        else:
            trial.set_user_attr("failure", failure)
            study.tell(trial, state=failed)
        best = max((t.value for t in _finished(study) if t.value is not None), default=np.nan)
        if any(follow(n + 1, n_trials, {"score": value, "best": best}) for follow in followers):
            return


def _record(trial: Any, params: dict[str, Any]) -> dict[str, Any]:
    score = np.nan if trial.value is None else trial.value
    facts = trial.user_attrs
    return {"params": params, "score": score, "seconds": facts["seconds"], "failure": facts.get("failure")}

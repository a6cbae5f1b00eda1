"""The parameters that `tune` searches among: a user's space, or the usual one, scaled to the data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, clone

from knnpress.learning.fingerprint import describe
from knnpress.typing import Array, Labels

#: From a trial of Optuna to the parameters that it tries
Suggest = Callable[[Any], dict[str, Any]]
Space = Mapping[str, list[Any] | tuple[Any, ...]] | Suggest

_SHARPNESS = (1 / 30, 30.0)  # gamma^2, relative to gamma="scale"
_PRIOR, _SMOOTHING = (0.03, 30.0), (0.0, 0.1)
_REG = (0.02, 0.3)  # in units of the median positive ground cost


def check_space(space: Space | None, model: str, known: Iterable[str]) -> None:
    """Refuse a space of parameters that a model does not have, or of values that nothing can be drawn from."""
    if not isinstance(space, Mapping):
        return
    for parameter, values in space.items():
        if parameter not in known:
            raise ValueError(f"space names {parameter!r}, which {model} does not have; it has {', '.join(known)}")
        if not (isinstance(values, list) and values) and not _is_range(values):
            raise ValueError(
                f"space[{parameter!r}] is {values!r}; give a list of choices, (low, high), or (low, high, 'log')"
            )


def _is_range(values: Any) -> bool:
    if not isinstance(values, tuple) or len(values) < 2 or values[2:] not in ((), ("log",)):
        return False
    low, high, *log = values
    return all(isinstance(end, Real) for end in (low, high)) and low < high and (low > 0 or not log)


def suggester(space: Space | None, estimator: BaseEstimator, X: Array, y: Labels) -> Suggest:
    """The space as a function from a trial to the parameters that it tries."""
    if space is None:
        return _default_space(estimator, X, y)
    if not isinstance(space, Mapping):
        return space
    return lambda trial: {name: _draw(trial, name, values) for name, values in space.items()}


def _draw(trial: Any, name: str, values: list[Any] | tuple[Any, ...]) -> Any:
    if isinstance(values, list):
        texts = [value if value is None or isinstance(value, (str, Real)) else describe(value) for value in values]
        return values[texts.index(trial.suggest_categorical(name, texts))]
    low, high, *log = values
    if isinstance(low, Integral) and isinstance(high, Integral):
        return trial.suggest_int(name, int(low), int(high), log=bool(log))
    return trial.suggest_float(name, float(low), float(high), log=bool(log))


def _default_space(estimator: BaseEstimator, X: Array, y: Labels) -> Suggest:
    """What is worth trying for SCC, SHC and SNC, scaled to the data."""
    fixed = {"gamma": "scale", "prior": 1.0, "smoothing": 0.0, "vote": "nearest", "max_iter": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they come again with the trials
        first = clone(estimator).set_params(**fixed).fit(X, y)
    gamma = first.gamma_ * np.sqrt(_SHARPNESS)
    space: dict[str, Any] = {"gamma": (*gamma.tolist(), "log"), "prior": (*_PRIOR, "log"), "smoothing": _SMOOTHING}
    params = estimator.get_params(deep=False)
    if params.get("ground_cost") is not None and params.get("metric") != "hellinger":
        cost = np.asarray(params["ground_cost"], dtype=np.float64)
        reg = np.median(cost[cost > 0]) * np.array(_REG)
        space["reg"] = (*reg.tolist(), "log")
    return lambda trial: {name: _draw(trial, name, values) for name, values in space.items()}

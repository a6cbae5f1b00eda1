"""The kinds of values that the parameters of models and of learning may have, checked before anything is computed.

Ranges of numbers, and which words are known, are mostly checked where they are used. The rules here catch what would
otherwise end in an error that does not name the parameter, or in no error at all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

_FEW = 20  # numbers or items that are printed one by one


@dataclass(frozen=True)
class Rule:
    """What a parameter may be.

    Attributes
    ----------
    holds : callable
        Whether a value is allowed; never raises.
    wanted : str
        What to give instead, for the error.
    error : type
    """

    holds: Callable[[Any], bool]
    wanted: str
    error: type[Exception] = ValueError


class _ShownAs:
    """Stands for a large value where it is printed."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def brief_repr(estimator: BaseEstimator, n_char_max: int = 700) -> str:
    """What scikit-learn's repr gives, but with the shapes of large arrays for their numbers."""
    shown = copy(estimator)
    for name, value in estimator.get_params(deep=False).items():
        setattr(shown, name, _in_brief(value))
    return BaseEstimator.__repr__(shown, n_char_max)


def _in_brief(value: Any) -> Any:
    """A value to print: itself, or what stands for it where it is or holds a large array."""
    if isinstance(value, BaseEstimator):
        params = value.get_params(deep=False).values()
        large = any(_in_brief(param) is not param for param in params)
        return _ShownAs(" ".join(brief_repr(value).split())) if large else value
    if isinstance(value, (list, tuple)) and any(isinstance(item, BaseEstimator) for item in value):
        shown = [_in_brief(item) for item in value]
        return shown if any(a is not b for a, b in zip(shown, value, strict=True)) else value
    if isinstance(value, np.ndarray) and value.size > _FEW:
        return _ShownAs(f"<{' x '.join(map(str, value.shape))} array>")
    if isinstance(value, (list, tuple)) and len(value) > _FEW:
        return _ShownAs(f"<{len(value)} items>")
    return value


def brief(value: Any) -> str:
    """A value as it was given, in a line, cut off where that is long."""
    text = " ".join(repr(value).split())
    if len(text) <= 60:
        return text
    return f"a number of {len(text)} digits" if isinstance(value, Integral) else text[:59] + "…"


def check_parameters(model: Any) -> None:
    """Refuse the first parameter of a model or compressor that breaks its rule."""
    check_values(**model.get_params(deep=False))


def check_values(**values: Any) -> None:
    """The same for parameters by name; names without a rule are ignored."""
    for name, value in values.items():
        rule = _RULES.get(name)
        if rule is not None and not rule.holds(value):
            raise rule.error(f"{name} is {brief(value)}; give {rule.wanted}")


def _is_real(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_word(value: Any) -> bool:
    return isinstance(value, str)


def _is_number_or_word(value: Any) -> bool:
    return isinstance(value, (Real, str))


def _is_seed(value: Any) -> bool:
    if value is None or value is np.random or isinstance(value, (np.random.RandomState, np.random.Generator)):
        return True
    return isinstance(value, Integral) and int(value) >= 0


def _compresses(value: Any) -> bool:
    """Arrays and scalars of NumPy have a method of that name, too."""
    return callable(getattr(value, "compress", None)) and not isinstance(value, (type, np.ndarray, np.generic))


_COMPRESSOR = Rule(
    lambda value: value is None or _compresses(value), "a compressor, e.g. ClassCentroids(), or None", TypeError
)

_RULES = {
    "n_prototypes": Rule(
        lambda value: value is None or _is_number_or_word(value), "a positive count, or a share between 0 and 1"
    ),
    "gamma": Rule(_is_number_or_word, "a positive number, or 'scale' or 'auto'"),
    "prior": Rule(_is_number_or_word, "0 or a positive number, infinity, or 'auto'"),
    "smoothing": Rule(_is_number_or_word, "a share of the loss, from 0 to below 1, or 'auto'"),
    "reg": Rule(
        lambda value: _is_number_or_word(value) and not (isinstance(value, Integral) and abs(int(value)) >= 2**63),
        "a positive number, as a float where it is beyond 2**63, or 'auto'",
    ),
    "vote": Rule(_is_word, "'nearest', 'soft' or 'auto'"),
    "metric": Rule(_is_word, "the name of a geometry, or 'auto'"),
    "cost": Rule(_is_word, "'sqeuclidean', 'euclidean' or 'cosine'"),
    "value": Rule(_is_word, "'divergence', 'dual' or 'transport'"),
    "chart": Rule(_is_word, "'normal' or 'paper'"),
    "optimizer": Rule(_is_word, "'auto', 'lbfgs', 'cg', 'descent' or 'adam'"),
    "n_neighbors": Rule(lambda value: isinstance(value, Integral), "a whole number, 1 or more"),
    "max_iter": Rule(
        lambda value: value is None or (_is_whole(value) and 0 <= value < 2**31),
        "a number of iterations, 0 or more, or None for the usual one",
    ),
    "batch_size": Rule(
        lambda value: value is None or (_is_whole(value) and value >= 1),
        "a positive number of points, or None for all",
    ),
    "tol": Rule(
        lambda value: _is_real(value) and 0 <= float(value) < 1, "a share of the loss, from 0 to below 1, e.g. 2e-3"
    ),
    "learning_rate": Rule(
        lambda value: _is_real(value) and 1e-12 <= value <= 1e12, "a positive number, of which 1 is the usual step"
    ),
    "class_weight": Rule(
        lambda value: value is None or isinstance(value, (Mapping, str)),
        "a dict from class to weight, 'balanced' or None",
    ),
    "warm_start": Rule(lambda value: isinstance(value, (bool, np.bool_)), "True or False"),
    "random_state": Rule(_is_seed, "a whole number, 0 or more, a Generator or RandomState of NumPy, or None"),
    "minutes": Rule(lambda value: _is_real(value) and 0 < value < 1e9, "a number above 0, e.g. 5"),
    "n_splits": Rule(_is_whole, "a number of folds, at least 2"),
    "max_points": Rule(lambda value: value is None or _is_whole(value), "a number of points, at least 10, or None"),
    "descriptors": Rule(
        lambda value: value is None or isinstance(value, (str, list, tuple)), "a list of names of descriptors, or None"
    ),
    "n_jobs": Rule(
        lambda value: value is None or (isinstance(value, Integral) and value != 0),
        "the number of threads, or None for all cores",
    ),
    "verbose": Rule(
        lambda value: isinstance(value, (Real, np.bool_)),
        "0, or 1 to see what is done",
    ),
    "callback": Rule(
        lambda value: value is None or callable(value), "a function callback(step, total, facts), or None", TypeError
    ),
    "checkpoint": Rule(
        lambda value: value is None or isinstance(value, (str, os.PathLike)), "the path of a file, or None", TypeError
    ),
    "compressor": _COMPRESSOR,
    "init": _COMPRESSOR,
}

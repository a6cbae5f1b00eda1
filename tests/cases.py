"""Cases of tests that are fewer than a product, or that are not worth a test each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def one_at_a_time(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Cases in which at most one value is not the first of its axis: every value is tried, not every pair."""
    values = [list(axis) for axis in axes]
    first = [value[0] for value in values]
    return [
        tuple(first),
        *((*first[:k], other, *first[k + 1 :]) for k, value in enumerate(values) for other in value[1:]),
    ]


def for_each(name: str, values: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Like `pytest.mark.parametrize`, but all values in one test: for many quick ones."""
    values = list(values)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            for value in values:
                try:
                    test(**fixtures, **{name: value})
                except BaseException as error:
                    error.add_note(f"{name} = {value!r}")
                    raise

        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        assert len(kept) < len(signature.parameters), f"{test.__name__} takes no {name}"
        run_all.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return run_all

    return decorate

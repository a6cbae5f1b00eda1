"""A line search for the strong Wolfe conditions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from knnpress.learning.objective import Evaluation
from knnpress.learning.optim.base import Evaluate, dot
from knnpress.typing import Array

_DECREASE = 1e-3  # share of what the slope promises that a step must bring
_MAX_TRIALS = 20  # evaluations


@dataclass(frozen=True)
class _Trial:
    """A point on the line of a search."""

    step: float
    loss: float
    slope: float
    found: tuple[Array, Evaluation] | None = None


def line_search(
    evaluate: Evaluate, u: Array, now: Evaluation, direction: Array, step: float, curvature: float
) -> tuple[Array, Evaluation] | None:
    """A point on the line that meets the strong Wolfe conditions, or is at least lower; None where none was found.

    Steps grow until a minimum lies between two of them, `low` with the lowest loss and `high`; then that interval
    shrinks. `step` is the first one tried.
    """
    slope = dot(now.gradient, direction)
    low = _Trial(0.0, now.loss, slope)
    high: _Trial | None = None
    for _ in range(_MAX_TRIALS):
        if not abs(step * slope) > np.finfo(float).eps * abs(now.loss):  # nothing but rounding is left
            break
        candidate = u + step * direction
        evaluation = evaluate(candidate)
        here = _Trial(step, evaluation.loss, dot(evaluation.gradient, direction), (candidate, evaluation))
        if not here.loss <= now.loss + _DECREASE * step * slope or here.loss >= low.loss or not np.isfinite(here.slope):
            high = here
        elif abs(here.slope) <= -curvature * slope:
            return here.found
        else:
            before, low = low, here
            if high is None and here.slope < 0:
                step = _beyond(before, here)
                continue
            if high is None or here.slope * (high.step - here.step) >= 0:
                high = before
        if abs(high.step - low.step) <= np.finfo(float).eps * max(high.step, low.step):
            break  # nothing lies between: losses differ by what their own solver leaves open
        step = _between(low, high)
    return low.found


def _beyond(before: _Trial, here: _Trial) -> float:
    """Where the slope would vanish if it went on changing as it did, within limits."""
    change, width = here.slope - before.slope, here.step - before.step
    ahead = -here.slope * width / change if change > 0 else np.inf
    return here.step + float(np.clip(ahead, 0.1 * width, 4.0 * width))


def _between(low: _Trial, high: _Trial) -> float:
    """The minimum of the cubic through both ends, away from them; a tenth of the way where it is unknown."""
    width, share = high.step - low.step, 0.1
    with np.errstate(all="ignore"):
        a = 3.0 * (low.loss - high.loss) / width + low.slope + high.slope
        root = np.copysign(np.sqrt(max(0.0, a * a - low.slope * high.slope)), width)
        minimum = 1.0 - (high.slope + root - a) / (high.slope - low.slope + 2.0 * root)
    if np.isfinite(minimum):
        share = float(np.clip(minimum, 0.1, 0.9))
    return low.step + share * width

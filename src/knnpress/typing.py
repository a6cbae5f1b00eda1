"""Names for types, used throughout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "ArrayLike", "Callback", "Indices", "Labels"]

Array = NDArray[Any]  # float64 in fact; NumPy's own stubs are looser
Indices = NDArray[np.intp]
Labels = NDArray[Any]

#: ``callback(step, total, facts)``: how far long work has come (total None: not known beforehand) and what it knows,
#: e.g. ``{"loss": 0.21, "error": 0.03}``. A true answer asks it to stop there.
Callback = Callable[[int, int | None, dict[str, Any]], Any]

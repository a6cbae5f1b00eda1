"""Names for types, used throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Array", "ArrayLike", "Indices", "Labels"]

Array = NDArray[Any]  # float64 in fact; NumPy's own stubs are looser
Indices = NDArray[np.intp]
Labels = NDArray[Any]

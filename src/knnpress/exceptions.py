"""What knnpress raises beyond the built-in exceptions, and how it warns."""

import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

__all__ = ["InvalidPointError", "ModelFileError"]

_OURS = str(Path(__file__).parent)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the user's own code that led here, past knnpress, scikit-learn and joblib."""
    places = [find_spec(name) for name in ("sklearn", "joblib")]
    between = (_OURS, *(str(Path(place.origin).parent) for place in places if place and place.origin))
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(between):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)


def how_many(count: int, total: int, what: str = "", verb: str = "are") -> str:
    """How many are bad, after one was named: "as are 2 of 9 matrices", or "the only one of 9 matrices"."""
    said = f"as {verb} {count} of" if count > 1 else "the only one of"
    return f"{said} {total} {what}".rstrip()


class InvalidPointError(ValueError):
    """A data point lies outside its geometry, e.g. a matrix that is not positive definite.

    The message names the first bad element, what was found there, how many are bad, and the cure.
    """


class ModelFileError(ValueError):
    """A file is not a model that this knnpress can load.

    The message names the file, what was found there, and the cure.
    """

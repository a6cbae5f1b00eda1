"""What knnpress raises beyond the built-in exceptions."""

__all__ = ["InvalidPointError", "ModelFileError"]


class InvalidPointError(ValueError):
    """A data point lies outside its geometry, e.g. a matrix that is not positive definite.

    The message names the first bad element, what was found there, how many are bad, and the cure.
    """


class ModelFileError(ValueError):
    """A file is not a model that this knnpress can load.

    The message names the file, what was found there, and the cure.
    """

"""Optimisers on one form: ``evaluate(theta)`` gives an `Evaluation`, a callback sees every iterate.

Each knows its whole state as arrays, so that a descent can be broken off and go on bit by bit as if it had not been.
"""

from knnpress.learning.optim.adam import minimize_batches
from knnpress.learning.optim.base import Follow, Optimum
from knnpress.learning.optim.minimize import minimize

__all__ = ["Follow", "Optimum", "minimize", "minimize_batches"]

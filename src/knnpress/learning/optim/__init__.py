"""Optimisers on one form: ``evaluate(u)`` gives an `Evaluation`, a callback sees every iterate.

u, (m, p), is what is optimised: a row of parameters per prototype, in units of the data (see `objective.Scale`).
Each optimiser gives its whole state as arrays, so that a descent that was interrupted goes on bit for bit as if it had
not been.
"""

from knnpress.learning.optim.adam import minimize_batches
from knnpress.learning.optim.base import Follow, Optimum
from knnpress.learning.optim.minimize import minimize

__all__ = ["Follow", "Optimum", "minimize", "minimize_batches"]

"""What the docstrings of SCC, SHC, SNC and SWC have in common."""

from __future__ import annotations

import inspect
from typing import Any, TypeVar

Model = TypeVar("Model", bound=type[Any])

_PARAMETERS = """
n_prototypes : int, float or "auto"
    A whole number: that many, at least one per class. A share of the training set: at most that share, but at least one
    per class, and only one per class where cross-validation finds that better. "auto": 2, 4, 8, 16 and 32 % of the
    training set are tried in turn, until one is no better than the one before. Better means that the held-out loss is
    lower by more than one standard error of the difference.
gamma : float, "scale", "auto" or "tune"
    Sharpness of the soft neighbourhood. "scale": the usual one, by how far the classes are apart at the start. "auto":
    that one, or half of it. "tune": as the paper does for SHC, gamma and the learning rate by Bayesian optimisation of
    the training error (needs the extra ``tune``; not for `partial_fit`).
prior : float or "auto"
    How strongly prototypes are held at their start, as a number of points. 0 is the paper's loss; infinity leaves the
    start as it is. "auto": 1, or 10, 0.1, 0.01 or infinity.
smoothing : float or "auto"
    Share of the loss that keeps all prototypes within reach of all points, so that they serve new points as well as
    old ones. 0 is the paper's loss. "auto": 0.02, or 0.
vote : {"nearest", "soft", "auto"}
    "nearest": the class of the nearest prototype, as in the paper; "soft": the class with the largest sum of
    probabilities.
n_neighbors : int
    How many neighbours vote.
max_iter : int or None
    Iterations of the optimiser; None: as many as the compressor says, 300, or 30 passes over the data in batches.
class_weight : dict, "balanced" or None
    Weights of the classes, as in scikit-learn; they multiply `sample_weight`. "balanced" does not count points of
    weight 0.
warm_start : bool
    Whether `fit` starts from the prototypes of the last fit, if there was one with the same classes and as many
    prototypes. The setting then stays the same.
compressor : StochasticCompression or None
    For experts: where to start, which optimiser, batches, how many labels may be wrong. It also decides whatever is
    "auto" or None above.
checkpoint : str, path or None
    A file in which `fit` keeps its state, rewritten every few seconds and deleted at the end. The same call resumes
    from it after an interruption, even by ``kill -9``, and ends with the same prototypes. A file of
    other data, parameters or version is refused. `callback` is not called again for iterations already done. Not with
    ``n_prototypes="auto"`` and ``gamma="tune"``, which are many fits; `partial_fit` ignores it.
callback : callable or None
    ``callback(step, total, facts)`` after each iteration; facts is a dict with "loss" and "error" of the training set,
    and after each setting tried also a "note". If it returns True, that descent ends.
random_state : int, RandomState, Generator or None
    Draws the folds, the order of the points and, where there are many points, the sample and the batches. None: a new
    draw each time.
n_jobs : int or None
    Threads; None: all cores this process may use. Results do not depend on it.
verbose : int
    1 shows a bar with the loss and the training error, and the result of each setting.
"""

_ATTRIBUTES = """
prototypes_ : ndarray of shape (m, ...)
prototype_labels_ : ndarray of shape (m,)
prototype_weights_ : ndarray of shape (m,)
    Weight of the training points that each prototype stands for; `partial_fit` adds to it.
classes_ : ndarray of shape (n_classes,)
compression_ratio_ : float
    m / n.
metric_ : str
    The geometry that they were learned under; ``geometry_`` is the geometry itself.
prototype_vectors_ : ndarray of shape (m, p) or None
    Where the geometry embeds points: the learned vectors that ``prototypes_`` are made from.
gamma_, prior_, smoothing_ : float
vote_ : {"nearest", "soft"}
    The setting used for learning, and how points are classified.
temperature_ : float
    What log-odds are multiplied by in `predict_proba`, so that probabilities are right for held-out points.
calibration_ : dict
    How `predict_proba` was calibrated: "method", "temperature" or "none" where no points could be held out, which
    leaves the temperature at 1; "temperature"; "n_settings", those seen on the held-out points; and "held_out_loss",
    the mean loss of these points by which settings were compared, or None.
distance_levels_ : ndarray of shape (n_classes, 19)
    How far points of each class are from its nearest prototype: levels from the nearest to the farthest point, for
    `outlier_score` and ``predict(X, reject=...)``. Those of points held out in cross-validation, from prototypes
    learned without them, where there are any and where they are larger than those of the training points.
    `partial_fit` averages them over the batches.
n_iter_ : int
    Iterations of the last descent, that on all points.
loss_curve_ : list of float
    Mean loss at its start and after each of them.
stopped_by_ : str
    Why it ended: the loss is "flat", the "gradient" vanishes, there is "no way down", "max_iter" or the "callback".
selection_ : list of dict
    The settings that were tried: their held-out error, its standard error, and which was chosen. With
    ``n_prototypes="auto"``, the sizes too.
n_features_in_ : int
    d, the size of a point.
"""


def documented(cls: Model) -> Model:
    """Write the parameters and attributes that all learned models share into the docstring of one."""
    text = inspect.cleandoc(cls.__doc__ or "")
    cls.__doc__ = text.replace("<parameters>", _PARAMETERS.strip()).replace("<attributes>", _ATTRIBUTES.strip())
    plain = inspect.signature(cls.__init__)  # not of __new__
    cls.__signature__ = plain.replace(parameters=list(plain.parameters.values())[1:])
    return cls

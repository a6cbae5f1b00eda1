"""Pictures of models for a notebook, as matplotlib's axes: ``pip install knnpress[report]``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.metrics import ConfusionMatrixDisplay
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

from knnpress.clouds import Clouds
from knnpress.estimators import PrototypeClassifier
from knnpress.geometries.base import CloudGeometry
from knnpress.geometries.cloud_points import as_clouds
from knnpress.pictures import correlation
from knnpress.typing import ArrayLike

__all__ = ["confusion", "curve", "prototypes"]


def prototypes(model: Any, *, shape: tuple[int, int] | None = None, most: int = 50, columns: int = 10) -> Any:
    """Draw the prototypes of a fitted model, class by class.

    Parameters
    ----------
    model : fitted classifier
    shape : (int, int) or None
        Of the image that a vector or histogram stands for, e.g. (8, 8); None: bars. Matrices are drawn as correlations;
        clouds in two dimensions, and local features with their positions, as points of the size of their weights.
    most : int
        Prototypes to draw.
    columns : int
        In a row of pictures.

    Returns
    -------
    axes : ndarray of matplotlib Axes
        One for each prototype drawn.
    """
    plt = _pyplot()
    steps = getattr(model, "descriptors_", [])
    model = getattr(model, "classifier_", model)
    check_is_fitted(model, "prototypes_")
    points: Any = model.prototypes_
    labels = model.prototype_labels_
    if isinstance(model._fitted_geometry(), CloudGeometry):
        points = as_clouds(points)
        if points.shape[1] != 2 and not any(getattr(step, "position", False) for step in steps):
            raise TypeError(
                f"clouds in {points.shape[1]} dimensions have no picture; knnpress inspect shows the words of documents"
            )
    elif shape is not None and (points.ndim != 2 or int(np.prod(shape)) != points.shape[1]):
        raise ValueError(f"shape is {shape}, but a prototype has {' x '.join(map(str, points.shape[1:]))} entries")
    order = np.argsort(labels, kind="stable")[:most]
    rows = -(-len(order) // columns)
    _, grid = plt.subplots(rows, min(columns, len(order)), squeeze=False, figsize=(1.1 * columns, 1.3 * rows))
    axes = grid.ravel()
    for ax, k in zip(axes, order, strict=False):
        if isinstance(points, Clouds):
            places, weights = points[int(k)].points[:, -2:], points[int(k)].weights
            ax.scatter(*places.T, s=60.0 * weights / weights.max(), alpha=0.6, linewidths=0)
            ax.set_aspect("equal", "datalim")
            if steps:  # y grows downwards in an image
                ax.invert_yaxis()
        elif points.ndim == 3:
            ax.imshow(correlation(points[k]), cmap="PuOr_r", vmin=-1, vmax=1)
        elif shape is not None:
            ax.imshow(points[k].reshape(shape), cmap="gray_r")
        else:
            ax.bar(np.arange(points.shape[1]), points[k], width=1.0)
        ax.set_title(str(labels[k]), fontsize="small")
    for ax in axes:
        ax.set_axis_off()
    return axes[: len(order)]


def curve(
    model: Any, X: ArrayLike, y: ArrayLike, *, sizes: Sequence[int] | None = None, cv: Any = 3, ax: Any = None
) -> Any:
    """Cross-validate a model at several numbers of prototypes, and draw the errors beside that of full 1-NN.

    Parameters
    ----------
    model : SCC, SHC, SNC or SWC
        Fitted or not; it is not changed.
    X, y : training points and labels
    sizes : sequence of int or None
        Numbers of prototypes; None: one, two and four per class.
    cv : int or splitter
        As in `sklearn.model_selection.cross_val_score`.
    ax : Axes or None
        Where to draw; None: a new figure.

    Returns
    -------
    ax : matplotlib Axes
    """
    plt = _pyplot()
    sizes = [k * len(np.unique(np.asarray(y))) for k in (1, 2, 4)] if sizes is None else list(sizes)
    tried = [1 - cross_val_score(clone(model).set_params(n_prototypes=m), X, y, cv=cv) for m in sizes]
    full = 1 - cross_val_score(PrototypeClassifier(clone(model)._geometry()), X, y, cv=cv)
    ax = plt.subplots()[1] if ax is None else ax
    means, spreads = ([100 * of(errors) for errors in tried] for of in (np.mean, np.std))
    ax.errorbar(sizes, means, spreads, marker="o", capsize=3, label=type(model).__name__)
    ax.axhline(100 * float(full.mean()), color="black", label="full 1-NN")
    ax.set(xlabel="prototypes", ylabel="held-out error, %", xscale="log", xticks=sizes, xticklabels=sizes)
    ax.minorticks_off()
    ax.set_ylim(bottom=0)
    ax.legend()
    return ax


def confusion(model: Any, X: ArrayLike, y: ArrayLike, *, ax: Any = None) -> Any:
    """Draw how often each class was taken for each, rows true and columns predicted.

    Parameters
    ----------
    model : fitted classifier
    X, y : points that it was not fitted on, and their labels
    ax : Axes or None
        Where to draw; None: a new figure.

    Returns
    -------
    ax : matplotlib Axes
    """
    _pyplot()
    return ConfusionMatrixDisplay.from_estimator(model, X, y, ax=ax, cmap="Blues", colorbar=False).ax_


def _pyplot() -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("knnpress.plot draws with matplotlib: pip install knnpress[report]") from error
    return plt

"""Learning vector quantization: each point draws the nearest prototype near, or drives it away."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator

from knnpress.compression.prototypes import Compressor, Prototypes, refuse_clouds
from knnpress.compression.selection.centroids import ClassCentroids
from knnpress.geometries import Geometry, SmoothGeometry
from knnpress.typing import Array, Callback, Labels

_PROBES = 200  # points that set the length of a step


class LearningVectorQuantization(BaseEstimator):
    r"""Kohonen's LVQ1, in the chart of any smooth geometry.

    A point x attracts its nearest prototype z where they share their label, and repels it where they do not:

    .. math:: \theta \leftarrow \theta \mp \alpha s \, \frac{\partial D(x, z(\theta))}{\partial \theta}

    The rate :math:`\alpha` falls linearly to zero. The scale s is such that, at the start, the typical step with
    :math:`\alpha = 1` brings a prototype as near to the point as its gradient leads; with squared Euclidean distances
    it is 1/2, and this is LVQ1 to the letter: :math:`z \leftarrow z \pm \alpha (x - z)`.

    Parameters
    ----------
    learning_rate : float
        The first :math:`\alpha`.
    n_epochs : int
        How often each point is met.
    batch_size : int
        Points whose steps are taken together; 1 is Kohonen's own, and slower.
    init : Compressor or None
        Where to start; None: `ClassCentroids` (for histograms, of Euclidean k-means).

    References
    ----------
    Kohonen. Improved versions of learning vector quantization. IJCNN 1990.
    """

    def __init__(
        self, learning_rate: float = 0.05, n_epochs: int = 20, batch_size: int = 16, init: Compressor | None = None
    ) -> None:
        self.learning_rate = learning_rate
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.init = init

    def compress(
        self,
        X: Array,
        y: Labels,
        *,
        geometry: Geometry,
        n_prototypes: int | None = None,
        sample_weight: Array | None = None,
        random_state: np.random.Generator | None = None,
        n_jobs: int | None = None,
        callback: Callback | None = None,
    ) -> Prototypes:
        """Return `n_prototypes` learned prototypes (one per class, if None).

        Points are met in random order, or drawn with odds as their weights. The trace holds "error_curve", the share
        of points of each epoch that were wrong when met. `callback` is called after each epoch, with the fact "error".
        """
        refuse_clouds(X, "LearningVectorQuantization moves points of one shape")
        if not isinstance(geometry, SmoothGeometry):
            raise TypeError(f"{type(geometry).__name__} has no derivatives; learn with JBLD, LogEuclidean, Sinkhorn, …")
        rng = np.random.default_rng() if random_state is None else random_state
        start = (ClassCentroids(geometry.start_geometry) if self.init is None else self.init).compress(
            X,
            y,
            geometry=geometry,
            n_prototypes=n_prototypes if n_prototypes is not None else len(np.unique(y)),
            sample_weight=sample_weight,
            random_state=rng,
            n_jobs=n_jobs,
        )
        chart = geometry.chart(start.points)
        theta = chart.to_theta(start.points)
        odds = None if sample_weight is None else sample_weight / sample_weight.sum()
        scale = _step_scale(X[rng.permutation(len(X))[:_PROBES]], start.points, geometry)
        n_batches = -(-len(X) // self.batch_size)
        curve: list[float] = []
        for epoch in range(self.n_epochs):
            order = rng.permutation(len(X)) if odds is None else rng.choice(len(X), len(X), p=odds)
            n_wrong = 0
            for b, batch in enumerate(np.array_split(order, n_batches)):
                done = (epoch + b / n_batches) / self.n_epochs
                here = chart.at(theta)
                step = geometry.linearize(X[batch], here.points)
                winner = step.D.argmin(axis=1)
                wrong = start.labels[winner] != y[batch]
                W = np.zeros_like(step.D)
                W[np.arange(len(batch)), winner] = np.where(wrong, -1.0, 1.0)
                theta = theta - self.learning_rate * (1.0 - done) * scale * here.pullback(step.pullback(W))
                n_wrong += int(wrong.sum())
            curve.append(n_wrong / len(X))
            if callback is not None and callback(epoch + 1, self.n_epochs, {"error": curve[-1]}):
                break
        return Prototypes(chart.to_point(theta), start.labels, trace={"error_curve": curve})


def _step_scale(X: Array, Z: Array, geometry: SmoothGeometry) -> float:
    """Median, over points X, of the step of the nearest Z along their gradient that comes nearest to them."""
    nearest = Z[geometry.distances_to(Z)(X).argmin(axis=1)]
    chart = geometry.chart(nearest)
    here, target = chart.to_theta(nearest), chart.to_theta(X)
    one = np.ones((1, 1))
    slopes = [geometry.linearize(x[None], z[None]).pullback(one) for x, z in zip(X, nearest, strict=True)]
    gradient = chart.at(here).pullback(np.concatenate(slopes))
    squares = (gradient**2).sum(axis=1)
    used = squares > 0
    steps = ((here - target) * gradient).sum(axis=1)[used] / squares[used]
    return max(0.0, float(np.median(steps))) if used.any() else 0.0

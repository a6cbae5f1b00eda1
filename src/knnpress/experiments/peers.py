"""What people use today: plain distances, Riemannian means, tangent spaces, and a network."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import additive_chi2_kernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from knnpress.typing import Array, Labels

__all__ = ["NearestBy", "SPDNet", "mdm", "tangent_space"]

_BLOCK = 256


class NearestBy(ClassifierMixin, BaseEstimator):
    """The label of the nearest training point by a plain distance of flattened points.

    Parameters
    ----------
    distance : {"euclidean", "manhattan", "chi-square"}
    """

    def __init__(self, distance: Literal["euclidean", "manhattan", "chi-square"] = "euclidean") -> None:
        self.distance = distance

    def fit(self, X: Array, y: Labels) -> NearestBy:
        """Keep the training set."""
        self.X_, self.y_ = _flat(X), y
        self.classes_ = np.unique(y)
        return self

    def predict(self, X: Array) -> Labels:
        """Labels, (n,)."""
        points = _flat(X)
        blocks = [points[start : start + _BLOCK] for start in range(0, len(points), _BLOCK)]
        return np.concatenate([self.y_[self._distances(block).argmin(axis=1)] for block in blocks])

    def _distances(self, X: Array) -> Array:
        if self.distance == "chi-square":
            return -additive_chi2_kernel(X, self.X_)
        return pairwise_distances(X, self.X_, metric=self.distance)


def mdm() -> Any:
    """Minimum distance to the Riemannian mean of each class (pyRiemann)."""
    return _require("pyriemann.classification", "pyriemann").MDM(metric="riemann")


def tangent_space(seed: int) -> Any:
    """Logistic regression on standardised tangent vectors (pyRiemann), its C by inner cross-validation."""
    tangent = _require("pyriemann.tangentspace", "pyriemann").TangentSpace(metric="riemann")
    regression = LogisticRegressionCV(
        Cs=[1e-3, 1e-2, 1e-1, 1.0, 10.0], cv=3, max_iter=500, l1_ratios=(0,), use_legacy_attributes=False
    )
    return make_pipeline(tangent, StandardScaler(), regression)


class SPDNet(ClassifierMixin, BaseEstimator):
    """Huang and Van Gool's network for SPD matrices (spd_learn, on PyTorch), trained by Adam.

    Parameters
    ----------
    n_dims : int or None
        Of the bilinear layer; None: two thirds of the matrices' own.
    n_epochs, batch_size : int
    learning_rate, weight_decay : float
    random_state : int
    """

    def __init__(
        self,
        n_dims: int | None = None,
        n_epochs: int = 200,
        batch_size: int = 64,
        learning_rate: float = 5e-3,
        weight_decay: float = 1e-4,
        random_state: int = 0,
    ) -> None:
        self.n_dims = n_dims
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> SPDNet:
        """Train on matrices (n, d, d), whitened by their mean, which leaves the network the same family of maps."""
        models = _require("spd_learn.models", "spd_learn")
        torch = import_module("torch")
        torch.manual_seed(self.random_state)
        self.classes_, codes = np.unique(y, return_inverse=True)
        values, vectors = np.linalg.eigh(X.mean(axis=0))
        self.whiten_ = vectors / np.sqrt(values)
        d = X.shape[1]
        self.network_ = models.SPDNet(
            input_type="cov", n_chans=d, n_outputs=len(self.classes_), subspacedim=self.n_dims or max(2, 2 * d // 3)
        ).double()
        points, labels = torch.from_numpy(self._whitened(X)), torch.from_numpy(codes)
        optimizer = torch.optim.Adam(self.network_.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.n_epochs)
        loss = torch.nn.CrossEntropyLoss()
        self.network_.train()
        for _ in range(self.n_epochs):
            for rows in torch.randperm(len(points)).split(self.batch_size):
                optimizer.zero_grad()
                loss(self.network_(points[rows]), labels[rows]).backward()
                optimizer.step()
            schedule.step()
        self.network_.eval()
        return self

    def predict(self, X: Array) -> Labels:
        """Labels, (n,)."""
        torch = import_module("torch")
        with torch.no_grad():
            scores = self.network_(torch.from_numpy(self._whitened(X)))
        return self.classes_[scores.numpy().argmax(axis=1)]

    def _whitened(self, X: Array) -> Array:
        return np.ascontiguousarray(self.whiten_.T @ X @ self.whiten_)


def _flat(X: Array) -> Array:
    return np.ascontiguousarray(X.reshape(len(X), -1))


def _require(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(f"needs {package}: pip install {package}") from error

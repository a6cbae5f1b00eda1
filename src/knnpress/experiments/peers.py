"""What people use today: plain distances, Riemannian means, linear models of tangent vectors or roots, a network."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import additive_chi2_kernel
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC

from knnpress.estimators import PrototypeClassifier
from knnpress.geometries import Geometry
from knnpress.typing import Array, Labels

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


class NeighborsCV(PrototypeClassifier):
    """Nearest neighbours among all training points, their number chosen by leaving one out.

    Parameters
    ----------
    geometry : Geometry
    most : int
        Neighbours at most; odd numbers are tried.
    n_jobs : int or None
    """

    def __init__(self, geometry: Geometry, most: int = 15, n_jobs: int | None = None) -> None:
        super().__init__(geometry, n_jobs=n_jobs)
        self.most = most

    def fit(self, X: Array, y: Labels) -> NeighborsCV:  # type: ignore[override]
        """Keep the training set, and count for each k the points that the others would get wrong."""
        self.n_neighbors = 1
        super().fit(X, y)
        most = min(self.most, len(y) - 1)
        near = self.kneighbors(X, most + 1, return_distance=False)
        itself = np.equal(near, np.arange(len(y))[:, None])
        itself[~itself.any(axis=1), -1] = True  # a copy stands in its place
        codes = np.searchsorted(self.classes_, y)
        votes = codes[near[~itself].reshape(len(y), most)]
        tried = range(1, most + 1, 2)
        shares = np.zeros((len(y), len(self.classes_)))
        errors = []
        for k in range(1, most + 1):
            shares[np.arange(len(y)), votes[:, k - 1]] += 1.0
            if k in tried:
                winners = shares == shares.max(axis=1, keepdims=True)
                first = winners[np.arange(len(y))[:, None], votes[:, :k]].argmax(axis=1)  # of a tie, the nearest
                errors.append(float(np.mean(votes[np.arange(len(y)), first] != codes)))
        self.n_neighbors = tried[int(np.argmin(errors))]
        return self


def tangent() -> Any:
    """Vectors in the tangent space at the Riemannian mean (pyRiemann)."""
    return _require("pyriemann.tangentspace", "pyriemann").TangentSpace(metric="riemann")


def roots() -> Any:
    """Square roots of bins."""
    return FunctionTransformer(np.sqrt)


def logistic_regression(features: Any) -> Any:
    """Logistic regression on standardised features, its C by 3-fold cross-validation."""
    regression = LogisticRegressionCV(
        Cs=[1e-3, 1e-2, 1e-1, 1.0, 10.0],
        cv=3,
        max_iter=500,
        l1_ratios=(0,),
        scoring="accuracy",
        use_legacy_attributes=False,
    )
    return make_pipeline(features, StandardScaler(), regression)


def support_vectors(features: Any) -> Any:
    """A linear support vector machine on standardised features, its C by 3-fold cross-validation."""
    machine = GridSearchCV(LinearSVC(), {"C": [1e-4, 1e-3, 1e-2, 1e-1, 1.0]}, cv=3)
    return make_pipeline(features, StandardScaler(), machine)


class SPDNet(ClassifierMixin, BaseEstimator):
    """Huang and Van Gool's network for SPD matrices (spd_learn, on PyTorch), trained by Adam.

    A tenth of the training points, of every class, is held out; the weights of the epoch that does best there are kept.

    Parameters
    ----------
    n_dims : int or None
        Of the bilinear layer; None: two thirds of the matrices' own.
    n_epochs, batch_size : int
    patience : int
        Epochs without a lower loss on the held-out points, after which training ends.
    learning_rate, weight_decay : float
    random_state : int
    """

    def __init__(
        self,
        n_dims: int | None = None,
        n_epochs: int = 200,
        batch_size: int = 64,
        patience: int = 30,
        learning_rate: float = 5e-3,
        weight_decay: float = 1e-4,
        random_state: int = 0,
    ) -> None:
        self.n_dims = n_dims
        self.n_epochs = n_epochs
        self.batch_size = batch_size
        self.patience = patience
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
        held_out_size = max(0.1, len(self.classes_) / len(y))
        split = StratifiedShuffleSplit(1, test_size=held_out_size, random_state=self.random_state)
        learned, held_out = (torch.from_numpy(rows) for rows in next(split.split(codes, codes)))
        optimizer = torch.optim.Adam(self.network_.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.n_epochs)
        loss = torch.nn.CrossEntropyLoss()
        best, best_weights, since = np.inf, None, 0
        for _ in range(self.n_epochs):
            self.network_.train()
            for batch in learned[torch.randperm(len(learned))].split(self.batch_size):
                optimizer.zero_grad()
                loss(self.network_(points[batch]), labels[batch]).backward()
                optimizer.step()
            schedule.step()
            self.network_.eval()
            with torch.no_grad():
                seen = float(loss(self.network_(points[held_out]), labels[held_out]))
            since += 1
            if seen < best:
                best, since = seen, 0
                best_weights = {name: value.clone() for name, value in self.network_.state_dict().items()}
            if since >= self.patience:
                break
        if best_weights is not None:  # None: it never had a finite loss
            self.network_.load_state_dict(best_weights)
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

"""From images or signals to classes: descriptors and a classifier as one model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from inspect import signature
from typing import Any, ClassVar

from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.metrics import accuracy_score
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from knnpress.model_file import save
from knnpress.names import DESCRIPTORS, descriptor_class, same_name
from knnpress.parameters import brief_repr
from knnpress.typing import Array, ArrayLike, Labels


class DescriptorClassifier(ClassifierMixin, BaseEstimator):
    """Describe images or signals, then classify the points.

    Parameters
    ----------
    descriptor : transformer, its name, or a list of them
        From images or signals to points, e.g. `knnpress.descriptors.RegionCovariance` or "shape-context"; in a list,
        each takes what the one before returns.
    classifier : classifier
        For the points, e.g. `SCC`. Where its ground cost, or its geometry's, is None, it is given the ``ground_cost_``
        of the descriptor.

    Attributes
    ----------
    descriptors_ : list of transformers
        Fitted.
    classifier_ : classifier
        Fitted.
    classes_ : ndarray of shape (n_classes,)

    Examples
    --------
    >>> import numpy as np, knnpress as kp
    >>> rng = np.random.default_rng(0)
    >>> quiet, loud = rng.normal(size=(20, 3, 50)), rng.normal(size=(20, 3, 50)) * [[1], [2], [3]]
    >>> clf = kp.DescriptorClassifier(kp.descriptors.SignalCovariance(), kp.PrototypeClassifier("jbld"))
    >>> clf.fit([*quiet, *loud], ["quiet"] * 20 + ["loud"] * 20).predict(3 * quiet[:1] * [[1], [2], [3]])
    array(['loud'], dtype='<U5')
    """

    # cross_val_score and the like pass groups on without a request, where metadata routing is enabled
    __metadata_request__fit: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__score: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__predict_proba: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__decision_function: ClassVar[dict[str, bool]] = {"groups": True}
    __metadata_request__transform: ClassVar[dict[str, bool]] = {"groups": True}

    def __init__(self, descriptor: Any, classifier: Any) -> None:
        self.descriptor = descriptor
        self.classifier = classifier

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """As scikit-learn has it, but with the shapes of large arrays for their numbers."""
        return brief_repr(self, N_CHAR_MAX)

    def fit(self, X: Any, y: ArrayLike, *, groups: ArrayLike | None = None, **settings: Any) -> DescriptorClassifier:
        """Fit the descriptors, then the classifier on what they give.

        Parameters
        ----------
        X : images or signals
            As the descriptor takes them.
        y : array of shape (n,)
        groups : array of shape (n,) or None
            E.g. subjects or sessions, for the descriptors that re-centre by them and the classifier's folds.
        **settings
            For the classifier's `fit`, e.g. sample_weight.
        """
        single = isinstance(self.descriptor, str) or not isinstance(self.descriptor, Sequence)
        descriptors, points, cost = [], X, None
        for step in [self.descriptor] if single else self.descriptor:
            descriptors.append(_named(step) if isinstance(step, str) else clone(step))
            points = descriptors[-1].fit_transform(points, y, **_wanted(descriptors[-1].fit, groups))
            cost = getattr(descriptors[-1], "ground_cost_", cost)
        classifier = clone(self.classifier)
        for name, value in classifier.get_params().items():
            if name.split("__")[-1] == "ground_cost" and value is None and cost is not None:
                classifier.set_params(**{name: cost})
        classifier.fit(points, y, **_wanted(classifier.fit, groups), **settings)
        self.descriptors_, self.classifier_ = descriptors, classifier
        return self

    def describe(self, X: Any, *, groups: ArrayLike | None = None, after: int = 0) -> Array:
        """Images or signals X as points, (n, ...).

        Parameters
        ----------
        X : images or signals; or what the first `after` descriptors have made of them
        groups : array of shape (n,), one name for all, or None
            For descriptors that re-centre by them.
        after : int
            How many descriptors to leave out, from the first.
        """
        check_is_fitted(self)
        for step in self.descriptors_[after:]:
            X = step.transform(X, **_wanted(step.transform, groups))
        return X

    @property
    def takes_images(self) -> bool:
        """Whether the first descriptor is one of images, not of signals or points."""
        home = import_module("knnpress.descriptors")
        kinds = tuple(getattr(home, kind) for kind, _ in DESCRIPTORS.values())
        return bool(self.descriptors_) and isinstance(self.descriptors_[0], kinds)

    @property
    def takes_groups(self) -> bool:
        """Whether a descriptor re-centres by groups."""
        return any("groups" in signature(step.transform).parameters for step in self.descriptors_)

    @property
    def known_groups(self) -> Labels | None:
        """The groups that a descriptor re-centres by and knows by name; None where there are none."""
        known = [getattr(step, "groups_", None) for step in self.descriptors_]
        return next((groups for groups in known if groups is not None), None)

    @property
    def classes_(self) -> Labels:
        """Classes, sorted."""
        return self.classifier_.classes_

    def predict(self, X: Any, *, groups: ArrayLike | None = None, **how: Any) -> Labels:
        """Labels of images or signals X, (n,); `how` is for the classifier's own `predict`, e.g. reject=0.05."""
        points = self.describe(X, groups=groups)
        return self.classifier_.predict(points, **how)

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> float:
        """Share of images or signals X that get their label y."""
        return float(accuracy_score(y, self.predict(X, groups=groups), sample_weight=sample_weight))

    def outlier_score(self, X: Any, *, groups: ArrayLike | None = None) -> Array:
        """How strange images or signals are, (n,), by a classifier that can tell, such as `SCC`."""
        points = self.describe(X, groups=groups)
        return self.classifier_.outlier_score(points)

    def score_samples(self, X: Any, *, groups: ArrayLike | None = None) -> Array:
        """Log-density of images or signals, (n,), by a classifier that can tell, such as `SCC`."""
        points = self.describe(X, groups=groups)
        return self.classifier_.score_samples(points)

    def predict_proba(self, X: Any, *, groups: ArrayLike | None = None) -> Array:
        """Probability of each class, (n, n_classes)."""
        points = self.describe(X, groups=groups)
        return self.classifier_.predict_proba(points)

    def decision_function(self, X: Any, *, groups: ArrayLike | None = None) -> Array:
        """Log-probability of each class, (n, n_classes); with two classes the log-odds of the second, (n,)."""
        points = self.describe(X, groups=groups)
        return self.classifier_.decision_function(points)

    def transform(self, X: Any, *, groups: ArrayLike | None = None) -> Array:
        """Distances of images or signals to every prototype, (n, m)."""
        points = self.describe(X, groups=groups)
        return self.classifier_.transform(points)

    def kneighbors(
        self, X: Any, n_neighbors: int | None = None, return_distance: bool = True, *, groups: ArrayLike | None = None
    ) -> Any:
        """The nearest prototypes of images or signals, nearest first."""
        points = self.describe(X, groups=groups)
        return self.classifier_.kneighbors(points, n_neighbors, return_distance)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write descriptors and classifier to one file that `knnpress.load` reads."""
        save(self, path)


def joined(descriptor: Any, classifier: Any) -> DescriptorClassifier:
    """Fitted parts as one model: what its own `fit` would make, without describing the images again."""
    plain = clone(classifier)
    costs = [name for name in plain.get_params() if name.split("__")[-1] == "ground_cost"]
    return _with_fitted(
        DescriptorClassifier(clone(descriptor), plain.set_params(**dict.fromkeys(costs))), [descriptor], classifier
    )


def as_described(model: Any) -> DescriptorClassifier:
    """Any fitted model as one of descriptors, perhaps none, and a classifier."""
    if isinstance(model, DescriptorClassifier):
        return model
    *descriptors, classifier = [step for _, step in model.steps] if isinstance(model, Pipeline) else [model]
    return _with_fitted(DescriptorClassifier(descriptors, classifier), descriptors, classifier)


def _with_fitted(model: DescriptorClassifier, descriptors: list[Any], classifier: Any) -> DescriptorClassifier:
    model.descriptors_, model.classifier_ = descriptors, classifier
    return model


def _named(name: str) -> Any:
    """The descriptor that a name stands for, as on the command line or as its class is called."""
    home = import_module("knnpress.descriptors")
    kind, settings = descriptor_class(name) or (same_name(name, home.__all__), {})
    if kind is None:
        raise ValueError(f"there is no descriptor {name!r}; choose one of {', '.join(DESCRIPTORS)}, or an object")
    return getattr(home, kind)(**settings)


def _wanted(method: Any, groups: ArrayLike | None) -> dict[str, Any]:
    """The groups, where there are any and the method takes them."""
    return {"groups": groups} if groups is not None and "groups" in signature(method).parameters else {}

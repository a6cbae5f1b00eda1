"""SNC: learned prototypes of vectors."""

from __future__ import annotations

from knnpress.estimators.documentation import documented
from knnpress.estimators.learned import LearnedModel
from knnpress.geometries import Geometry, SquaredEuclidean


@documented
class SNC(LearnedModel):
    """Stochastic neighbour compression: a few learned prototypes of vectors, under the squared Euclidean distance.

    Parameters
    ----------
    <parameters>

    Attributes
    ----------
    <attributes>

    References
    ----------
    Kusner, Tyree, Weinberger, Agrawal. Stochastic neighbor compression. ICML 2014.

    Examples
    --------
    >>> import knnpress as kp
    >>> from sklearn.datasets import load_digits
    >>> X, y = load_digits(return_X_y=True)
    >>> clf = kp.SNC(n_prototypes=20, random_state=0).fit(X[:900], y[:900])
    >>> bool(clf.score(X[900:], y[900:]) > 0.9)
    True
    """

    def _geometry(self) -> Geometry:
        return SquaredEuclidean()

"""What an exported model holds: all that can be computed before the first query."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from knnpress.descriptors import Recenter, SignalCovariance
from knnpress.estimators import DescriptorClassifier
from knnpress.estimators.model import PrototypeModel
from knnpress.estimators.outliers import LEVELS, check_reject
from knnpress.export.geometry_tables import MAKERS, Facts, Kind
from knnpress.geometries import Geometry, geometry_name
from knnpress.typing import Array, Indices

DOUBLES = ("center", "whitener", "offset", "self", "farthest")  # tables in double precision in any case
_FAR = 25.0  # exp(-25) = 1e-11, far below the error of a transport problem solved to its tolerance
_NEAR = 5.0  # where only the best class is asked for, what is less likely by exp(-5) is seldom worth solving for
_LOOSEST = 1e-2  # L1 error of marginals that is taken, however little a prototype weighs


@dataclass(frozen=True)
class Exported:
    """A model as tables and numbers.

    Attributes
    ----------
    kind : str
        How points are compared: "vector", "roots", "logarithm", "jbld" or "sinkhorn".
    geometry : str
    dtype : {"float64", "float32"}
        Of the tables, and of the arithmetic with them.
    d : int
        Entries of a vector, bins of a histogram, rows of a matrix.
    point_size : int
        Numbers of a point.
    classes : list of str
    labels : ndarray of shape (m,)
        Class index of each prototype.
    numbers : dict of float or int
    tables : dict of ndarray
    flags : set of str
    window : {"empirical", "ledoit_wolf", "oas"} or None
        How the covariance of a window of samples is estimated; None: only points are taken.
    notes : list of str
        What a reader of the file should know beside that.
    """

    kind: Kind
    geometry: str
    dtype: Literal["float64", "float32"]
    d: int
    point_size: int
    classes: list[str]
    labels: Indices
    numbers: dict[str, float] = field(default_factory=dict)
    tables: dict[str, Array] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    window: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def votes(self) -> bool:
        """Whether neighbours vote, each with one voice."""
        return "NEIGHBOURS" in self.numbers


def exported(model: Any, dtype: str, *, reject: float | None = None, group: Any = None) -> Exported:
    """Tables of a fitted model, or of a chain of descriptors with a model at its end.

    Raises
    ------
    TypeError
        Where the model, its geometry or a descriptor cannot be exported; the message says why.
    ValueError
        Where a number of the model leaves the range of `dtype`, or `reject` or `group` do not fit the model.
    """
    if dtype not in ("float64", "float32"):
        raise ValueError(f"dtype is {dtype!r}; choose 'float64' or 'float32'")
    *descriptors, model = steps_of(model)
    if not isinstance(model, PrototypeModel):
        raise TypeError(f"cannot export a {type(model).__name__}; give a fitted SCC, SHC, SNC or PrototypeClassifier")
    check_is_fitted(model)
    window, move = _before(descriptors, group)
    geometry = model._fitted_geometry()
    made = MAKERS.get(type(geometry))
    if made is None:
        known = ", ".join(cls.__name__ for cls in MAKERS)
        raise TypeError(
            f"cannot export a model under {type(geometry).__name__}: {_why_not(geometry)}. Those that can be exported "
            f"are {known}"
        )
    facts = made(model, geometry, dtype, move)
    d = int(model.n_features_in_)
    facts.numbers.update({"D": d, "M": len(model.prototypes_)})
    facts.numbers.update(_vote(model, facts))
    if facts.kind == "sinkhorn":
        facts.numbers.update(_looseness(facts.numbers, reject))
    if reject is None:
        facts.numbers.pop("SHIFT", None)
    else:
        facts.flags.add("REJECT")
        facts.tables["farthest"] = _farthest(model, check_reject(reject))
    return Exported(
        kind=facts.kind,
        geometry=geometry_name(geometry),
        dtype="float64" if dtype == "float64" else "float32",
        d=d,
        point_size=d * d if geometry.point_ndim == 2 else d,
        classes=[str(name) for name in model.classes_.tolist()],
        labels=model._codes(),
        numbers=facts.numbers,
        tables=facts.tables,
        flags=facts.flags,
        window=window,
        notes=_notes(move is not None, group, reject),
    )


def _notes(recentred: bool, group: Any, reject: float | None) -> list[str]:
    notes = []
    if recentred:
        notes.append("Matrices are re-centred first" + ("." if group is None else f", by the mean of group {group}."))
    if reject is not None:
        notes.append(
            f"Points farther from every class than all but {100 * reject:g} % of its training points are rejected: -1."
        )
    return notes


def steps_of(model: Any) -> list[Any]:
    """Descriptors in order, and the classifier."""
    if isinstance(model, DescriptorClassifier):
        check_is_fitted(model)
        return [*model.descriptors_, model.classifier_]
    if isinstance(model, Pipeline):
        return [step for _, step in model.steps if step is not None and step != "passthrough"]
    return [model]


def _before(descriptors: list[Any], group: Any) -> tuple[str | None, Array | None]:
    """What is done to a query before it is compared: how a window becomes a covariance X, and A of A X A'."""
    window, move = None, None
    for k, step in enumerate(descriptors):
        if isinstance(step, SignalCovariance) and k == 0:
            step._check_settings()
            window = step.estimator
        elif isinstance(step, Recenter):
            try:
                matrix = step.matrix_of(group)
            except ValueError as error:
                raise ValueError(f"a file of source code is for one group: {error}") from error
            move = matrix if move is None else matrix @ move
        else:
            raise TypeError(
                f"cannot export a {type(step).__name__}: of descriptors, only SignalCovariance (first) and Recenter "
                "are written as source code. Export the classifier alone, model[-1] or model.classifier_, and give it "
                "points as the descriptor gives them"
            )
    if group is not None and move is None:
        raise ValueError(f"group is {group!r}, and the model has no Recenter to look it up in; leave it out")
    return window, move


def _farthest(model: Any, reject: float) -> Array:
    """For each class, the distance of its nearest prototype up to which a point is taken, (n_classes,).

    `outlier_scores` grows with that distance: this is where it reaches 1 - reject.
    """
    levels = getattr(model, "distance_levels_", None)
    if levels is None:
        raise TypeError(
            f"reject is given, and a {type(model).__name__} does not know how far its training points are from its "
            "prototypes; learn an SCC, SHC or SNC"
        )
    farthest = np.full(len(levels), -np.inf)
    for c in np.flatnonzero(np.isfinite(levels[:, 0])):
        steps, first = np.unique(levels[c], return_index=True)
        farthest[c] = np.interp(1.0 - reject, LEVELS[first], steps)
    return np.maximum(farthest, -np.finfo(np.float64).max)


def _why_not(geometry: Geometry) -> str:
    name = geometry_name(geometry)
    if name == "airm":
        return "every distance takes an eigenvalue problem of its own; learn the model under Tangent or JBLD"
    if name == "emd":
        return "every distance takes a linear programme; learn the model under Sinkhorn"
    if name in ("clouds", "clouds-emd"):
        return "clouds have any number of points, and the working memory of a file is fixed; learn histograms (SHC)"
    return "it is not a geometry of knnpress"


def _vote(model: Any, facts: Facts) -> dict[str, float]:
    """How a model decides, as its `_decide` does."""
    vote = getattr(model, "vote_", None)
    if not hasattr(model, "vote") or (vote != "soft" and model.n_neighbors > 1):
        return {"NEIGHBOURS": int(model.n_neighbors)}
    sharpness = float(getattr(model, "gamma_", 1.0)) ** 2
    soft = vote == "soft"
    if soft:
        facts.flags.add("SOFT")
    temperature = float(getattr(model, "temperature_", 1.0))
    far = float(_FAR + np.log(len(model.prototypes_))) / sharpness  # what a sum over m prototypes does not feel
    return {
        "SHARPNESS": sharpness,
        "TEMPERATURE": temperature,
        "REACH": _NEAR / sharpness if soft else 0.0,
        "FAR_REACH": far / min(1.0, temperature),
    }


def _looseness(numbers: dict[str, float], reject: float | None) -> dict[str, float]:
    """How the tolerance of a transport problem grows, in logarithms, with the distance from the nearest prototype.

    A point is rejected by distances and not by shares: then it does not grow.
    """
    share = numbers.get("SHARPNESS", 0.0) * min(1.0, numbers.get("TEMPERATURE", 1.0))
    return {"LOOSEN": 0.5 * share if reject is None else 0.0, "LOOSEST": max(_LOOSEST, numbers["TOL"])}

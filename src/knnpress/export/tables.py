"""What an exported model holds: all that can be computed before the first query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from knnpress.descriptors import Recenter, SignalCovariance
from knnpress.estimators import DescriptorClassifier
from knnpress.estimators.model import PrototypeModel
from knnpress.estimators.outliers import LEVELS, check_reject
from knnpress.geometries import (
    JBLD,
    Geometry,
    Hellinger,
    LogEuclidean,
    Sinkhorn,
    SquaredEuclidean,
    Tangent,
    geometry_name,
)
from knnpress.geometries.spectral import matrix_inverse_sqrt
from knnpress.typing import Array, Indices

__all__ = ["DOUBLES", "LANES", "Exported", "exported", "steps_of"]

LANES = 4  # prototypes that are compared at a time
DOUBLES = ("center", "whitener", "offset", "self", "farthest")  # tables in double precision in any case
_IN_RANGE = {"float64": (1e15, 16), "float32": (1e8, 4)}  # of pivots, and how many of such may be multiplied
_LARGEST = 1e150  # entry of a vector, as `SquaredEuclidean` has it
_MOST_COST = {"float64": 200.0, "float32": 40.0}  # in units of reg, beyond which scalings may leave the range
_FINEST = 1e-5  # L1 error of marginals that floats reach
_BLOCK = 8  # bins, to a multiple of which rows of kernels are padded
_FAR = 25.0  # exp(-25) = 1e-11, far below the error of a transport problem solved to its tolerance
_NEAR = 5.0  # where only the best class is asked for, what is less likely by exp(-5) is seldom worth solving for
_LOOSEST = 1e-2  # L1 error of marginals that is taken, however little a prototype weighs
_TRIED = 24  # prototypes between which it is tried how far to overshoot


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

    kind: Literal["vector", "roots", "logarithm", "jbld", "sinkhorn"]
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
    made = _MAKERS.get(type(geometry))
    if made is None:
        known = ", ".join(cls.__name__ for cls in _MAKERS)
        raise TypeError(
            f"cannot export a model under {type(geometry).__name__}: {_why_not(geometry)}. Those that can be exported "
            f"are {known}"
        )
    facts = made(model, geometry, dtype, move)
    matrices = geometry.point_ndim == 2
    d = int(model.n_features_in_)
    facts.numbers.update({"D": d, "M": len(model.prototypes_)})
    facts.numbers.update(_vote(model, facts))
    if facts.kind == "sinkhorn":
        facts.numbers.update(_looseness(facts.numbers, reject))
    notes = []
    if move is not None:
        notes.append("Matrices are re-centred first" + ("." if group is None else f", by the mean of group {group}."))
    if reject is None:
        facts.numbers.pop("SHIFT", None)
    else:
        facts.flags.add("REJECT")
        facts.tables["farthest"] = _farthest(model, check_reject(reject))
        notes.append(
            f"Points farther from every class than all but {100 * reject:g} % of its training points are rejected: -1."
        )
    return Exported(
        kind=facts.kind,
        geometry=geometry_name(geometry),
        dtype="float64" if dtype == "float64" else "float32",
        d=d,
        point_size=d * d if matrices else d,
        classes=[str(name) for name in model.classes_.tolist()],
        labels=model._codes(),
        numbers=facts.numbers,
        tables=facts.tables,
        flags=facts.flags,
        window=window,
        notes=notes,
    )


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


@dataclass(frozen=True)
class _Facts:
    kind: Literal["vector", "roots", "logarithm", "jbld", "sinkhorn"]
    numbers: dict[str, float] = field(default_factory=dict)
    tables: dict[str, Array] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def _why_not(geometry: Geometry) -> str:
    name = geometry_name(geometry)
    if name == "airm":
        return "every distance takes an eigenvalue problem of its own; learn the model under Tangent or JBLD"
    if name == "emd":
        return "every distance takes a linear programme; learn the model under Sinkhorn"
    if name == "clouds":
        return "clouds have any number of points, and the working memory of a file is fixed; learn histograms (SHC)"
    return "it is not a geometry of knnpress"


def _vote(model: Any, facts: _Facts) -> dict[str, float]:
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


def _vectors(kind: Any, V: Array, dtype: str) -> _Facts:
    """Vectors, interleaved: `LANES` prototypes side by side. Floats hold them around their mean."""
    facts = _Facts(kind, {"P": V.shape[1]})
    if dtype == "float32":
        facts.flags.add("CENTERED")
        facts.tables["center"] = V.mean(axis=0)
        V = V - V.mean(axis=0)
        if np.abs(V).max() > 1e15:
            raise ValueError(
                f"the prototypes have entries of {np.abs(V).max():.1e}, whose squares are beyond the range of float32; "
                "use dtype='float64'"
            )
    facts.tables["vectors"] = _interleaved(V)
    return facts


def _interleaved(V: Array) -> Array:
    """(m, p) as (m / LANES, p, LANES); the last prototype fills what is missing."""
    m = len(V)
    rows = np.minimum(np.arange(-(-m // LANES) * LANES), m - 1)
    return np.ascontiguousarray(V[rows].reshape(-1, LANES, V.shape[1]).transpose(0, 2, 1))


def _of_vectors(model: Any, geometry: Geometry, dtype: str, move: Array | None) -> _Facts:
    facts = _vectors("vector", model.prototypes_, dtype)
    facts.numbers["LARGEST"] = _LARGEST
    return facts


def _of_roots(model: Any, geometry: Any, dtype: str, move: Array | None) -> _Facts:
    return _vectors("roots", _embedded(model, geometry.embed), dtype)


def _of_logarithms(model: Any, geometry: Any, dtype: str, move: Array | None) -> _Facts:
    # those of LogEuclidean are Tangent's at the identity, entries beside the diagonal counted twice
    tangent = geometry if isinstance(geometry, Tangent) else Tangent()
    facts = _vectors("logarithm", _embedded(model, tangent.embed), dtype)
    if tangent.reference is not None:
        root = matrix_inverse_sqrt(np.asarray(tangent.reference, dtype=np.float64)[None])[0]
        move = root if move is None else root @ move
    if move is not None:
        facts.flags.add("WHITENED")
        facts.tables["whitener"] = move
    return facts


def _embedded(model: Any, embed: Callable[[Array], Array]) -> Array:
    vectors = getattr(model, "prototype_vectors_", None)
    return embed(model.prototypes_) if vectors is None else np.asarray(vectors)


def _of_divergence(model: Any, geometry: Geometry, dtype: str, move: Array | None) -> _Facts:
    """Lower triangles, interleaved. Divergences stay the same under a congruence: instead of the query, the prototypes
    are moved, once and back. And floats lose least where the matrices are near the identity: for them, all go through
    the congruence that makes it the prototypes' mean.
    """
    Z, d = model.prototypes_, model.n_features_in_
    facts = _Facts("jbld", {"T": d * (d + 1) // 2, "SHIFT": 0.0})
    if move is not None:
        back = np.linalg.inv(move)
        Z = back @ Z @ back.T
    if dtype == "float32":
        whitener = np.linalg.inv(np.linalg.cholesky(Z.mean(axis=0)))
        Z = whitener @ Z @ whitener.T
        facts.flags.add("WHITENED")
        facts.tables["whitener"] = whitener[np.tril_indices(d)]
        facts.numbers["SHIFT"] = float(np.log(np.diagonal(whitener)).sum())  # half of what log |X| changes by
    lower = np.linalg.cholesky(Z)
    pivots = np.diagonal(lower, axis1=1, axis2=2) ** 2
    bound, group = _IN_RANGE[dtype]
    inside = pivots.min() > 1.0 / bound and np.diagonal(Z, axis1=1, axis2=2).max() < bound
    facts.numbers.update({"IN_RANGE": bound, "GROUP": group if inside else 1})
    facts.tables["matrices"] = _interleaved(Z[:, *np.tril_indices(d)])
    facts.tables["offset"] = -0.5 * np.log(pivots).sum(axis=1) - d * np.log(2.0)
    return facts


def _of_transport(model: Any, geometry: Any, dtype: str, move: Array | None) -> _Facts:
    Z, reg, value = model.prototypes_, geometry.effective_reg, geometry.value
    M = geometry._check_settings()
    d, cost = len(M), M / reg
    if cost.max() > _MOST_COST[dtype]:
        cure = (
            "use dtype='float64', or a larger reg" if cost.max() <= _MOST_COST["float64"] else "learn with a larger reg"
        )
        raise ValueError(
            f"cannot export a Sinkhorn model whose largest cost is {cost.max():.0f} times reg: exp(-ground_cost / reg) "
            f"would leave the range of {dtype} (up to {_MOST_COST[dtype]:.0f}); {cure}"
        )
    width = -(-d // _BLOCK) * _BLOCK
    symmetric = bool((M == M.T).all())
    tol = geometry.tol if dtype == "float64" else max(geometry.tol, _FINEST)
    facts = _Facts(
        "sinkhorn",
        {
            "REG": float(reg),
            "TOL": float(tol),
            "MAX_ITER": int(geometry.max_iter),
            "WIDTH": width,
            "RELAX": _overshoot(geometry, Z),
        },
    )
    facts.tables["histograms"] = Z
    facts.tables["kernel"] = _padded(np.exp(-cost), width)
    if not symmetric:
        facts.tables["kernel_t"] = _padded(np.exp(-cost.T), width)
        facts.flags.add("ASYMMETRIC")
    if value == "transport":
        facts.flags.add("TRANSPORT")
        facts.tables["cost"] = M
    else:
        debiased = value == "divergence"
        if debiased:
            facts.flags.add("DEBIASED")
        facts.tables["self"] = 0.5 * geometry._solver().self_terms(Z)[0] if debiased else np.zeros(len(Z))
    return facts


def _padded(kernel: Array, width: int) -> Array:
    """Rows of `width`; a bin that is not there takes ones, so that its sums are not zero."""
    return np.pad(kernel, ((0, 0), (0, width - len(kernel))), constant_values=1.0)


def _overshoot(geometry: Any, Z: Array) -> float:
    """The over-relaxation that transport between prototypes ends with: queries begin with it."""
    some = Z[np.unique(np.linspace(0, len(Z) - 1, min(len(Z), _TRIED)).astype(np.intp))]
    amounts = geometry.linearize(some, some).memory.relaxation
    apart = ~np.eye(len(some), dtype=bool)
    return float(np.median(amounts[apart])) if apart.any() else 0.0


_MAKERS: dict[type, Callable[[Any, Any, str, Array | None], _Facts]] = {
    JBLD: _of_divergence,
    Tangent: _of_logarithms,
    LogEuclidean: _of_logarithms,
    SquaredEuclidean: _of_vectors,
    Hellinger: _of_roots,
    Sinkhorn: _of_transport,
}

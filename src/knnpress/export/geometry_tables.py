"""What each geometry of an exported model needs in tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from knnpress.geometries import (
    JBLD,
    Geometry,
    Hellinger,
    LogEuclidean,
    Sinkhorn,
    SquaredEuclidean,
    Tangent,
)
from knnpress.geometries.spectral import matrix_inverse_sqrt
from knnpress.typing import Array

LANES = 4  # prototypes that are compared at a time
_IN_RANGE = {"float64": (1e15, 16), "float32": (1e8, 4)}  # of pivots, and how many of such may be multiplied
_LARGEST = 1e150  # entry of a vector, as `SquaredEuclidean` has it
_MAX_COST = {"float64": 200.0, "float32": 40.0}  # in units of reg, beyond which scalings may leave the range
_FINEST = 1e-5  # L1 error of marginals that floats reach
_BLOCK = 8  # bins, to a multiple of which rows of kernels are padded
_TRIED = 24  # prototypes between which it is tried how far to overshoot

Kind = Literal["vector", "roots", "logarithm", "jbld", "sinkhorn"]  # how points are compared


@dataclass(frozen=True)
class Facts:
    """What a geometry gives to an `Exported`."""

    kind: Kind
    numbers: dict[str, float] = field(default_factory=dict)
    tables: dict[str, Array] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)


def _vectors(kind: Any, V: Array, dtype: str) -> Facts:
    """Vectors, interleaved: `LANES` prototypes side by side. Floats hold them around their mean."""
    facts = Facts(kind, {"P": V.shape[1]})
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


def _of_vectors(model: Any, geometry: Geometry, dtype: str, move: Array | None) -> Facts:
    facts = _vectors("vector", model.prototypes_, dtype)
    facts.numbers["LARGEST"] = _LARGEST
    return facts


def _of_roots(model: Any, geometry: Any, dtype: str, move: Array | None) -> Facts:
    return _vectors("roots", _embedded(model, geometry.embed), dtype)


def _of_logarithms(model: Any, geometry: Any, dtype: str, move: Array | None) -> Facts:
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


def _of_divergence(model: Any, geometry: Geometry, dtype: str, move: Array | None) -> Facts:
    """Lower triangles, interleaved. Divergences stay the same under a congruence: instead of the query, the prototypes
    are moved, once and back. And floats lose least where the matrices are near the identity: for them, all go through
    the congruence that makes it the prototypes' mean.
    """
    Z, d = model.prototypes_, model.n_features_in_
    facts = Facts("jbld", {"T": d * (d + 1) // 2, "SHIFT": 0.0})
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


def _of_transport(model: Any, geometry: Any, dtype: str, move: Array | None) -> Facts:
    Z, reg, value = model.prototypes_, geometry.effective_reg, geometry.value
    M = geometry._check_settings()
    d, cost = len(M), M / reg
    if cost.max() > _MAX_COST[dtype]:
        cure = (
            "use dtype='float64', or a larger reg" if cost.max() <= _MAX_COST["float64"] else "learn with a larger reg"
        )
        raise ValueError(
            f"cannot export a Sinkhorn model whose largest cost is {cost.max():.0f} times reg: exp(-ground_cost / reg) "
            f"would leave the range of {dtype} (up to {_MAX_COST[dtype]:.0f}); {cure}"
        )
    width = -(-d // _BLOCK) * _BLOCK
    symmetric = bool((M == M.T).all())
    tol = geometry.tol if dtype == "float64" else max(geometry.tol, _FINEST)
    facts = Facts(
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


MAKERS: dict[type, Callable[[Any, Any, str, Array | None], Facts]] = {
    JBLD: _of_divergence,
    Tangent: _of_logarithms,
    LogEuclidean: _of_logarithms,
    SquaredEuclidean: _of_vectors,
    Hellinger: _of_roots,
    Sinkhorn: _of_transport,
}

"""One answer of every kernel of the core, as JSON: a script for tests/core/test_targets.py."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np

from knnpress import _core


def matrices(rng: np.random.Generator) -> dict[str, Any]:
    """Kernels of symmetric positive definite matrices; 13 of them fill no vector."""
    A = rng.normal(size=(22, 11, 30))
    X = A @ A.transpose(0, 2, 1) / 30
    x, z = _core.SpdLanes(X[:13]), _core.SpdSequence(X[13:])
    weight = rng.normal(size=(13, 9))
    values, vectors, only = np.empty((13, 11)), np.empty((13, 11, 11)), np.empty((13, 11))
    _core.eigen(X[:13], values, vectors)
    _core.eigen(X[:13], only, None)
    second, mean = _core.moments(A)
    answers = {
        "all_positive_definite": [
            _core.all_positive_definite(X - t * np.eye(11), 1e-300, 1e300, 1e-14) for t in (0, 9)
        ],
        "moments": second,
        "moments, mean": mean,
        "logdet": x.logdet,
        "margin": x.margin,
        "inverse": x.inverse(),
        "jbld_pairwise": _core.jbld_pairwise(x, z),
        "jbld_pullback": _core.jbld_pullback(x, z, weight, 0.1),
        "jbld_pullback, single": _core.jbld_pullback(x, z, weight, 0.1, single=True),
        "airm_pairwise": _core.airm_pairwise(np.linalg.cholesky(X[:13]), np.linalg.inv(np.linalg.cholesky(X[13:]))),
        "eigen, values": values,
        "eigen, values only": only,
        "eigen": vectors @ (values[:, :, None] * vectors.transpose(0, 2, 1)),  # signs of vectors are free
        "box_gaps": _core.box_gaps(X[0], X[0] + 0.1, np.ascontiguousarray(X[1:, 0])),
    }
    for name, function in _core.SpectralMap.__members__.items():
        for congruence in (None, np.eye(11) + 0.1 * A[0, :, :11]):
            out = np.empty_like(X[:13])
            _core.spectral_map(X[:13], function, out, congruence)
            answers[f"spectral_map, {name}, {congruence is None}"] = out
    return answers


def histograms(rng: np.random.Generator) -> dict[str, Any]:
    """Kernels of entropic transport: by scaling, in floats, and by Newton's method."""
    H = rng.dirichlet(np.ones(17), 20)
    M = np.abs(np.subtract.outer(np.arange(17.0), np.arange(17.0)))
    X, Z, weight, answers = H[:13], H[13:], rng.normal(size=(13, 7)), {}
    for name, reg, single in (("scaling", 2.0, False), ("single", 2.0, True), ("newton", 0.05, False)):
        cost, tol = _core.SinkhornCost(M, reg), 1e-4 if single else 1e-11
        potential, relaxation = np.zeros((13, 7, 17)), np.zeros((13, 7))
        value = _core.sinkhorn(cost, X, Z, potential, relaxation, tol, 5000, False, single=single)[0]
        answers[f"sinkhorn, {name}"] = value
        gradient = _core.sinkhorn_pullback(cost, X, potential, weight, 0.0, single)
        answers[f"sinkhorn_pullback, {name}"] = gradient - gradient.mean(axis=1, keepdims=True)  # potentials may shift
        if not single:
            answers[f"sinkhorn, transport, {name}"] = _core.sinkhorn(cost, X, Z, None, None, tol, 5000, True)[0]
            answers[f"sinkhorn_self, {name}"] = _core.sinkhorn_self(cost, X, tol, 5000)[0]
    return answers


def clouds(rng: np.random.Generator) -> dict[str, Any]:
    """Kernels of clouds of several sizes."""
    x_offsets, z_offsets = np.array([0, 3, 14, 20]), np.array([0, 5, 7, 16])
    points, others = rng.normal(size=(20, 3)), rng.normal(size=(16, 3))
    a, b = rng.random(20) + 0.1, rng.random(16) + 0.1
    for weights, offsets in ((a, x_offsets), (b, z_offsets)):
        for begin, end in pairwise(offsets):
            weights[begin:end] /= weights[begin:end].sum()
    cost = ((points[:, None] - others) ** 2).sum(axis=2)
    problem = (cost, np.arange(20), x_offsets, a, z_offsets, b)
    potential, weight = np.zeros((3, 16)), rng.normal(size=(3, 3))
    value = _core.clouds(*problem, potential, False, 1e-11, 5000)[0]
    plan, gradient = np.zeros_like(cost), np.zeros(16)
    _core.clouds_pullback(*problem, potential, weight, 0.0, plan, gradient)
    own = ((points[3:14, None] - points[3:14]) ** 2).sum(axis=2)
    found = _core.cloud_self(own, a[3:14].copy(), 1e-11, 5000)
    return {"clouds": value, "plan": plan, "clouds_pullback": gradient, "cloud_self": found[0], "potential": found[1]}


def loss(rng: np.random.Generator) -> dict[str, Any]:
    """The loss, with and without weights."""
    D, same = rng.random((13, 11)), rng.random((13, 11)) < 0.3
    same[:, 4] = True
    weight, reach = rng.random(13), rng.random(13)
    plain, plain_gradient = _core.soft_neighbor_loss(D, same, 7.0, 0.01, 0.02)
    weighted, weighted_gradient = _core.soft_neighbor_loss(D, same, 7.0, 0.0, 0.02, weight, reach)
    return {
        "soft_neighbor_loss": plain,
        "its gradient": plain_gradient,
        "soft_neighbor_loss, weighted": weighted,
        "its weighted gradient": weighted_gradient,
    }


def answers() -> dict[str, Any]:
    """Of all kernels, by name."""
    rng = np.random.default_rng(0)
    found = matrices(rng) | histograms(rng) | clouds(rng) | loss(rng)
    return {name: np.asarray(answer).tolist() for name, answer in found.items()}


if __name__ == "__main__":
    print(json.dumps({"target": _core.target(), "answers": answers()}))

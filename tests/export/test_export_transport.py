"""Sinkhorn models as source code: what is left unsolved does not change the answer."""

from __future__ import annotations

import numpy as np
import pytest
from test_export import ask, build, histogram_model, needs_compiler, needs_node, node_program

import knnpress as kp
from knnpress.geometries import Sinkhorn


def between(model, X, steps=14):
    """Histograms on lines between points of different classes, ever nearer to where the answer changes."""
    left, right = X[:-1], X[1:]
    differ = model.predict(left) != model.predict(right)
    left, right, found = left[differ], right[differ], []
    start = model.predict(left)
    for _ in range(steps):
        middle = 0.5 * (left + right)
        same = (model.predict(middle) == start)[:, None]
        left, right = np.where(same, middle, left), np.where(same, right, middle)
        found.append(middle)
    return np.concatenate(found)


@pytest.mark.parametrize(
    "program", [pytest.param(build, marks=needs_compiler), pytest.param(node_program, marks=needs_node)]
)
def test_a_close_decision_is_not_a_guess(program, tmp_path):
    model, X = histogram_model("soft", metric="sinkhorn")
    X = between(model, X[:15])
    scores = np.sort(np.log(model.predict_proba(X) + 1e-300), axis=1)
    margin = scores[:, -1] - scores[:, -2]
    assert (margin < 1e-3).sum() > 20, "the test would say nothing"
    winner, _ = ask(program(model, tmp_path), X, len(model.classes_))  # asks with probabilities, and again without
    apart = margin > 1e-6
    np.testing.assert_array_equal(model.classes_[winner[apart]], model.predict(X[apart]))


@pytest.mark.parametrize(
    "program", [pytest.param(build, marks=needs_compiler), pytest.param(node_program, marks=needs_node)]
)
def test_of_equally_near_prototypes_the_first_counts(program, tmp_path):
    bins = np.arange(5.0)
    cost = np.abs(bins[:, None] - bins)
    one_end, both_ends, middle = np.eye(5)[0], 0.5 * (np.eye(5)[0] + np.eye(5)[4]), np.eye(5)[2]
    geometry = Sinkhorn(cost, reg=0.5, value="dual")  # from the middle, the ends are all the same
    model = kp.PrototypeClassifier(geometry).fit(np.stack([one_end, both_ends]), ["one end", "both ends"])
    winner, _ = ask(program(model, tmp_path), middle[None], 2)
    assert model.predict(middle[None]) == ["one end"]
    assert model.classes_[winner] == ["one end"]

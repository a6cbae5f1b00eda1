"""What a model keeps ready for queries, and that it never outlives what it was made of."""

from __future__ import annotations

import copy
import gc
import pickle
import threading

import numpy as np
import pytest
from points import spd
from sklearn.base import clone

import knnpress as kp
from knnpress.compression import Subsample
from knnpress.estimators import prepared as module
from knnpress.geometries import JBLD, Hellinger, Sinkhorn, Tangent

RNG = np.random.default_rng(0)
X, Y = spd(RNG, 60), np.arange(60) % 3
H = RNG.dirichlet(np.ones(5), size=60)
COST = np.abs(np.subtract.outer(np.arange(5.0), np.arange(5.0)))
pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")  # two iterations are meant to be few
QUICK = {"gamma": 1.0, "prior": 1.0, "smoothing": 0.0, "vote": "nearest", "max_iter": 2}


MODELS = [
    pytest.param(kp.PrototypeClassifier("jbld", Subsample(), 9), X, id="jbld"),
    pytest.param(kp.SCC(9, metric="jbld", **QUICK), X, id="scc"),
    pytest.param(kp.SCC(9, metric="tangent", **QUICK), X, id="tangent"),
    pytest.param(kp.PrototypeClassifier(Sinkhorn(COST), Subsample(), 9), H, id="sinkhorn"),
    pytest.param(kp.SNC(9, **QUICK), H, id="snc"),
]


def anew(model, points):
    """Distances by a copy that has nothing ready."""
    return copy.deepcopy(model).transform(points)


@pytest.mark.parametrize(("model", "points"), MODELS)
def test_a_change_of_the_prototypes_in_place_is_seen_by_the_next_query(model, points):
    model = clone(model).fit(points, Y)
    before = model.transform(points)
    learned = getattr(model, "prototype_vectors_", None)
    changed = model.prototypes_ if learned is None else learned
    changed[[0, 1]] = changed[[1, 0]]
    after = model.transform(points)
    np.testing.assert_array_equal(after[:, [1, 0]], before[:, [0, 1]])
    np.testing.assert_array_equal(after, anew(model, points))


@pytest.mark.parametrize(("model", "points"), MODELS)
def test_replaced_prototypes_and_labels_are_seen_by_the_next_query(model, points):
    model = clone(model).fit(points, Y)
    first = model.predict(points)
    model.prototype_labels_ = (model.prototype_labels_ + 1) % 3
    np.testing.assert_array_equal(model.predict(points), (first + 1) % 3)
    model.prototypes_, model.prototype_labels_ = model.prototypes_[::-1], model.prototype_labels_[::-1]
    if getattr(model, "prototype_vectors_", None) is not None:
        model.prototype_vectors_ = model.prototype_vectors_[::-1]
    np.testing.assert_array_equal(model.transform(points), anew(model, points))


def test_changed_parameters_of_the_geometry_are_seen_by_the_next_query():
    model = kp.PrototypeClassifier(Sinkhorn(COST.copy()), Subsample(), 9, random_state=0).fit(H, Y)
    plain = model.transform(H)
    model.geometry_.ground_cost *= 2.0
    np.testing.assert_allclose(model.transform(H), 2.0 * plain, rtol=1e-9)
    model.geometry_.set_params(value="dual")
    np.testing.assert_array_equal(model.transform(H), anew(model, H))
    model.geometry_ = Hellinger()
    np.testing.assert_array_equal(model.transform(H), Hellinger().pairwise(H, model.prototypes_))


def test_another_reference_is_seen_by_the_next_query():
    model = kp.SCC(9, metric="tangent", **QUICK).fit(X, Y)
    model.predict(X)
    model.geometry_ = Tangent(2.0 * np.asarray(model.geometry_.reference))
    np.testing.assert_array_equal(model.transform(X), anew(model, X))


def test_partial_fit_and_fit_are_seen_by_the_next_query():
    model = kp.SCC(9, metric="jbld", **QUICK)
    model.partial_fit(X[:30], Y[:30])
    model.predict(X)
    model.partial_fit(X[30:], Y[30:])
    np.testing.assert_array_equal(model.transform(X), JBLD().pairwise(X, model.prototypes_))
    model.fit(X[:40], Y[:40])
    np.testing.assert_array_equal(model.transform(X), JBLD().pairwise(X, model.prototypes_))


def test_nothing_is_prepared_twice_for_a_model_that_stays_as_it_is(monkeypatch):
    model = kp.PrototypeClassifier("jbld", Subsample(), 9).fit(X, Y)
    made = []
    whole = JBLD.distances_to
    monkeypatch.setattr(JBLD, "distances_to", lambda self, Z: made.append(len(Z)) or whole(self, Z))
    for _ in range(3):
        model.predict(X[:1])
    assert made == [9]


def test_a_model_with_something_ready_is_copied_pickled_and_saved_like_any_other(tmp_path):
    model = kp.SCC(9, metric="jbld", **QUICK).fit(X, Y)
    attributes = set(vars(model))
    expected = model.predict(X)
    assert set(vars(model)) == attributes
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        np.testing.assert_array_equal(other.predict(X), expected)
    model.save(tmp_path / "model.knnp")
    np.testing.assert_array_equal(kp.load(tmp_path / "model.knnp").predict(X), expected)


def test_what_was_ready_goes_with_its_model():
    model = kp.PrototypeClassifier("jbld", Subsample(), 9).fit(X, Y)
    model.predict(X[:1])
    gc.collect()
    known = len(module._known)
    del model
    gc.collect()
    assert len(module._known) == known - 1


def test_nothing_is_kept_where_it_would_take_much_memory_or_cannot_be_compared(monkeypatch):
    model = kp.PrototypeClassifier(Sinkhorn(COST.tolist()), Subsample(), 9).fit(H, Y)
    model.predict(H)
    assert model not in module._known
    monkeypatch.setattr(module, "BLOCK_BYTES", 100)
    model = kp.PrototypeClassifier("jbld", Subsample(), 9).fit(X, Y)
    np.testing.assert_array_equal(model.transform(X), JBLD().pairwise(X, model.prototypes_))
    assert model not in module._known


def test_threads_that_query_while_another_replaces_the_prototypes_get_one_or_the_other():
    model = kp.PrototypeClassifier("jbld", Subsample(), 9, n_jobs=1).fit(X, Y)
    sets = [model.prototypes_, np.ascontiguousarray(2.0 * model.prototypes_)]
    right = [JBLD().pairwise(X[:1], Z) for Z in sets]
    wrong, stop = [], threading.Event()

    def query():
        while not stop.is_set():
            D = model.transform(X[:1])
            if not any(np.array_equal(D, expected) for expected in right):
                wrong.append(D)

    threads = [threading.Thread(target=query) for _ in range(3)]
    for thread in threads:
        thread.start()
    for k in range(300):
        model.prototypes_ = sets[k % 2]
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.parametrize("n", [1, 4, 5, 60])
def test_a_few_matrices_have_the_same_divergences_as_among_many(n):
    D = JBLD().pairwise(X, X[:7])
    np.testing.assert_array_equal(JBLD().pairwise(X[:n], X[:7]), D[:n])

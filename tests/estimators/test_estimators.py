"""scikit-learn's conventions, on every geometry: scikit-learn's own checks run none on 3-D input."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from cases import one_at_a_time
from points import GEOMETRIES, GROUND_COST, HISTOGRAMS, SPD, labelled, sample, spd
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import get_tags
from sklearn.utils.estimator_checks import check_estimator

import knnpress as kp
from knnpress.compression import KeepAll
from knnpress.estimators import PrototypeClassifier, model
from knnpress.estimators.checks import as_generator
from knnpress.geometries import AIRM, JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean, as_geometry
from knnpress.neighbors import vote

every_geometry = pytest.mark.parametrize("name", GEOMETRIES)
N_TRAIN, N_TEST = 30, 36


def data(name, n_classes=3):
    """Training points and labels, and test points and labels."""
    X, y = labelled(name, N_TRAIN + N_TEST, n_classes)
    return X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:]


def fitted(name, n_neighbors=1, **settings):
    X, y, *_ = data(name)
    return PrototypeClassifier(GEOMETRIES[name], n_neighbors=n_neighbors, **settings).fit(X, y)


# --- scikit-learn's checks


@pytest.mark.parametrize("geometry", [SquaredEuclidean(), "sqeuclidean"], ids=["object", "name"])
def test_scikit_learn_finds_nothing_wrong(geometry):
    twice = {"check_sample_weight_equivalence_on_dense_data": "transform has a column for each point that is kept"}
    clf = PrototypeClassifier(geometry)
    results = check_estimator(clf, on_skip=None, on_fail=None, expected_failed_checks=twice)
    failed = [f"{r['check_name']}: {r['exception']!r}" for r in results if r["status"] == "failed"]
    assert not failed, "\n".join(failed)
    assert sum(r["status"] == "passed" for r in results) > 40


@pytest.mark.parametrize("geometry", [JBLD(), "jbld", SquaredEuclidean(), "sqeuclidean", Sinkhorn(GROUND_COST)])
def test_tags_say_whether_a_point_is_a_vector_or_a_matrix(geometry):
    tags = get_tags(PrototypeClassifier(geometry)).input_tags
    is_matrix = as_geometry(geometry).point_ndim == 2
    assert (tags.two_d_array, tags.three_d_array) == (not is_matrix, is_matrix)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "kneighbors", "transform"])
def test_an_unfitted_model_says_so(method):
    with pytest.raises(NotFittedError, match="not fitted yet"):
        getattr(PrototypeClassifier(JBLD()), method)(sample("jbld", 2))


# --- our own, on every geometry


@every_geometry
def test_fitted_attributes(name):
    X, y, *_ = data(name)
    clf = fitted(name)
    np.testing.assert_array_equal(clf.prototypes_, GEOMETRIES[name].check(X))
    np.testing.assert_array_equal(clf.prototype_labels_, y)
    assert clf.classes_.tolist() == [0, 1, 2]
    assert clf.compression_ratio_ == 1.0
    assert clf.n_features_in_ == X.shape[1]


@every_geometry
def test_clone_is_unfitted_and_learns_the_same(name):
    X, y, X_test, _ = data(name)
    clf = fitted(name, n_neighbors=3)
    copy = clone(clf)
    assert not hasattr(copy, "prototypes_")
    assert copy.geometry is not clf.geometry
    assert repr(copy) == repr(clf)
    np.testing.assert_array_equal(copy.fit(X, y).predict(X_test), clf.predict(X_test))


@every_geometry
def test_pickle_keeps_predictions_and_distances(name):
    X_test = data(name)[2]
    clf = fitted(name, n_neighbors=3)
    copy = pickle.loads(pickle.dumps(clf))
    np.testing.assert_array_equal(copy.predict(X_test), clf.predict(X_test))
    np.testing.assert_array_equal(copy.transform(X_test), clf.transform(X_test))


NAMES_OF_CLASSES = [["wolf", "bear", "ant"], np.array(["b", "a", "c"], dtype=object), [30, -7, 1000], [1.0, 5.0, 2.0]]


@pytest.mark.parametrize(("name", "names"), one_at_a_time(GEOMETRIES, NAMES_OF_CLASSES))
def test_labels_of_any_kind_give_the_same_classes(name, names):
    X, y, X_test, _ = data(name)
    names = np.asarray(names)
    clf = PrototypeClassifier(GEOMETRIES[name], n_neighbors=3).fit(X, names[y])
    expected = names[fitted(name, n_neighbors=3).predict(X_test)]
    predicted = clf.predict(X_test)
    assert predicted.dtype == names.dtype
    np.testing.assert_array_equal(predicted, expected)
    assert clf.classes_.tolist() == sorted(names.tolist())


@every_geometry
def test_fitting_twice_is_fitting_once(name):
    X, y, X_test, _ = data(name)
    clf = PrototypeClassifier(GEOMETRIES[name]).fit(X, y)
    before = clf.transform(X_test)
    np.testing.assert_array_equal(clf.fit(X, y).transform(X_test), before)


@every_geometry
def test_fitting_again_forgets_the_old_data(name):
    X, y, X_test, _ = data(name)
    clf = PrototypeClassifier(GEOMETRIES[name]).fit(X, y)
    clf.fit(X[:7], np.array(list("aabbabb")))
    fresh = PrototypeClassifier(GEOMETRIES[name]).fit(X[:7], np.array(list("aabbabb")))
    assert clf.classes_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(clf.predict(X_test), fresh.predict(X_test))


@every_geometry
def test_predictions_of_some_rows_are_those_of_the_whole(name):
    X_test = data(name)[2]
    clf = fitted(name, n_neighbors=3)
    whole = clf.predict(X_test)
    rows = np.random.default_rng(0).permutation(len(X_test))[:13]
    np.testing.assert_array_equal(clf.predict(X_test[rows]), whole[rows])
    np.testing.assert_array_equal([clf.predict(x[None])[0] for x in X_test], whole)
    np.testing.assert_array_equal(clf.predict(X_test[::-1]), whole[::-1])


@pytest.mark.usefixtures("many_blocks")
@every_geometry
def test_the_number_of_jobs_changes_no_bit(name):
    X_test = data(name)[2]
    one, *others = (fitted(name, n_neighbors=3, n_jobs=n_jobs) for n_jobs in (1, 2, 4, None))
    for other in others:
        np.testing.assert_array_equal(other.transform(X_test), one.transform(X_test))
        np.testing.assert_array_equal(other.predict_proba(X_test), one.predict_proba(X_test))
        for a, b in zip(other.kneighbors(X_test), one.kneighbors(X_test), strict=True):
            np.testing.assert_array_equal(a, b)


# sizes at which a multithreaded BLAS would round differently
@pytest.mark.parametrize(("n", "m", "d"), [(405, 656, 101), (889, 727, 34), (141, 711, 91), (502, 509, 118)])
def test_the_number_of_jobs_changes_no_bit_of_larger_euclidean_problems(n, m, d):
    rng = np.random.default_rng(0)
    X, Z = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    one, two, four = (SquaredEuclidean().pairwise(X, Z, n_jobs=n_jobs) for n_jobs in (1, 2, 4))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, four)


@pytest.mark.parametrize("geometry", [JBLD(), AIRM(), LogEuclidean()], ids=str)
@pytest.mark.parametrize(("n", "m", "d"), [(57, 125, 35), (223, 38, 22)])
def test_the_number_of_jobs_changes_no_bit_of_larger_matrix_problems(geometry, n, m, d):
    rng = np.random.default_rng(0)
    X, Z = spd(rng, n, d), spd(rng, m, d)
    one, two, four = (geometry.pairwise(X, Z, n_jobs=n_jobs) for n_jobs in (1, 2, 4))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, four)


@pytest.mark.usefixtures("many_blocks")
@pytest.mark.parametrize("name", GEOMETRIES)
def test_one_job_starts_no_thread(name, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a pool of threads was started")

    monkeypatch.setattr("knnpress.execution.threads._SharedWork", refuse)
    X_test = data(name)[2]
    clf = fitted(name, n_jobs=1)
    clf.predict(X_test)
    clf.transform(X_test)
    with pytest.raises(AssertionError, match="a pool of threads was started"):
        fitted(name, n_jobs=2).transform(X_test)


@every_geometry
def test_transform_is_pairwise_to_the_prototypes(name):
    X, _, X_test, _ = data(name)
    clf = fitted(name)
    np.testing.assert_array_equal(clf.transform(X_test), clf.geometry_.pairwise(X_test, X))


@every_geometry
def test_kneighbors_are_the_smallest_of_pairwise(name):
    X, _, X_test, _ = data(name)
    clf = fitted(name, n_neighbors=2)
    D = clf.geometry_.pairwise(X_test, X)
    for k in (1, 4, N_TRAIN):
        distance, index = clf.kneighbors(X_test, n_neighbors=k)
        expected = np.argsort(D, axis=1, kind="stable")[:, :k]
        np.testing.assert_array_equal(index, expected)
        np.testing.assert_array_equal(distance, np.take_along_axis(D, expected, axis=1))
        np.testing.assert_array_equal(clf.kneighbors(X_test, k, return_distance=False), index)
    assert clf.kneighbors(X_test)[1].shape == (N_TEST, 2)


@pytest.mark.parametrize(("name", "k"), one_at_a_time(GEOMETRIES, [3, 1, 5]))
def test_predictions_agree_with_scikit_learn_on_precomputed_distances(name, k):
    X, y, X_test, y_test = data(name)
    geometry = fitted(name).geometry_
    reference = KNeighborsClassifier(k, metric="precomputed").fit(np.maximum(geometry.pairwise(X), 0), y)
    D = np.maximum(geometry.pairwise(X_test, X), 0)
    clf = fitted(name, n_neighbors=k)
    share = clf.predict_proba(X_test)
    np.testing.assert_allclose(share, reference.predict_proba(D), atol=1e-15)
    decided = (share == share.max(axis=1, keepdims=True)).sum(axis=1) == 1
    assert decided.mean() > 0.5
    np.testing.assert_array_equal(clf.predict(X_test)[decided], reference.predict(D)[decided])
    assert clf.score(X_test, y_test) == np.mean(clf.predict(X_test) == y_test)
    assert clf.score(X_test, y_test) > 0.6  # chance is 1/3


@pytest.mark.parametrize(("name", "k"), one_at_a_time(GEOMETRIES, [3, 1, 2, 6]))
def test_probabilities_sum_to_one_and_their_largest_is_predicted(name, k):
    X_test = data(name)[2]
    clf = fitted(name, n_neighbors=k)
    share, predicted = clf.predict_proba(X_test), clf.predict(X_test)
    np.testing.assert_allclose(share.sum(axis=1), 1.0, atol=1e-15)
    assert (share >= 0).all()
    np.testing.assert_array_equal(share[np.arange(N_TEST), np.searchsorted(clf.classes_, predicted)], share.max(axis=1))
    index = clf.kneighbors(X_test, return_distance=False)
    np.testing.assert_array_equal(predicted, clf.classes_[vote(clf.prototype_labels_[index], 3)[0]])


# the entropy blurs: under "dual" and "transport" a point is not at distance zero from itself
@pytest.mark.parametrize("name", [*SPD, "sqeuclidean", "sinkhorn-divergence", "emd"])
def test_a_training_point_is_its_own_nearest_neighbour(name):
    X, y, *_ = data(name)
    clf = fitted(name)
    assert clf.score(X, y) == 1.0
    distance, index = clf.kneighbors(X)
    np.testing.assert_array_equal(index[:, 0], np.arange(N_TRAIN))
    np.testing.assert_allclose(distance, 0.0, atol=1e-7)


@every_geometry
def test_a_single_class_is_always_predicted(name):
    X, _, X_test, _ = data(name)
    clf = PrototypeClassifier(GEOMETRIES[name], n_neighbors=3).fit(X, ["only"] * N_TRAIN)
    assert clf.classes_.tolist() == ["only"]
    assert set(clf.predict(X_test)) == {"only"}
    np.testing.assert_array_equal(clf.predict_proba(X_test), np.ones((N_TEST, 1)))


@every_geometry
def test_a_single_training_point_is_enough(name):
    X, _, X_test, _ = data(name)
    assert set(PrototypeClassifier(GEOMETRIES[name]).fit(X[:1], [4]).predict(X_test)) == {4}


# --- scikit-learn's tools


@every_geometry
def test_pipeline_and_cross_validation(name):
    X, y = labelled(name, 60)
    pipeline = make_pipeline(FunctionTransformer(), PrototypeClassifier(GEOMETRIES[name]))
    scores = cross_val_score(pipeline, X, y, cv=3, error_score="raise")
    np.testing.assert_array_equal(
        scores, cross_val_score(PrototypeClassifier(GEOMETRIES[name]), X, y, cv=3, error_score="raise")
    )
    assert scores.mean() > 0.6


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_grid_search_reaches_into_the_geometry(n_jobs):
    X, y = labelled("sinkhorn-divergence", 45)
    grid = {"geometry__reg": [0.5, 1.0], "n_neighbors": [1, 3]}
    search = GridSearchCV(PrototypeClassifier(Sinkhorn(GROUND_COST)), grid, cv=3, n_jobs=n_jobs, error_score="raise")
    search.fit(X, y)
    assert {tuple(p.values()) for p in search.cv_results_["params"]} == {(0.5, 1), (0.5, 3), (1.0, 1), (1.0, 3)}
    assert search.best_estimator_.geometry.reg == search.best_params_["geometry__reg"]
    assert search.score(X, y) > 0.6


def test_params_reach_into_the_geometry():
    clf = PrototypeClassifier(Sinkhorn(GROUND_COST, reg=0.3), compressor=KeepAll(), n_neighbors=2)
    params = clf.get_params()
    assert (params["geometry__reg"], params["geometry__value"], params["n_neighbors"]) == (0.3, "divergence", 2)
    assert "geometry__reg" not in clf.get_params(deep=False)
    assert clf.set_params(geometry__reg=0.7, n_neighbors=5) is clf
    assert (clf.geometry.reg, clf.n_neighbors) == (0.7, 5)
    assert clf.geometry.ground_cost is GROUND_COST  # stored untouched
    with pytest.raises(ValueError, match="Invalid parameter"):
        clf.set_params(geometry__nonsense=1)


def test_a_fit_that_fails_or_is_interrupted_leaves_a_model_as_it_was(monkeypatch):
    clf, remember = fitted("sqeuclidean"), model.remember_features
    before, larger = dict(vars(clf)), np.random.default_rng(0).normal(size=(9, 7))

    def interrupted(*args):
        remember(*args)
        raise KeyboardInterrupt

    monkeypatch.setattr(model, "remember_features", interrupted)
    for X, error in ((larger, KeyboardInterrupt), (np.full((9, 4), np.nan), ValueError)):
        with pytest.raises(error):
            clf.fit(X, np.arange(9) % 3)
        assert vars(clf).keys() == before.keys()
        assert all(vars(clf)[name] is value for name, value in before.items())


def test_changing_a_parameter_after_fit_changes_the_vote():
    clf = fitted("jbld").set_params(n_neighbors=3)
    np.testing.assert_array_equal(clf.predict(data("jbld")[2]), fitted("jbld", n_neighbors=3).predict(data("jbld")[2]))


@pytest.mark.parametrize(
    ("name", "cls"),
    [("jbld", JBLD), ("airm", AIRM), ("logeuclid", LogEuclidean), ("sqeuclidean", SquaredEuclidean)],
)
def test_a_geometry_may_be_given_by_name(name, cls):
    assert type(as_geometry(name)) is cls
    X, y, X_test, _ = data(name)
    clf = PrototypeClassifier(name).fit(X, y)
    assert clf.geometry == name  # stored untouched
    np.testing.assert_array_equal(clf.transform(X_test), fitted(name).transform(X_test))


def test_repr_shows_what_was_chosen():
    assert repr(PrototypeClassifier(JBLD())) == "PrototypeClassifier(geometry=JBLD())"
    assert repr(PrototypeClassifier("jbld", n_neighbors=3)) == "PrototypeClassifier(geometry='jbld', n_neighbors=3)"
    assert "reg=0.5" in repr(PrototypeClassifier(Sinkhorn(np.eye(2), reg=0.5)))


def test_no_compressor_is_keep_all():
    X, y, X_test, _ = data("jbld")
    clf = PrototypeClassifier(JBLD(), KeepAll(), n_prototypes=N_TRAIN).fit(X, y)
    np.testing.assert_array_equal(clf.transform(X_test), fitted("jbld").transform(X_test))
    with pytest.raises(ValueError, match=r"keeps all 30 points, but n_prototypes is 5; choose another compressor"):
        PrototypeClassifier(JBLD(), KeepAll(), n_prototypes=5).fit(X, y)


# --- random state


class Draws:
    """A compressor that keeps everything and records a number from the generator it is handed."""

    def compress(self, X, y, *, random_state, **settings):
        assert isinstance(random_state, np.random.Generator)
        self.drawn = random_state.integers(2**60)
        return KeepAll().compress(X, y, random_state=random_state, **settings)


def drawn(random_state):
    compressor = Draws()
    PrototypeClassifier(JBLD(), compressor, random_state=random_state).fit(sample("jbld", 4), [0, 1, 0, 1])
    return compressor.drawn


@pytest.mark.parametrize(
    "make",
    [lambda s: s, np.int64, np.uint32, np.random.RandomState, np.random.default_rng],
    ids=["int", "int64", "uint32", "RandomState", "Generator"],
)
def test_the_same_random_state_draws_the_same_and_another_draws_others(make):
    assert drawn(make(3)) == drawn(make(3)) != drawn(make(4))


def test_without_a_random_state_each_draw_differs_and_the_global_one_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert drawn(None) != drawn(None)
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_a_generator_is_used_up_but_an_integer_is_not():
    generator = np.random.default_rng(0)
    assert as_generator(generator) is generator
    assert drawn(generator) != drawn(generator)
    assert drawn(5) == drawn(5)


def test_an_unknown_kind_of_random_state_is_refused():
    with pytest.raises(ValueError, match=r"random|seed"):
        as_generator("seven")


# --- the data that ship


@pytest.fixture(scope="module")
def digits():
    return kp.datasets.load_digits_covariances(), kp.datasets.load_digits_histograms()


def test_digits_have_the_same_labels_in_both_forms(digits):
    for dataset in digits:
        assert dataset.y.shape == (1797,)
        assert np.unique(dataset.y).tolist() == list(range(10))
        assert dataset.class_names == tuple("0123456789")
        assert "digits" in dataset.citation
    np.testing.assert_array_equal(digits[0].y, digits[1].y)


def test_digit_covariances_are_well_posed_and_tell_the_digits_apart(digits):
    dataset = digits[0]
    assert dataset.X.shape == (1797, 11, 11)
    assert dataset.ground_cost is None
    np.testing.assert_array_equal(dataset.X, dataset.X.transpose(0, 2, 1))
    assert np.linalg.eigvalsh(dataset.X).min() > 0
    for name in SPD:
        assert GEOMETRIES[name].check(dataset.X) is dataset.X
    clf = PrototypeClassifier("jbld").fit(dataset.X[:1000], dataset.y[:1000])
    assert clf.score(dataset.X[1000:1200], dataset.y[1000:1200]) > 0.85


def test_digit_histograms_come_with_the_distances_of_their_pixels(digits):
    dataset = digits[1]
    M = dataset.ground_cost
    assert dataset.X.shape == (1797, 64)
    np.testing.assert_allclose(dataset.X.sum(axis=1), 1.0)
    assert (dataset.X >= 0).all()
    assert M.shape == (64, 64)
    np.testing.assert_array_equal(M, M.T)
    assert (np.diag(M) == 0).all()
    assert (M[0, 1], M[0, 8], M[0, 63]) == pytest.approx((1, 1, np.hypot(7, 7)))
    clf = PrototypeClassifier(Sinkhorn(M)).fit(dataset.X[:200], dataset.y[:200])
    assert clf.score(dataset.X[1000:1040], dataset.y[1000:1040]) > 0.7


def test_every_histogram_geometry_is_tried():
    assert set(SPD) | set(HISTOGRAMS) | {"sqeuclidean"} == set(GEOMETRIES)

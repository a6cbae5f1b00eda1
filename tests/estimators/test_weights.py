"""Weights and groups of training points: what they do, and which are refused."""

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from points import GROUND_COST, labelled
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_sample_weight

from knnpress import SCC, SHC, SNC, PrototypeClassifier
from knnpress import compression as kc
from knnpress.compression import ClassCentroids, StochasticCompression
from knnpress.geometries import SquaredEuclidean

pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")

#: One descent, with nothing left to be chosen
FIXED = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}
OWN = {"n_prototypes": 6, "compressor": StochasticCompression(init=ClassCentroids())}
#: Averages bin by bin, which is quicker than barycenters
OF_BINS = OWN | {"compressor": StochasticCompression(init=ClassCentroids(SquaredEuclidean()))}
MODELS = {
    "scc": (SCC(metric="jbld", max_iter=5, **OWN, **FIXED), "jbld"),
    "scc-tangent": (SCC(metric="tangent", max_iter=5, **OWN, **FIXED), "jbld"),
    "shc": (SHC(GROUND_COST, metric="sinkhorn", max_iter=3, **OF_BINS, **FIXED), "sinkhorn-divergence"),
    "shc-hellinger": (SHC(metric="hellinger", max_iter=5, **OWN, **FIXED), "sinkhorn-divergence"),
    "snc": (SNC(max_iter=5, **OWN, **FIXED), "sqeuclidean"),
    "snc-auto": (SNC(6, max_iter=2), "sqeuclidean"),
    "scc-auto": (SCC(6, max_iter=2, prior=1.0, smoothing=0.02), "jbld"),
}
COMPRESSORS = {
    "all": kc.KeepAll(),
    "subsample": kc.Subsample(),
    "condensed": kc.Condensed(),
    "fast condensed": kc.FastCondensed(),
    "reduced": kc.Reduced(),
    "medoids": kc.Medoids(),
    "mutation": kc.RandomMutation(20),
    "centroids": ClassCentroids(),
    "centroids by need": ClassCentroids(quotas="need"),
    "lvq": kc.LearningVectorQuantization(n_epochs=2),
    "learned": StochasticCompression(max_iter=3, init=ClassCentroids(), **FIXED),
}
every_model = pytest.mark.parametrize("name", MODELS)


def spoilt(points, n=60):
    """A training set of which every fourth point is to be absent, weights, and which are left."""
    X, y = labelled(points, n)
    weight = np.random.default_rng(1).integers(1, 4, n).astype(float)
    weight[::4] = 0.0
    return X, np.where(weight == 0.0, (y + 1) % 3, y), weight, weight > 0


@every_model
def test_a_weight_of_zero_is_a_point_that_is_absent_to_the_last_bit(name):
    model, points = MODELS[name]
    X, y, weight, kept = spoilt(points)
    with_them = clone(model).fit(X, y, sample_weight=weight)
    without = clone(model).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert_array_equal(with_them.prototypes_, without.prototypes_)
    assert_array_equal(with_them.prototype_weights_, without.prototype_weights_)
    assert_array_equal(with_them.predict_proba(X), without.predict_proba(X))
    assert with_them.selection_ == without.selection_
    assert_allclose(with_them.compression_ratio_, 6 / kept.sum())


@pytest.mark.parametrize("name", COMPRESSORS)
def test_so_it_is_for_every_compressor(name):
    X, y, weight, kept = spoilt("sqeuclidean")
    n = {"all": None, "condensed": None, "fast condensed": None, "reduced": None}.get(name, 6)
    clf = PrototypeClassifier("sqeuclidean", COMPRESSORS[name], n, random_state=0)
    with_them = clone(clf).fit(X, y, sample_weight=weight)
    without = clone(clf).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert_array_equal(with_them.prototypes_, without.prototypes_)
    assert_array_equal(with_them.prototype_labels_, without.prototype_labels_)


def test_a_class_of_weight_zero_is_absent():
    X, y = labelled("sqeuclidean", 60)
    clf = clone(MODELS["snc"][0]).fit(X, y, sample_weight=(y != 1).astype(float))
    assert_array_equal(clf.classes_, [0, 2])
    with pytest.raises(ValueError, match="needs at least two classes; y has one class"):
        clf.fit(X, y, sample_weight=(y == 1).astype(float))


@pytest.mark.parametrize("name", [name for name in MODELS if "auto" not in name])
def test_a_weight_of_two_is_the_point_twice(name):
    model, points = MODELS[name]
    X, y = labelled(points, 48)
    copies = np.where(np.arange(48) % 5 == 0, 2, 1)
    rows = np.repeat(np.arange(48), copies)
    by_weight = clone(model).fit(X, y, sample_weight=copies.astype(float))
    by_copy = clone(model).fit(X[rows], y[rows])
    # gradients of JBLD are in single precision at first, and Sinkhorn's distances are solved loosely
    rounding = {"scc": 1e-5, "shc": 3e-4}.get(name, 1e-9)
    assert_allclose(by_weight.prototypes_, by_copy.prototypes_, atol=rounding)
    assert_allclose(by_weight.loss_curve_, by_copy.loss_curve_, rtol=max(1e-6, rounding))
    assert_allclose(by_weight.prototype_weights_, by_copy.prototype_weights_)
    assert np.abs(by_weight.prototypes_ - clone(model).fit(X, y).prototypes_).max() > 10 * rounding


@pytest.mark.parametrize("name", ["scc", "snc", "snc-auto"])
def test_weights_of_one_change_nothing(name):
    model, points = MODELS[name]
    X, y = labelled(points, 60)
    ones = clone(model).fit(X, y, sample_weight=np.ones(60))
    assert_allclose(ones.predict_proba(X), clone(model).fit(X, y).predict_proba(X), atol=1e-9)


def test_class_weights_multiply_those_of_points(rng):
    X, y = labelled("sqeuclidean", 60)
    X, y = X[(y != 1) | (np.arange(60) < 20)], y[(y != 1) | (np.arange(60) < 20)]
    weight, model = rng.random(len(y)) + 0.5, MODELS["snc"][0]
    for class_weight in ("balanced", {0: 2.0, 1: 5.0, 2: 1.0}):
        by_class = clone(model).set_params(class_weight=class_weight)
        by_hand = weight * compute_sample_weight(class_weight, y)
        one, other = clone(by_class).fit(X, y, sample_weight=weight), clone(model).fit(X, y, sample_weight=by_hand)
        assert_array_equal(one.prototypes_, other.prototypes_)
        alone = clone(model).fit(X, y, sample_weight=compute_sample_weight(class_weight, y))
        assert_array_equal(clone(by_class).fit(X, y).prototypes_, alone.prototypes_)


def test_balanced_weights_are_those_of_the_points_that_are_present():
    X, y, weight, kept = spoilt("sqeuclidean")
    weight[y == 0] *= np.arange((y == 0).sum()) % 2  # so that classes differ in what is absent
    kept = weight > 0
    model = clone(MODELS["snc"][0]).set_params(class_weight="balanced")
    with_them = clone(model).fit(X, y, sample_weight=weight)
    without = clone(model).fit(X[kept], y[kept], sample_weight=weight[kept])
    assert_array_equal(with_them.prototypes_, without.prototypes_)
    assert_array_equal(with_them.distance_levels_, without.distance_levels_)


def test_settings_are_tuned_on_the_points_that_are_present():
    pytest.importorskip("optuna")
    X, y, weight, kept = spoilt("sqeuclidean")
    model = SNC(6, gamma="tune", max_iter=1, prior=1.0, smoothing=0.02, vote="nearest")
    with_them = clone(model).fit(X, y, sample_weight=weight)
    assert with_them.gamma_ == clone(model).fit(X[kept], y[kept], sample_weight=weight[kept]).gamma_


def test_weights_of_classes_that_leave_nothing_are_refused():
    X, y = labelled("sqeuclidean", 60)
    with pytest.raises(ValueError, match="class_weight is zero for all classes in y"):
        SNC(6, class_weight=dict.fromkeys(range(3), 0.0)).fit(X, y)


def test_balanced_weights_help_a_rare_class(rng):
    X = np.concatenate([rng.normal(size=(190, 2)), rng.normal(size=(10, 2)) + 1.5])
    y = np.repeat([0, 1], [190, 10])
    plain = SNC(2, compressor=StochasticCompression(init=ClassCentroids()), **FIXED | {"prior": 0.0, "gamma": 1.0})
    found = [clone(plain).set_params(class_weight=w).fit(X, y) for w in (None, "balanced")]
    recall = [(clf.predict(X)[y == 1] == 1).mean() for clf in found]
    assert recall[1] > recall[0]


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (
            np.where(np.arange(60) == 7, -1.0, 1.0),
            r"sample_weight\[7\] is -1\.0, the only one of 60 weights that are neg",
        ),
        (np.where(np.arange(60) > 57, np.nan, 1.0), r"sample_weight\[58\] is nan, as are 2 of 60"),
        (np.where(np.arange(60) == 3, np.inf, 1.0), r"sample_weight\[3\] is inf"),
        (np.zeros(60), "sample_weight is zero for all points; give some of them a weight"),
        (np.ones(59), r"sample_weight has shape \(59,\); give one weight for each of the 60 points"),
        (np.ones((60, 1)), r"sample_weight has shape \(60, 1\)"),
        (2.0, r"sample_weight has shape \(\)"),
    ],
)
@pytest.mark.parametrize("model", [SNC(6), PrototypeClassifier("sqeuclidean")], ids=["snc", "classifier"])
def test_weights_that_make_no_sense_are_refused(model, weight, message):
    X, y = labelled("sqeuclidean", 60)
    with pytest.raises(ValueError, match=message):
        clone(model).fit(X, y, sample_weight=weight)


@pytest.mark.parametrize("groups", [np.arange(59), np.arange(61), np.zeros((60, 2))])
def test_groups_of_another_length_are_refused(groups):
    X, y = labelled("sqeuclidean", 60)
    with pytest.raises(ValueError, match=r"groups has (59|61) entries, and X has 60 points|groups has shape \(60, 2\)"):
        SNC(6).fit(X, y, groups=groups)


def test_groups_may_have_names_and_all_of_them_are_held_out():
    X, y = labelled("sqeuclidean", 60)
    names = np.array(["f", "e", "d", "c", "b", "a"])[np.arange(60) // 4 % 6]
    clf = SNC(6, max_iter=2, gamma="scale", smoothing=0.02).fit(X, y, groups=names.tolist())
    assert max(s["n_folds"] for s in clf.selection_) == 5


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def test_weights_and_groups_are_routed_through_pipelines_and_grids(routing, monkeypatch):
    X, y = labelled("jbld", 60)
    groups, weight = np.arange(60) // 4 % 6, np.random.default_rng(0).random(60) + 0.5
    seen = []
    fit = SCC.fit

    def watched(self, X, y, sample_weight=None, groups=None):
        seen.append((len(y), sample_weight, groups))
        return fit(self, X, y, sample_weight, groups)

    monkeypatch.setattr(SCC, "fit", watched)
    scc = SCC(metric="jbld", max_iter=1, **OWN, **FIXED).set_fit_request(groups=True, sample_weight=True)
    scc.set_score_request(sample_weight=True)
    pipeline = Pipeline([("same", FunctionTransformer()), ("scc", scc)])
    pipeline.fit(X, y, groups=groups, sample_weight=weight)
    assert_array_equal(seen[-1][1], weight)
    assert_array_equal(seen[-1][2], groups)
    seen.clear()
    grid = GridSearchCV(pipeline, {"scc__gamma": [1.0, 2.0]}, cv=GroupKFold(3), error_score="raise")
    grid.fit(X, y, groups=groups, sample_weight=weight)
    assert [n for n, _, _ in seen] == [40] * 6 + [60]
    assert all(len(w) == len(g) == n for n, w, g in seen)

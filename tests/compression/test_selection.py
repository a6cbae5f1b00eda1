"""Selectors: against literal versions of themselves, and for what each promises."""

from dataclasses import dataclass

import numpy as np
import pytest
import reference
from cases import for_each
from numpy.testing import assert_allclose, assert_array_equal
from points import GEOMETRIES, GROUND_COST, SPD, histograms, labelled
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

from knnpress import PrototypeClassifier, PrototypeSampler
from knnpress.compression import (
    ClassCentroids,
    Compressor,
    Condensed,
    FastCondensed,
    KeepAll,
    LearningVectorQuantization,
    Medoids,
    Prototypes,
    RandomMutation,
    Reduced,
    Subsample,
)
from knnpress.compression.selection import centroids as centroids_module
from knnpress.compression.selection import medoids as medoids_module
from knnpress.compression.selection.condensing import GrowingSubset
from knnpress.compression.selection.quotas import class_quotas, raise_quotas
from knnpress.compression.selection.reduced import dispensable
from knnpress.compression.selection.spread import spread
from knnpress.geometries import AIRM, Sinkhorn, SmoothGeometry, SquaredEuclidean
from knnpress.geometries.base import pairwise

CONDENSING = [Condensed(), Reduced(), FastCondensed("nearest"), FastCondensed("centroid")]
SELECTORS = [Medoids(), RandomMutation(50), *CONDENSING]
SMOOTH = [name for name, geometry in GEOMETRIES.items() if isinstance(geometry, SmoothGeometry)]
DEBIASED = ["jbld", "airm", "logeuclid", "sqeuclidean", "sinkhorn-divergence", "emd"]  # zero at the point itself
LITERAL = {"jbld", "sinkhorn-divergence", "sqeuclidean", "cityblock"}

every_selector = pytest.mark.parametrize("selector", SELECTORS, ids=repr)
every_condensing = pytest.mark.parametrize("selector", CONDENSING, ids=repr)


class Cityblock:
    """Exact on whole numbers, so that ties are ties."""

    point_ndim = 1

    def check(self, X, name="X", n_jobs=None):
        return np.asarray(X, dtype=float)

    def pairwise(self, X, Z=None, n_jobs=None):
        return pairwise(self, X, Z, n_jobs)

    def centroid(self, X, weights=None):
        return np.median(X, axis=0)

    def centroid_step(self, X, W, Z, n_jobs=None):
        return Z

    def distances_to(self, Z):
        return lambda X: np.abs(X[:, None] - Z).sum(axis=2)


class Counting(Cityblock):
    """Counts the columns of distances asked for, in all and at once."""

    columns = at_once = 0

    def distances_to(self, Z):
        self.columns += len(Z)
        self.at_once = max(self.at_once, len(Z))
        return super().distances_to(Z)


class Noisy(Cityblock):
    """Near ties come out by the number of prototypes in the search: rounding, made large."""

    def distances_to(self, Z):
        def distances(X):
            D = np.abs(X[:, None] - Z).sum(axis=2)
            return D + (D > 0) * 0.4 * np.sin(1 + D + 7.0 * X[:, :1] + len(Z) * Z[:, 0])

        return distances


@dataclass
class Given:
    """A compressor that returns these."""

    points: np.ndarray
    labels: np.ndarray

    def compress(self, X, y, **settings):
        return Prototypes(self.points, self.labels)


def problem(name, n=45):
    """A geometry, points and labels."""
    if name == "cityblock":
        rng = np.random.default_rng(3)
        X = np.unique(rng.integers(0, 9, (2 * n, 2)), axis=0).astype(float)
        return Cityblock(), X, rng.integers(0, 3, len(X))
    X, y = labelled(name, n)
    return GEOMETRIES[name], GEOMETRIES[name].check(X), y


def select(selector, geometry, X, y, n_prototypes=None, seed=0, n_jobs=1, **settings):
    settings |= {"n_prototypes": n_prototypes, "random_state": np.random.default_rng(seed), "n_jobs": n_jobs}
    return selector.compress(X, y, geometry=geometry, **settings)


def predictions(geometry, X, found):
    return found.labels[geometry.pairwise(X, found.points).argmin(axis=1)]


# ---- literal versions -----------------------------------------------------------------------------------------


def test_quotas_are_proportional_with_at_least_one_and_at_most_all_of_a_class():
    y = np.repeat(["a", "b", "c"], [1, 10, 89])
    quotas = [q for _, q in class_quotas(y, 20)]
    assert quotas == [1, 2, 17]
    assert [q for _, q in class_quotas(y, 1000)] == [1, 10, 89]
    assert [q for _, q in class_quotas(y, 3)] == [1, 1, 1]
    for (rows, _), label in zip(class_quotas(y, 20), "abc", strict=True):
        assert (y[rows] == label).all()
    with pytest.raises(ValueError, match="n_prototypes is 2, but there are 3 classes"):
        class_quotas(y, 2)


def test_quotas_are_raised_by_errors_and_a_little_by_size_as_far_as_there_are_rows():
    y = np.repeat([0, 1, 2], [10, 10, 3])
    ones, even = class_quotas(y, 3), np.ones(23)
    raised = raise_quotas(ones, np.array([0.0, 9.0, 0.0]), 6, even)
    assert [q for _, q in raised] == [1, 7, 1]
    assert [q for _, q in raise_quotas(ones, np.array([0.0, 2.0, 0.0]), 6, even)] == [2, 6, 1]  # the errors weigh less
    assert all((y[rows] == label).all() for label, (rows, _) in enumerate(raised))
    assert [q for _, q in raise_quotas(ones, np.zeros(3), 5, even)] == [3, 3, 2]  # none errs: by size
    assert [q for _, q in raise_quotas(ones, np.array([0.0, 0.0, 99.0]), 4, even)] == [2, 2, 3]  # there are but three
    assert [q for _, q in raise_quotas(ones, np.zeros(3), 20, even)] == [10, 10, 3]
    assert [q for _, q in raise_quotas(ones, np.zeros(3), 5, np.where(y == 0, 9.0, 1.0))] == [6, 1, 1]  # by weight


def test_a_class_is_as_large_as_it_weighs():
    y = np.repeat([0, 1], [10, 10])
    assert [q for _, q in class_quotas(y, 8, np.where(y == 0, 3.0, 1.0))] == [6, 2]
    assert [q for _, q in class_quotas(y, 8, np.ones(20))] == [q for _, q in class_quotas(y, 8)] == [4, 4]


def test_no_start_depends_on_a_draw(rng):
    X, y = labelled("sqeuclidean", 90)
    one, other = (
        ClassCentroids(quotas="need").compress(
            X, y, geometry=SquaredEuclidean(), n_prototypes=9, random_state=np.random.default_rng(seed)
        )
        for seed in (0, 1)
    )
    assert_allclose(one.points, other.points)


def test_classes_that_err_get_more_centroids_by_need(rng):
    far, near = rng.normal(size=(40, 2)) + 50.0, rng.normal(size=(80, 2))
    stripes = (np.floor(2.0 * near[:, 0]) % 2).astype(int)  # two classes that lie between each other
    X, y = np.concatenate([far, near]), np.concatenate([np.full(40, 2), stripes])
    how = {"geometry": SquaredEuclidean(), "n_prototypes": 15}
    found = ClassCentroids(quotas="need").compress(X, y, random_state=np.random.default_rng(0), **how)
    again = ClassCentroids(quotas="need").compress(X, y, random_state=np.random.default_rng(0), n_jobs=2, **how)
    assert_array_equal(found.points, again.points)
    assert np.bincount(found.labels)[2] < 3 < np.bincount(found.labels)[:2].min()
    assert len(found.points) == 15
    even = ClassCentroids().compress(X, y, random_state=np.random.default_rng(0), **how)
    assert np.bincount(even.labels).tolist() == [q for _, q in class_quotas(y, 15)]
    weight = np.where(y == 0, 1.0, 1e-6)  # errors count by their weight
    heavy = ClassCentroids(quotas="need").compress(X, y, sample_weight=weight, random_state=rng, **how)
    assert np.bincount(heavy.labels)[0] > np.bincount(heavy.labels)[1] + 3


@pytest.mark.parametrize("name", GEOMETRIES)
def test_centroids_by_need_on_any_geometry(name, rng):
    X, y = labelled(name, 30)
    n_classes = len(np.unique(y))
    for m in (n_classes, 20, 1000):
        found = ClassCentroids(quotas="need", max_iter=1).compress(
            X, y, geometry=GEOMETRIES[name], n_prototypes=m, random_state=rng
        )
        assert len(found.points) == min(m, 30)
        assert_array_equal(np.unique(found.labels), np.unique(y))
    with pytest.raises(ValueError, match="quotas is 'greed'; choose 'size' or 'need'"):
        ClassCentroids(quotas="greed").compress(X, y, geometry=GEOMETRIES[name])


def test_subsample_draws_distinct_rows_of_every_class(rng):
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 3, 300)
    found = Subsample().compress(X, y, geometry=SquaredEuclidean(), n_prototypes=30, random_state=rng)
    assert len(np.unique(found.indices)) == 30
    assert_array_equal(found.points, X[found.indices])
    assert_array_equal(found.labels, y[found.indices])


def test_subsample_is_repeated_by_its_seed_and_can_draw_all(rng):
    X, y = rng.normal(size=(60, 2)), rng.integers(0, 3, 60)

    def rows(n_prototypes):
        seeded = np.random.default_rng(5)
        return (
            Subsample()
            .compress(X, y, geometry=SquaredEuclidean(), n_prototypes=n_prototypes, random_state=seeded)
            .indices
        )

    assert_array_equal(rows(20), rows(20))
    assert_array_equal(np.sort(rows(60)), np.arange(60))


def test_keeping_all_refuses_to_keep_fewer(rng):
    X, y = rng.normal(size=(5, 2)), np.array([0, 1, 0, 1, 1])
    for asked in (None, 5, 6):
        assert_array_equal(KeepAll().compress(X, y, geometry=SquaredEuclidean(), n_prototypes=asked).points, X)
    with pytest.raises(ValueError, match="keeps all 5 points, but n_prototypes is 4"):
        KeepAll().compress(X, y, geometry=SquaredEuclidean(), n_prototypes=4)


@pytest.mark.parametrize("name", GEOMETRIES)
def test_one_centroid_a_class_is_the_centroid_of_the_class(name):
    X, y = labelled(name, 60)
    geometry = GEOMETRIES[name]
    X = geometry.check(X)
    rounds = 60 if name in SPD else 1  # the others have their centroids in one step
    found = ClassCentroids(max_iter=rounds).compress(X, y, geometry=geometry, random_state=np.random.default_rng(0))
    for point, label in zip(found.points, found.labels, strict=True):
        assert_allclose(point, geometry.centroid(X[y == label]), rtol=1e-4, atol=1e-6)


def test_several_centroids_find_the_clusters_of_a_class(rng):
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    X = np.repeat(centers, 30, axis=0) + 0.1 * rng.normal(size=(120, 2))
    found = ClassCentroids().compress(
        X, np.zeros(120, int), geometry=SquaredEuclidean(), n_prototypes=4, random_state=rng
    )
    assert_allclose(found.points[np.lexsort(found.points.T.round())], centers[np.lexsort(centers.T)], atol=0.2)


def test_a_centroid_that_lost_its_points_starts_again_at_the_worst_served_one(monkeypatch):
    monkeypatch.setattr(centroids_module, "_seeds", lambda X, weight, k, *_: [0] * k)  # all alike: two lose all
    X = np.array([[0.0], [1.0], [10.0], [30.0], [-25.0]])
    found = ClassCentroids(max_iter=1).compress(X, np.zeros(5, dtype=int), geometry=SquaredEuclidean(), n_prototypes=3)
    assert_allclose(found.points[:, 0], [X.mean(), 30.0, -25.0])


def test_weights_move_a_centroid(rng):
    X, y = np.array([[0.0], [1.0]]), np.zeros(2, int)
    found = ClassCentroids().compress(
        X, y, geometry=SquaredEuclidean(), sample_weight=np.array([3.0, 1.0]), random_state=rng
    )
    assert_allclose(found.points, [[0.25]])


@every_condensing
def test_more_prototypes_than_a_condensed_set_has_are_a_warning(selector):
    X, y = labelled("sqeuclidean", 60)
    with pytest.warns(UserWarning, match=rf"{type(selector).__name__}.* prototypes"):
        found = clone(selector).compress(X, y, geometry=SquaredEuclidean(), n_prototypes=60)
    assert len(found.labels) < 60


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(LITERAL))
def test_medoids_are_those_of_the_literal_alternation(name, weighted):
    geometry, X, y = problem(name)
    weight = np.random.default_rng(1).integers(1, 5, len(X)).astype(float) if weighted else np.ones(len(X))
    found = select(Medoids(), geometry, X, y, 9, sample_weight=weight if weighted else None)
    rng, expected = np.random.default_rng(0), []
    quotas = np.bincount(found.labels)
    for label, k in enumerate(quotas):
        rows = np.flatnonzero(y == label)
        start = spread(X[rows], k, geometry, rng, 1)
        expected += rows[reference.medoids(geometry.pairwise(X[rows]), start, weight[rows])].tolist()
    assert found.indices.tolist() == expected


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", sorted(LITERAL))
def test_mutations_are_those_of_the_literal_climb(name, weighted):
    geometry, X, y = problem(name)
    weight = np.random.default_rng(1).integers(1, 5, len(X)).astype(float) if weighted else np.ones(len(X))
    found = select(RandomMutation(70), geometry, X, y, 5, sample_weight=weight if weighted else None)
    rng = np.random.default_rng(0)
    start = select(Subsample(), geometry, X, y, 5, seed=rng).indices
    slots, rows = rng.integers(5, size=70).tolist(), rng.integers(len(X), size=70).tolist()
    expected, curve = reference.random_mutation(geometry.pairwise(X), y, start.tolist(), slots, rows, weight)
    assert found.indices.tolist() == expected
    assert_allclose(found.trace["error_curve"], np.array(curve) / weight.sum(), rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(LITERAL))
def test_condensing_is_that_of_the_literal_passes(name, seed):
    geometry, X, y = problem(name)
    expected = reference.condensed(geometry.pairwise(X), y, np.random.default_rng(seed).permutation(len(X)).tolist())
    assert select(Condensed(), geometry, X, y, seed=seed).indices.tolist() == expected


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", sorted(LITERAL))
def test_reducing_is_that_of_the_literal_trials(name, seed):
    geometry, X, y = problem(name)
    condensed = select(Condensed(), geometry, X, y, seed=seed).indices.tolist()
    expected = reference.reduced(geometry.pairwise(X), y, condensed)
    assert select(Reduced(), geometry, X, y, seed=seed).indices.tolist() == expected


def test_the_only_prototype_of_a_class_is_passed_over():
    D = np.array([[0.0, 5.0, 6.0], [5.0, 0.0, 1.0], [6.0, 1.0, 0.0]])
    assert dispensable(D, np.array([0, 1, 1]), np.array([0, 1, 1])) == [1]


def test_no_prototype_is_dispensable_that_a_point_needs_after_others_are_gone():
    D = np.array([[1.0, 2.0, 9.0, 5.0], [9.0, 9.0, 0.0, 8.0], [9.0, 9.0, 9.0, 0.0]])
    labels, y = np.array(["a", "a", "a", "b"]), np.array(["a", "a", "b"])
    assert dispensable(D, labels, y) == [0]
    assert dispensable(D[1:], labels, y[1:]) == [0, 1]


@pytest.mark.parametrize("rule", ["nearest", "centroid"])
@pytest.mark.parametrize("name", sorted(LITERAL))
def test_fast_condensing_is_that_of_the_literal_rounds(name, rule):
    geometry, X, y = problem(name)

    def center_of(rows):
        return rows[geometry.pairwise(X[rows], geometry.centroid(X[rows])[None])[:, 0].argmin()]

    expected = reference.fast_condensed(geometry.pairwise(X), y, rule, center_of)
    assert select(FastCondensed(rule), geometry, X, y).indices.tolist() == expected


def test_on_vectors_one_at_a_time_lvq_is_kohonens(rng):
    X, y = labelled("sqeuclidean", 45)
    Z, labels = X[:6].copy(), y[:6]
    found = select(LearningVectorQuantization(0.3, 3, 1, Given(Z, labels)), SquaredEuclidean(), X, y)
    draws = np.random.default_rng(0)
    draws.permutation(45)  # the points that set the scale
    expected = reference.lvq1(X, y, Z, labels, [draws.permutation(45) for _ in range(3)], 0.3)
    assert np.abs(expected - Z).max() > 0.1
    assert_allclose(found.points, expected, rtol=1e-9, atol=1e-12)


# ---- promises of the condensing methods -----------------------------------------------------------------------


@every_condensing
@pytest.mark.parametrize("name", DEBIASED)
def test_every_training_point_is_classified_right(name, selector):
    X, y = labelled(name, 30 if name == "emd" else 90)
    classifier = PrototypeClassifier(GEOMETRIES[name], selector, random_state=0, n_jobs=1).fit(X, y)
    assert classifier.score(X, y) == 1.0
    assert classifier.compression_ratio_ < 0.9


@pytest.mark.parametrize("seed", range(5))
def test_the_reduced_set_is_part_of_the_condensed_one(seed):
    X, y = labelled("sqeuclidean", 120)
    condensed, reduced = (select(s, SquaredEuclidean(), X, y, seed=seed) for s in (Condensed(), Reduced()))
    assert set(reduced.indices) < set(condensed.indices)
    assert_array_equal(predictions(SquaredEuclidean(), X, reduced), y)


@every_condensing
@for_each("seed", range(10))
def test_near_ties_are_settled_as_the_classifier_settles_them(selector, seed):
    rng = np.random.default_rng(seed)
    X = np.unique(rng.integers(0, 12, (80, 2)), axis=0).astype(float)
    y = rng.integers(0, 2, len(X))
    assert_array_equal(predictions(Noisy(), X, select(selector, Noisy(), X, y, seed=seed)), y)


@every_condensing
def test_prefixes_are_the_smaller_sets_and_have_every_class(selector):
    geometry, X, y = problem("sqeuclidean", 90)
    whole = select(selector, geometry, X, y).indices
    for m in range(3, len(whole) + 1):
        found = select(selector, geometry, X, y, m)
        assert_array_equal(found.indices, whole[:m])
        assert set(found.labels) == {0, 1, 2}
        assert_array_equal(found.points, X[whole[:m]])


@every_condensing
def test_more_prototypes_than_it_takes_are_not_made_up(selector):
    geometry, X, y = problem("jbld")
    whole = select(selector, geometry, X, y).indices
    with pytest.warns(UserWarning, match=f"{type(selector).__name__} needs only {len(whole)} prototypes, not the 45"):
        assert_array_equal(select(selector, geometry, X, y, 45).indices, whole)


@every_condensing
@pytest.mark.parametrize("value", ["transport", "dual"])
def test_where_points_are_not_nearest_to_themselves_it_stops_and_says_so(value, selector):
    geometry, X, y = Sinkhorn(GROUND_COST, reg=10.0, value=value), *labelled("sinkhorn-dual", 60)
    with pytest.warns(ConvergenceWarning, match="of 60 training points are wrong although they were chosen") as caught:
        found = select(selector, geometry, X, y)
    assert len(set(found.indices)) == len(found.indices)
    wrong = np.flatnonzero(predictions(geometry, X, found) != y)
    if not isinstance(selector, Reduced):
        assert set(wrong) <= set(found.indices)
        assert f": {len(wrong)} of 60" in str(caught[0].message)


@every_condensing
def test_equal_points_with_different_labels_stay_wrong_and_are_counted(selector):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    y = np.arange(40) % 2
    X[3], X[5] = X[0], X[2]  # rows 0 and 2 have label 0, rows 3 and 5 label 1
    with pytest.warns(ConvergenceWarning, match=": 2 of 40 training points are wrong"):
        found = select(selector, Cityblock(), X, y)
    wrong = np.flatnonzero(predictions(Cityblock(), X, found) != y)
    assert set(wrong) <= {0, 2, 3, 5}
    assert len(wrong) == 2


@pytest.mark.filterwarnings("ignore:Condensed")
def test_points_that_must_be_wrong_do_not_keep_others_from_being_dropped():
    X, y = labelled("sqeuclidean", 120)
    X[3] = X[1]
    condensed, reduced = (select(s, Cityblock(), X, y) for s in (Condensed(), Reduced()))
    assert len(reduced.indices) < len(condensed.indices)
    before, after = (predictions(Cityblock(), X, found) == y for found in (condensed, reduced))
    assert before.sum() == 119
    assert after[before].all()


@every_condensing
def test_only_distances_to_chosen_rows_are_computed(selector):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), np.arange(200) % 3
    X += 2 * y[:, None]
    geometry = Counting()
    m = len(select(selector, geometry, X, y).indices)
    if isinstance(selector, Reduced):
        m = len(select(Condensed(), Cityblock(), X, y).indices)
    # once when added, once in the last search; Reduced has a matrix and a search more, centroids a column each
    assert geometry.columns <= 2 * m + {Reduced: 2 * m, FastCondensed: m}.get(type(selector), 0)
    assert m < 80


def test_a_growing_subset_knows_the_nearest_of_its_rows():
    geometry, X, y = problem("cityblock")
    subset = GrowingSubset(X, y, [4, 9], geometry, 1)
    for more in ([20], [1, 2, 3], [30, 11]):
        subset.add(more)
        D = geometry.pairwise(X, X[subset.rows])
        assert_array_equal(subset.owner, D.argmin(axis=1))
        assert_array_equal(subset.distance, D.min(axis=1))
        assert_array_equal(subset.wrong, y[subset.rows][subset.owner] != y)
        assert_array_equal(np.flatnonzero(subset.chosen), sorted(subset.rows))


def test_an_unknown_rule_is_refused_by_name():
    with pytest.raises(ValueError, match="rule is 'farthest'; choose 'nearest' or 'centroid'"):
        FastCondensed("farthest").compress(np.eye(2), np.arange(2), geometry=SquaredEuclidean())


# ---- promises of the others -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", GEOMETRIES)
def test_mutation_never_raises_the_training_error_and_ends_at_the_error_it_says(name):
    X, y = labelled(name, 60)
    geometry = GEOMETRIES[name]
    found = select(RandomMutation(100), geometry, geometry.check(X), y, 6)
    curve = found.trace["error_curve"]
    assert len(curve) == 101
    assert (np.diff(curve) <= 0).all()
    assert curve[-1] < curve[0]
    assert_allclose(curve[-1], (predictions(geometry, X, found) != y).mean(), atol=1e-12)


def test_mutation_loses_no_class_and_repeats_no_row(rng):
    X = rng.normal(size=(60, 2))
    y = np.repeat([0, 1, 2], [56, 2, 2])  # the error would fall if class 1 or 2 were given up
    for seed in range(10):
        found = select(RandomMutation(200), SquaredEuclidean(), X, y, 4, seed)
        assert set(found.labels) == {0, 1, 2}
        assert len(set(found.indices)) == 4


def test_mutation_may_give_a_class_more_or_fewer_prototypes_than_its_share(rng):
    X, y = rng.normal(size=(90, 2)), np.repeat([0, 1], 45)
    X[y == 1] *= 0.01  # one prototype is enough for these
    found = select(RandomMutation(400), SquaredEuclidean(), X, y, 10)
    assert np.bincount(found.labels)[1] < 5


def test_mutation_computes_one_column_a_mutation():
    geometry, X, y = Counting(), *labelled("sqeuclidean", 60)
    select(RandomMutation(77), geometry, X, y, 6)
    assert geometry.columns == 6 + 77
    assert geometry.at_once <= 32


def test_mutation_minds_the_weights(rng):
    X, y = rng.normal(size=(80, 2)), np.arange(80) % 2
    heavy = np.arange(80) < 8
    found = select(RandomMutation(300), SquaredEuclidean(), X, y, 8, sample_weight=np.where(heavy, 1.0, 0.0))
    assert_array_equal(predictions(SquaredEuclidean(), X, found)[heavy], y[heavy])


def test_medoids_find_the_clusters_of_a_class(rng):
    centers = np.array([[0.0, 0.0], [10.0, 0.0], [0.0, 10.0], [10.0, 10.0]])
    X = np.repeat(centers, 30, axis=0) + 0.1 * rng.normal(size=(120, 2))
    found = select(Medoids(), SquaredEuclidean(), X, np.zeros(120, int), 4)
    assert_allclose(found.points[np.lexsort(found.points.T.round())], centers[np.lexsort(centers.T)], atol=0.2)


def test_medoids_follow_the_weights():
    X, y = np.array([[0.0], [1.0], [2.0], [10.0]]), np.zeros(4, int)
    assert select(Medoids(), SquaredEuclidean(), X, y).points.tolist() == [[2.0]]
    heavy = np.array([1.0, 1.0, 1.0, 50.0])
    assert select(Medoids(), SquaredEuclidean(), X, y, sample_weight=heavy).points.tolist() == [[10.0]]
    select(Medoids(), SquaredEuclidean(), X, y, sample_weight=np.zeros(4))


def test_medoids_of_classes_too_large_for_a_matrix_are_the_same(monkeypatch):
    geometry, X, y = problem("jbld", 90)
    by_matrix = select(Medoids(), geometry, X, y, 9)
    monkeypatch.setattr(medoids_module, "BLOCK_BYTES", 8 * 50)
    assert_array_equal(select(Medoids(), geometry, X, y, 9).indices, by_matrix.indices)


@pytest.mark.parametrize("name", SMOOTH)
def test_lvq_stays_among_valid_points_and_lowers_the_training_error(name):
    X, y = labelled(name, 90)
    geometry = GEOMETRIES[name]
    X = geometry.check(X)
    start = select(Subsample(), geometry, X, y, 6)
    found = select(LearningVectorQuantization(n_epochs=10, init=Given(start.points, start.labels)), geometry, X, y)
    geometry.check(found.points)
    before, after = ((predictions(geometry, X, p) != y).mean() for p in (start, found))
    assert after < before
    assert len(found.trace["error_curve"]) == 10


def test_lvq_does_not_depend_on_the_scale_of_the_points():
    X, y = labelled("sqeuclidean", 60)
    learner = LearningVectorQuantization(n_epochs=3)
    one, thousand = (select(learner, SquaredEuclidean(), scale * X, y, 6) for scale in (1.0, 1000.0))
    assert_allclose(thousand.points, 1000.0 * one.points, rtol=1e-9)


def test_lvq_meets_points_as_often_as_they_weigh():
    X, y = np.array([[0.0], [1.0], [50.0]]), np.zeros(3, int)
    weight = np.array([1.0, 1.0, 0.0])
    learner = LearningVectorQuantization(0.1, 30, init=Given(np.array([[5.0]]), np.zeros(1, int)))
    assert select(learner, SquaredEuclidean(), X, y).points > 5
    assert 0 < select(learner, SquaredEuclidean(), X, y, sample_weight=weight).points < 1


def test_lvq_gives_as_many_as_asked_for_and_tells_each_epochs_error(rng):
    y = np.repeat([0, 1], 20)
    X = 100.0 * y[:, None] + rng.normal(size=(40, 2))
    calls = []

    def fit(n_prototypes=None, stop=False):
        calls.clear()
        return LearningVectorQuantization(n_epochs=4).compress(
            X,
            y,
            geometry=SquaredEuclidean(),
            n_prototypes=n_prototypes,
            random_state=np.random.default_rng(0),
            callback=lambda *call: calls.append(call) or stop,
        )

    assert_array_equal(fit().labels, [0, 1])
    assert calls == [(k, 4, {"error": 0.0}) for k in (1, 2, 3, 4)]
    assert fit(6).trace["error_curve"] == [0.0] * 4
    assert_array_equal(fit(6).labels, [0, 0, 0, 1, 1, 1])
    fit(stop=True)
    assert len(calls) == 1
    y[:4] = 1  # wrong labels, among points of the other class
    assert all(error == pytest.approx(0.1, abs=0.06) for error in fit().trace["error_curve"])


def test_lvq_needs_derivatives():
    with pytest.raises(TypeError, match="AIRM has no derivatives"):
        LearningVectorQuantization().compress(np.eye(2)[None], np.zeros(1), geometry=AIRM())


def test_a_spread_start_has_no_row_twice(rng):
    for X in (np.zeros((6, 2)), np.repeat([[0.0], [1.0], [2.0]], 2, axis=0)):
        assert sorted(spread(X, 6, SquaredEuclidean(), rng, 1)) == [0, 1, 2, 3, 4, 5]
    biased = Sinkhorn(GROUND_COST, reg=10.0, value="dual")
    assert len(set(spread(histograms(rng, 20), 20, biased, rng, 1))) == 20


# ---- all of them ----------------------------------------------------------------------------------------------

EVERYTHING = [*SELECTORS, LearningVectorQuantization(n_epochs=2)]
every_one = pytest.mark.parametrize("selector", EVERYTHING, ids=repr)


@pytest.mark.usefixtures("many_blocks")
@every_one
@pytest.mark.parametrize("name", ["jbld", "sinkhorn-divergence"])
def test_nothing_depends_on_the_number_of_threads_or_on_earlier_calls(name, selector):
    geometry, X, y = problem(name, 90)
    before = X.copy(), y.copy()
    first, second = (select(selector, geometry, X, y, 4, n_jobs=n_jobs) for n_jobs in (1, 2))
    assert_array_equal(first.points, second.points)
    assert_array_equal(first.labels, second.labels)
    assert_array_equal(X, before[0])
    assert_array_equal(y, before[1])


@every_selector
def test_what_is_selected_are_rows_of_the_training_set(selector):
    X, y = labelled("sqeuclidean", 45)
    names = np.array(["ash", "beech", "cedar"])[y]
    sampler = PrototypeSampler("sqeuclidean", selector, n_prototypes=7, random_state=0)
    points, labels = sampler.fit_resample(X, names)
    assert len(set(sampler.sample_indices_)) == 7
    assert_array_equal(points, X[sampler.sample_indices_])
    assert_array_equal(labels, names[sampler.sample_indices_])
    assert set(labels) == set(names)


@every_one
def test_labels_may_be_strings(selector):
    X, y = labelled("sqeuclidean", 45)
    names = np.array(["ash", "beech", "cedar"])[y]
    by_number, by_name = (PrototypeClassifier("sqeuclidean", selector, 5, random_state=0).fit(X, t) for t in (y, names))
    assert_array_equal(by_name.prototypes_, by_number.prototypes_)
    assert_array_equal(by_name.predict(X), np.array(["ash", "beech", "cedar"])[by_number.predict(X)])


@every_one
def test_fewer_prototypes_than_classes_are_refused(selector):
    X, y = labelled("sqeuclidean", 30)
    with pytest.raises(ValueError, match="n_prototypes is 2, but there are 3 classes"):
        select(selector, SquaredEuclidean(), X, y, 2)


@every_one
def test_one_class_needs_one_prototype(selector):
    X, _ = labelled("sqeuclidean", 12)
    found = select(selector, SquaredEuclidean(), X, np.full(12, 7))
    assert found.labels.tolist() == [7]


@every_one
def test_one_point_a_class_is_kept(selector):
    X, y = labelled("sqeuclidean", 3)
    found = select(selector, SquaredEuclidean(), X, y)
    assert_array_equal(found.labels, [0, 1, 2])
    assert_allclose(found.points, X, atol=1e-12)


@every_one
@pytest.mark.filterwarnings("ignore::UserWarning")  # some can't be right, some need fewer
def test_equal_points_are_selected_from_as_any(selector):
    for y in (np.zeros(10, int), np.arange(10) % 2):
        for m in (None, 5, 10):
            found = select(selector, SquaredEuclidean(), np.ones((10, 2)), y, m)
            assert set(found.labels) == set(y)
            assert found.indices is None or len(set(found.indices)) == len(found.indices)
            assert_allclose(found.points, 1.0)


@every_one
def test_all_the_points_can_be_asked_for(selector):
    X, y = labelled("sqeuclidean", 12)
    if selector in CONDENSING:
        with pytest.warns(UserWarning, match="needs only"):
            select(selector, SquaredEuclidean(), X, y, 12)
    else:
        assert len(select(selector, SquaredEuclidean(), X, y, 12).points) == 12
        assert len(select(selector, SquaredEuclidean(), X, y, 20).points) == 12


@every_one
def test_the_callback_follows_and_can_stop(selector):
    geometry, X, y = problem("sqeuclidean", 60)
    calls = []
    whole = select(selector, geometry, X, y, 9, callback=lambda *call: calls.append(call))
    steps = [step for step, _, _ in calls]
    assert steps == sorted(set(steps))
    assert all(total is None or step <= total for step, total, _ in calls)
    assert all(isinstance(fact, float) for _, _, facts in calls for fact in facts.values())
    calls.clear()
    stopped = select(selector, geometry, X, y, 9, callback=lambda *call: calls.append(call) or True)
    assert set(stopped.labels) == {0, 1, 2}
    assert len(calls) == (3 if isinstance(selector, Medoids) else 1)
    assert len(stopped.points) < len(whole.points) or not np.array_equal(stopped.points, whole.points)


@every_one
def test_it_is_a_compressor_that_can_be_cloned(selector):
    assert isinstance(selector, Compressor)
    assert repr(clone(selector)) == repr(selector)

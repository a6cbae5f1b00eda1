"""Learning prototypes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GEOMETRIES, labelled
from sklearn.exceptions import ConvergenceWarning

from knnpress import SNC
from knnpress.compression import ClassCentroids, StochasticCompression, Subsample
from knnpress.datasets import load_digits_covariances
from knnpress.geometries import AIRM, JBLD, Sinkhorn, SmoothGeometry, SquaredEuclidean
from knnpress.learning.selection import DEFAULT

SMOOTH = [name for name, geometry in GEOMETRIES.items() if isinstance(geometry, SmoothGeometry)]

#: One descent, with nothing left to be chosen
FIXED = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest", "init": ClassCentroids()}

CUT_SHORT = pytest.mark.filterwarnings("ignore:the loss was still falling")


def noisy_blobs(rng, n=300, spread=1.0):
    y = rng.integers(0, 3, n)
    centers = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    return centers[y] + spread * rng.normal(size=(n, 2)), y


def compress(X, y, learner, geometry=None, m=6, seed=0, **more):
    return learner.compress(
        X,
        y,
        geometry=SquaredEuclidean() if geometry is None else geometry,
        n_prototypes=m,
        random_state=np.random.default_rng(seed),
        **more,
    )


@pytest.mark.usefixtures("many_blocks")
@CUT_SHORT
@pytest.mark.parametrize("name", SMOOTH)
def test_learning_lowers_the_loss_and_is_repeatable_for_any_number_of_threads(name):
    X, y = labelled(name, 60)
    geometry = GEOMETRIES[name]
    X = geometry.check(X)
    learner = StochasticCompression(max_iter=5, **{**FIXED, "init": ClassCentroids(geometry.start_geometry)})
    one, two, three = (compress(X, y, learner, geometry, 4, n_jobs=n) for n in (1, 2, 3))
    assert_array_equal(one.points, two.points)
    assert_array_equal(one.points, three.points)
    assert one.trace["loss_curve"][-1] < one.trace["loss_curve"][0]
    geometry.check(one.points)


@pytest.mark.usefixtures("many_blocks")
@CUT_SHORT
@pytest.mark.parametrize("name", ["jbld", "sinkhorn-divergence", "sqeuclidean"])
def test_a_search_is_the_same_for_any_number_of_threads(name):
    X, y = labelled(name, 60)
    geometry = GEOMETRIES[name]
    one, other = (
        compress(geometry.check(X), y, StochasticCompression(max_iter=2), geometry, 6, n_jobs=n) for n in (1, 3)
    )
    assert_array_equal(one.points, other.points)
    assert one.trace["selection"] == other.trace["selection"]
    assert one.trace["temperature"] == other.trace["temperature"]


@CUT_SHORT
def test_where_labels_are_pure_noise_the_default_stays_and_probabilities_say_so(rng):
    left = 0
    for _ in range(6):
        X, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)
        trace = compress(X, y, StochasticCompression(max_iter=20), m=20).trace
        left += trace["setting"] != DEFAULT
        assert trace["temperature"] < 0.2  # log-odds of next to nothing
    assert left <= 2  # of six, by chance


def test_points_that_speak_for_nothing_leave_the_default(rng):
    X, y = noisy_blobs(rng, 120, spread=0.05)  # every setting is right about all of them
    found = compress(X, y, StochasticCompression(max_iter=5), m=3)
    assert {one["error"] for one in found.trace["selection"]} == {0.0}
    assert found.trace["setting"].prior == 1.0 or found.trace["setting"].prior == np.inf


def test_a_geometry_without_derivatives_and_a_line_search_without_exact_gradient_are_refused(rng):
    X, y = labelled("airm", 60)
    with pytest.raises(TypeError, match="AIRM has no derivatives"):
        StochasticCompression().compress(X, y, geometry=AIRM())
    transport = Sinkhorn(np.ones((3, 3)), value="transport")
    with pytest.raises(ValueError, match="needs an exact gradient"):
        StochasticCompression(optimizer="cg").compress(np.eye(3), np.arange(3), geometry=transport)


def test_learned_prototypes_beat_their_start_and_the_full_set_on_noisy_classes(rng):
    X, y = noisy_blobs(rng, 600, spread=1.3)
    X_test, y_test = noisy_blobs(rng, 2000, spread=1.3)
    geometry = SquaredEuclidean()

    def error(points, labels):
        return (labels[geometry.pairwise(X_test, points).argmin(axis=1)] != y_test).mean()

    found = StochasticCompression().compress(X, y, geometry=geometry, n_prototypes=6, random_state=rng)
    start = Subsample().compress(X, y, geometry=geometry, n_prototypes=6, random_state=rng)
    assert error(found.points, found.labels) < min(error(start.points, start.labels), error(X, y)) - 0.02


def test_jbld_learns_what_separates_two_classes_of_covariances(rng):
    def wishart(scale, n):
        A = rng.normal(size=(n, 3, 8)) * np.asarray(scale)[:, None]
        return A @ A.transpose(0, 2, 1) / 8

    X = np.concatenate([wishart([1, 1, 1], 100), wishart([1, 1, 2.5], 100)])
    y = np.repeat([0, 1], 100)
    found = StochasticCompression().compress(X, y, geometry=JBLD(), n_prototypes=2, random_state=rng)
    X_test = np.concatenate([wishart([1, 1, 1], 300), wishart([1, 1, 2.5], 300)])
    error = (found.labels[JBLD().pairwise(X_test, found.points).argmin(axis=1)] != np.repeat([0, 1], 300)).mean()
    assert error < 0.12


def test_a_descent_cut_short_says_so(rng):
    X, y = noisy_blobs(rng)
    learner = StochasticCompression(max_iter=2, **{**FIXED, "prior": 0.0})
    with pytest.warns(ConvergenceWarning, match="still falling after max_iter=2 iterations; raise max_iter"):
        compress(X, y, learner)
    compress(X, y, learner.set_params(max_iter=300))  # and is silent where it went on to the end


def test_no_iterations_return_the_start(rng):
    X, y = noisy_blobs(rng)
    found = compress(X, y, StochasticCompression(max_iter=0, **FIXED))
    start = ClassCentroids().compress(X, y, geometry=SquaredEuclidean(), n_prototypes=6)
    assert_allclose(found.points, start.points, atol=1e-12)
    assert (found.trace["n_iter"], len(found.trace["loss_curve"])) == (0, 1)


@CUT_SHORT
@pytest.mark.parametrize("name", ["jbld", "sinkhorn-divergence"])
def test_the_papers_parameters_lead_from_the_same_start_by_another_way(name):
    X, y = labelled(name, 60)
    geometry = GEOMETRIES[name]
    ends = {}
    for chart in ("normal", "paper"):
        learner = StochasticCompression(
            max_iter=3, chart=chart, **{**FIXED, "prior": 0.0, "init": ClassCentroids(geometry.start_geometry)}
        )
        ends[chart] = compress(geometry.check(X), y, learner, geometry, 3).trace["loss_curve"]
    assert_allclose(ends["normal"][0], ends["paper"][0], rtol=1e-6)
    assert ends["normal"][1] != ends["paper"][1]


@CUT_SHORT
def test_wrong_labels_cost_learning_little(rng):
    X, y = load_digits_covariances().X, load_digits_covariances().y
    y_noisy = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
    geometry = JBLD()

    def error(noise):
        learner = StochasticCompression(
            label_noise=noise, max_iter=40, **{**FIXED, "gamma": 5.0, "smoothing": 0.0, "prior": 0.0}
        )
        found = learner.compress(
            X[:300], y_noisy[:300], geometry=geometry, n_prototypes=10, random_state=np.random.default_rng(0)
        )
        return (found.labels[geometry.pairwise(X[300:], found.points).argmin(axis=1)] != y[300:]).mean()

    assert error(0.1) < error(0.0) - 0.05


@CUT_SHORT
@pytest.mark.parametrize("batch_size", [None, 64])
def test_adam_learns_from_batches_what_lbfgs_learns_from_all(batch_size):
    X, y = noisy_blobs(np.random.default_rng(3), 600, spread=1.3)
    learner = StochasticCompression(batch_size=batch_size, optimizer="adam", **{**FIXED, "gamma": 1.0})
    losses = [
        learner.set_params(max_iter=k)
        .compress(X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=np.random.default_rng(0))
        .trace["loss_curve"]
        for k in (1, 100)
    ]
    learner.set_params(optimizer="lbfgs", batch_size=None)
    best = learner.compress(X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=np.random.default_rng(0))
    reached = best.trace["loss_curve"]
    assert losses[1][-1] < reached[-1] + 0.1 * (reached[0] - reached[-1])
    assert len(losses[0]) == 2


def test_the_callback_counts_on_over_all_descents_and_can_end_them(rng):
    X, y = noisy_blobs(rng, 100)
    seen = []
    learner = StochasticCompression(max_iter=5)
    found = compress(X, y, learner, callback=lambda *progress: seen.append(progress))
    steps = [step for step, _, _ in seen]
    assert steps == sorted(steps)
    facts = [facts for _, _, facts in seen if "note" not in facts]
    assert all(set(one) == {"loss", "error"} for one in facts)
    assert facts[-1]["loss"] == found.trace["loss_curve"][-1]
    assert len(seen) - len(facts) == len(found.trace["selection"]) > 3
    stopped = compress(X, y, learner, callback=lambda *progress: True)
    assert (stopped.trace["n_iter"], stopped.trace["reason"]) == (0, "callback")


def test_more_prototypes_than_points_are_as_many_as_points():
    X, y = labelled("sqeuclidean", 12)
    with pytest.warns(UserWarning, match="n_prototypes is 20, but there are 12 points; learning 12"):
        found = compress(X, y, StochasticCompression(max_iter=300, **FIXED), m=20)
    assert len(found.points) == 12
    assert_array_equal(np.bincount(found.labels), [4, 4, 4])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 10, "optimizer": "cg"}, "batch_size is for optimizer='adam'"),
        ({"label_noise": 1.0}, "label_noise is 1.0"),
        ({"label_noise": "some"}, "label_noise is 'some'; give a share of the labels"),
        ({"smoothing": -0.1}, "smoothing is -0.1; give a share of the loss"),
        ({"smoothing": 1.0}, "smoothing is 1.0"),
        ({"prior": -0.1}, "prior is -0.1; give 0 or a positive number, infinity, or 'auto'"),
        ({"prior": np.nan}, "prior is nan"),
        ({"prior": "strong"}, "prior is 'strong'"),
        ({"prior": True}, "prior is True"),
        ({"chart": "polar"}, "chart is 'polar'; choose 'normal' or 'paper'"),
        ({"vote": "loud"}, "vote is 'loud'; choose 'nearest', 'soft' or 'auto'"),
        ({"gamma": np.inf}, "gamma is inf"),
        ({"gamma": -1.0}, "gamma is -1.0"),
        ({"gamma": "sharp"}, "gamma is 'sharp'; give a positive number, 'scale' or 'auto'"),
        ({"optimizer": "newton"}, "optimizer is 'newton'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(rng, settings, message):
    X, y = noisy_blobs(rng, 60)
    with pytest.raises(ValueError, match=message):
        StochasticCompression(**settings).compress(X, y, geometry=SquaredEuclidean(), random_state=rng)


def test_loose_distances_lead_where_tight_ones_do():
    """The inner tolerance falls with the gradient, so the optimum is that of exact distances."""
    X, y = labelled("sinkhorn-divergence", 60)
    cost = GEOMETRIES["sinkhorn-divergence"].ground_cost

    class Tight(Sinkhorn):
        slacks = (1.0,)

    learner = StochasticCompression(
        max_iter=200, tol=1e-4, label_noise=0.0, **{**FIXED, "gamma": 3.0, "init": Subsample()}
    )
    ends = []
    for geometry in (Sinkhorn(cost, tol=1e-6), Tight(cost, tol=1e-6)):
        found = learner.compress(
            geometry.check(X), y, geometry=geometry, n_prototypes=4, random_state=np.random.default_rng(0)
        )
        ends.append(found.trace["loss_curve"][-1])
    assert_allclose(ends[0], ends[1], rtol=0.02)


def overlapping(rng):
    """Two classes that one prototype each tells apart as well as can be."""
    y = rng.integers(0, 2, 300)
    return rng.normal(size=(300, 20)) + 0.25 * (2 * y[:, None] - 1), y


def test_one_prototype_per_class_is_learned_where_more_overfit(rng):
    found = compress(*overlapping(rng), StochasticCompression(), m=40, allow_one_per_class=True)
    assert found.trace["setting"].start == "single"
    assert len(found.points) == 2


@CUT_SHORT
@pytest.mark.parametrize(
    ("n_prototypes", "n_neighbors", "expected"), [(40 / 300, 1, 2), (40, 1, 40), (40 / 300, 3, 40)]
)
def test_a_share_says_how_many_at_most_and_a_number_how_many(rng, n_prototypes, n_neighbors, expected):
    model = SNC(n_prototypes, n_neighbors=n_neighbors, vote="nearest").fit(*overlapping(rng))
    assert len(model.prototypes_) == expected

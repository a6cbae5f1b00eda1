"""Learning prototypes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import GEOMETRIES, labelled
from sklearn.exceptions import ConvergenceWarning

from knnpress.compression import StochasticCompression, Subsample
from knnpress.compression.objective import Objective
from knnpress.compression.problem import Problem, held_out_parts
from knnpress.datasets import load_digits_covariances
from knnpress.geometries import AIRM, JBLD, Sinkhorn, SmoothGeometry, SquaredEuclidean

SMOOTH = [name for name, geometry in GEOMETRIES.items() if isinstance(geometry, SmoothGeometry)]

CUT_SHORT = pytest.mark.filterwarnings("ignore:the loss was still falling")


def noisy_blobs(rng, n=300, spread=1.0):
    y = rng.integers(0, 3, n)
    centers = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
    return centers[y] + spread * rng.normal(size=(n, 2)), y


@CUT_SHORT
@pytest.mark.parametrize("name", SMOOTH)
def test_learning_lowers_the_loss_and_is_repeatable_for_any_number_of_threads(name):
    X, y = labelled(name, 60)
    geometry = GEOMETRIES[name]
    X = geometry.check(X)
    learner = StochasticCompression(gamma=2.0, max_iter=5, early_stopping=False)
    learner.set_params(optimizer="descent" if not geometry.exact_gradient else "lbfgs")
    one, two = (
        learner.compress(X, y, geometry=geometry, n_prototypes=4, random_state=np.random.default_rng(1), n_jobs=n)
        for n in (1, 2)
    )
    assert_array_equal(one.points, two.points)
    assert one.trace["loss_curve"][-1] < one.trace["loss_curve"][0]
    geometry.check(one.points)


@pytest.mark.parametrize(("n", "n_parts", "held"), [(110, 5, 22), (300, 2, 60), (1000, 1, 200)])
def test_held_out_parts_are_disjoint_and_leave_something_of_every_class(rng, n, n_parts, held):
    y = np.repeat([0, 1, 2], [1, 2, n])
    parts = held_out_parts(y, 0.2, rng)
    assert len(parts) == n_parts
    assert len(np.unique(np.concatenate(parts))) == n_parts * len(parts[0])
    for rows in parts:
        assert_array_equal(np.unique(np.delete(y, rows)), [0, 1, 2])
        assert (y[rows] == 0).sum() == 0
        assert (y[rows] == 2).sum() == held


def test_no_part_is_empty_where_rounding_takes_more_than_a_fifth(rng):
    y = np.repeat(np.arange(10), 8)  # two of eight: four parts, not five
    parts = held_out_parts(y, 0.2, rng)
    assert [len(part) for part in parts] == [20] * 4
    assert len(np.unique(np.concatenate(parts))) == 80


def test_a_tiny_set_is_not_cut_up(rng):
    assert held_out_parts(np.repeat([0, 1], 40), 0.2, rng) == []


@CUT_SHORT
def test_where_labels_are_pure_noise_early_stopping_learns_little(rng):
    X, y = rng.normal(size=(200, 5)), rng.integers(0, 2, 200)
    learner = StochasticCompression(max_iter=60)
    stopped = learner.compress(X, y, geometry=SquaredEuclidean(), n_prototypes=20, random_state=rng)
    learner.set_params(early_stopping=False)
    pushed = learner.compress(X, y, geometry=SquaredEuclidean(), n_prototypes=20, random_state=rng)
    assert stopped.trace["n_iter"] < pushed.trace["n_iter"]


def test_gamma_adapts_to_the_scale_of_the_data(rng):
    X, y = noisy_blobs(rng)
    learner = StochasticCompression(max_iter=10)
    gammas = [
        learner.compress(
            scale * X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=np.random.default_rng(0)
        ).gamma
        for scale in (1.0, 100.0)
    ]
    assert_allclose(gammas[1], gammas[0] / 100.0, rtol=1e-6)


def test_gamma_scale_is_the_sharpest_that_auto_tries(rng):
    X, y = noisy_blobs(rng)
    found = {
        gamma: StochasticCompression(gamma=gamma, max_iter=5).compress(
            X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=np.random.default_rng(0)
        )
        for gamma in ("scale", "auto")
    }
    assert "gamma_errors" not in found["scale"].trace
    assert found["scale"].gamma == max(found["auto"].trace["gamma_errors"])


@pytest.mark.parametrize(("wrong", "leaves"), [((0, 0, 0), False), ((9, 10, 10), False), ((8, 9, 10), True)])
def test_auto_leaves_the_usual_gamma_for_two_errors_fewer(rng, monkeypatch, wrong, leaves):
    X, y = noisy_blobs(rng, n=600)  # of which one part is held out
    tried = []

    def follow(self, gamma, iterations, out, *_):
        tried.append(gamma)
        n_wrong = dict(zip(sorted(set(tried)), wrong, strict=False))[gamma]
        soft = 0.2 if len(set(tried)) > 1 else 0.0  # to a soft neighbour the first, the softest, looks best by far
        scores = np.tile((np.arange(len(out.y)) < n_wrong) + soft, (iterations + 1, 1))
        return {"scores": scores, "theta": self.chart.to_theta(self.start.points)}

    monkeypatch.setattr(Problem, "follow", follow)
    found = StochasticCompression(max_iter=5).compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=np.random.default_rng(0)
    )
    softest, _, usual = sorted(set(tried))
    assert found.gamma == (softest if leaves else usual)


def test_a_descent_is_followed_until_its_loss_is_flat_and_all_points_go_on_from_its_best(rng, monkeypatch):
    X, y = noisy_blobs(rng, 600, spread=0.7)
    losses, followed, starts = [], [], []
    follow, learn = Problem.follow, Problem.learn

    def watched(self, gamma, iterations, out, judge, callback):
        def see(k, theta, evaluation):
            losses.append(evaluation.loss)
            return callback(k, theta, evaluation)

        followed.append((self, out, judge, follow(self, gamma, iterations, out, judge, see)))
        return followed[-1][-1]

    def started(self, *args):
        starts.append((self, args[1]))
        return learn(self, *args)

    monkeypatch.setattr(Problem, "follow", lambda self, *args: watched(self, *args[:5]))
    monkeypatch.setattr(Problem, "learn", started)
    found = StochasticCompression(gamma="scale", max_iter=500).compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=rng
    )
    flat = [losses[k - 10] - losses[k] < 0.015 * (losses[0] - losses[k]) for k in range(10, len(losses))]
    assert flat == [False] * (len(flat) - 1) + [True]
    problem, out, judge, result = followed[0]
    means = result["scores"].mean(axis=1)
    steps = max(k for k, score in enumerate(means) if score <= means.min() + 0.01)
    assert_allclose(problem.objective(judge, out).scores(result["theta"]), result["scores"][steps], rtol=1e-12)
    last, iterations = starts[-1]
    assert iterations == -(-steps // 2)
    assert_allclose(last.start.points, problem.chart.to_point(result["theta"]))
    assert found.trace["n_iter"] <= iterations
    assert found.trace["loss_curve"][-1] <= found.trace["loss_curve"][0]


@pytest.mark.parametrize(("settings", "m"), [({"optimizer": "adam"}, 6), ({"batch_size": 100}, 6), ({}, 121)])
def test_adam_and_few_points_a_prototype_start_anew_on_all_points(rng, monkeypatch, settings, m):
    X, y = noisy_blobs(rng, 600)
    starts = []
    learn = Problem.learn
    monkeypatch.setattr(Problem, "learn", lambda self, *args: (starts.append(self.start.points), learn(self, *args))[1])
    StochasticCompression(gamma="scale", max_iter=5, **settings).compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=m, random_state=np.random.default_rng(0)
    )
    begin = StochasticCompression(gamma="scale", max_iter=0, early_stopping=False).compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=m, random_state=np.random.default_rng(0)
    )
    assert_allclose(starts[-1], begin.points)


@pytest.mark.parametrize(
    ("n", "best", "iterations", "anew"),
    [
        pytest.param(600, 5, 10, True, id="few"),
        pytest.param(600, 2, 2, True, id="few, and held-out points against more"),
        pytest.param(1020, 5, 3, False, id="many"),
    ],
)
def test_few_histograms_begin_anew_with_twice_the_iterations(rng, monkeypatch, n, best, iterations, anew):
    X, y = rng.dirichlet([1.0, 2.0, 3.0], n), np.arange(n) % 3
    starts, learn = [], Problem.learn

    def follow(self, gamma, iterations, out, *_):
        scores = np.where(np.arange(iterations + 1) == best, 0.0, 0.5)
        elsewhere = np.full(self.start.points.shape, 1.0 / 3.0)
        return {"scores": np.tile(scores[:, None], len(out.y)), "theta": self.chart.to_theta(elsewhere)}

    def started(self, *args):
        starts.append((self.start.points, args[1]))
        return learn(self, *args)

    monkeypatch.setattr(Problem, "follow", follow)
    monkeypatch.setattr(Problem, "learn", started)
    geometry = Sinkhorn(np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0))))
    StochasticCompression(gamma="scale", max_iter=5).compress(X, y, geometry=geometry, n_prototypes=6, random_state=rng)
    (points, asked) = starts[-1]
    assert asked == iterations
    assert (np.ptp(points) > 0.01) == anew


def test_a_search_ends_twenty_iterations_after_its_best_score(rng, monkeypatch):
    X, y = noisy_blobs(rng, 600)
    scored = []

    def scores(self, theta):
        scored.append(theta)
        return np.full(self.rows.shape[0], 0.3 if len(scored) == 4 else 0.301)  # later ones lose next to nothing

    monkeypatch.setattr(Objective, "scores", scores)
    monkeypatch.setattr("knnpress.compression.problem._FLAT", -np.inf)
    StochasticCompression(gamma="scale", max_iter=100, tol=0.0).compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=60, random_state=rng
    )
    assert len(scored) == 4 + 20


@pytest.mark.parametrize(("wrong", "chosen"), [((0, 0), 0.1), ((9, 9), 0.1), ((6, 9), 0.1), ((5, 9), 0.0)])
def test_auto_attraction_is_left_for_clearly_fewer_errors(rng, monkeypatch, wrong, chosen):
    X, y = noisy_blobs(rng, n=600)
    learned = []
    learn = Problem.learn

    def follow(self, gamma, iterations, out, *_):
        scores = np.tile((np.arange(len(out.y)) < wrong[self.attraction > 0]) + 0.1, (iterations + 1, 1))
        return {"scores": scores, "theta": self.chart.to_theta(self.start.points)}

    def watched(self, *args):
        learned.append(self.attraction)
        return learn(self, *args)

    monkeypatch.setattr(Problem, "follow", follow)
    monkeypatch.setattr(Problem, "learn", watched)
    learner = StochasticCompression(gamma="scale", attraction="auto", max_iter=3)
    found = learner.compress(X, y, geometry=SquaredEuclidean(), n_prototypes=120, random_state=rng)
    assert found.trace["attraction_errors"] == {0.0: wrong[0], 0.1: wrong[1]}
    assert learned == [chosen]


def test_auto_attraction_is_none_with_plenty_of_points(rng):
    X, y = noisy_blobs(rng, n=600)
    ends = [
        StochasticCompression(gamma="scale", attraction=attraction, max_iter=5).compress(
            X, y, geometry=SquaredEuclidean(), n_prototypes=119, random_state=np.random.default_rng(0)
        )
        for attraction in ("auto", 0.0, 0.1)
    ]
    assert "attraction_errors" not in ends[0].trace
    assert_array_equal(ends[0].points, ends[1].points)
    assert np.abs(ends[2].points - ends[1].points).max() > 1e-3


@CUT_SHORT
@pytest.mark.parametrize(("geometry", "quotas"), [(SquaredEuclidean(), "need"), (JBLD(), "size")], ids=repr)
def test_vectors_and_histograms_start_with_as_many_a_class_as_it_needs_matrices_by_size(geometry, quotas, rng):
    x, y = rng.normal(size=90), np.repeat([0, 1, 2], 30)
    x[60:] += 50.0  # one class apart, two on top of each other
    X = x[:, None] if geometry.point_ndim == 1 else np.exp(x / 10.0)[:, None, None]
    learner = StochasticCompression(gamma=1.0, max_iter=0, early_stopping=False)
    found = learner.compress(X, y, geometry=geometry, n_prototypes=15, random_state=rng)
    counts = np.bincount(found.labels)
    assert (counts[2] < 4 < counts[:2].min()) if quotas == "need" else (counts == 5).all()


@CUT_SHORT
def test_attraction_holds_prototypes_among_their_points(rng):
    X, y = noisy_blobs(rng, 90)
    geometry = SquaredEuclidean()

    def distance(attraction):
        learner = StochasticCompression(gamma=1.0, attraction=attraction, early_stopping=False, max_iter=30)
        learner.set_params(smoothing=0.0, label_noise=0.0)
        found = learner.compress(X, y, geometry=geometry, n_prototypes=30, random_state=np.random.default_rng(0))
        D = np.where(y[:, None] == found.labels, geometry.pairwise(X, found.points), np.inf)
        return D.min(axis=0).mean()  # of a prototype to the nearest of its class

    assert distance(0.3) < 0.5 * distance(0.0)


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


def test_a_descent_cut_short_without_a_held_out_part_says_so(rng):
    X, y = noisy_blobs(rng)
    with pytest.warns(ConvergenceWarning, match="still falling after max_iter=2"):
        StochasticCompression(max_iter=2, early_stopping=False).compress(
            X, y, geometry=SquaredEuclidean(), random_state=rng
        )


def test_no_iterations_return_the_start(rng):
    X, y = noisy_blobs(rng)
    geometry = SquaredEuclidean()
    learner = StochasticCompression(max_iter=0, early_stopping=False, gamma=1.0)
    found = learner.compress(X, y, geometry=geometry, n_prototypes=6, random_state=np.random.default_rng(0))
    seed = int(np.random.default_rng(0).integers(2**31))
    start = learner.start(X, y, geometry, 6, np.random.default_rng(seed))
    assert_allclose(found.points, start.points, atol=1e-12)


@CUT_SHORT
def test_wrong_labels_cost_learning_little(rng):
    X, y = load_digits_covariances().X, load_digits_covariances().y
    y_noisy = np.where(rng.random(len(y)) < 0.2, rng.integers(0, 10, len(y)), y)
    geometry = JBLD()

    def error(noise):
        learner = StochasticCompression(label_noise=noise, smoothing=0.0, early_stopping=False, gamma=5.0, max_iter=40)
        found = learner.compress(
            X[:300], y_noisy[:300], geometry=geometry, n_prototypes=10, random_state=np.random.default_rng(0)
        )
        return (found.labels[geometry.pairwise(X[300:], found.points).argmin(axis=1)] != y[300:]).mean()

    assert error(0.1) < error(0.0) - 0.05


@CUT_SHORT
@pytest.mark.parametrize("batch_size", [None, 64])
def test_adam_learns_from_batches_what_lbfgs_learns_from_all(batch_size):
    X, y = noisy_blobs(np.random.default_rng(3), 600, spread=1.3)
    learner = StochasticCompression(gamma=1.0, early_stopping=False, batch_size=batch_size, optimizer="adam")
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
    X, y = noisy_blobs(rng, 600)
    seen = []
    learner = StochasticCompression(max_iter=10)
    learner.compress(
        X,
        y,
        geometry=SquaredEuclidean(),
        n_prototypes=6,
        random_state=rng,
        callback=lambda step, total, facts: seen.append((step, total, facts)),
    )
    steps = [s for s, _, _ in seen]
    assert steps == sorted(steps)
    assert steps[-1] <= seen[-1][1]
    assert set(seen[0][2]) == {"loss", "error"}
    stopped = learner.compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=6, random_state=rng, callback=lambda *progress: True
    )
    assert stopped.trace["n_iter"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"batch_size": 10, "optimizer": "cg"}, "batch_size is for optimizer='adam'"),
        ({"label_noise": 1.0}, "label_noise is 1.0"),
        ({"attraction": -0.1}, "attraction is -0.1"),
        ({"attraction": np.nan}, "attraction is nan"),
        ({"attraction": "strong"}, "attraction is 'strong'; give 0 or a positive number, or 'auto'"),
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

    learner = StochasticCompression(gamma=3.0, max_iter=200, early_stopping=False, label_noise=0.0)
    ends = []
    for geometry in (Sinkhorn(cost, tol=1e-6), Tight(cost, tol=1e-6)):
        found = learner.compress(
            geometry.check(X), y, geometry=geometry, n_prototypes=4, random_state=np.random.default_rng(0)
        )
        ends.append(found.trace["loss_curve"][-1])
    assert_allclose(ends[0], ends[1], rtol=0.02)

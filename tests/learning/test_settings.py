"""Which setting is chosen: folds, the paired comparison, and what is tried."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from points import labelled

from knnpress.compression import StochasticCompression
from knnpress.execution.rows import LocalRows
from knnpress.geometries import SquaredEuclidean
from knnpress.learning import crossvalidation
from knnpress.learning.checkpoint import Checkpoint
from knnpress.learning.folds import _ENOUGH_HELD_OUT, make_folds
from knnpress.learning.job import Job, Progress, View
from knnpress.learning.selection import (
    DEFAULT,
    SEARCH_GRID,
    HeldOut,
    HeldOutResult,
    Setting,
    best_result,
    better_vote,
    candidates,
    is_better,
    is_hopeless,
    mean_and_standard_error,
    settings_between,
)
from knnpress.learning.trainer import Trainer
from knnpress.neighbors import ByClass

pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")

ENOUGH = _ENOUGH_HELD_OUT


def held_out(n, n_classes=2, weight=None, group=None):
    return HeldOut(
        np.arange(n) % n_classes,
        np.ones(n) if weight is None else weight,
        np.arange(n) if group is None else group,
    )


def seen(setting, margins, n_folds=1, soft=None):
    """A setting whose held-out points of two classes have these margins, in log-odds, fold after fold."""
    one = HeldOutResult(setting)
    soft = margins if soft is None else soft
    for rows in np.array_split(np.arange(len(margins)), n_folds):
        points, part, its = held_out(len(rows), group=rows), margins[rows], soft[rows]
        one.add(scores(part, points.labels), scores(its, points.labels), points)
    return one


def scores(margins, labels):
    own = np.eye(2)[labels]
    return np.where(own > 0, margins[:, None], 0.0)


# Folds


def test_folds_hold_out_fifths_with_a_share_of_each_class_until_enough_points_are():
    y = np.repeat([0, 1, 2], [50, 100, 150])
    folds = make_folds(y, None, 0)
    assert len(folds) == -(-ENOUGH // 60)
    for kept, out in folds:
        assert_array_equal(np.sort(np.concatenate([kept, out])), np.arange(300))
        assert_array_equal(np.bincount(y[out]), [10, 20, 30])
    outs = np.concatenate([out for _, out in folds])
    assert len(np.unique(outs)) == len(outs)


@pytest.mark.parametrize("n", [40, 5 * ENOUGH - 5, 5 * ENOUGH, 10 * ENOUGH])
def test_as_many_fifths_as_it_takes(n):
    folds = make_folds(np.arange(n) % 2, None, 0)
    n_out = np.cumsum([len(out) for _, out in folds])
    assert len(folds) == 5 or n_out[-1] >= ENOUGH
    assert len(folds) == 1 or n_out[-2] < ENOUGH


def test_no_group_is_divided_and_all_are_held_out(rng):
    y, groups = rng.integers(0, 3, 1000), rng.integers(0, 17, 1000)
    folds = make_folds(y, groups, 0)
    assert len(folds) == 5
    for kept, out in folds:
        assert not set(groups[kept]) & set(groups[out])
    assert_array_equal(np.sort(np.concatenate([out for _, out in folds])), np.arange(1000))


def test_a_class_of_one_point_or_in_one_group_is_always_learned_from():
    y = np.array([0] + [1] * 20 + [2] * 20)
    for kept, out in make_folds(y, None, 0):
        assert 0 in kept
        assert 0 not in out
    groups = np.concatenate([[0], np.full(20, 1), np.arange(20) % 5 + 2])  # class 1 in one group, 2 in five
    folds = make_folds(y, groups, 0)
    assert len(folds) == 5
    for kept, out in folds:
        assert_array_equal(np.unique(y[kept]), [0, 1, 2])
        assert_array_equal(np.unique(y[out]), [2])


def test_one_group_only_is_told_and_folds_are_stratified():
    y = np.arange(60) % 3
    with pytest.warns(UserWarning, match="groups has one group only; folds are stratified instead"):
        folds = make_folds(y, np.full(60, 7), 0)
    assert [out.tolist() for _, out in folds] == [out.tolist() for _, out in make_folds(y, None, 0)]


@pytest.mark.parametrize(
    ("y", "groups"),
    [
        ([0, 1], None),
        ([0, 1, 2, 3], None),
        ([0, 0, 1, 1], [0, 0, 1, 1]),  # each class in a group of its own
    ],
)
def test_too_few_points_to_hold_any_out(y, groups):
    assert make_folds(np.array(y), None if groups is None else np.array(groups), 0) == []


@pytest.mark.parametrize("counts", [(2, 1), (2, 2), (3, 1, 1), (4, 4)])
def test_fewer_points_than_folds_still_leave_each_class_something(counts):
    y = np.repeat(np.arange(len(counts)), counts)
    folds = make_folds(y, None, 0)
    assert folds
    for kept, out in folds:
        assert len(out) > 0
        assert_array_equal(np.unique(y[kept]), np.arange(len(counts)))


# The comparison


def test_the_standard_error_is_that_of_the_mean_of_paired_differences(rng):
    values = rng.normal(size=4000)
    mean, error = mean_and_standard_error(values, held_out(4000))
    assert_allclose(mean, values.mean())
    assert_allclose(error, values.std() / np.sqrt(4000), rtol=1e-12)


def test_points_of_a_group_may_err_together(rng):
    values = np.repeat(rng.normal(size=50), 20)
    alone = mean_and_standard_error(values[::20], held_out(50))
    together = mean_and_standard_error(values, held_out(1000, group=np.repeat(np.arange(50), 20)))
    assert_allclose(together, alone)
    assert together[1] > 4 * mean_and_standard_error(values, held_out(1000))[1]


def test_a_weight_of_zero_is_a_point_that_is_absent_and_a_common_factor_changes_nothing(rng):
    values, weight = rng.normal(size=60), rng.random(60)
    weight[:20] = 0.0
    some = HeldOut(np.zeros(40, dtype=int), weight[20:], np.arange(40))
    assert_allclose(
        mean_and_standard_error(values, held_out(60, weight=weight)), mean_and_standard_error(values[20:], some)
    )
    assert_allclose(
        mean_and_standard_error(values, held_out(60, weight=7 * weight)), mean_and_standard_error(values[20:], some)
    )


def test_is_better_is_paired(rng):
    """A gain of the same 0.1 at every point is certain, however much the points differ; a noisy one is not."""
    others = 10 * rng.random(50)
    assert is_better(others - 0.1, others, held_out(50))
    assert not is_better(others, others - 0.1, held_out(50))
    assert not is_better(others, others, held_out(50))
    assert not is_better(rng.permutation(others) - 0.1, others, held_out(50), by=3.0)


def test_how_many_standard_errors_a_gain_must_be():
    gain = np.where(np.arange(100) % 2, 1.2, -0.8)  # 0.2 on average, with a standard error of 0.1
    points = held_out(100)
    assert is_better(np.zeros(100), gain, points, by=1.9)
    assert not is_better(np.zeros(100), gain, points, by=2.1)


def test_one_point_cannot_decide_alone():
    gain = np.full(50, -0.01)
    gain[0] = 5.0
    assert gain.mean() > 0.05
    assert not is_better(np.zeros(50), gain, held_out(50))


# What is chosen


def test_a_default_that_is_as_good_is_kept(rng):
    margins = rng.normal(2.0, 1.0, 200)
    default, other = seen(DEFAULT, margins), Setting(prior=10.0)
    slightly = margins + np.where(np.arange(200) % 2, 0.9, -0.85)  # better on average, by far less than it varies
    assert best_result([default, seen(other, slightly)], DEFAULT, "soft", 0.2).setting == DEFAULT
    clearly = np.abs(margins) + 1.0
    assert best_result([default, seen(other, clearly)], DEFAULT, "soft", 0.2).setting == other
    assert best_result([seen(other, margins)], DEFAULT, "soft", 0.2).setting == other  # where the default was not tried


def test_settings_are_judged_by_the_vote_that_is_wanted(rng):
    margins, other = rng.normal(1.0, 1.0, 200), Setting(prior=10.0)
    both = [seen(DEFAULT, np.abs(margins), soft=margins), seen(other, margins, soft=np.abs(margins) + 0.5)]
    assert best_result(both, DEFAULT, "soft", 0.2).setting == other
    assert best_result(both, DEFAULT, "nearest", 0.2).setting == DEFAULT


def test_what_was_left_after_some_folds_is_never_chosen(rng):
    margins = rng.normal(1.0, 1.0, 100)
    short = seen(Setting(prior=0.1), np.full(50, 9.0))
    assert best_result([seen(DEFAULT, margins, 2), short], DEFAULT, "soft", 0.2).setting == DEFAULT


def test_what_trails_by_far_is_hopeless_and_a_little_is_not(rng):
    margins = rng.normal(2.0, 1.0, 200)
    best = seen(DEFAULT, margins, 2)
    assert is_hopeless(seen(Setting(prior=10.0), -margins[:100]), best, "soft", 0.2)
    noise = 0.3 * rng.normal(size=100)
    assert not is_hopeless(seen(Setting(prior=10.0), margins[:100] + noise), best, "soft", 0.2)
    assert not is_hopeless(best, best, "soft", 0.2)


def test_losses_do_not_depend_on_the_scale_of_the_scores(rng):
    margins = rng.normal(1.0, 1.0, 300)
    one, scaled = (seen(DEFAULT, k * margins) for k in (1.0, 4.0))
    assert_allclose(one.losses("nearest", 0.2), scaled.losses("nearest", 0.2), atol=0.02)
    assert_allclose(one.temperature("nearest"), 4.0 * scaled.temperature("nearest"), rtol=0.02)


def test_probabilities_are_as_sure_as_the_held_out_points_allow(rng):
    margins = np.full(2000, 1.0)
    margins[:200] = -1.0  # one in ten is wrong, and that is what the probability says
    t = seen(DEFAULT, margins).temperature("soft")
    assert_allclose(1.0 / (1.0 + np.exp(-t)), 0.9, atol=0.005)
    for n in (10, 30):  # none of a few is wrong: at most N + 1 of N + 2
        t = seen(DEFAULT, np.ones(n)).temperature("soft")
        assert_allclose(1.0 / (1.0 + np.exp(-t)), (n + 1) / (n + 2), atol=0.002)


def test_the_nearest_votes_alone_only_where_that_is_better(rng):
    margins = rng.normal(1.0, 1.0, 300)
    assert better_vote(seen(DEFAULT, margins), 0.2) == "soft"
    assert better_vote(seen(DEFAULT, margins, soft=np.abs(margins)), 0.2) == "soft"
    assert better_vote(seen(DEFAULT, np.abs(margins), soft=margins), 0.2) == "nearest"


def test_scores_are_log_odds_by_the_nearest_and_by_all_prototypes_of_a_class():
    D = np.array([[1.0, 2.0, 3.0]])
    nearest, soft = ByClass.of(np.array([0, 2, 2]), 3).scores(D, 2.0)
    assert_allclose(nearest, [[-4.0, -np.inf, -8.0]])
    assert_allclose(soft, [[-4.0, -np.inf, np.log(np.exp(-8.0) + np.exp(-12.0))]])


def test_a_summary_tells_the_error_and_how_sure_it_is():
    margins = np.where(np.arange(100) < 20, -1.0, 1.0)
    told = seen(Setting(prior=10.0), margins, 5).summary("soft", 0.2)
    assert (told["prior"], told["n_folds"], told["chosen"]) == (10.0, 5, False)
    assert_allclose([told["error"], told["standard_error"]], [0.2, np.sqrt(0.2 * 0.8 / 100)])


# What is tried


def tried(fixed, can_grow=True, best=DEFAULT, got_worse=lambda: False, fewer=True):
    return list(candidates(fixed, can_grow, fewer, lambda: best, got_worse))


def test_the_start_itself_and_priors_from_strong_to_weak_come_first():
    settings = tried({})
    assert np.isinf(settings[0].prior)
    assert [s.prior for s in settings[1:4]] == sorted((s.prior for s in settings[1:4]), reverse=True)
    assert DEFAULT in settings
    assert {s.start for s in settings} == {"centroids", "single", "grown"}
    assert {s.start for s in tried({}, can_grow=False)} == {"centroids"}
    assert {s.start for s in tried({}, fewer=False)} == {"centroids", "grown"}
    assert len(set(settings)) >= len(settings) - 1


def test_the_centroids_of_the_classes_themselves_are_tried():
    assert Setting(start="single", prior=np.inf) in tried({})
    assert Setting(start="single", prior=np.inf) not in tried({}, fewer=False)


def test_what_the_user_fixed_stays():
    for name, value in {"sharpness": 1.0, "prior": 3.0, "smoothing": 0.3, "start": "given"}.items():
        assert {getattr(s, name) for s in tried({name: value}, best=replace(DEFAULT, **{name: value}))} == {value}
    everything = {"sharpness": 1.0, "prior": 3.0, "smoothing": 0.3, "start": "given"}
    assert set(tried(everything, best=Setting(**everything))) == {Setting(**everything)}


def test_weaker_priors_are_left_where_one_was_worse_than_a_stronger_and_what_stays_is_not_grown():
    left = tried({}, got_worse=lambda: True)
    assert {s.prior for s in left} == {np.inf, 10.0, 1.0}  # the second of each path was worse than the first
    still = tried({}, best=Setting(prior=np.inf))
    assert {s.start for s in still} == {"centroids", "single"}


def test_the_way_from_the_default_to_another_setting_goes_by_the_priors_between():
    far = Setting(sharpness=0.25, prior=0.01, smoothing=0.0)
    assert settings_between(DEFAULT, far) == [*(Setting(prior=prior) for prior in (1.0, 0.1, 0.01)), far]
    assert settings_between(DEFAULT, Setting(prior=np.inf)) == [Setting(prior=prior) for prior in (1.0, 10.0, np.inf)]
    assert settings_between(DEFAULT, DEFAULT) == [DEFAULT]
    assert settings_between(replace(DEFAULT, prior=3.0), replace(far, prior=3.0)) == [
        Setting(prior=3.0),
        replace(far, prior=3.0),
    ]


# All of it, on points


def fit(X, y, m=6, **params):
    notes = []

    def look(step, total, facts):
        if "note" in facts:
            notes.append(facts["note"])

    found = StochasticCompression(max_iter=4, **params).compress(
        X, y, geometry=SquaredEuclidean(), n_prototypes=m, random_state=np.random.default_rng(0), callback=look
    )
    return found, notes


def test_what_was_seen_of_each_setting_is_told_and_one_is_chosen():
    X, y = labelled("sqeuclidean", 60)
    found, notes = fit(X, y)
    told = found.trace["selection"]
    assert len(told) == len(notes)
    (best,) = [one for one in told if one["chosen"]]
    assert {name: best[name] for name in vars(DEFAULT)} == vars(found.trace["setting"])
    for one, note in zip(told, notes, strict=True):
        assert one.keys() >= {"sharpness", "prior", "smoothing", "start", "error", "standard_error", "loss", "n_folds"}
        assert one["metric"] == "sqeuclidean"
        assert f"prior {one['prior']}" in note
        assert f"held-out error {one['error']:.2%} ± {one['standard_error']:.2%}" in note


def test_where_all_is_fixed_nothing_is_tried():
    X, y = labelled("sqeuclidean", 120)
    fixed = {"gamma": 1.0, "prior": 1.0, "smoothing": 0.0, "vote": "soft", "chart": "paper"}
    found, notes = fit(X, y, **fixed)
    assert found.trace["selection"] == notes == []
    assert found.gamma == 1.0
    assert (found.trace["vote"], found.trace["temperature"]) == ("soft", 1.0)
    assert found.trace["setting"] == Setting(1.0, 1.0, 0.0, "given")


def test_the_hopeless_are_left_after_their_first_folds(monkeypatch):
    X, y = labelled("sqeuclidean", 100)
    truth = {tuple(x): label for x, label in zip(X.round(12), y, strict=True)}
    counted = []

    def scores(self, setting, held_out, n_classes):
        """The default knows the labels, and half the sharpness the wrong ones."""
        counted.append(setting)
        own = np.array([truth[tuple(x)] for x in held_out.X.round(12)])
        first = np.array([truth[tuple(self.view.sample.X[self.view.sample.y == c][0].round(12))] for c in range(3)])
        right = np.argsort(first)[own] == np.arange(3)[:, None]
        margin = 3.0 + np.sin(100.0 * held_out.X[:, :1])  # points differ, as they do
        said = np.where(right.T, margin, 0.0) * (1.0 if setting.sharpness == 1.0 else -1.0)
        return said, said

    monkeypatch.setattr(Trainer, "scores", scores)
    found, _ = fit(X, y)
    by_setting = {setting: counted.count(setting) for setting in set(counted)}
    assert by_setting[DEFAULT] == max(by_setting.values()) > 1
    softer = [n for setting, n in by_setting.items() if setting.sharpness != 1.0]
    assert softer == [1] * len(SEARCH_GRID["smoothing"]) * len(SEARCH_GRID["prior"])  # one fold each
    assert found.trace["setting"] == DEFAULT
    assert {one["n_folds"] for one in found.trace["selection"]} == set(by_setting.values())


def test_groups_decide_what_is_held_out(monkeypatch):
    X, y = labelled("sqeuclidean", 60)
    groups = np.arange(60) // 3 % 8
    where = {tuple(x): g for x, g in zip(X.round(12), groups, strict=True)}
    divided, real = [], Trainer.scores

    def scores(self, setting, held_out, n_classes):
        kept, out = ({where[tuple(x)] for x in rows.X.round(12)} for rows in (self.view.sample, held_out))
        divided.append(bool(kept & out))
        return real(self, setting, held_out, n_classes)

    monkeypatch.setattr(Trainer, "scores", scores)
    learner = StochasticCompression(max_iter=2, smoothing=0.02, gamma="scale")
    context = {"geometry": SquaredEuclidean(), "n_prototypes": 6}
    learner.compress(X, y, groups=groups, random_state=np.random.default_rng(0), **context)
    assert divided
    assert not any(divided)
    divided.clear()
    learner.compress(X, y, random_state=np.random.default_rng(0), **context)
    assert all(divided)


def test_folds_are_short_and_on_all_points_at_once():
    X, y = labelled("sqeuclidean", 60)
    found, _ = fit(X, y, batch_size=20, prior=1.0, smoothing=0.02)
    assert found.trace["n_iter"] == 4
    assert found.trace["reason"] == "max_iter"
    assert StochasticCompression().descent(0).max_iter > crossvalidation._ITERATIONS


def test_a_unit_of_the_prior_is_the_spread_of_the_classes_whatever_the_number_of_prototypes():
    X, y = labelled("sqeuclidean", 90)
    rows = LocalRows(X, y, None, 1)
    learner = StochasticCompression()
    make = learner._start_maker(0, 1, SquaredEuclidean(), "size")
    view = View("sqeuclidean", SquaredEuclidean(), rows, rows, rows.cut(3), make)
    units = []
    for m in (3, 9, 30):
        job = Job(m, learner.descent(0), learner.constraints(), Checkpoint(None, {}), Progress(None, {}))
        units.append(Trainer(view, job).problem(DEFAULT).scale.unit)
    means = np.stack([X[y == c].mean(axis=0) for c in range(3)])
    assert_allclose(units, np.sqrt(((X - means[y]) ** 2).sum(axis=1).mean()))

"""What works on one's data: candidates judged by held-out points, one recommended, the command that makes it."""

import inspect
import re
import shlex
import shutil
import time
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

import knnpress as kp
import knnpress.comparison.run
import knnpress.comparison.search
from knnpress.cli import main
from knnpress.comparison.candidates import COLOUR, KINDS, Candidate, kind_of, sizes_of
from knnpress.comparison.result import recommend
from knnpress.comparison.run import _refit
from knnpress.comparison.trials import FAR_BEHIND, Clock, Points, Trial, Trials, error_of
from knnpress.datasets import load_points
from knnpress.descriptors.images import ImageFile, are_gray
from knnpress.geometries import geometry_name
from knnpress.names import DESCRIPTORS

COLUMNS = {
    *("descriptor", "metric", "method", "n_prototypes", "kilobytes", "error", "low", "high", "n_folds", "n_held_out"),
    *("microseconds_per_query", "seconds_to_describe", "seconds_to_learn", "recommended", "note"),
}


def trials_of(wrong, kilobytes, groups=None):
    """Trials of one fold with given errors, and given sizes."""
    n = len(wrong[0])
    rows = np.arange(n)
    trials = Trials(np.zeros(n, int), groups, [(rows, rows)], n, Clock(60), 0, None, print)
    for k, size in enumerate(kilobytes):
        trials.tried.append(
            Trial(Candidate(None, "vectors", "learned", "euclidean", k), {0: wrong[k]}, [1.0], [1e-6], size)
        )
    return trials


def errors(n, count):
    return np.arange(n) < count


# the rules


def test_a_smaller_model_is_taken_where_nothing_is_lost_by_more_than_noise():
    many = [errors(1000, 20), errors(1000, 22)]
    many[1][:] = np.roll(many[1], 500)  # other points: a difference of 2 in 42 is chance
    assert recommend(trials_of(many, [100.0, 10.0])).kilobytes == 10.0


def test_a_smaller_model_is_not_taken_where_it_is_clearly_worse():
    nested = [errors(1000, 20), errors(1000, 30)]  # the same points and ten more: no chance
    assert recommend(trials_of(nested, [100.0, 10.0])).kilobytes == 100.0


def test_errors_that_come_by_the_group_are_noise():
    some = [errors(1000, 0), errors(1000, 0)]
    some[0][100:106], some[1][:12] = True, True  # 6 in one group against 12 in another
    assert recommend(trials_of(some, [100.0, 10.0])).kilobytes == 100.0
    assert recommend(trials_of(some, [100.0, 10.0], np.arange(1000) // 100)).kilobytes == 10.0


def test_what_was_cut_short_by_the_clock_is_judged_by_the_folds_that_all_went_through():
    trials = trials_of([errors(100, 10), errors(100, 0)], [10.0, 100.0])
    trials.folds *= 2
    trials.tried[0].wrong[1] = errors(100, 0)
    trials.tried[1].stopped = "no time was left"
    assert recommend(trials) is trials.tried[1]


def test_what_was_given_up_as_far_behind_is_not_recommended():
    trials = trials_of([errors(100, 10), errors(100, 10)], [10.0, 1.0])
    trials.tried[1].stopped = FAR_BEHIND
    assert recommend(trials) is trials.tried[0]


def test_it_is_said_where_nothing_is_better_than_guessing(quick, rng):
    result = kp.compare(rng.normal(size=(60, 2)), np.arange(60) % 2, minutes=1, refit=False, n_splits=2, n_jobs=1)
    assert "hardly better than guessing: always saying the most frequent class is wrong in 50 %" in repr(result)


def test_the_interval_is_wilsons_and_wider_where_points_err_together():
    from scipy.stats import binomtest

    alone = error_of(trials_of([errors(200, 30)], [1.0]).tried[0], trials_of([errors(200, 30)], [1.0]))
    wilson = binomtest(30, 200).proportion_ci(method="wilson")
    assert alone == pytest.approx((0.15, wilson.low, wilson.high), abs=1e-4)
    grouped = trials_of([errors(200, 30)], [1.0], np.arange(200) // 10)
    _, low, high = error_of(grouped.tried[0], grouped)
    assert low < wilson.low
    assert high > wilson.high + 0.05
    none = trials_of([errors(200, 0)], [1.0])
    assert error_of(none.tried[0], none) == pytest.approx((0.0, 0.0, 0.0188), abs=1e-3)


def test_sizes_begin_with_one_per_class_and_never_take_more_than_half():
    assert sizes_of(3280, 8) == [8, 66, 262]
    assert sizes_of(60, 3) == [3, 6, 12]
    assert sizes_of(10, 4) == [4]


def test_all_descriptors_but_depth_and_those_of_clouds_are_tried():
    assert {*COLOUR} == DESCRIPTORS.keys() - {"depth", "local-features", "contour"}


def test_kinds_are_told_by_shape(rng, tmp_path):
    images = rng.integers(0, 255, (4, 9, 9), np.uint8)
    A = rng.normal(size=(4, 5, 5))
    H = rng.dirichlet(np.ones(6), 4)
    assert kind_of(images, None) == "images"
    assert kind_of(list(images), None) == "images"
    assert kind_of(["a.png"], None) == "images"
    assert kind_of([ImageFile("not-there.png")], None) == "images"
    assert kind_of(A @ A.transpose(0, 2, 1), None) == "matrices"
    assert kind_of(A[0], None) == "vectors"
    assert kind_of(A[0].tolist(), None) == "vectors"
    assert kind_of(H, None) == "histograms"
    assert kind_of(10 * H, None) == "vectors"
    assert kind_of(10 * H, np.ones((6, 6))) == "histograms"
    assert kind_of(kp.Clouds.from_list(list(A)), None) == "clouds"


def test_gray_images_are_told_from_coloured_ones(rng, tmp_path):
    gray = rng.integers(0, 255, (3, 12, 12), np.uint8)
    Image.fromarray(np.stack([gray[0]] * 3, axis=2)).save(tmp_path / "gray.png")
    assert are_gray(gray)
    assert are_gray([str(tmp_path / "gray.png"), str(tmp_path / "missing.png")])
    colour = np.stack([gray] * 3, axis=3)
    colour[2, 0, 0] = (255, 0, 0)
    assert not are_gray(colour)


# in Python


@contextmanager
def quickly():
    """Learning without a search for settings: one short descent."""
    plain = {"gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "nearest", "max_iter": 10}
    with pytest.MonkeyPatch.context() as patch:
        for name, kind in KINDS.items():
            patch.setitem(KINDS, name, replace(kind, learn=partial(kind.learn, **plain)))
        yield


@pytest.fixture
def quick():
    with quickly():
        yield


@pytest.fixture(scope="module")
def found():
    data = kp.datasets.load_digits_covariances()
    with quickly():
        return kp.compare(data.X[:300], data.y[:300], minutes=1, n_splits=2, n_jobs=1), data


def test_the_result_is_a_table_and_a_model_ready_to_use(found):
    result, data = found
    assert all(row.keys() == COLUMNS for row in result.table_)
    assert {row["method"] for row in result.table_} == {"learned", "full", "means"}
    assert {row["metric"] for row in result.table_} == {"tangent", "jbld"}
    assert [row["recommended"] for row in result.table_].count(True) == 1
    row = result.recommended_
    assert row["n_held_out"] == 300
    assert result.best_.prototypes_.shape == (row["n_prototypes"], 11, 11)
    assert result.best_.metric_ == row["metric"]
    assert result.best_.score(data.X[300:], data.y[300:]) > 0.8
    assert row["error"] < min(row["error"] for row in result.table_ if row["method"] == "means") / 2
    assert 1 < row["kilobytes"] < next(row for row in result.table_ if row["method"] == "full")["kilobytes"] / 3
    assert "guessing" not in repr(result)
    first = [row for row in result.table_ if row["note"] != FAR_BEHIND]
    assert [row["error"] for row in first] == sorted(row["error"] for row in first)


def test_it_is_readable(found):
    result, _ = found
    text = repr(result)
    assert f"{result.recommended_['n_prototypes']} learned prototypes" in text
    assert "full 1-NN" in text
    assert "class means" in text
    assert max(map(len, text.splitlines()[: len(result.table_) + 1])) <= 120
    assert all(re.search(r" [12]/2( far behind| out of time)?$", line) for line in text.splitlines()[1:3])
    page = result._repr_html_()
    assert page.count("<tr") == len(result.table_) + 1
    assert "<script" not in page


def test_clouds_are_compared_too(quick, rng, tmp_path, capsys):
    y = np.arange(60) % 2
    clouds = kp.Clouds.from_list([rng.normal(4.0 * label, 1.0, (5, 2)) for label in y])
    result = kp.compare(clouds, y, minutes=1, n_splits=2, n_jobs=1)
    assert {row["method"] for row in result.table_} == {"learned", "full"}
    assert result.recommended_["metric"] == "clouds"
    assert result.best_.score(clouds, y) > 0.9
    with pytest.raises(TypeError, match=r"clouds are given as knnpress\.Clouds"):
        kp.compare(np.zeros((4, 3)), [0, 1, 0, 1], kind="clouds")
    with pytest.raises(TypeError, match="X is Clouds and kind is 'vectors'"):
        kp.compare(clouds, y, kind="vectors")
    np.savez(tmp_path / "clouds.npz", y=y, **clouds.arrays())
    assert main(["compare", str(tmp_path / "clouds.npz"), "--minutes", "1", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert "knnpress compress " in out
    assert "--method swc --prototypes " in out


def test_a_model_that_saw_few_folds_is_not_recommended():
    """It erred least on the one fold that it was tried on; the other went through three."""
    trials = trials_of([errors(90, 9), errors(90, 0)], [2.0, 1.0])
    full, short = trials.tried
    parts, short.wrong[0] = np.split(full.wrong[0], 3), short.wrong[0][:30]
    rows = np.split(np.arange(90), 3)
    trials.folds = [(np.setdiff1d(np.arange(90), out), out) for out in rows]
    full.wrong = dict(enumerate(parts))
    assert recommend(trials) is full
    del full.wrong[2]  # two folds against one: both are judged, by the first
    assert recommend(trials) is short


def test_the_quick_that_see_more_folds_do_not_rule_out_what_learns():
    trials = trials_of([errors(90, 9), errors(90, 0)], [100.0, 1.0])
    full, learned = trials.tried
    full.candidate = replace(full.candidate, method="full")
    parts, learned.wrong[0] = np.split(full.wrong[0], 3), learned.wrong[0][:30]
    rows = np.split(np.arange(90), 3)
    trials.folds = [(np.setdiff1d(np.arange(90), out), out) for out in rows]
    full.wrong = dict(enumerate(parts))
    assert recommend(trials) is learned


def test_a_share_of_the_time_does_not_end_before_something_was_learned(quick, rng):
    X, y = rng.random((40, 3)), np.arange(40) % 2
    clock = Clock(1000.0)
    clock.start -= 600.0  # describing took so long
    trials = Trials(y, None, [(np.arange(20), np.arange(20, 40))], 40, clock, 0, 1, lambda _: None)
    points = Points(X, "vectors", None)
    for method in ("means", "full", "learned", "learned"):
        trials.add(Candidate(None, "vectors", method, "euclidean", 2 + len(trials.tried)), points, share=0.5)
    assert [trial.candidate.method for trial in trials.tried] == ["means", "full", "learned"]
    assert [why for _, why in trials.left_out] == ["no time was left"]


def test_it_is_said_where_nothing_was_learned(found):
    result = copy(found[0])
    result.table_ = [row for row in result.table_ if row["method"] == "full"][:1]
    result.recommended_ = result.table_[0]
    said = result.sentences()
    assert "There was no time for a model that learns: give more minutes." in said
    assert not any("candidates" in sentence for sentence in said)


def test_errors_of_the_table_are_those_of_scikit_learn(quick, rng):
    from sklearn.model_selection import StratifiedKFold, cross_val_score
    from sklearn.neighbors import KNeighborsClassifier

    y = np.arange(90) % 3
    X = rng.normal(size=(90, 4)) + y[:, None]
    result = kp.compare(X, y, minutes=1, n_splits=3, n_jobs=1)
    full = next(row for row in result.table_ if row["method"] == "full")
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    assert full["error"] == pytest.approx(1 - cross_val_score(KNeighborsClassifier(1), X, y, cv=folds).mean())


def people(rng, n=120):
    """Matrices of two classes, from six people, each with sensors that mix in another way."""
    who, y = np.arange(n) % 6, np.arange(n) // 6 % 2
    mixing = rng.normal(size=(6, 3, 3))
    mixing = (mixing @ mixing.transpose(0, 2, 1) + 0.1 * np.eye(3))[who]
    A = mixing @ (rng.normal(size=(n, 3, 40)) * np.array([[1, 2, 1], [2, 1, 1]])[y][..., None])
    return A @ A.transpose(0, 2, 1), y, who


def test_matrices_of_people_are_re_centred_where_that_helps(quick, rng):
    X, y, who = people(rng)
    names = np.array(["anna", "ben", "carla", "dan", "eva", "finn"])[who]
    found = kp.compare(X, y, groups=names, minutes=1, n_splits=3, n_jobs=1)
    assert {row["descriptor"] for row in found.table_} == {None, "re-centred"}
    assert found.recommended_["descriptor"] == "re-centred"
    assert found.recommended_["error"] < min(row["error"] for row in found.table_ if row["descriptor"] is None) - 0.1
    assert "Recommended: re-centred points, " in repr(found)
    assert "To classify a new group, give many of its points at once" in repr(found)
    assert found.header()[1] == "points"
    assert {row[1] for row in found.rows()} == {"as given", "re-centred"}
    assert "--recenter" in found.command("points.npz")
    X_new, y_new, _ = people(np.random.default_rng(5), 60)
    assert found.best_.predict(X[who == 1], groups="ben").shape == (20,)
    assert_array_equal(found.best_.known_groups, np.unique(names))
    assert found.best_.score(X_new, y_new, groups=[f"new {k % 6}" for k in range(60)]) > 0.8


@pytest.mark.parametrize("groups", [None, np.arange(120) // 6 % 2 + 2 * (np.arange(120) % 6)], ids=["none", "pure"])
def test_without_groups_of_several_classes_nothing_is_re_centred(quick, rng, groups):
    X, y, _ = people(rng)
    found = kp.compare(X, y, groups=groups, minutes=1, n_splits=3, n_jobs=1, refit=False)
    assert {row["descriptor"] for row in found.table_} == {None}
    assert found.header()[1] == "metric"


def test_learning_from_clouds_keeps_to_the_time_too(rng):
    y = np.arange(60) % 2
    clouds = kp.Clouds.from_list([rng.normal(label, 1.0, (5, 2)) for label in y])
    found = kp.compare(clouds, y, minutes=1e-6, n_splits=2, n_jobs=1, refit=False)
    assert {row["method"] for row in found.table_} == {"full"}
    assert ("clouds, 2 learned", "too slow for the time given") in found.left_out_


def test_what_takes_longer_than_what_was_too_slow_is_not_tried():
    tried = Candidate(None, "matrices", "learned", "tangent", 80)
    for other, surely in [
        (Candidate(None, "matrices", "learned", "tangent", 320), True),
        (Candidate(None, "matrices", "learned", "jbld", 80), True),
        (Candidate("re-centred", "matrices", "learned", "tangent", 80), True),
        (Candidate(None, "matrices", "learned", "tangent", 2), False),
        (Candidate(None, "matrices", "learned", "jbld", 2), False),
        (Candidate(None, "matrices", "full", "jbld", 4000), False),
        (Candidate("gabor", "matrices", "learned", "tangent", 80), False),
    ]:
        assert other.takes_no_less_than(tried) == surely, other
    trials = trials_of([[True, False]], [1.0])
    assert trials.tried
    trials.go_on = lambda trial, *_: setattr(trial, "stopped", "too slow for the time given")
    assert trials.add(tried, None) is None
    trials.go_on = None  # is not called
    assert trials.add(Candidate(None, "matrices", "learned", "tangent", 320), None) is None
    assert [why for _, why in trials.left_out] == ["too slow for the time given"] * 2


def test_groups_are_held_out_whole(quick, rng):
    groups = np.arange(120) // 6
    y = groups % 2
    X = rng.normal(size=(20, 5))[groups] + 0.01 * rng.normal(size=(120, 5))  # a group is known by its place alone
    together = kp.compare(X, y, minutes=1, refit=False, n_splits=4, n_jobs=1)
    apart = kp.compare(X, y, groups=groups, minutes=1, refit=False, n_splits=4, n_jobs=1)
    of_full = [next(row for row in one.table_ if row["method"] == "full")["error"] for one in (together, apart)]
    assert of_full[0] == 0
    assert of_full[1] > 0.2
    assert together.best_ is None


def test_time_is_kept_and_what_was_left_out_is_named(rng):
    cost = np.abs(np.subtract.outer(np.arange(80.0), np.arange(80.0)))
    y = np.arange(400) % 4
    X = rng.dirichlet(np.ones(80), 400)
    start = time.process_time()
    result = kp.compare(X, y, ground_cost=cost, minutes=0.02, refit=False, n_jobs=1)
    assert time.process_time() - start < 6
    assert any("sinkhorn" in what for what, _ in result.left_out_)
    assert "Not tried: " in repr(result)


def test_each_descriptor_and_metric_is_named_once_among_what_was_not_tried(found):
    result = copy(found[0])
    result.left_out_ = [
        ("gradient, jbld, full 1-NN", "no time was left"),
        ("gradient, jbld, 8 learned", "no time was left"),
        ("sift", "no time was left"),
        ("gabor", "describing 9 images by it takes about 99 s"),
    ]
    assert result.sentences()[-1] == (
        "Not tried: gradient under jbld (full 1-NN, 8 learned), sift: no time was left; gabor: describing 9 images by "
        "it takes about 99 s."
    )
    result.left_out_ = [("jbld, full 1-NN", "no time was left")]
    assert result.sentences()[-1] == "Not tried: jbld (full 1-NN): no time was left."


def test_what_is_dear_even_to_probe_does_not_keep_the_cheap_from_being_tried(quick, rng, monkeypatch):
    probed, clock = [], Clock(60.0)

    def slow_probe(name, *_):
        probed.append(name)
        if name == "bag-of-words":
            clock.start -= 1000.0  # as if it had taken so long
        return 0.0

    monkeypatch.setattr(knnpress.comparison.search, "_probe", slow_probe)
    monkeypatch.setattr(knnpress.comparison.run, "Clock", lambda seconds: clock)
    images = rng.integers(0, 255, (20, 16, 16), np.uint8)
    names = ["gabor", "bag-of-words", "grid-histogram"]
    result = kp.compare(images, np.arange(20) % 2, descriptors=names, minutes=1, refit=False, n_splits=2, n_jobs=1)
    assert probed == ["grid-histogram", "bag-of-words"]
    assert {row["descriptor"] for row in result.table_} == {"grid-histogram"}
    assert ("gabor", "no time was left") in result.left_out_


def test_an_image_that_one_descriptor_cannot_describe_leaves_that_descriptor_out(quick, rng):
    images = list(rng.integers(0, 255, (20, 16, 16), np.uint8))
    images[13] = np.full((16, 16), 99, np.uint8)  # no edges, but pixels like any other
    names = ["grid-histogram", "shape-context"]
    result = kp.compare(images, np.arange(20) % 2, descriptors=names, minutes=1, refit=False, n_splits=2, n_jobs=1)
    assert {row["descriptor"] for row in result.table_} == {"grid-histogram"}
    ((what, why),) = result.left_out_
    assert what == "shape-context"
    assert why.startswith("images[13] has no edges")


@pytest.mark.parametrize("place", [5, 19])  # described in the course of the comparison, and by the probe before it
def test_an_image_that_cannot_be_read_is_named_by_its_place(quick, rng, place):
    images = list(rng.random((20, 16, 16)))
    images[place] = np.full((16, 16), np.nan)
    with pytest.raises(ValueError, match=rf"^images\[{place}\] contains NaN"):
        kp.compare(images, np.arange(20) % 2, descriptors=["grid-histogram"], minutes=1, refit=False, n_jobs=1)


def test_class_means_that_are_hopeless_are_not_tried_in_a_dearer_metric(quick, rng):
    y = np.arange(120) % 2  # class 0 is at either end, class 1 at both: their means agree
    X = np.where(y, 0.5, np.arange(120) // 2 % 2)[:, None] * np.eye(6)[0]
    X += np.eye(6)[5] - X[:, :1] * np.eye(6)[5] + rng.random((120, 6)) / 50
    cost = np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))
    result = kp.compare(X, y, ground_cost=cost, minutes=1, n_splits=2, refit=False, n_jobs=1)
    tried = {(row["metric"], row["method"]) for row in result.table_}
    assert ("hellinger", "means") in tried
    assert ("sinkhorn", "full") in tried
    assert ("sinkhorn", "means") not in tried


def test_a_sample_of_many_points_is_compared_and_all_are_learned_from(quick, rng):
    y = np.arange(300) % 2
    X = rng.normal(size=(300, 2)) + 4 * y[:, None]
    result = kp.compare(X, y, minutes=1, max_points=60, n_splits=2, n_jobs=1)
    assert "sample of 60 of 300" in repr(result)
    assert result.best_.compression_ratio_ == result.recommended_["n_prototypes"] / 300


def test_rows_that_sum_to_one_are_histograms_without_transport(quick, rng):
    y = np.arange(60) % 2
    X = rng.dirichlet(np.ones(5), 60) + 0.0
    X[y == 1] = X[y == 1][:, ::-1] ** 3
    X /= X.sum(axis=1, keepdims=True)
    result = kp.compare(X, y, minutes=1, n_splits=2, n_jobs=1)
    assert {row["metric"] for row in result.table_} == {"hellinger"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "clowns"}, r"kind is 'clowns'; choose one of 'auto', 'images', 'matrices'"),
        ({"minutes": 0}, r"minutes is 0; give a number above 0"),
        ({"n_splits": 1}, r"n_splits is 1; give at least 2"),
        ({"max_points": 1}, r"max_points is 1; give at least 10"),
        ({"descriptors": ["nonsense"]}, r"descriptors has 'nonsense'; choose from 'color-histogram'"),
        ({"groups": np.zeros(40)}, r"groups has one group only"),
        ({"groups": np.arange(40) % 2}, r"without any one group, one class is left"),
        ({"groups": [1, 2]}, r"groups has 2 entries, and X has 40 points"),
        ({"y": np.zeros(40)}, r"y has one class"),
        ({"y": np.arange(12)}, r"every class has one point only"),
    ],
)
def test_what_cannot_be_compared_is_refused(rng, settings, message):
    settings = {"y": np.arange(40) % 2, **settings}
    with pytest.raises(ValueError, match=message):
        kp.compare(rng.normal(size=(len(settings["y"]), 3)), settings.pop("y"), **settings)


def test_options_are_keyword_only():
    parameters = inspect.signature(kp.compare).parameters
    assert [p.name for p in parameters.values() if p.kind is not p.KEYWORD_ONLY] == ["X", "y"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["learned", "full", "means"])
def test_metrics_are_named_as_the_models_name_them(kind, method, rng):
    for metric in KINDS[kind].metrics:
        model = Candidate(None, kind, method, metric, 2).build(np.ones((3, 3)) - np.eye(3), 0, 1)
        name = geometry_name(model._geometry())
        assert name == {"euclidean": "sqeuclidean"}.get(metric, metric)


# on the command line


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Stripes along rows or columns, in noise; two folders below each class."""
    root, rng = tmp_path_factory.mktemp("compare") / "photos", np.random.default_rng(0)
    for k in range(32):
        kind, group = ("rows", "columns")[k % 2], f"film{k // 2 % 4}"
        (root / kind / group).mkdir(parents=True, exist_ok=True)
        wave = np.sin(np.mgrid[:20, :20][k % 2] * rng.uniform(0.6, 0.9))[..., None] * rng.uniform(0.5, 1.0, 3)
        pixels = np.clip(128 + 50 * wave + rng.normal(0, 30, (20, 20, 3)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(root / kind / group / f"{k}.png")
    return root


def run(capsys, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


def recommended(out):
    command = shlex.split(next(line for line in out.splitlines() if line.startswith("  knnpress compress")))
    assert command.pop(0) == "knnpress"
    return command


def test_a_folder_is_compared_and_the_recommended_command_runs(quick, photos, tmp_path, capsys, monkeypatch):
    page = tmp_path / "page.html"
    tried = ["--descriptors", "gradient", "color-histogram", "--groups", "parent-folder", "--seed", 1]
    status, out, err = run(capsys, "compare", photos, *tried, "-o", page, "--jobs", 1)
    assert (status, err) == (0, "")
    for word in ("gradient", "color-histogram", "full 1-NN", "class means", "of groups never learned from"):
        assert word in out
    command = recommended(out)
    assert command[-4:] == ["--groups", "parent-folder", "--seed", "1"]
    monkeypatch.chdir(tmp_path)
    assert main(command) == 0
    assert kp.load("model.knnp").descriptors_
    text = page.read_text()
    assert shlex.join(["knnpress", *command]) in re.sub("</?span>", "", text)
    assert "<script" not in text
    assert not re.search(r"(?:src|href)=", text)
    assert 'class="scroll knnpress-comparison" tabindex="0" role="group" aria-label="' in text
    assert not re.search(r"<h1>[^<]* %", text), "a percent sign would stand alone at the start of a line"
    assert re.search(r"pre \{[^}]*white-space: pre-wrap", text), "a phone would show half of the command"


def test_bad_images_are_one_sentence_that_names_the_cure(quick, photos, tmp_path, capsys):
    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    bad = next(folder.rglob("*.png")).parent / "a-broken.png"
    bad.write_bytes(b"no image")
    status, out, err = run(capsys, "compare", folder, "--descriptors", "gradient", "--jobs", 1)
    assert (status, out) == (2, "")
    assert err.startswith(f"knnpress: {bad} cannot be read as an image")
    assert err.endswith("; --skip-bad leaves such images out, and knnpress doctor names them all\n")
    status, out, err = run(capsys, "compare", folder, "--descriptors", "gradient", "--jobs", 1, "--skip-bad")
    assert status == 0
    assert "--skip-bad" in recommended(out)


@pytest.mark.parametrize(
    "candidate",
    [
        Candidate("gradient", "matrices", "learned", "tangent", 4),
        Candidate("color-histogram", "histograms", "full", "hellinger", 32),
        Candidate("color-histogram", "histograms", "means", "sinkhorn", 2),
    ],
    ids=lambda candidate: candidate.words,
)
def test_the_command_makes_the_model_of_images(candidate, photos, tmp_path):
    folder = kp.datasets.load_image_folder(photos)
    names, groups = np.array(folder.class_names)[folder.y], folder.groups["folder"]
    best = _refit(candidate, folder.images, names, np.unique(groups, return_inverse=True)[1], None, 0, 1)
    path = str(tmp_path / "m.knnp")
    assert main(["compress", str(photos), "-o", path, *candidate.options(), "--groups", "parent-folder"]) == 0
    assert_array_equal(kp.load(path).predict_proba(folder.images), best.predict_proba(folder.images))


def points_of(kind, rng):
    """Points of two classes, from ten people."""
    y = np.arange(40) % 2
    arrays = {"y": y, "person": np.arange(40) // 4}
    if kind == "matrices":
        A = rng.normal(size=(40, 2, 9)) * np.array([[1, 3], [3, 1]])[y][..., None]
        return {**arrays, "X": A @ A.transpose(0, 2, 1)}
    if kind == "histograms":
        X = np.array([rng.dirichlet(1 + 5 * np.eye(6)[2 * c]) for c in y])
        return {**arrays, "X": X, "ground_cost": np.abs(np.subtract.outer(np.arange(6.0), np.arange(6.0)))}
    if kind == "clouds":
        return {**arrays, **kp.Clouds.from_list([rng.normal(4.0 * label, 1.0, (3, 2)) for label in y]).arrays()}
    return {**arrays, "X": rng.normal(size=(40, 4)) + y[:, None]}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_points_is_compared(quick, kind, tmp_path, capsys, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    np.savez("points.npz", **points_of(kind, rng))
    status, out, err = run(capsys, "compare", "points.npz", "--groups", "person", "--jobs", 1)
    assert (status, err) == (0, "")
    assert "descriptor " not in out
    assert all(metric in out for metric in KINDS[kind].metrics)
    assert recommended(out)[-2:] == ["--groups", "person"]


def test_the_command_re_centres(tmp_path, rng):
    X, y, who = people(rng)
    np.savez(tmp_path / "points.npz", X=X, y=y, person=who)
    candidate = Candidate("re-centred", "matrices", "means", "tangent", 2)
    best = _refit(candidate, X, y.astype(str), who, None, 0, 1)
    path = str(tmp_path / "model.knnp")
    told = ["compress", str(tmp_path / "points.npz"), "-o", path, *candidate.options(), "--groups", "person"]
    assert main(told) == 0
    made = kp.load(path)
    assert_array_equal(made.classifier_.prototypes_, best.classifier_.prototypes_)
    assert_array_equal(made.predict(X, groups=who).astype(str), best.predict(X, groups=who))
    assert main(["predict", path, str(tmp_path / "points.npz"), "--groups", "person", "-o", path + ".csv"]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["matrices.npz"], "say which with --groups NAME"),
        (["vectors.npz", "--groups", "person"], "--recenter is for covariance matrices; vectors.npz holds vectors"),
        (["clouds.npz", "--groups", "person"], "--recenter is for covariance matrices; clouds.npz holds clouds"),
        (["photos"], "--recenter is for a file of covariance matrices; photos is a folder of images"),
    ],
)
def test_compress_says_what_cannot_be_re_centred(arguments, said, tmp_path, capsys, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    Path("photos").mkdir()
    for kind in ("matrices", "vectors", "clouds"):
        np.savez(f"{kind}.npz", **points_of(kind, rng))
    status, _, err = run(capsys, "compress", *arguments, "-o", "model.knnp", "--recenter")
    assert status != 0
    assert said in err


@pytest.mark.parametrize(
    ("kind", "method", "metric"),
    [
        *((kind, "full", metric) for kind in KINDS for metric in KINDS[kind].metrics),
        *(("matrices", method, "jbld") for method in ("means", "learned")),
        *(("histograms", method, "hellinger") for method in ("means", "learned")),
        *(("vectors", method, "euclidean") for method in ("means", "learned")),
        pytest.param("matrices", "means", "tangent", marks=pytest.mark.slow),
        pytest.param("histograms", "means", "sinkhorn", marks=pytest.mark.slow),  # barycenters
    ],
)
def test_the_command_makes_the_model_of_points(kind, method, metric, tmp_path, rng):
    arrays = points_of(kind, rng)
    np.savez(tmp_path / "points.npz", **arrays)
    X = load_points(tmp_path / "points.npz").X
    names, groups = arrays["y"].astype(str), arrays["person"]
    candidate = Candidate(None, kind, method, metric, 40 if method == "full" else 2)
    best = _refit(candidate, X, names, groups, arrays.get("ground_cost"), 0, 1)
    path = str(tmp_path / "m.knnp")
    told = ["compress", str(tmp_path / "points.npz"), "-o", path, *candidate.options(), "--groups", "person"]
    assert main(told) == 0
    model = kp.load(path)
    assert geometry_name(model.geometry_) == {"euclidean": "sqeuclidean"}.get(metric, metric)
    assert_array_equal(model.predict_proba(X), best.predict_proba(X))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not there"),
        (["{photos}", "--groups", "film"], "give --groups parent-folder"),
        (["{photos}/rows", "--groups", "parent-folder"], "which cannot be held out"),
        (["{photos}", "--labels", "x.csv"], "--labels is for points"),
        (["{photos}", "-o", "page.pdf"], "page.pdf should end in .html"),
        (["{points}", "--descriptors", "gabor"], "which need no --descriptors"),
        (["{points}", "--groups", "subject"], "has no groups 'subject'; choose from what it holds: X, y, short"),
        (["{points}", "--groups", "short"], "short has 3 entries for 8 points"),
    ],
)
def test_mistakes_are_one_sentence(photos, tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    np.savez("points.npz", X=np.eye(8), y=np.arange(8) % 2, short=np.zeros(3))
    given = [argument.format(photos=photos, points="points.npz") for argument in arguments]
    status, out, err = run(capsys, "compare", *given)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_groups_are_read_from_the_file_of_labels(tmp_path):
    np.save(tmp_path / "points.npy", np.eye(4))
    (tmp_path / "points.csv").write_text("label,subject\na,1\nb,1\na,2\nb,2\n")
    assert_array_equal(kp.datasets.load_groups(tmp_path / "points.npy", "subject"), ["1", "1", "2", "2"])
    with pytest.raises(ValueError, match=r"has no groups 'age'; choose from what it holds: X, label, subject"):
        kp.datasets.load_groups(tmp_path / "points.npy", "age")


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("jbld", "the points are vectors or histograms, and --metric jbld is for others"),
        ("sinkhorn", "has no ground cost"),
    ],
)
def test_compress_refuses_a_metric_that_does_not_suit(tmp_path, capsys, metric, message):
    np.savez(tmp_path / "points.npz", X=np.eye(8), y=np.arange(8) % 2)
    status, _, err = run(capsys, "compress", tmp_path / "points.npz", "-o", tmp_path / "m.knnp", "--metric", metric)
    assert status == 2
    assert message in err

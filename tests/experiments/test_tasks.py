"""From a study to training and test points."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from knnpress.datasets import Dataset, ImageDataset, load_digits_covariances
from knnpress.exceptions import InvalidPointError
from knnpress.experiments import load_plan
from knnpress.experiments.splits import divide
from knnpress.experiments.study import Study
from knnpress.experiments.tasks import Tasks
from knnpress.geometries import JBLD, Sinkhorn

Y = np.repeat([0, 1, 2], 40)
DATA = Dataset(
    np.zeros((120, 2)),
    Y,
    ("a", "b", "c"),
    "nobody",
    groups={"object": np.tile(np.repeat(np.arange(10), 4), 3)},
    splits=((np.arange(0, 120, 3), np.setdiff1d(np.arange(120), np.arange(0, 120, 3))),),
)


def study(**settings):
    return Study(data="d", source="digits-covariances", **settings)


@pytest.mark.parametrize("kind", ["half", "half by object", "10 a class", "each object", "own"])
def test_every_split_divides_all_rows_and_splits_differ(kind):
    splits = divide(study(splits=kind, n_splits=4), DATA, 0)
    assert len(splits) == (10 if kind == "each object" else 4)
    for train, test in splits:
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(120))
        assert set(Y[train]) == {0, 1, 2}
    assert len({tuple(np.sort(train)) for train, _ in splits}) == len(splits)


def test_splits_do_what_they_say():
    halves = divide(study(splits="half"), DATA, 0)
    assert [np.bincount(Y[train]).tolist() for train, _ in halves] == [[20, 20, 20]] * 5
    few = divide(study(splits="10 a class"), DATA, 0)
    assert [np.bincount(Y[train]).tolist() for train, _ in few] == [[10, 10, 10]] * 5
    objects = DATA.groups["object"]
    for train, test in divide(study(splits="half by object"), DATA, 0):
        for c in range(3):
            seen, unseen = (set(objects[rows][Y[rows] == c]) for rows in (train, test))
            assert len(seen) == len(unseen) == 5
            assert not seen & unseen
    own = divide(study(splits="own", n_splits=3), DATA, 0)
    assert_array_equal(own[0][0], DATA.splits[0][0])
    assert [len(train) for train, _ in own] == [40, 40, 40]
    assert_array_equal(divide(study(splits="half", n_splits=2), DATA, 0)[1][0], halves[1][0])  # fewer, not others


def test_groups_of_the_training_points_are_those_that_splits_hold_out(tmp_path):
    tasks = Tasks(tmp_path, None, 0)
    tasks.source = lambda *_: DATA
    objects = DATA.groups["object"]
    assert tasks.task(study(splits="half"), 0).groups is None
    across = tasks.task(study(splits="each object"), 0)
    within = tasks.task(study(splits="half by object"), 0)
    again = Tasks(tmp_path, None, 0)
    again.source = lambda *_: pytest.fail("they are in the cache")
    assert_array_equal(again.task(study(splits="half by object"), 0).groups, within.groups)
    for task, names in [
        (across, objects[across.rows]),  # an object of all classes is held out at once
        (within, 100 * Y[within.rows] + objects[within.rows]),
    ]:
        assert_array_equal(np.unique(names, return_inverse=True)[1], task.groups)
    assert (len(np.unique(across.groups)), len(np.unique(within.groups))) == (9, 15)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"splits": "thirds"}, "has splits 'thirds'; choose 'half'"),
        ({"splits": "each colour"}, "has no group 'colour'; it knows object"),
    ],
)
def test_splits_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        divide(study(**settings), DATA, 0)
    with pytest.raises(ValueError, match="no splits of its own"):
        divide(study(splits="own"), replace(DATA, splits=()), 0)


def test_points_come_from_the_cache_the_second_time(tmp_path):
    small = study(subset=100)
    first = Tasks(tmp_path, None, 0).task(small, 0)
    files = sorted(path.name for path in tmp_path.iterdir())
    again = Tasks(tmp_path, None, 0).task(small, 0)
    assert len(files) == 1
    assert_array_equal(first.X, again.X)
    assert (len(first.y), len(first.y_test)) == (50, 50)
    assert isinstance(first.geometry, JBLD)
    assert len(Tasks(tmp_path, None, 1).task(small, 0).y) == 50
    assert len(list(tmp_path.iterdir())) == 2


def test_histograms_bring_their_cost(tmp_path):
    task = Tasks(tmp_path, None, 0).task(Study("h", "digits-histograms", subset=100, reg=0.2), 0)
    assert isinstance(task.geometry, Sinkhorn)
    assert task.geometry.reg == pytest.approx(0.2 * np.median(task.ground_cost[task.ground_cost > 0]))


def test_wrong_labels_are_as_many_as_asked_for_and_only_in_training(tmp_path):
    tasks = Tasks(tmp_path, None, 0)
    clean, noisy = (tasks.task(study(subset=200, label_noise=share), 0) for share in (0.0, 0.2))
    assert (clean.y != noisy.y).sum() == 20
    assert_array_equal(clean.y_test, noisy.y_test)


def test_a_share_of_the_training_points_is_learned_from_and_all_are_tested(tmp_path):
    tasks = Tasks(tmp_path, None, 0)
    whole, tenth = (tasks.task(study(subset=400, train_share=share), 1) for share in (1.0, 0.1))
    assert (len(whole.y), len(tenth.y), len(tenth.y_test)) == (200, 20, 200)
    assert set(tenth.rows) < set(whole.rows)
    assert set(tenth.y) == set(whole.y)
    assert_array_equal(tenth.X, whole.X[np.isin(whole.rows, tenth.rows)])
    assert_array_equal(tenth.y_test, whole.y_test)


def test_a_descriptor_that_learns_sees_the_training_part_alone(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    images = [rng.random((24, 24)) for _ in range(40)]
    data = ImageDataset(images, np.repeat([0, 1], 20), ("a", "b"), "nobody")
    seen = []

    class Words:
        def __init__(self, n_words=4):
            self.n_words = n_words

        def get_params(self):
            return {}

        def fit(self, X, y):
            seen.append(len(X))
            return self

        def transform(self, X):
            return np.ones((len(X), 4))

    monkeypatch.setattr("knnpress.descriptors.BagOfWords", Words)
    tasks = Tasks(tmp_path, None, 0)
    tasks.source = lambda *_: data
    made = tasks.task(replace(study(), descriptor=({"kind": "BagOfWords", "n_words": 4},)), 0)
    assert seen == [20]
    assert made.X.shape == made.X_test.shape == (20, 4)
    wrong = replace(study(), descriptor=({"kind": "SPDProjection", "n_dims": 2}, {"kind": "ShapeContext"}))
    with pytest.raises(ValueError, match="a descriptor that learns nothing comes first"):
        tasks.task(wrong, 0)
    with pytest.raises(ValueError, match="there is no descriptor 'Magic'; choose one of BagOfWords"):
        tasks.task(replace(study(), descriptor=({"kind": "Magic"},)), 0)


def test_a_source_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.npz is not there; give a folder of images"):
        Tasks(tmp_path, None, 0).task(Study("d", "nowhere.npz"), 0)


BAD_STUDY = """
[[study]]
data = "bad"
source = "points.npz"
n_splits = 1
methods = ["full"]
"""


@pytest.fixture
def bad_points(tmp_path, monkeypatch):
    """A plan for points of which one to train on is not a covariance matrix, and its row."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.toml").write_text(BAD_STUDY)
    data, (bad,) = load_digits_covariances(), load_plan("plan.toml").studies
    X, y = data.X[:600].copy(), data.y[:600]
    row = divide(bad, replace(data, X=X, y=y), 0)[0][0][80]
    X[row] *= -1.0
    np.savez("points.npz", X=X, y=y)
    return bad, row


def test_points_of_a_file_are_refused_by_their_row_and_mended_ones_are_read_again(bad_points):
    bad, row = bad_points
    tasks = [Tasks(Path("cache"), None, seed=0) for _ in range(2)]
    with pytest.raises(InvalidPointError, match=rf"points\.npz: X\[{row}\] is not positive definite"):
        tasks[0].task(bad, 0)
    data = load_digits_covariances()
    np.savez("points.npz", X=data.X[:600], y=data.y[:600])
    assert len(tasks[1].task(bad, 0).X) == 300


@pytest.mark.slow  # its cause is tested by test_nothing_native_is_left_behind_when_python_ends_at_once
def test_an_experiment_that_ends_in_an_error_leaves_nothing_native_behind(bad_points):
    """The kernels give up in one of several threads, and what they worked on is let go: nanobind tells of no leaks."""
    code = """
import sys
from knnpress.cli import main
from knnpress.experiments import tasks
tasks._checked = lambda data, source: data  # so that it is the kernels that find it
sys.exit(main(["experiment", "plan.toml", "-o", "out"]))
"""
    for _ in range(10):  # which thread is at what is chance
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 2
        assert "is not positive definite" in done.stderr.splitlines()[-1]


def test_classes_too_small_for_a_split_are_named():
    single = replace(DATA, y=np.r_[Y[:-1] * 0, 1], class_names=("a", "lonely"))
    with pytest.raises(ValueError, match="classes of a single point: 'lonely'; add points, or remove them"):
        divide(study(splits="half"), single, 0)
    with pytest.raises(ValueError, match=r"its largest class has 40 points: none would be left to test on"):
        divide(study(splits="40 a class"), DATA, 0)


def test_a_damaged_file_of_the_cache_is_made_anew(tmp_path):
    here = study(subset=60, n_splits=1)
    X = Tasks(tmp_path, None, seed=0).task(here, 0).X
    (kept,) = tmp_path.glob("split-*.npz")
    for damaged in (b"", b"junk", kept.read_bytes()[:-50]):
        kept.write_bytes(damaged)
        assert_array_equal(Tasks(tmp_path, None, seed=0).task(here, 0).X, X)

"""Clouds: storage, indexing, files, checks, and scikit-learn's splitters."""

from __future__ import annotations

import copy
import pickle
import zipfile

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.model_selection import StratifiedKFold, cross_val_score, train_test_split

import knnpress as kp
from knnpress.clouds import equal_steps
from knnpress.datasets import load_groups, load_points
from knnpress.datasets.points import read_raw_points
from knnpress.exceptions import InvalidPointError


def make(n=7, d=3, seed=0):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(rng.integers(1, 6), d)) for _ in range(n)]
    return parts, [rng.uniform(0.1, 2.0, len(part)) for part in parts]


def test_a_list_comes_back():
    parts, weights = make()
    clouds = kp.Clouds.from_list(parts, weights)
    assert clouds.shape == (7, 3)
    assert len(clouds) == 7
    for cloud, part, weight in zip(clouds, parts, weights, strict=True):
        np.testing.assert_array_equal(cloud.points, part)
        np.testing.assert_allclose(cloud.weights, weight / weight.sum())


@pytest.mark.parametrize(
    "rows",
    [slice(2, 5), slice(None, None, 2), slice(4, 2), slice(None, None, -1), [3, 0, 3], np.array([], int), -1, [-2, 1]],
    ids=str,
)
def test_indexing_is_that_of_a_list(rows):
    parts, weights = make()
    clouds = kp.Clouds.from_list(parts, weights)
    wanted = np.arange(7)[rows]
    if np.ndim(wanted) == 0:
        np.testing.assert_array_equal(clouds[rows].points, parts[wanted])
        return
    assert len(clouds[rows]) == len(wanted)
    for cloud, i in zip(clouds[rows], wanted, strict=True):
        np.testing.assert_array_equal(cloud.points, parts[i])
        np.testing.assert_array_equal(cloud.weights, clouds[i].weights)
    assert clouds[rows].table is clouds.table  # nothing is copied


def test_masks_and_what_scikit_learn_asks():
    clouds = kp.Clouds.from_list(*make())
    mask = np.array([True, False, True, False, False, True, False])
    assert clouds[mask] == clouds[[0, 2, 5]] == clouds[np.array([0, 2, 5]), ...]
    with pytest.raises(IndexError, match="7 clouds"):
        clouds[mask[:3]]
    with pytest.raises(IndexError, match="no cloud 7"):
        clouds[7]
    for nothing in ("a", (1, 2), np.array([[0]]), None, np.array([0.5])):
        with pytest.raises(IndexError, match="clouds are indexed by"):
            clouds[nothing]
    with pytest.raises(TypeError, match=r"clouds\.points"):
        np.asarray(clouds)


def test_words_share_their_vectors():
    rng = np.random.default_rng(0)
    counts, vectors = rng.poisson(0.7, (6, 20)), rng.normal(size=(20, 4))
    counts[:, 0] += 1
    clouds = kp.Clouds.from_csr(csr_array(counts), vectors)
    assert clouds.table.shape == (20, 4)
    for row, cloud in zip(counts, clouds, strict=True):
        np.testing.assert_array_equal(cloud.points, vectors[row > 0])
        np.testing.assert_allclose(cloud.weights, row[row > 0] / row.sum())
    np.testing.assert_allclose(clouds.means(), counts @ vectors / counts.sum(axis=1, keepdims=True))


def test_files_hold_the_same_clouds(tmp_path):
    clouds = kp.Clouds.from_list(*make())[[5, 1, 1]]
    clouds.save(tmp_path / "clouds.npz")
    assert kp.Clouds.load(tmp_path / "clouds.npz") == clouds
    (tmp_path / "other.npz").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match=r"other\.npz holds no clouds"):
        kp.Clouds.load(tmp_path / "other.npz")


def test_labels_are_saved_beside_the_clouds(tmp_path):
    clouds = kp.Clouds.from_list([[[0.0]], [[1.0], [2.0]], [[3.0]]])
    path = tmp_path / "clouds.npz"
    clouds.save(path)
    with pytest.raises(ValueError, match=r"has no labels; save them beside the clouds, clouds.save\(path, y=labels\)"):
        load_points(path)
    clouds.save(path, y=["a", "b", "a"], author=np.array([1, 2, 3]))
    data = load_points(path)
    assert data.X == clouds == kp.Clouds.load(path)
    assert (data.class_names, data.y.tolist()) == (("a", "b"), [0, 1, 0])
    assert load_groups(path, "author").tolist() == [1, 2, 3]
    with pytest.raises(ValueError, match=r"y has shape \(2,\); give one entry for each of 3 clouds"):
        clouds.save(path, y=["a", "b"])
    with pytest.raises(ValueError, match=r"index is what the clouds themselves consist of"):
        clouds.save(path, index=[1, 2, 3])
    with pytest.raises(ValueError, match=r"holds clouds, which were checked as they were read"):
        read_raw_points(path)


def test_copies_and_pickles_hold_the_same_clouds_and_no_more_than_these(tmp_path):
    clouds = kp.Clouds.from_list(*make(50))
    for other in (pickle.loads(pickle.dumps(clouds)), copy.copy(clouds), copy.deepcopy(clouds), clouds.copy()):
        assert other == clouds
    few = pickle.loads(pickle.dumps(clouds[[7, 3]]))
    assert few == clouds[[7, 3]]
    assert len(few.table) == few.sizes.sum()  # not the points of all 50
    rng = np.random.default_rng(0)
    words = kp.Clouds.from_csr(csr_array(rng.poisson(1.0, (20, 9)) + 1), rng.normal(size=(9, 2)))
    assert pickle.loads(pickle.dumps(words[3:])).table.shape == (9, 2)  # still shared
    assert pickle.loads(pickle.dumps(words)) == words


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    clouds = kp.Clouds.from_list(*make())
    clouds.save(tmp_path / "clouds.npz")

    def fail(file, **arrays):
        file.write(b"half of it")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="disk full"):
        clouds[:2].save(tmp_path / "clouds.npz")
    assert kp.Clouds.load(tmp_path / "clouds.npz") == clouds
    assert [path.name for path in tmp_path.iterdir()] == ["clouds.npz"]


def test_points_of_single_precision_become_doubles_and_inputs_stay_as_they_are():
    parts, weights = make()
    points = np.concatenate(parts).astype(np.float32)
    offsets, mass = np.cumsum([0, *map(len, parts)]), np.concatenate(weights)
    before = points.copy(), offsets.copy(), mass.copy()
    clouds = kp.Clouds(points, offsets, mass)
    assert clouds == kp.Clouds(points.astype(np.float64), offsets, mass)
    assert clouds.table.dtype == np.float64
    for given, kept in zip((points, offsets, mass), before, strict=True):
        np.testing.assert_array_equal(given, kept)


def stored(n=7):
    parts, weights = make(n)
    points, offsets = np.concatenate(parts), np.cumsum([0, *map(len, parts)])
    return kp.StoredClouds(points, offsets, np.concatenate(weights)), kp.Clouds.from_list(parts, weights)


def test_indexing_brings_stored_clouds_into_memory():
    lazy, clouds = stored()
    assert (lazy.shape, len(lazy), lazy.sizes.tolist()) == ((7, 3), 7, clouds.sizes.tolist())
    assert repr(lazy) == f"Stored{clouds!r}"
    for rows in (slice(None), slice(2, 5), slice(-3, None), slice(5, 2), slice(3, 3)):
        assert lazy[rows] == clouds[rows]
    for one, other in zip(lazy, clouds, strict=True):
        np.testing.assert_array_equal(one.points, other.points)
        np.testing.assert_allclose(one.weights, other.weights)
    np.testing.assert_array_equal(lazy[-1].points, clouds[-1].points)
    mask = np.arange(7) % 3 == 0
    for rows in ([1, 4, 6], [6, 0, 0], np.array([-1]), mask, mask.tolist(), slice(None, None, -2), np.array([], int)):
        assert lazy[rows] == clouds[rows]
    assert pickle.loads(pickle.dumps(lazy))[:] == clouds
    with pytest.raises(IndexError, match="no cloud 7; there are 7"):
        lazy[7]
    for rows in ("a", None, (1, 2), np.array([0.5]), np.ones(6, bool)):
        with pytest.raises(IndexError, match=r"clouds"):
            lazy[rows]
    with pytest.raises(TypeError, match=r"X\[:\] brings them into memory"):
        np.asarray(lazy)


def test_offsets_of_stored_clouds_may_stand_for_a_part_of_the_points():
    lazy, clouds = stored()
    first, rest = (kp.StoredClouds(lazy.points, part, lazy.weights) for part in (lazy.offsets[:4], lazy.offsets[3:]))
    assert first[:] == clouds[:3]
    assert rest[:] == clouds[3:]
    assert rest[[0, 2]] == clouds[[3, 5]]
    assert rest.nbytes == clouds[3:].nbytes


@pytest.mark.parametrize("chunks", [None, (4, 3)])
def test_points_at_equal_steps_are_those_of_clouds_in_memory(chunks):
    """Of stores that can only be sliced, whatever their chunks."""
    lazy, clouds = stored(9)

    class Sliced:
        shape, dtype = lazy.points.shape, lazy.points.dtype

        def __getitem__(self, rows):
            assert isinstance(rows, slice)
            return lazy.points[rows]

    store = Sliced()
    store.chunks = chunks
    X = kp.StoredClouds(store, lazy.offsets)
    kept = np.array([0, 2, 3, 8])
    for most in (1, 5, 1000):
        np.testing.assert_array_equal(X.some_points(most), clouds.points[equal_steps(len(clouds.points), most)])
        few = clouds[kept].points
        np.testing.assert_array_equal(X.some_points(most, kept), few[equal_steps(len(few), most)])
    assert X[kept] == kp.Clouds.from_list([clouds[i].points for i in kept])


@pytest.mark.parametrize(
    ("points", "offsets", "weights", "error", "said"),
    [
        ([[0.0], [1.0]], [0, 2], None, TypeError, "points is a list; give a memory map.* there is knnpress.Clouds"),
        (np.zeros(3), [0, 3], None, ValueError, r"points has shape \(3,\); expected"),
        (np.zeros((3, 1), complex), [0, 3], None, ValueError, "points has dtype complex128; store it as plain numbers"),
        (np.zeros((3, 1)), [0, 4], None, ValueError, "offsets goes from 0 to 4, and there are 3 points"),
        (np.zeros((3, 1)), [0, 2, 1], None, ValueError, "offsets does not ascend: cloud 1 begins at 2"),
        (np.zeros((3, 1)), [0, 2, 2, 3], None, InvalidPointError, "cloud 1 is empty"),
        (np.zeros((3, 1)), [0.0, 3.0], None, ValueError, "give n . 1 whole numbers"),
        (np.zeros((3, 1)), [0, 3], [1.0], ValueError, r"weights has shape \(1,\); give one weight for each of the 3"),
    ],
)
def test_bad_stored_clouds_are_refused_at_once(points, offsets, weights, error, said):
    with pytest.raises(error, match=said):
        kp.StoredClouds(points, offsets, weights)


def test_bad_points_and_weights_in_a_store_are_named_among_all_when_they_are_read():
    points, offsets, weights = np.zeros((6, 2)), [0, 2, 4, 6], np.ones(6)
    points[5, 1], weights[3] = np.inf, 0.0
    lazy = kp.StoredClouds(points, offsets, weights)
    assert len(lazy[:1]) == 1
    with pytest.raises(InvalidPointError, match=r"the weight of point 1 of cloud 1 is 0\.0"):
        lazy[1:2]
    with pytest.raises(InvalidPointError, match="point 1 of cloud 2 contains NaN or infinity"):
        lazy[2:]
    with pytest.raises(InvalidPointError, match="point 1 of cloud 2 contains NaN or infinity"):
        lazy[[2, 0]]


def test_equality_sees_points_weights_and_cuts():
    clouds = kp.Clouds([[0.0], [1.0], [2.0]], [0, 1, 3])
    assert clouds == kp.Clouds([[0.0], [1.0], [2.0]], [0, 1, 3], [3.0, 1.0, 1.0])
    assert clouds != kp.Clouds([[0.0], [1.0], [2.0]], [0, 2, 3])
    assert clouds != kp.Clouds([[0.0], [1.0], [2.5]], [0, 1, 3])
    assert clouds != kp.Clouds([[0.0], [1.0], [2.0]], [0, 1, 3], [1.0, 1.0, 2.0])
    assert repr(clouds) == "Clouds(2 clouds of 1 to 2 points in 1 dimension)"


@pytest.mark.parametrize(
    ("points", "offsets", "weights", "said"),
    [
        ([[0.0], [1.0], [np.nan]], [0, 1, 3], None, "point 1 of cloud 1 contains NaN or infinity"),
        ([[0.0], [1e200], [0.0]], [0, 1, 3], None, "point 0 of cloud 1 has an entry of size 1.0e"),
        ([[0.0], [1.0], [2.0]], [0, 1, 1, 3], None, "cloud 1 is empty, the only one of 3 clouds; remove them"),
        ([[0.0], [1.0], [2.0]], [0, 2, 1, 3], None, "offsets does not ascend: cloud 1 begins at 2 and ends at 1"),
        ([[0.0], [1.0], [2.0]], [0, 2], None, "offsets goes from 0 to 2; .* number of points, 3"),
        ([[0.0], [1.0], [2.0]], [0.0, 3.0], None, "dtype float64; give n . 1 whole numbers"),
        ([[0.0], [1.0], [2.0]], [0, 1, 3], [1, 1, 0], "weight of point 1 of cloud 1 is 0.0"),
        ([[0.0], [1.0], [2.0]], [0, 1, 3], [-1, 1, 1], "weight of point 0 of cloud 0 is -1.0"),
        ([[0.0], [1.0], [2.0]], [0, 1, 3], [1, 1], "give one weight for each of the 3 points"),
        ([0.0, 1.0, 2.0], [0, 1, 3], None, r"points has shape \(3,\)"),
    ],
)
def test_bad_clouds_are_named(points, offsets, weights, said):
    with pytest.raises(ValueError, match=said):
        kp.Clouds(points, offsets, weights)


def test_bad_lists_and_documents_are_named():
    with pytest.raises(ValueError, match="cloud 1 has points of 3 dimensions and cloud 0 of 2"):
        kp.Clouds.from_list([np.zeros((2, 2)), np.zeros((2, 3))])
    with pytest.raises(ValueError, match=r"weights of cloud 1 have shape \(1,\)"):
        kp.Clouds.from_list([np.zeros((2, 2)), np.zeros((2, 2))], [[1, 1], [1]])
    with pytest.raises(ValueError, match="no clouds"):
        kp.Clouds.from_list([])
    with pytest.raises(InvalidPointError, match=r"row 1 of the matrix is all zero, .* without a known word"):
        kp.Clouds.from_csr(csr_array([[1, 0], [0, 0]]), np.eye(2))
    with pytest.raises(ValueError, match="2 columns and there are 3 vectors"):
        kp.Clouds.from_csr(csr_array([[1, 0]]), np.eye(3))
    with pytest.raises(InvalidPointError, match="vector 1 contains NaN"):
        kp.Clouds.from_csr(csr_array([[1, 0]]), [[0.0], [np.inf]])


@pytest.mark.parametrize(
    ("points", "said"),
    [
        (np.array([["0", "1"], ["2", "3"]]), "points cannot be read as numbers: it holds text"),
        (np.array([[0, 1], [2, 3]], dtype="m8[s]"), "points cannot be read as numbers: it holds times"),
        (np.array([[0, 1j], [2, 3]]), "Complex data not supported: points"),
        (np.ma.array([[0.0, 1.0], [2.0, 3.0]], mask=np.eye(2)), r"points\[0\] is masked"),
    ],
    ids=["text", "times", "complex", "masked"],
)
def test_what_is_not_a_number_is_refused_wherever_clouds_are_made(points, said):
    with pytest.raises(ValueError, match=said):
        kp.Clouds(points, [0, 1, 2])
    with pytest.raises(ValueError, match=said.replace("points", "cloud 1")):
        kp.Clouds.from_list([np.zeros((2, 2)), points])
    with pytest.raises(ValueError, match=said.replace("points", "vectors")):
        kp.Clouds.from_csr(csr_array(np.eye(2)), points)
    with pytest.raises(ValueError, match=said.replace("points", "weights")):
        kp.Clouds(np.zeros((2, 2)), [0, 1, 2], points[:, 0])


def test_files_that_hold_no_clouds_are_refused(tmp_path):
    """Archives that are cut off or damaged, single arrays, other arrays, and one that grows beyond measure."""
    kp.Clouds.from_list(*make()).save(tmp_path / "good.npz")
    content = (tmp_path / "good.npz").read_bytes()
    np.save(tmp_path / "array.npy", np.eye(3))
    np.savez(tmp_path / "other.npz", X=np.eye(3))
    (tmp_path / "cut.npz").write_bytes(content[:-30])
    (tmp_path / "empty.npz").write_bytes(b"")
    spoilt = bytearray(content)
    spoilt[200] ^= 1  # in an array: its checksum tells
    (tmp_path / "spoilt.npz").write_bytes(spoilt)
    bomb = zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED)
    with bomb as archive, archive.open("table.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**15, 1100)})
        for _ in range(275):
            file.write(bytes(2**20))
    for name in ("array.npy", "other.npz", "cut.npz", "empty.npz", "spoilt.npz", "bomb.npz"):
        with pytest.raises(ValueError, match=rf"{name} holds no clouds"):
            kp.Clouds.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        kp.Clouds.load(tmp_path / "nowhere.npz")


class Means(ClassifierMixin, BaseEstimator):
    """The class whose mean of cloud means is nearest."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.means_ = np.stack([X[y == c].means().mean(axis=0) for c in self.classes_])
        return self

    def predict(self, X):
        return self.classes_[((X.means()[:, None] - self.means_) ** 2).sum(axis=2).argmin(axis=1)]


def test_scikit_learn_cuts_clouds():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 20)
    clouds = kp.Clouds.from_list([rng.normal(3 * c, 1, (4, 2)) for c in y])
    assert cross_val_score(Means(), clouds, y, cv=StratifiedKFold(4)).mean() == 1.0
    train, test, y_train, _ = train_test_split(clouds, y, test_size=0.25, stratify=y, random_state=0)
    assert len(train) == len(y_train) == 30
    assert len(test) == 10
    lazy = kp.StoredClouds(clouds.points, clouds.offsets)
    assert cross_val_score(Means(), lazy, y, cv=StratifiedKFold(4)).mean() == 1.0
    assert train_test_split(lazy, y, test_size=0.25, stratify=y, random_state=0)[0] == train

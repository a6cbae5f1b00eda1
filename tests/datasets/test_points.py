"""Points from NumPy and MATLAB files."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from points import GROUND_COST, histograms, spd
from scipy.io import savemat

from knnpress.datasets import load_points, load_unlabelled

Y = np.array([3, 1, 3, 2, 1])


@pytest.fixture
def X(rng):
    return spd(rng, 5, 3)


def check(data, X):
    assert_array_equal(data.X, X)
    assert data.X.dtype == np.float64
    assert data.y.tolist() == [2, 0, 2, 1, 0]
    assert data.class_names == ("1", "2", "3")


def test_npz(tmp_path, X):
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    check(load_points(tmp_path / "a.npz"), X)
    np.savez(tmp_path / "b.npz", covariances=X, labels=Y)
    check(load_points(tmp_path / "b.npz"), X)


def test_npz_of_histograms_with_names(tmp_path, rng):
    H, y = histograms(rng, 4), np.array([2, 0, 2, 0])
    np.savez(tmp_path / "a.npz", X=H, y=y, ground_cost=GROUND_COST, class_names=np.array(["cat", "dog", "eel"]))
    data = load_points(tmp_path / "a.npz")
    assert_array_equal(data.y, y)
    assert data.class_names == ("cat", "dog", "eel")
    assert_array_equal(data.ground_cost, GROUND_COST)
    np.savez(tmp_path / "b.npz", X=H, y=np.array(["dog", "cat", "dog", "cat"]))
    assert load_points(tmp_path / "b.npz").class_names == ("cat", "dog")


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("3\n1\n3\n2\n1\n", None),
        ("label\n3\n1\n3\n2\n1\n", None),
        ("label,file\n3,a\n1,b\n3,c\n2,d\n1,e\n", None),
        ("a,3\nb,1\nc,3\nd,2\ne,1\n", "other.csv"),
    ],
)
def test_npy_with_labels_in_csv(tmp_path, X, text, labels):
    np.save(tmp_path / "a.npy", X)
    (tmp_path / (labels or "a.csv")).write_text(text)
    check(load_points(tmp_path / "a.npy", None if labels is None else tmp_path / labels), X)


def test_matlab(tmp_path, X):
    cells = np.empty((1, 5), dtype=object)
    cells[0] = list(X)
    for k, stack in enumerate([X, X.transpose(1, 2, 0), cells]):
        savemat(tmp_path / f"{k}.mat", {"X": stack, "y": Y[:, None].astype(float)})
        check(load_points(tmp_path / f"{k}.mat"), X)


def test_matlab_histograms_may_stand_in_columns(tmp_path, rng):
    H = histograms(rng, 5)
    for k, stack in enumerate([H, H.T]):
        savemat(tmp_path / f"{k}.mat", {"X": stack, "y": Y})
        assert_array_equal(load_points(tmp_path / f"{k}.mat").X, H)


def test_points_need_no_labels_where_none_are_asked_for(tmp_path, X):
    np.savez(tmp_path / "a.npz", covariances=X)
    np.save(tmp_path / "b.npy", X)
    savemat(tmp_path / "c.mat", {"X": X})
    savemat(tmp_path / "d.mat", {"X": X.transpose(1, 2, 0)})
    savemat(tmp_path / "e.mat", {"X": X.transpose(1, 2, 0), "y": Y})
    for name in ("a.npz", "b.npy", "c.mat", "d.mat", "e.mat"):
        assert_array_equal(load_unlabelled(tmp_path / name), X)
    np.savez(tmp_path / "f.npz", A=X)
    np.savez(tmp_path / "g.npz", X=X[0, 0])
    with pytest.raises(ValueError, match=r"f.npz has no points: it holds A; name them 'X'"):
        load_unlabelled(tmp_path / "f.npz")
    with pytest.raises(ValueError, match=r"g.npz holds points of shape \(3,\)"):
        load_unlabelled(tmp_path / "g.npz")
    with pytest.raises(FileNotFoundError, match=r"nowhere.npz is not there"):
        load_unlabelled(tmp_path / "nowhere.npz")


@pytest.mark.parametrize("known", [{"y": Y}, {"ground_cost": GROUND_COST}])
def test_unlabelled_histograms_may_stand_in_columns_where_it_can_be_told(tmp_path, rng, known):
    H = histograms(rng, 5)
    assert H.shape[1] != 5
    for k, stack in enumerate([H, H.T]):
        savemat(tmp_path / f"{k}.mat", {"X": stack, **known})
        assert_array_equal(load_unlabelled(tmp_path / f"{k}.mat"), H)


def test_bad_files_are_named(tmp_path, X):
    np.savez(tmp_path / "a.npz", X=X, y=Y[:3])
    np.savez(tmp_path / "b.npz", A=X)
    np.savez(tmp_path / "c.npz", X=X)
    np.savez(tmp_path / "d.npz", X=np.array([{}]), y=Y)
    np.save(tmp_path / "e.npy", X)
    np.save(tmp_path / "f.npy", X)
    (tmp_path / "f.csv").write_text("1\n2\n")
    (tmp_path / "g.npz").write_text("no zip")
    (tmp_path / "h.mat").write_text("no matlab")
    (tmp_path / "i.txt").write_text("1 2 3")
    for name, message in {
        "a.npz": r"a.npz holds points of shape \(5, 3, 3\) and 3 labels",
        "b.npz": r"b.npz has no points: it holds A; name them 'X'",
        "c.npz": r"c.npz has no labels: it holds X; name them 'y'",
        "d.npz": r"d.npz cannot be read as npz",
        "f.npy": r"f.csv holds 2 labels for 5 points",
        "g.npz": r"g.npz cannot be read as npz",
        "h.mat": r"h.mat cannot be read as mat",
        "i.txt": r"i.txt ends in '.txt'",
    }.items():
        with pytest.raises(ValueError, match=message):
            load_points(tmp_path / name)
    with pytest.raises(FileNotFoundError, match=r"looked for in .*e.csv"):
        load_points(tmp_path / "e.npy")
    with pytest.raises(FileNotFoundError, match=r"nowhere.npz is not there"):
        load_points(tmp_path / "nowhere.npz")


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.array([0, np.nan, 1, 1, 0]), r"no label for point 1 \(it is nan\), as for 1 of 5 points; remove them"),
        (np.array([0, np.inf, 1, 1, 0]), r"no label for point 1 \(it is inf\)"),
        (np.array(["a", "b", " ", "b", ""]), r"no label for point 2 \(it is ' '\), as for 2 of 5 points"),
        (np.array(["NaT", "2020", "2021", "2020", "2021"], "M8[Y]"), r"no label for point 0 \(it is None\)"),
        (np.array([0, 1, 0.25, 1, 0]), r"the label 0\.25 for point 2, which is no class"),
        (np.zeros(5, [("a", int)]), r"labels of type \[\('a', '<i8'\)\]; give whole numbers or names"),
        (np.arange(5) * 1j, r"labels of type complex128"),
        (np.array([b"a", b"b", b"a", b"\xff", b"a"]), r"labels that are no UTF-8 text"),
    ],
    ids=["NaN", "infinity", "empty", "NaT", "fraction", "records", "complex", "bytes"],
)
def test_labels_that_are_none_are_refused_with_the_file_and_the_row(labels, message, tmp_path, X):
    """Before, "nan" became a class of its own."""
    np.savez(tmp_path / "a.npz", X=X, y=labels)
    with pytest.raises(ValueError, match=rf"a\.npz has {message}"):
        load_points(tmp_path / "a.npz")
    assert len(load_unlabelled(tmp_path / "a.npz")) == 5


def test_bytes_are_text(tmp_path, X):
    np.savez(tmp_path / "a.npz", X=X, y=np.array([b"a", b"b", b"a", b"b", b"a"]))
    assert load_points(tmp_path / "a.npz").class_names == ("a", "b")


def test_objects_in_a_sound_file_are_called_that(tmp_path, X):
    np.savez(tmp_path / "a.npz", X=X, y=np.array([None] * 5))
    with pytest.raises(ValueError, match=r"holds Python objects.*save its arrays as numbers or text$"):
        load_points(tmp_path / "a.npz")

"""What `knnpress doctor` finds in a file of points, and what its mended copy is worth."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from points import GROUND_COST, histograms, labelled, spd
from scipy.io import savemat

import knnpress as kp
from knnpress.cli import main
from knnpress.datasets import load_points
from knnpress.datasets.doctor import PointSet, examine, mend, shrink, suggested_shrinkage
from knnpress.geometries import JBLD, Sinkhorn

N = 12


@pytest.fixture
def doctor(capsys):
    """Runs the command; returns its status, output and errors."""

    def run(*arguments):
        status = main(["doctor", *map(str, arguments)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


def matrices(n=N):
    return labelled("jbld", n)


def points_of(X, y=None, cost=None, kind=None):
    X = np.asarray(X, dtype=float)
    kind = kind or ("matrices" if X.ndim == 3 else "histograms" if cost is not None else "vectors")
    return PointSet(X, kind, None if y is None else np.asarray(y), None, cost, np.arange(len(X)))


def by_name(findings):
    return {finding.what: finding for finding in findings}


def problems(findings):
    return {finding.what for finding in findings if finding.severity == "problem"}


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


# ---- what is found


def indefinite(X):
    X[3] = np.diag([1.0, 2.0, -0.5, 1.0])


def rank_one(X):
    X[[2, 5]] = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0])


def constant_feature(X):
    X[4, 1, :] = X[4, :, 1] = 0.0


def put(value, *at):
    def spoil(X):
        X[at] = value

    return spoil


MATRIX_FAULTS = {
    "NaN or infinity": (put(np.nan, 3, 1, 2), [3], r"nan in X\[3\] at \[1, 2\]", "drop"),
    "not symmetric": (put(9.0, 6, 0, 1), [6], r"at X\[6\]", "symmetrise"),
    "all zero": (put(0.0, 7), [7], r"X\[7\]", "drop"),
    "far from positive definite": (indefinite, [3], r"smallest eigenvalue -5\.0e-01, largest 2\.0e\+00", "drop"),
    "not positive definite": (rank_one, [2, 5], r"rank 1 of 4 at X\[2\]", "shrink"),
}


@pytest.mark.parametrize("what", MATRIX_FAULTS)
def test_every_fault_of_a_matrix_is_found_by_row(what):
    spoil, rows, seen, remedy = MATRIX_FAULTS[what]
    X, y = matrices()
    assert not problems(examine(points_of(X, y)))
    spoil(X)
    found = by_name(examine(points_of(X, y)))[what]
    assert found.rows.tolist() == rows
    assert re.search(seen, found.found)
    assert (found.severity, found.remedy) == ("problem", remedy)
    assert len(found.cure) > 5


def test_a_constant_feature_is_named():
    X, y = matrices()
    constant_feature(X)
    found = by_name(examine(points_of(X, y)))["not positive definite"]
    assert "constant features: 1" in found.found


def test_what_check_refuses_and_what_the_doctor_calls_a_problem_agree(rng):
    for _ in range(60):
        A = rng.normal(size=(1, 4, 4))
        X = A + A.transpose(0, 2, 1) + rng.uniform(-3, 9) * np.eye(4)
        try:
            JBLD().check(X)
            sound = True
        except kp.exceptions.InvalidPointError:
            sound = False
        assert sound == (not problems(examine(points_of(X))))


def test_a_nearly_singular_matrix_is_a_note_unless_its_units_alone_are_to_blame():
    units = np.diag([1e-9, 1.0, 1e9])
    X = np.stack([units] * 2)
    assert "nearly singular" not in by_name(examine(points_of(X)))
    X[1] = np.eye(3) + (1 - 1e-13) * (np.ones((3, 3)) - np.eye(3))
    found = by_name(examine(points_of(X)))["nearly singular"]
    assert (found.severity, found.rows.tolist()) == ("note", [1])


@pytest.mark.parametrize(
    ("spoil", "what", "rows", "severity"),
    [
        (put(-0.25, 2, 3), "negative bins", [2], "problem"),
        (put(0.0, 5), "empty histograms", [5], "problem"),
        (put(np.inf, 1, 0), "NaN or infinity", [1], "problem"),
        (put(7.0, 3, 3), "not of sum one", [], "note"),
        (put(0.0, slice(None), 2), "bins that are always empty", [], "note"),
    ],
)
def test_every_fault_of_a_histogram_is_found(rng, spoil, what, rows, severity):
    X = histograms(rng, N)
    assert examine(points_of(X, np.arange(N) % 2, GROUND_COST)) == []
    spoil(X)
    found = by_name(examine(points_of(X, np.arange(N) % 2, GROUND_COST)))[what]
    assert (found.rows.tolist(), found.severity) == (rows, severity)


def cost(**changes):
    M = GROUND_COST.copy()
    for at, value in changes.values():
        M[at] = value
    return M


@pytest.mark.parametrize(
    ("M", "what", "severity"),
    [
        (GROUND_COST[:4, :4], "ground cost of another size", "problem"),
        (cost(a=((0, 1), -1.0)), "ground cost with NaN, infinity or negatives", "problem"),
        (cost(a=((0, 1), np.nan)), "ground cost with NaN, infinity or negatives", "problem"),
        (cost(a=((0, 1), 5.0)), "ground cost is not symmetric", "problem"),
        (cost(a=((0, 0), 1.0)), "staying costs something", "note"),
        (cost(a=((0, 1), 0.0), b=((1, 0), 0.0)), "different bins at no cost", "note"),
        (cost(a=((0, 1), 1e9), b=((1, 0), 1e9)), "ground cost of huge range", "note"),
    ],
)
def test_every_fault_of_a_ground_cost_is_found(rng, M, what, severity):
    found = by_name(examine(points_of(histograms(rng, N), np.arange(N) % 2, M)))[what]
    assert found.severity == severity


def test_faults_of_vectors_and_of_scale(rng):
    X = rng.normal(size=(N, 4))
    assert examine(points_of(X, np.arange(N) % 2)) == []
    X[:, 1] = 3.0
    X[:, 2] *= 1e9
    names = by_name(examine(points_of(X, np.arange(N) % 2)))
    assert {"constant features", "features of unlike scale"} == set(names)
    assert "histograms without a ground cost" in by_name(examine(points_of(histograms(rng, N), kind="vectors")))
    X[4] = 1e200
    found = by_name(examine(points_of(X)))["numbers near the end of the range of doubles"]
    assert found.rows.tolist() == [4]
    assert (found.remedy, found.cure[:11]) == ("drop", "remove them")  # no scale suits all
    found = by_name(examine(points_of(1e200 * X[:4])))["numbers near the end of the range of doubles"]
    assert (found.remedy, found.cure[:35]) == ("", "divide all points by one number, e.")


@pytest.mark.parametrize(
    ("y", "what", "severity"),
    [
        (None, "no labels", "note"),
        (["a"] * N, "a single class", "problem"),
        (["a", "b"] * 5 + ["a", "c"], "classes of one point", "note"),
        (["a", "b"] * 5 + ["a", " "], "missing labels", "problem"),
        ([0.0, 1.0] * 5 + [0.0, np.nan], "missing labels", "problem"),
        ([0.0, 1.0] * 5 + [0.0, 0.3], "labels that are not classes", "problem"),
    ],
)
def test_every_fault_of_labels_is_found(y, what, severity):
    found = by_name(examine(points_of(matrices()[0], y)))[what]
    assert found.severity == severity


def test_equal_points_are_a_contradiction_in_different_classes_and_a_note_in_one():
    X, y = matrices()
    X[4], X[9] = X[1], X[0]  # classes 1 and 1; 0 and 0
    assert by_name(examine(points_of(X, y)))["copies"].rows.tolist() == [0, 1, 4, 9]
    X[5] = X[1]
    found = by_name(examine(points_of(X, y)))
    assert found["equal points of different classes"].rows.tolist() == [1, 4, 5]
    assert found["copies"].rows.tolist() == [0, 9]
    assert "classes 1, 2" in found["equal points of different classes"].found


def test_zeros_of_either_sign_are_equal():
    X = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 1.0]])
    assert "equal points of different classes" in by_name(examine(points_of(X, [0, 1, 0])))


# ---- mending


def all_faults():
    X, y = matrices(30)
    rank_one(X)
    X[1, 0, 3] += 1e-3
    X[3, 0, 0], X[8] = np.nan, 0.0
    X[13] = X[14]
    X[20] = np.diag([1.0, 1.0, 1.0, -1.0])
    return X, y


def test_mended_matrices_are_sound_and_the_points_are_as_before():
    X, y = all_faults()
    before = X.copy()
    spoilt = points_of(X, y)
    healthy = mend(spoilt, examine(spoilt))
    assert not problems(examine(healthy))
    JBLD().check(healthy.X)
    assert healthy.row.tolist() == [i for i in range(30) if i not in (3, 8, 13, 14, 20)]
    np.testing.assert_array_equal(X, before)
    same = np.isin(healthy.row, [0, 4, 6, 7])
    np.testing.assert_allclose(healthy.X[same], X[[0, 4, 6, 7]], rtol=2e-6)
    np.testing.assert_array_equal(healthy.y, y[healthy.row])


def test_healthy_points_are_left_alone():
    X, y = matrices()
    np.testing.assert_array_equal(mend(points_of(X, y), []).X, X)


@pytest.mark.parametrize("smallest", [0.0, -1e-9, -1e-4, -0.01])
def test_the_suggested_shrinkage_is_enough_and_a_tenth_is_not_offered_for_nothing(smallest):
    frame = np.linalg.qr(np.random.default_rng(3).normal(size=(5, 5)))[0]
    X = ((frame * [smallest, 0.3, 1.0, 1.2, 1.5]) @ frame.T)[None]
    X = 0.5 * (X + X.transpose(0, 2, 1))
    share = suggested_shrinkage(X)
    JBLD().check(shrink(X, share))
    assert 1e-6 <= share <= max(1e-6, 40 * 5 * abs(smallest))


def test_shrinking_does_not_depend_on_units(rng):
    X, units = spd(rng, 3), np.array([1e-6, 1.0, 1e3, 1e6])
    scaled = X * units[:, None] * units
    np.testing.assert_allclose(shrink(scaled, 0.01), shrink(X, 0.01) * units[:, None] * units)


# ---- the command


def test_a_healthy_file_gets_0_and_a_sick_one_1(doctor, tmp_path):
    X, y = matrices()
    np.savez(tmp_path / "a.npz", X=X, y=y)
    status, out, err = doctor(tmp_path / "a.npz")
    assert (status, err) == (0, "")
    assert "12 matrices of 4 x 4" in out
    assert "nothing is wrong" in out
    rank_one(X)
    np.savez(tmp_path / "b.npz", X=X, y=y)
    before = digest(tmp_path / "b.npz")
    status, out, _ = doctor(tmp_path / "b.npz")
    assert status == 1
    assert "problem: not positive definite\n  2 of 12 points, rows 2, 5\n  found: " in out
    assert "s = 1e-06" in out
    assert digest(tmp_path / "b.npz") == before


def test_the_mended_copy_can_be_learned_from(doctor, tmp_path):
    X, y = all_faults()
    np.savez(tmp_path / "a.npz", X=X, y=y, class_names=["x", "y", "z"], extra=[1, 2])
    before = digest(tmp_path / "a.npz")
    status, out, err = doctor(tmp_path / "a.npz", "--fix", "-o", tmp_path / "b.npz")
    assert status == 0
    assert "mended copy" in out
    assert "left out of the copy: extra" in err
    assert digest(tmp_path / "a.npz") == before
    data = load_points(tmp_path / "b.npz")
    assert data.class_names == ("x", "y", "z")
    kp.PrototypeClassifier("jbld").fit(data.X, data.y)
    with np.load(tmp_path / "b.npz") as file:
        np.testing.assert_array_equal(y[file["row"]], data.y)
    assert doctor(tmp_path / "b.npz")[0] == 0


def test_histograms_are_mended_too(doctor, tmp_path, rng):
    X, y = histograms(rng, N), np.arange(N) % 2
    X[2, 3], X[5] = -1e-3, 0.0
    np.savez(tmp_path / "a.npz", X=X, y=y, ground_cost=cost(a=((0, 1), 1.1)))
    assert doctor(tmp_path / "a.npz")[0] == 1
    assert doctor(tmp_path / "a.npz", "--fix", "-o", tmp_path / "b.npz")[0] == 0
    data = load_points(tmp_path / "b.npz")
    assert len(data.X) == N - 1
    Sinkhorn(data.ground_cost).pairwise(data.X)


def test_what_cannot_be_mended_is_said(doctor, tmp_path):
    X, y = matrices()
    X[3, 0, 0] = np.nan
    np.savez(tmp_path / "a.npz", X=X, y=np.zeros(N))
    status, out, _ = doctor(tmp_path / "a.npz", "--fix", "-o", tmp_path / "b.npz")
    assert status == 1
    assert "still wrong" in out
    assert "a single class" in out
    np.savez(tmp_path / "c.npz", X=np.full_like(X, np.nan), y=y)
    status, _, err = doctor(tmp_path / "c.npz", "--fix", "-o", tmp_path / "d.npz")
    assert (status, (tmp_path / "d.npz").exists()) == (2, False)
    assert "no point would be left" in err


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"X": np.ones((4, 3, 2)), "y": [0, 1, 0, 1]}, r"no points[\s\S]*shape \(4, 3, 2\)"),
        ({"X": np.ones(4), "y": [0, 1, 0, 1]}, r"no points[\s\S]*shape \(4,\)"),
        ({"X": np.ones((4, 0)), "y": [0, 1, 0, 1]}, r"no points"),
        ({"X": np.ones((4, 2)) * 1j, "y": [0, 1, 0, 1]}, r"not numbers[\s\S]*Complex"),
        ({"X": np.array([["a", "b"]]), "y": [0]}, r"not numbers"),
        ({"X": np.eye(4), "y": [0, 1, 0]}, r"labels do not match[\s\S]*3 labels for 4 points"),
    ],
)
def test_files_that_cannot_be_loaded_at_all_are_explained(doctor, tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", **arrays)
    status, out, _ = doctor(tmp_path / "a.npz")
    assert status == 1
    assert re.search(said, out)
    assert doctor(tmp_path / "a.npz", "--fix", "-o", tmp_path / "b.npz")[0] == 2
    assert not (tmp_path / "b.npz").exists()


def test_npy_mat_and_zarr_are_read(doctor, tmp_path):
    X, y = matrices()
    X[3, 0, 0] = np.nan
    np.save(tmp_path / "a.npy", X)
    assert "note: no labels" in doctor(tmp_path / "a.npy")[1]
    (tmp_path / "a.csv").write_text("\n".join(map(str, y)))
    (tmp_path / "short.csv").write_text("1\n2\n")
    assert "3, of 4 to 4 points" in doctor(tmp_path / "a.npy")[1]
    assert "short.csv holds 2 labels for 12 points" in doctor(tmp_path / "a.npy", "--labels", tmp_path / "short.csv")[1]
    savemat(tmp_path / "b.mat", {"X": X.transpose(1, 2, 0), "y": y})
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "c.zarr", mode="w")
    group["X"], group["y"] = X, y
    for name in ("a.npy", "b.mat", "c.zarr"):
        status, out, _ = doctor(tmp_path / name)
        assert status == 1
        assert "problem: NaN or infinity\n  1 of 12 points, rows 3" in out


def test_wrong_usage_is_told_and_nothing_is_written(doctor, tmp_path):
    X, y = matrices()
    path = tmp_path / "a.npz"
    np.savez(path, X=X, y=y)
    before = digest(path)
    for arguments, said in {
        ("--fix",): "-o MENDED.npz",
        ("-o", tmp_path / "b.npz"): "add --fix",
        ("--shrinkage", 0.1): "add --fix",
        ("--fix", "-o", path): "never changed",
        ("--fix", "-o", tmp_path / "b.txt"): "end in .npz",
        ("--fix", "-o", tmp_path / "no" / "b.npz"): "no folder",
    }.items():
        status, out, err = doctor(path, *arguments)
        assert (status, out) == (2, "")
        assert said in err
    (tmp_path / "link.npz").symlink_to(path)
    assert doctor(path, "--fix", "-o", tmp_path / "link.npz")[0] == 2
    assert digest(path) == before
    assert doctor(tmp_path / "nothing.npz")[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "link.npz"]


def test_a_shrinkage_of_ones_own(doctor, tmp_path):
    X, y = matrices()
    np.savez(tmp_path / "a.npz", X=X, y=y)
    assert doctor(tmp_path / "a.npz", "--fix", "--shrinkage", 0.1, "-o", tmp_path / "b.npz")[0] == 0
    np.testing.assert_array_equal(load_points(tmp_path / "b.npz").X, shrink(X, 0.1))


def test_on_a_terminal_problems_stand_out(doctor, tmp_path, monkeypatch):
    X, y = matrices()
    X[3, 0, 0] = np.nan
    np.savez(tmp_path / "[red].npz", X=X, y=y)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    status, out, _ = doctor(tmp_path / "[red].npz")
    assert status == 1
    assert "[red].npz" in re.sub(r"[\s│]", "", out)
    assert "NaN or infinity" in out


def test_what_is_not_there_may_be_a_folder_too(tmp_path, doctor):
    status, out, err = doctor(tmp_path / "photo")
    assert (status, out) == (2, "")
    assert err == f"knnpress: {tmp_path / 'photo'} is not there; give a folder of images, or a file of points\n"


def test_no_cure_names_an_option_that_no_command_has(tmp_path, doctor, rng):
    for name, size in (("a", 16), ("b", 160)):
        (tmp_path / name).mkdir()
        for k in range(2):
            Image.fromarray(rng.integers(0, 255, (size, size), dtype=np.uint8)).save(tmp_path / name / f"{k}.png")
    _, out, _ = doctor(tmp_path)
    assert "very different sizes" in out
    assert "--max-side" not in out


def test_masks_are_not_taken_for_images_and_missing_ones_are_found(tmp_path, doctor, rng):
    for name in ("a", "b"):
        for k in range(3):
            for folder in ("photos", "photos/masks"):
                (tmp_path / folder / name).mkdir(parents=True, exist_ok=True)
                pixels = rng.integers(0, 255, (16, 16), dtype=np.uint8)
                Image.fromarray(pixels).save(tmp_path / folder / name / f"{k}.png")
    masks = tmp_path / "photos" / "masks"
    status, out, _ = doctor(tmp_path / "photos", "--masks", masks)
    assert status == 0
    assert "6 of 2 classes" in out
    (masks / "a" / "1.png").unlink()
    Image.fromarray(np.zeros((4, 4), np.uint8)).save(masks / "b" / "2.png")
    status, out, _ = doctor(tmp_path / "photos", "--masks", masks)
    assert status == 1
    assert "images without their mask or depth map" in out
    assert "1 of 6 images: a/1.png" in out
    assert "1 of 6 images: b/2.png" in out  # its size is another

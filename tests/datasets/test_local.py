"""Readers of research data: small copies in the same format, and the real ones where they are."""

import io
import os
import zipfile

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from points import spd

from knnpress import datasets
from knnpress.descriptors import RegionCovariance, ShapeContext

LOADERS = {
    "coil20": "coil20.npz",
    "eth80": "eth80_close96.zip",
    "fpha": "fpha_spd63.npz",
    "kth_tips2b": "kth_tips2b_6class_64.zip",
    "kylberg": "kylberg_115.npz",
    "mpeg7": "mpeg7_ce1_partB.zip",
    "scene15": "scene15_120.zip",
}


def loader(name):
    return getattr(datasets, f"load_{name}")


def png(array):
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, "PNG")
    return buffer.getvalue()


def write_zip(path, rng, columns, shape=(6, 5), masks=False):
    """Two classes of two images, and their index."""
    images, lines = [], []
    with zipfile.ZipFile(path, "w") as archive:
        for k in range(4):
            image = rng.integers(0, 256, size=shape).astype(np.uint8)
            file, mask = f"images/{'ab'[k // 2]}/{k}.png", f"masks/{k}.png"
            archive.writestr(file, png(image))
            row = {"file": file, "class": "ab"[k // 2], "label": k // 2}
            if masks:
                archive.writestr(mask, png(image[..., 0] > 99))
                row["mask"] = mask
            lines.append({**row, **{name: values[k] for name, values in columns.items()}})
            images.append(image)
        text = "\n".join([",".join(lines[0]), *(",".join(map(str, line.values())) for line in lines)])
        archive.writestr("index.csv", text + "\n")
    return np.stack(images)


def test_eth80_carries_its_masks_as_opacity(rng, tmp_path):
    groups = {"object_id": [0, 1, 2, 3], "polar_deg": [0, 9, 0, 9], "azimuth_deg": [0, 0, 5, 5]}
    images = write_zip(tmp_path / LOADERS["eth80"], rng, groups, (6, 5, 3), masks=True)
    data = datasets.load_eth80(tmp_path)
    assert_array_equal(data.images[..., :3], images)
    assert_array_equal(data.images[..., 3], np.where(images[..., 0] > 99, 255, 0))
    assert data.y.tolist() == [0, 0, 1, 1]
    assert data.class_names == ("a", "b")
    assert {name: values.tolist() for name, values in data.groups.items()} == groups
    assert "Leibe" in data.citation


def test_kth_tips2b_holds_out_each_sample(rng, tmp_path):
    images = write_zip(tmp_path / LOADERS["kth_tips2b"], rng, {"sample": [0, 1, 0, 1]}, (6, 5, 3))
    data = datasets.load_kth_tips2b(tmp_path)
    assert_array_equal(data.images, images)
    assert [(train.tolist(), test.tolist()) for train, test in data.splits] == [([1, 3], [0, 2]), ([0, 2], [1, 3])]


def test_scene15_keeps_its_split(rng, tmp_path):
    columns = {"number": [1, 2, 1, 2], "split": ["train", "test", "test", "train"]}
    images = write_zip(tmp_path / LOADERS["scene15"], rng, columns)
    data = datasets.load_scene15(tmp_path)
    assert_array_equal(data.images, images)
    assert [(train.tolist(), test.tolist()) for train, test in data.splits] == [([0, 3], [1, 2])]


def test_mpeg7_is_black_and_white(rng, tmp_path):
    images = write_zip(tmp_path / LOADERS["mpeg7"], rng, {"instance": [1, 2, 1, 2]})
    data = datasets.load_mpeg7(tmp_path)
    assert data.images[0].dtype == bool
    assert_array_equal(data.images, images > 0)


@pytest.mark.parametrize("name", ["coil20", "kylberg"])
def test_gray_sets_are_arrays(rng, tmp_path, name):
    images = rng.integers(0, 256, size=(8, 4, 4)).astype(np.uint8)
    extra = {key: np.arange(8) for key in ("view", "angle_deg", "sample", "patch")}
    labels = np.arange(8, dtype=np.int16) // 4
    np.savez(tmp_path / LOADERS[name], images=images, labels=labels, class_names=np.array(["a", "b"]), **extra)
    data = loader(name)(tmp_path)
    assert_array_equal(data.images, images)
    assert data.y.dtype == np.intp
    assert len(data.splits) == 5
    for train, test in data.splits:
        assert sorted([*train, *test]) == list(range(8))
        assert np.bincount(data.y[train]).tolist() == [2, 2]


def test_fpha_is_unpacked(rng, tmp_path):
    X = spd(rng, 4, 3).astype(np.float32)
    arrays = {"dim": np.array([3]), "labels": np.array([0, 1, 0, 1]), "split": np.array([0, 0, 1, 1])}
    arrays |= {"split_names": np.array(["train", "val"]), "number": np.arange(4)}
    np.savez(tmp_path / LOADERS["fpha"], tril=X[(slice(None), *np.tril_indices(3))], **arrays)
    data = datasets.load_fpha(tmp_path)
    assert_array_equal(data.X, np.tril(X) + np.tril(X, -1).transpose(0, 2, 1))
    assert [(train.tolist(), test.tolist()) for train, test in data.splits] == [([0, 1], [2, 3])]
    assert data.groups["split"].tolist() == ["train", "train", "val", "val"]


@pytest.mark.parametrize("name", LOADERS)
def test_a_missing_file_says_where_it_was_looked_for_and_how_to_get_it(name, tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match=f"{LOADERS[name]} was looked for in .*{tmp_path.name}.*original is at http"
    ):
        loader(name)(tmp_path)
    monkeypatch.setenv("KNNPRESS_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=f"was looked for in .*{tmp_path.name}"):
        loader(name)()
    monkeypatch.delenv("KNNPRESS_DATA")
    with pytest.raises(FileNotFoundError, match="give data_dir, or set the environment variable KNNPRESS_DATA"):
        loader(name)()


@pytest.mark.parametrize("name", LOADERS)
def test_a_file_of_something_else_is_named(name, tmp_path):
    (tmp_path / LOADERS[name]).write_text("neither zip nor npz")
    with pytest.raises(ValueError, match=f"{LOADERS[name]} cannot be read"):
        loader(name)(tmp_path)


def test_a_member_that_is_missing_or_bad_is_named(rng, tmp_path):
    path = tmp_path / LOADERS["scene15"]
    header = "file,class,label,number,split\n"
    for content, message in [("no image", r"x.png of .*scene15_120.zip cannot be read"), (None, "images/x.png")]:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("index.csv", f"{header}images/x.png,a,0,1,train\n")
            if content:
                archive.writestr("images/x.png", content)
        with pytest.raises(ValueError, match=message):
            datasets.load_scene15(tmp_path)


def test_nothing_is_written_by_an_archive_with_paths_that_lead_out(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    with zipfile.ZipFile(folder / LOADERS["scene15"], "w") as archive:
        archive.writestr("index.csv", "file,class,label,number,split\n../escaped.png,a,0,1,train\n")
        archive.writestr("../escaped.png", png(np.zeros((3, 3), dtype=np.uint8)))
    assert len(datasets.load_scene15(folder).images) == 1
    assert [path.name for path in tmp_path.rglob("*")] == ["data", LOADERS["scene15"]]


REAL = {
    "coil20": (1440, 20),
    "eth80": (3280, 8),
    "fpha": (1174, 45),
    "kth_tips2b": (2591, 6),
    "kylberg": (4480, 28),
    "mpeg7": (1400, 70),
    "scene15": (4485, 15),
}


@pytest.mark.data
@pytest.mark.skipif("KNNPRESS_DATA" not in os.environ, reason="KNNPRESS_DATA is not set")
@pytest.mark.parametrize("name", REAL)
def test_the_real_set(name):
    try:
        data = loader(name)()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    n, n_classes = REAL[name]
    assert len(data.y) == n
    assert np.unique(data.y).tolist() == list(range(n_classes))
    assert len(data.class_names) == n_classes
    assert all(len(values) == n for values in data.groups.values())
    assert data.splits
    if name == "fpha":
        assert data.X.shape == (n, 63, 63)
        return
    some = [data.images[k] for k in range(0, n, n // 20)]
    if name == "mpeg7":
        assert (ShapeContext(n_jobs=1).fit_transform(some).max(axis=1) < 0.5).all()
    else:
        features = "color-texture" if some[0].ndim == 3 else "gradient"
        assert np.linalg.cond(RegionCovariance(features, n_jobs=1).fit_transform(some)).max() < 1e8

"""The command line, from folders and files to models, tables and CSV."""

import builtins
import csv
import io
import math
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image
from scipy.io import savemat
from sklearn.metrics import confusion_matrix

import knnpress as kp
import knnpress.cli.contents
import knnpress.cli.inspect
from knnpress import compression, descriptors
from knnpress.cli import COMMANDS, main
from knnpress.datasets import load_image_folder, load_points
from knnpress.descriptors.features import FEATURES
from knnpress.names import DESCRIPTORS, METHODS

KNNPRESS = Path(sys.executable).parent / "knnpress"
CLASSES = ("checks", "columns", "rows")


def picture(kind, rng, size=28):
    """Stripes along rows or columns, or both, of varying width and colour, in noise."""
    y, x = np.mgrid[:size, :size] * rng.uniform(0.5, 0.9)
    wave = {"rows": np.sin(y), "columns": np.sin(x), "checks": np.sin(x) * np.sin(y)}[kind]
    colour = 128 + 50 * wave[..., None] * rng.uniform(0.5, 1.0, 3) + rng.normal(0, 30, (size, size, 3))
    return np.clip(colour, 0, 255).astype(np.uint8)


def write_folder(root, n, seed, classes=CLASSES):
    rng = np.random.default_rng(seed)
    for kind in classes:
        (root / kind).mkdir(parents=True)
        for k in range(n):
            Image.fromarray(picture(kind, rng)).save(root / kind / f"{k}.png")
    return root


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Two folders of images, train and test; not to be changed."""
    root = tmp_path_factory.mktemp("photos")
    write_folder(root / "train", 20, seed=0)
    write_folder(root / "test", 12, seed=1)
    return root


@pytest.fixture(scope="module")
def few_photos(tmp_path_factory):
    """A folder of images, enough where learning from them takes long; not to be changed."""
    return write_folder(tmp_path_factory.mktemp("few"), 8, seed=2)


@pytest.fixture(scope="module")
def model(photos, tmp_path_factory):
    """A model of the images in train."""
    path = tmp_path_factory.mktemp("model") / "model.knnp"
    assert main(["compress", str(photos / "train"), "-o", str(path), "--ratio", "0.1"]) == 0
    return path


@pytest.fixture
def vectors(tmp_path, rng):
    """A file of vectors of two classes."""
    y = np.arange(40) % 2
    np.savez(tmp_path / "vectors.npz", X=rng.normal(size=(40, 3)) + 3 * y[:, None], y=y, class_names=["low", "high"])
    return tmp_path / "vectors.npz"


@pytest.fixture
def knnpress_main(capsys):
    """Runs a command; returns its status, output and errors."""

    def run(*arguments):
        status = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    return run


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["item", "prediction", "probability"]
    return rows


def facts(out):
    """Names and values of a plain two-column table."""
    return dict(re.split(r"\s{2,}", line, maxsplit=1) for line in out.splitlines() if re.search(r"\S\s{2,}\S", line))


def failed(result, *words):
    """Whether a command ended with status 2 and a single line that contains the words."""
    status, out, err = result
    assert status == 2
    assert out == ""
    assert err.startswith("knnpress: ")
    assert err.count("\n") == 1
    for word in words:
        assert str(word) in err
    return True


# the whole way


def test_from_a_folder_to_a_model_to_predictions_of_held_out_files(photos, tmp_path, knnpress_main):
    status, out, err = knnpress_main("compress", photos / "train", "-o", tmp_path / "m.knnp", "--ratio", "0.1")
    assert (status, err) == (0, "")
    said = facts(out)
    assert said["descriptor"].startswith("color-texture, the default")
    assert said["prototypes"] == "6 of 60 points"
    assert said["ratio"] == "10.00%"
    assert float(said["training error"].rstrip("%")) < 5
    held_out = [float(said[name].split("%")[0]) for name in ("held-out error", "full 1-NN", "class means")]
    chosen = next(one for one in kp.load(tmp_path / "m.knnp").classifier_.selection_ if one["chosen"])
    assert held_out[0] == pytest.approx(100 * chosen["error"], abs=0.006)
    assert all(0 <= error < 50 for error in held_out)
    assert "on held-out points" in said["chosen"]
    assert said["file size"] == f"{(tmp_path / 'm.knnp').stat().st_size / 1000:.1f} KB"
    assert float(said["seconds"]) >= 0

    status, out, err = knnpress_main("predict", tmp_path / "m.knnp", photos / "test", "-o", tmp_path / "out.csv")
    assert (status, err) == (0, "")
    rows = read_csv(tmp_path / "out.csv")
    assert [row[0] for row in rows] == sorted(f"{kind}/{k}.png" for kind in CLASSES for k in range(12))
    assert {row[1] for row in rows} <= set(CLASSES)
    assert all(1 / 3 < float(row[2]) <= 1 for row in rows)
    error = np.mean([row[0].split("/")[0] != row[1] for row in rows])
    assert error < 0.1

    train, test = load_image_folder(photos / "train"), load_image_folder(photos / "test")
    names = np.array(CLASSES)
    clf = kp.DescriptorClassifier(descriptors.RegionCovariance(), kp.SCC(0.1, random_state=0))
    clf.fit(train.images, names[train.y])
    assert abs(error - (1 - clf.score(test.images, names[test.y]))) <= 0.005
    loaded = kp.load(tmp_path / "m.knnp")
    assert repr(loaded) == repr(clf)
    assert_array_equal(loaded.predict_proba(test.images), clf.predict_proba(test.images))
    assert_array_equal(loaded.classes_, CLASSES)


def test_a_model_of_histograms_of_images_is_what_the_estimator_would_make(few_photos, photos, tmp_path, knnpress_main):
    path = tmp_path / "m.knnp"
    result = knnpress_main("compress", few_photos, "-o", path, "--descriptor", "bag-of-words", "--prototypes", 3)
    assert result[0] == 0
    train, test = (load_image_folder(folder).images for folder in (few_photos, photos / "test"))
    y = np.repeat(CLASSES, 8)
    clf = kp.DescriptorClassifier(descriptors.BagOfWords(random_state=0), kp.SHC(n_prototypes=3, random_state=0)).fit(
        train, y
    )
    loaded = kp.load(path)
    assert loaded.classifier.ground_cost is None
    assert_array_equal(loaded.predict_proba(test), clf.predict_proba(test))
    assert knnpress_main("evaluate", path, photos / "test")[0] == 0


def test_describe_then_compress_then_predict_points(photos, model, tmp_path, knnpress_main):
    for part in ("train", "test"):
        status, out, err = knnpress_main("describe", photos / part, "-o", tmp_path / f"{part}.npz")
        assert (status, err) == (0, "")
    assert facts(out)["X"] == "36 x 19 x 19"
    data = load_points(tmp_path / "train.npz")
    assert data.class_names == CLASSES
    assert_array_equal(data.y, np.repeat([0, 1, 2], 20))
    assert data.ground_cost is None
    folder = load_image_folder(photos / "train")
    assert_array_equal(data.X, descriptors.RegionCovariance().fit_transform(folder.images))

    assert knnpress_main("compress", tmp_path / "train.npz", "-o", tmp_path / "p.knnp", "--ratio", "0.1")[0] == 0
    assert type(kp.load(tmp_path / "p.knnp")).__name__ == "SCC"
    status, out, _ = knnpress_main("predict", tmp_path / "p.knnp", tmp_path / "test.npz")
    _, of_images, _ = knnpress_main("predict", model, photos / "test")
    rows, others = list(csv.reader(out.splitlines())), list(csv.reader(of_images.splitlines()))
    assert [row[0] for row in rows[1:]] == [str(k) for k in range(36)]
    assert [row[1:] for row in rows] == [row[1:] for row in others]


def test_describe_keeps_the_ground_cost_and_goes_without_classes_where_there_are_none(photos, tmp_path, knnpress_main):
    args = ("--descriptor", "grid-histogram")
    assert knnpress_main("describe", photos / "test", "-o", tmp_path / "a.npz", *args)[0] == 0
    assert load_points(tmp_path / "a.npz").ground_cost.shape == (64, 64)
    assert knnpress_main("describe", photos / "test" / "rows", "-o", tmp_path / "b.npz", *args)[0] == 0
    with np.load(tmp_path / "b.npz") as file:
        assert set(file.files) == {"X", "ground_cost"}
        assert_array_equal(file["X"], load_points(tmp_path / "a.npz").X[24:])


@pytest.mark.parametrize("name", DESCRIPTORS)
def test_every_descriptor_has_its_name(name, photos, tmp_path, knnpress_main):
    small = tmp_path / "small"
    for kind in CLASSES[:2]:
        shutil.copytree(photos / "train" / kind, small / kind, ignore=lambda _, files: sorted(files)[3:])
    extra = ()
    if name == "depth":
        shutil.copytree(small, tmp_path / "depth")
        extra = ("--depth", tmp_path / "depth")
    status, _, err = knnpress_main("describe", small, "-o", tmp_path / "p.npz", "--descriptor", name, *extra)
    assert status == 0
    assert ("vocabulary" in err) == (name == "bag-of-words")
    data = load_points(tmp_path / "p.npz")
    assert len(data.X) == 6
    if name in ("local-features", "contour"):
        assert isinstance(data.X, kp.Clouds)
        assert data.ground_cost is None
    else:
        assert (data.ground_cost is None) == (data.X.ndim == 3)


def test_the_names_are_complete():
    assert set(FEATURES) <= set(DESCRIPTORS)
    compressors = {name for name in compression.__all__ if hasattr(getattr(compression, name), "compress")}
    assert compressors - {"Compressor", "StochasticCompression", "CloudCentroids"} <= set(METHODS.values())


def clouds_of(y, rng):
    """Clouds of three to five points round places that tell the classes."""
    return kp.Clouds.from_list([rng.normal(3.0 * label, 1.0, (int(rng.integers(3, 6)), 2)) for label in y])


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("scc", "shc", "snc", "swc", "lvq")])
def test_selectors_keep_clouds_too(method, tmp_path, knnpress_main, rng):
    y = np.arange(30) % 2
    np.savez(tmp_path / "x.npz", y=y, **clouds_of(y, rng).arrays())
    size = () if method in ("full", "condensed", "reduced", "fast-condensed") else ("--prototypes", 4)
    model = tmp_path / "m.knnp"
    assert knnpress_main("compress", tmp_path / "x.npz", "-o", model, "--method", method, *size)[0] == 0
    X = load_points(tmp_path / "x.npz").X
    assert kp.load(model).score(X, y.astype(str)) > 0.8
    status, out, _ = knnpress_main("inspect", model)
    assert status == 0
    assert "2 dimensions" in out


def test_images_become_clouds_and_a_model_of_them(few_photos, tmp_path, knnpress_main):
    model = tmp_path / "m.knnp"
    chosen = ("--descriptor", "contour", "--prototypes", 3)
    assert knnpress_main("compress", few_photos, "-o", model, *chosen)[0] == 0
    status, out, _ = knnpress_main("evaluate", model, few_photos)
    assert status == 0
    assert "error" in out
    status, out, _ = knnpress_main("inspect", model)
    assert "cloud of 32 points in 2 dimensions with their weights" in out
    result = knnpress_main("compress", few_photos, "-o", model, *chosen, "--method", "scc")
    assert result[0] != 0
    assert "the points are clouds, which SCC cannot learn" in result[2]
    result = knnpress_main("compress", few_photos, "-o", model, *chosen, "--method", "lvq")
    assert "use swc" in result[2]


def test_inspect_shows_the_words_of_a_model_of_documents(tmp_path, knnpress_main):
    words = kp.descriptors.WordClouds(np.eye(4), ["boat", "sail", "rook", "pawn"])
    texts = ["boat sail", "boat boat sail", "sail", "rook pawn", "pawn", "rook rook"]
    plain = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 3}
    clf = kp.DescriptorClassifier(words, kp.SWC(2, n_points=2, **plain)).fit(texts, ["sea"] * 3 + ["chess"] * 3)
    clf.save(tmp_path / "m.knnp")
    status, out, _ = knnpress_main("inspect", tmp_path / "m.knnp")
    assert status == 0
    sea = next(line for line in out.splitlines() if line.strip().startswith("sea") and "%" in line)
    assert "boat" in sea
    assert "rook" not in sea


@pytest.fixture
def sea_or_chess(tmp_path):
    """A model of texts, and a folder of texts."""
    words = kp.descriptors.WordClouds(np.eye(4), ["boat", "sail", "rook", "pawn"])
    texts = ["boat sail", "boat boat sail", "sail", "rook pawn", "pawn", "rook rook"]
    plain = {"prior": 1.0, "smoothing": 0.02, "gamma": "scale", "vote": "nearest", "max_iter": 3}
    clf = kp.DescriptorClassifier(words, kp.SWC(2, n_points=2, **plain)).fit(texts, ["sea"] * 3 + ["chess"] * 3)
    clf.save(tmp_path / "m.knnp")
    for place, text in (("sea/1", "The boat."), ("chess/a/1", "Rook takes pawn."), ("2", "A sail!")):
        (tmp_path / "texts" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / f"{place}.txt").write_text(text, encoding="utf-8")
    return tmp_path / "m.knnp", tmp_path / "texts"


def test_models_of_documents_are_asked_about_text_files(sea_or_chess, tmp_path, knnpress_main):
    model, texts = sea_or_chess
    assert knnpress_main("predict", model, texts, "-o", tmp_path / "out.csv")[0] == 0
    rows = read_csv(tmp_path / "out.csv")
    assert [row[:2] for row in rows] == [["2.txt", "sea"], ["chess/a/1.txt", "chess"], ["sea/1.txt", "sea"]]
    status, out, _ = knnpress_main("predict", model, texts / "2.txt", texts / "sea")
    assert status == 0
    assert [line.split(",")[1] for line in out.split()[1:]] == ["sea", "sea"]
    status, out, _ = knnpress_main("evaluate", model, texts)
    assert status == 0
    assert re.search(r"items +2\nwrong +0\n", out)


def test_texts_that_a_model_cannot_take_are_named(sea_or_chess, tmp_path, knnpress_main):
    model, texts = sea_or_chess
    (texts / "sea" / "odd.txt").write_text("Nothing that it knows.", encoding="utf-8")
    status, _, err = knnpress_main("predict", model, texts)
    assert status != 0
    assert "sea/odd.txt has no word that" in err
    assert "1 of 4 texts; leave such texts out, with --skip-bad" in err
    assert len(knnpress_main("predict", model, texts, "--skip-bad")[1].split()) == 4
    (texts / "sea" / "odd.txt").write_bytes(b"\xff\xfe\xff")
    for given, said in [
        ([texts], "odd.txt is not UTF-8 text"),
        ([tmp_path / "none"], "is not there; give a folder of .txt files"),
        ([model], "takes texts; give a folder of .txt files"),
        ([tmp_path / "empty"], "holds no .txt files"),
    ]:
        (tmp_path / "empty").mkdir(exist_ok=True)
        status, _, err = knnpress_main("predict", model, *given)
        assert status != 0
        assert said in err
    assert "no sub-folders to tell the classes" in knnpress_main("evaluate", model, texts / "chess" / "a")[2]
    assert "--labels is for points" in knnpress_main("evaluate", model, texts, "--labels", "y.csv")[2]


def test_inspect_says_on_how_many_folds_a_setting_was_tried(tmp_path, capsys):
    one = {"metric": "jbld", "error": 0.25, "standard_error": 0.0, "n_folds": 1, "chosen": False}
    knnpress.cli.contents._print_selection([one, one | {"n_folds": 5, "standard_error": 0.01, "chosen": True}])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[2:]]
    assert lines[0][:2] == ["25.00%", "1"]
    assert lines[1][:5] == ["*", "25.00%", "±", "1.00%", "5"]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_a_model(method, vectors, tmp_path, knnpress_main, rng):
    kind = {"scc": "matrices", "shc": "histograms", "swc": "clouds"}.get(method, "vectors")
    y = np.arange(40) % 2
    with np.load(vectors) as file:
        X = file["X"]
    if kind == "matrices":
        np.savez(tmp_path / "x.npz", X=np.eye(3) * (1 + y + rng.random(40))[:, None, None], y=y)
    elif kind == "histograms":
        np.savez(tmp_path / "x.npz", X=np.exp(X), y=y, ground_cost=1.0 - np.eye(3))
    elif kind == "clouds":
        np.savez(tmp_path / "x.npz", y=y, **clouds_of(y, rng).arrays())
    else:
        np.savez(tmp_path / "x.npz", X=X, y=y)
    size = () if method in ("full", "condensed") else ("--prototypes", 2)
    result = knnpress_main("compress", tmp_path / "x.npz", "-o", tmp_path / "m.knnp", "--method", method, *size)
    assert result[0] == 0
    classifier = kp.load(tmp_path / "m.knnp")
    assert METHODS[method] in repr(classifier)
    assert classifier.n_jobs is None
    assert classifier.verbose == 0
    assert len(classifier.prototypes_) == 40 if method == "full" else len(classifier.prototypes_) < 40
    assert knnpress_main("evaluate", tmp_path / "m.knnp", tmp_path / "x.npz")[0] == 0


@pytest.mark.parametrize(("cost", "ndim", "expected"), [(False, 3, "SCC"), (True, 1, "SHC"), (False, 1, "SNC")])
def test_the_method_suits_the_points(cost, ndim, expected, tmp_path, knnpress_main, rng):
    y = np.arange(20) % 2
    X = np.eye(3) * (1 + y)[:, None, None] if ndim == 3 else rng.random((20, 3)) + y[:, None] * [1, 0, 0]
    extra = {"ground_cost": 1.0 - np.eye(3)} if cost else {}
    np.savez(tmp_path / "x.npz", X=X, y=y, **extra)
    assert knnpress_main("compress", tmp_path / "x.npz", "-o", tmp_path / "m.knnp", "--prototypes", 2)[0] == 0
    assert type(kp.load(tmp_path / "m.knnp")).__name__ == expected


def test_a_compress_that_was_stopped_goes_on_from_its_checkpoint(vectors, tmp_path, knnpress_main, monkeypatch):
    from knnpress.learning import checkpoint
    from knnpress.learning.optim.lbfgs import Lbfgs

    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_PAUSE", 0.0)
    command = ("compress", vectors, "--prototypes", 4)
    assert knnpress_main(*command, "-o", tmp_path / "whole.knnp")[0] == 0
    file, taken, step = tmp_path / "state", [], Lbfgs.__call__

    def interrupted(self, *arguments):
        taken.append(1)
        if len(taken) == 3:
            raise KeyboardInterrupt
        return step(self, *arguments)

    monkeypatch.setattr(Lbfgs, "__call__", interrupted)
    command = (*command, "--checkpoint", file, "-o", tmp_path / "broken.knnp")
    assert knnpress_main(*command)[0] == 130
    assert file.exists()
    assert failed(knnpress_main(*command, "--seed", 1), file, "of another fit", "random_state")
    assert knnpress_main(*command)[0] == 0
    assert (tmp_path / "broken.knnp").read_bytes() == (tmp_path / "whole.knnp").read_bytes()
    assert not file.exists()
    assert failed(knnpress_main(*command, "--method", "medoids"), "--checkpoint is for scc, shc, snc")
    assert failed(knnpress_main("compress", vectors, *command[4:], "--auto"), "--auto is many fits")


def test_batches_are_the_compressors(vectors, tmp_path, knnpress_main):
    assert knnpress_main("compress", vectors, "-o", tmp_path / "m.knnp", "--prototypes", 2, "--batch-size", 16)[0] == 0
    model = kp.load(tmp_path / "m.knnp")
    assert model.compressor.batch_size == 16
    command = ("compress", vectors, "-o", tmp_path / "m.knnp", "--batch-size", 16, "--method", "medoids")
    assert failed(knnpress_main(*command), "--batch-size is for scc, shc, snc")


def test_auto_size_jobs_and_labels_from_another_file(tmp_path, knnpress_main, rng):
    y = np.arange(60) % 2
    np.save(tmp_path / "x.npy", rng.normal(size=(60, 2)) + 4 * y[:, None])
    (tmp_path / "l.csv").write_text("label\n" + "\n".join(f"class {k}" for k in y))
    labels = ("--labels", tmp_path / "l.csv")
    path = tmp_path / "m.knnp"
    assert (
        knnpress_main("compress", tmp_path / "x.npy", "-o", path, "--auto", "--jobs", 1, "--seed", 3, *labels)[0] == 0
    )
    classifier = kp.load(path)
    assert classifier.n_prototypes == "auto"
    assert classifier.random_state == 3
    assert classifier.n_jobs is None  # not kept
    assert classifier.selection_
    _, out, _ = knnpress_main("evaluate", path, tmp_path / "x.npy", *labels)
    assert "class 1" in out
    assert knnpress_main("predict", path, tmp_path / "x.npy")[1].count("\n") == 61  # no labels needed


def test_points_without_labels_are_predicted(vectors, tmp_path, knnpress_main):
    assert knnpress_main("compress", vectors, "-o", tmp_path / "m.knnp", "--prototypes", 2)[0] == 0
    with np.load(vectors) as file:
        np.savez(tmp_path / "bare.npz", X=file["X"])
        np.save(tmp_path / "bare.npy", file["X"])
        savemat(tmp_path / "bare.mat", {"X": file["X"]})
    _, expected, _ = knnpress_main("predict", tmp_path / "m.knnp", vectors)
    assert expected.startswith("item,prediction,probability\n0,low,")
    for name in ("bare.npz", "bare.npy", "bare.mat"):
        assert knnpress_main("predict", tmp_path / "m.knnp", tmp_path / name) == (0, expected, "")


def test_images_one_by_one_are_called_as_they_were_given(photos, model, knnpress_main):
    files = [photos / "test" / "rows" / "1.png", photos / "test" / "columns" / "0.png"]
    _, out, _ = knnpress_main("predict", model, *files)
    rows = list(csv.reader(out.splitlines()))[1:]
    assert [row[:2] for row in rows] == [[str(files[0]), "rows"], [str(files[1]), "columns"]]
    _, out, _ = knnpress_main("predict", model, photos / "test" / "rows")  # without sub-folders
    assert out.splitlines()[1].startswith("0.png,rows,")


def test_masks_count(tmp_path, knnpress_main):
    rng = np.random.default_rng(0)
    for k in range(16):  # the class is what is inside; outside is always the same
        kind = "reds" if k % 2 else "blues"
        pixels = rng.integers(0, 256, (20, 20, 3))
        pixels[:10, :, 2 * (kind == "blues")] = pixels[:10, :, 1] + rng.integers(0, 10, (10, 20))
        inside = np.zeros((20, 20), dtype=np.uint8)
        inside[:10] = 255
        for folder, content in (("images", np.clip(pixels, 0, 255)), ("masks", inside)):
            (tmp_path / "data" / folder / kind).mkdir(parents=True, exist_ok=True)
            Image.fromarray(content.astype(np.uint8)).save(tmp_path / "data" / folder / kind / f"{k}.png")
    images, masks = tmp_path / "data" / "images", tmp_path / "data" / "masks"
    knnpress_main("describe", images, "-o", tmp_path / "with.npz", "--masks", masks)
    knnpress_main("describe", images, "-o", tmp_path / "without.npz")
    with_masks, without = (load_points(tmp_path / f"{name}.npz").X for name in ("with", "without"))
    assert with_masks.shape == without.shape == (16, 19, 19)
    assert np.abs(with_masks - without).max() > 1e-3
    shutil.copytree(masks, images / "masks")  # among the images, they are none
    knnpress_main("describe", images, "-o", tmp_path / "among.npz", "--masks", images / "masks")
    assert_array_equal(load_points(tmp_path / "among.npz").X, with_masks)
    shutil.rmtree(images / "masks")
    args = ("compress", images, "-o", tmp_path / "m.knnp", "--method", "full")
    assert knnpress_main(*args, "--masks", masks)[0] == 0
    _, out, _ = knnpress_main("evaluate", tmp_path / "m.knnp", images, "--masks", masks)
    assert facts(out)["wrong"] == "0"
    one = images / "reds" / "1.png"
    _, out, _ = knnpress_main("predict", tmp_path / "m.knnp", one, "--masks", masks / "reds")
    assert f"{one},reds,1.0000" in out
    (masks / "reds" / "1.png").unlink()
    assert failed(knnpress_main("predict", tmp_path / "m.knnp", images, "--masks", masks), one, masks)


# numbers


def test_evaluate_agrees_with_scikit_learn(photos, model, tmp_path, knnpress_main):
    root = tmp_path / "mixed"
    shutil.copytree(photos / "test", root)
    for k, (old, new) in enumerate([("rows", "columns"), ("rows", "columns"), ("checks", "rows")]):
        (root / old / f"{k}.png").rename(root / new / f"moved{k}.png")
    status, out, err = knnpress_main("evaluate", model, root)
    assert (status, err) == (0, "")
    test = load_image_folder(root)
    truth = np.array(CLASSES)[test.y]
    predicted = kp.load(model).predict(test.images)
    said = facts(out)
    n, wrong = len(truth), int((truth != predicted).sum())
    assert wrong >= 3
    assert said["items"] == "36"
    assert said["wrong"] == str(wrong)
    assert said["error"] == f"{wrong / n:.2%}"
    p, z = wrong / n, 1.959963984540054
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((middle + sign * half) / (1 + z * z / n) for sign in (-1, 1))
    assert said["95 % interval"] == f"{low:.2%} to {high:.2%} (Wilson)"
    assert 0 < float(said["to classify"].split()[0]) < 1e5
    assert 0 < float(said["to describe"].split()[0]) < 1e6
    table = [line.split() for line in out.splitlines()]
    start = next(k for k, cells in enumerate(table) if cells[:1] == ["true"])
    assert table[start][3:] == list(CLASSES)
    counts = np.array([cells[1:] for cells in table[start + 1 : start + 4]], dtype=int)
    assert_array_equal(counts, confusion_matrix(truth, predicted, labels=CLASSES))


def test_evaluate_of_many_classes_lists_the_errors_and_unknown_ones_count(tmp_path, knnpress_main, rng):
    y = np.arange(40) % 20
    X = 10 * np.eye(20)[y] + rng.normal(size=(40, 20))
    np.savez(tmp_path / "train.npz", X=X, y=y)
    labels = y.copy()
    labels[:3] = 77
    np.savez(tmp_path / "test.npz", X=X, y=labels)
    knnpress_main("compress", tmp_path / "train.npz", "-o", tmp_path / "m.knnp", "--method", "full")
    status, out, err = knnpress_main("evaluate", tmp_path / "m.knnp", tmp_path / "test.npz")
    assert status == 0
    assert "does not know '77'" in err
    assert facts(out)["wrong"] == "3"
    assert [line.split() for line in out.splitlines()[-3:]] == [["77", str(k), "1"] for k in range(3)]


def test_evaluate_takes_a_folder_of_one_class_even_an_unknown_one(photos, model, tmp_path, knnpress_main):
    shutil.copytree(photos / "test" / "rows", tmp_path / "some" / "rows")
    _, out, _ = knnpress_main("evaluate", model, tmp_path / "some")
    assert facts(out)["items"] == "12"
    (tmp_path / "some" / "rows").rename(tmp_path / "some" / "lines")
    _, out, err = knnpress_main("evaluate", model, tmp_path / "some")
    assert "does not know 'lines'" in err
    assert facts(out)["error"] == "100.00%"
    assert out.splitlines()[-1].split() == ["lines", "0", "0", "12", "0"]


def test_inspect_shows_what_is_there(model, knnpress_main):
    status, out, err = knnpress_main("inspect", model)
    assert (status, err) == (0, "")
    said, classifier = facts(out), kp.load(model).classifier_
    assert said["size"] == f"{model.stat().st_size:,} bytes"
    assert said["written by"] == f"knnpress {kp.__version__}, format 1"
    assert said["kind"] == "DescriptorClassifier"
    assert said["geometry"].startswith(f"{type(classifier.geometry_).__name__}(")
    assert said["features"] == "'color-texture'"
    assert said["prototypes"] == "6, 10.00% of the training set"
    assert said["each"] == "19 x 19 matrix, 2,888 bytes in memory"
    assert float(said["gamma_"]) == pytest.approx(classifier.gamma_, rel=1e-4)
    assert int(said["n_iter_"]) == classifier.n_iter_
    assert {name: said[name] for name in CLASSES} == dict.fromkeys(CLASSES, "2")
    assert re.search(r"^feature +share", out, re.MULTILINE)
    assert re.search(r"^gradient, scale 4 +-?\d+\.\d%", out, re.MULTILINE)
    table = out[out.index("chosen  held-out error") :].splitlines()[1:]
    assert len(table) == len(classifier.selection_) > 1
    assert [line.startswith("*") for line in table] == [one["chosen"] for one in classifier.selection_]
    best = next(one for one in classifier.selection_ if one["chosen"])
    assert f"metric {classifier.metric_}, sharpness {best['sharpness']:g}, prior {best['prior']:g}" in out
    assert "None" not in out  # what was left as it is need not be said


def test_inspect_shows_pipelines_and_histograms_and_transformers(tmp_path, knnpress_main, rng):
    kp.save(descriptors.GridHistogram(4).fit([]), tmp_path / "t.knnp")
    _, out, _ = knnpress_main("inspect", tmp_path / "t.knnp")
    assert facts(out)["ground_cost_"] == "array of 16 x 16, float64"
    assert failed(knnpress_main("predict", tmp_path / "t.knnp", "x.npz"), "t.knnp", "GridHistogram", "classif")
    X = rng.dirichlet(np.ones(3), 20)
    kp.save(kp.SHC(1.0 - np.eye(3), n_prototypes=2).fit(X, np.arange(20) % 2), tmp_path / "h.knnp")
    _, out, _ = knnpress_main("inspect", tmp_path / "h.knnp")
    assert "Sinkhorn(ground_cost=array of 3 x 3" in facts(out)["geometry"]
    assert facts(out)["each"].startswith("3 numbers")


def test_tune_prints_its_trials_and_saves_the_best(vectors, tmp_path, knnpress_main):
    args = ("tune", vectors, "--prototypes", 2, "--trials", 3, "--storage", tmp_path / "s.db", "--jobs", 1)
    status, out, _ = knnpress_main(*args, "-o", tmp_path / "m.knnp")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()[1:4]] == ["1", "2", "3"]
    gamma = re.search(r"best +gamma=([\d.e+-]+)", out)[1]
    classifier = kp.load(tmp_path / "m.knnp")
    assert classifier.gamma == pytest.approx(float(gamma), rel=1e-3)
    assert_array_equal(classifier.classes_, ["high", "low"])
    assert (tmp_path / "s.db").exists()
    assert out.startswith(knnpress_main(*args)[1])  # the same trials, from the storage


# bad input


def broken_folder(photos, tmp_path):
    """A copy of the images with a text file and an empty file among them."""
    root = tmp_path / "broken"
    shutil.copytree(photos / "test", root)
    (root / "columns" / "text.png").write_text("I am no image")
    (root / "rows" / "empty.png").touch()
    return root


@pytest.mark.parametrize("descriptor", ["color-texture", "bag-of-words", "color-histogram"])
def test_bad_images_are_named_or_skipped(descriptor, photos, tmp_path, knnpress_main):
    root, out = broken_folder(photos, tmp_path), tmp_path / "p.npz"
    args = ("describe", root, "-o", out, "--descriptor", descriptor)
    result = knnpress_main(*args)
    assert failed(result, "--skip-bad")
    assert ("text.png cannot be read" in result[2]) != ("empty.png is empty" in result[2])
    assert "images[" not in result[2]
    assert result[2].count(str(root)) == 1
    assert not out.exists()
    status, _, err = knnpress_main(*args, "--skip-bad")
    assert status == 0
    assert f"skipped: {root / 'columns' / 'text.png'} cannot be read" in err
    assert f"skipped: {root / 'rows' / 'empty.png'} is empty" in err
    assert len(load_points(out).X) == 36
    knnpress_main("describe", photos / "test", "-o", tmp_path / "good.npz", "--descriptor", descriptor)
    assert_array_equal(load_points(out).X, load_points(tmp_path / "good.npz").X)
    assert_array_equal(load_points(out).y, load_points(tmp_path / "good.npz").y)


def test_bad_images_in_all_commands(photos, model, tmp_path, knnpress_main):
    root = broken_folder(photos, tmp_path)
    for args in (("compress", root, "-o", tmp_path / "m.knnp"), ("predict", model, root), ("evaluate", model, root)):
        assert failed(knnpress_main(*args), "broken", ".png")
        status, out, err = knnpress_main(*args, "--skip-bad")
        assert status == 0
        assert err.count("skipped") == 2
    assert facts(out)["items"] == "36"  # of evaluate
    _, out, _ = knnpress_main("predict", model, root, "--skip-bad")
    _, clean, _ = knnpress_main("predict", model, photos / "test")
    assert out == clean
    for name, folder in (("broken", root), ("clean", photos / "test")):
        args = ("compress", folder, "-o", tmp_path / f"{name}.knnp", "--method", "full", "--skip-bad")
        assert knnpress_main(*args)[0] == 0
    broken, sound = (kp.load(tmp_path / f"{name}.knnp").classifier_ for name in ("broken", "clean"))
    assert_array_equal(broken.prototypes_, sound.prototypes_)
    assert_array_equal(broken.prototype_labels_, sound.prototype_labels_)
    alone = root / "columns" / "text.png"
    assert failed_after_notice(knnpress_main("predict", model, alone, "--skip-bad"), "none of the 1 images")


def failed_after_notice(result, words):
    return result[0] == 2 and words in result[2].splitlines()[-1]


def test_a_pixel_and_a_constant_image(photos, model, tmp_path, knnpress_main):
    Image.fromarray(np.zeros((1, 1, 3), np.uint8)).save(tmp_path / "pixel.png")
    Image.fromarray(np.full((9, 9, 3), 7, np.uint8)).save(tmp_path / "flat.png")
    assert failed(knnpress_main("predict", model, tmp_path / "pixel.png"), tmp_path / "pixel.png", "1 x 1")
    status, out, err = knnpress_main("predict", model, tmp_path / "flat.png")
    assert status == 0
    assert out.count("\n") == 2
    named = f"({tmp_path / 'flat.png'})"  # a notice, not a Python warning
    assert err.startswith(f"knnpress: the covariance of 1 of 1 images is singular {named}")
    assert err.count("\n") == 1


def test_opacity_and_sixteen_bits(photos, model, tmp_path, knnpress_main):
    pixels = np.array(Image.open(photos / "test" / "rows" / "0.png"))
    gray = pixels[..., 0]
    forms = {
        "plain": pixels,
        "opaque": np.dstack([pixels, np.full(gray.shape, 255, np.uint8)]),
        "gray": gray,
        "sixteen": gray.astype(np.uint16) * 257,
    }
    for name, content in forms.items():
        Image.fromarray(content).save(tmp_path / f"{name}.png")
    results = {name: knnpress_main("predict", model, tmp_path / f"{name}.png") for name in forms}
    answers = {name: out.split(",", 3)[-1] for name, (_, out, _) in results.items()}
    assert {status for status, _, _ in results.values()} == {0}
    assert answers["opaque"] == answers["plain"]
    assert answers["sixteen"] == answers["gray"]
    assert f"singular ({tmp_path / 'sixteen.png'}): gray images among coloured ones, constant" in results["sixteen"][2]


def test_empty_folders_and_single_classes_and_missing_things(photos, model, tmp_path, knnpress_main):
    empty, output = tmp_path / "empty", ("-o", tmp_path / "m.knnp")
    empty.mkdir()
    assert failed(knnpress_main("compress", empty, *output), empty, "no images")
    assert failed(knnpress_main("describe", empty, "-o", tmp_path / "p.npz"), empty, "no images")
    assert failed(knnpress_main("predict", model, empty), empty, "no images")
    shutil.copytree(photos / "test" / "rows", tmp_path / "one" / "rows")
    assert failed(knnpress_main("compress", tmp_path / "one", *output), tmp_path / "one", "one class ('rows')")
    assert failed(knnpress_main("compress", photos / "test" / "rows", *output), "without a sub-folder")
    assert failed(knnpress_main("evaluate", model, photos / "test" / "rows"), "no sub-folders")
    np.savez(tmp_path / "one.npz", X=np.ones((4, 2)), y=[0, 0, 0, 0])
    assert failed(knnpress_main("compress", tmp_path / "one.npz", *output), "one class")
    for command in ("compress", "tune"):
        assert failed(knnpress_main(command, tmp_path / "absent", *output), tmp_path / "absent", "not there")
    assert failed(knnpress_main("predict", model, tmp_path / "absent.png"), tmp_path / "absent.png", "not there")
    assert failed(knnpress_main("predict", tmp_path / "absent.knnp", empty), tmp_path / "absent.knnp")
    assert failed(knnpress_main("inspect", photos / "test" / "rows" / "0.png"), "not a sound model")
    (tmp_path / "zero.npz").touch()
    assert failed(knnpress_main("compress", tmp_path / "zero.npz", *output), tmp_path / "zero.npz")
    assert failed(knnpress_main("compress", photos / "test" / "rows" / "0.png", *output), ".npz")
    assert not (tmp_path / "m.knnp").exists()


def test_what_does_not_go_together_is_refused(photos, model, vectors, tmp_path, knnpress_main):
    knnpress_main("compress", vectors, "-o", tmp_path / "v.knnp", "--prototypes", 2)
    assert failed(knnpress_main("predict", model, vectors), "was made from images", vectors)
    assert failed(knnpress_main("predict", tmp_path / "v.knnp", photos / "test"), "was made from points", "describe")
    assert failed(knnpress_main("predict", tmp_path / "v.knnp", vectors, vectors), "together")
    output = ("-o", tmp_path / "m.knnp")
    assert failed(knnpress_main("compress", vectors, *output, "--descriptor", "sift"), "--descriptor")
    assert failed(knnpress_main("compress", photos / "test", *output, "--labels", vectors), "--labels")
    assert failed(knnpress_main("evaluate", model, photos / "test", "--labels", vectors), "--labels")
    assert failed(knnpress_main("compress", vectors, *output, "--method", "scc"), "SCC")
    assert failed(knnpress_main("compress", photos / "test", *output, "--method", "snc"), "SNC", "matrices")
    assert failed(knnpress_main("compress", vectors, *output, "--method", "shc"), "ground cost", vectors)
    assert failed(knnpress_main("describe", photos / "test", "-o", tmp_path / "points.csv"), ".npz")
    np.savez(tmp_path / "wide.npz", X=np.ones((2, 5)))
    assert failed(knnpress_main("predict", tmp_path / "v.knnp", tmp_path / "wide.npz"), "5 numbers", "points of 3")


# files


def test_a_failed_compress_keeps_the_old_model(photos, vectors, tmp_path, knnpress_main, monkeypatch):
    path = tmp_path / "models" / "m.knnp"
    path.parent.mkdir()
    assert knnpress_main("compress", vectors, "-o", path, "--prototypes", 2)[0] == 0
    before = path.read_bytes()
    assert failed(knnpress_main("compress", photos / "test", "-o", path, "--prototypes", 1), "3 classes")

    def full_disk(_):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(os, "fsync", full_disk)
    assert failed(knnpress_main("compress", vectors, "-o", path, "--prototypes", 4), path, "No space left")
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == ["m.knnp"]


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_failed_points_and_predictions_keep_the_old_files(failure, photos, model, tmp_path, knnpress_main, monkeypatch):
    points, table = tmp_path / "p.npz", tmp_path / "out.csv"
    points.write_text("old points")
    table.write_text("old table")

    def fail(_):
        raise failure

    monkeypatch.setattr(os, "fsync", fail)
    status = 130 if isinstance(failure, KeyboardInterrupt) else 2
    assert knnpress_main("describe", photos / "test" / "rows", "-o", points)[0] == status
    assert knnpress_main("predict", model, photos / "test" / "rows", "-o", table)[0] == status
    assert (points.read_text(), table.read_text()) == ("old points", "old table")
    assert sorted(os.listdir(tmp_path)) == ["out.csv", "p.npz"]
    monkeypatch.undo()
    assert knnpress_main("predict", model, photos / "test" / "rows", "-o", table)[0] == 0
    assert len(read_csv(table)) == 12


def test_a_file_that_cannot_be_written_is_told_before_the_work(photos, model, tmp_path, knnpress_main):
    for args in (("compress", tmp_path / "absent"), ("predict", model, tmp_path / "absent"), ("describe", "absent")):
        assert failed(knnpress_main(*args, "-o", tmp_path / "no" / "x.npz"), tmp_path / "no", "no folder")
    assert failed(knnpress_main("compress", photos / "test", "-o", tmp_path), tmp_path, "folder")


def test_a_link_that_leads_to_itself_is_no_place_for_output(tmp_path, knnpress_main):
    for name in ("a.knnp", "a.npz", "a.csv"):
        (tmp_path / name).symlink_to(tmp_path / name)
    for args in (
        ("compress", "absent.npz", "-o", tmp_path / "a.knnp"),
        ("compress", "absent.npz", "-o", tmp_path / "b.knnp", "--checkpoint", tmp_path / "a.knnp"),
        ("describe", "absent", "-o", tmp_path / "a.npz"),
        ("predict", "absent.knnp", "absent.npz", "-o", tmp_path / "a.csv"),
        ("tune", "absent.npz", "-o", tmp_path / "a.knnp"),
    ):
        assert failed(knnpress_main(*args), "leads back to itself; remove it")
    assert failed(knnpress_main("doctor", tmp_path / "a.npz"), "a.npz")


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_to_is_told_before_the_work(photos, model, vectors, tmp_path, knnpress_main):
    """Every input is absent: had the work begun, the error would be about that."""
    absent, place = tmp_path / "absent.npz", Path("/proc/x.npz")
    for args in (
        ("compress", absent, "-o", place),
        ("compress", absent, "-o", tmp_path / "m.knnp", "--checkpoint", place),
        ("predict", absent, photos, "-o", place),
        ("describe", absent, "-o", place),
        ("tune", absent, "-o", place),
        ("doctor", absent, "--fix", "-o", place),
        ("experiment", "digits", "-o", place.parent / "out"),
        ("report", absent, "-o", place),
        ("report", absent, "-o", tmp_path / "r.html", "--files", place.parent / "out"),
    ):
        assert failed(knnpress_main(*args), "the folder /proc cannot be written")
    assert os.listdir(tmp_path) == [vectors.name]


@pytest.mark.parametrize("evil", ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\tx", 'a,b"c\nd'])
def test_no_cell_is_a_formula(evil, tmp_path, knnpress_main):
    name = evil.replace("/", "÷")
    write_folder(tmp_path / "photos", 4, seed=0, classes=("rows", "columns"))
    (tmp_path / "photos" / "rows").rename(tmp_path / "photos" / name)
    (tmp_path / "photos" / name / "0.png").rename(tmp_path / f"{name}.png")
    assert knnpress_main("compress", tmp_path / "photos", "-o", tmp_path / "m.knnp", "--method", "full")[0] == 0
    for query in (tmp_path / "photos", tmp_path):
        assert knnpress_main("predict", tmp_path / "m.knnp", query, "-o", tmp_path / "out.csv")[0] == 0
        rows = read_csv(tmp_path / "out.csv")
        assert any(name in row[0] for row in rows)
        assert any(name in row[1] for row in rows)
        assert not any(cell.startswith(("=", "+", "-", "@", "\t", "\r")) for row in rows for cell in row)
        _, out, _ = knnpress_main("predict", tmp_path / "m.knnp", query)
        assert out == (tmp_path / "out.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("evil", ["a;=1+1", "a;  @x", "b\t-2+3", "a;b"])
def test_no_cell_is_split_into_a_formula_where_semicolons_or_tabs_part_cells(evil, tmp_path, knnpress_main):
    write_folder(tmp_path / "photos", 4, seed=0, classes=("rows", "columns"))
    (tmp_path / "photos" / "rows").rename(tmp_path / "photos" / evil)
    (tmp_path / "photos" / "columns" / "0.png").rename(tmp_path / f"{evil}.png")
    assert knnpress_main("compress", tmp_path / "photos", "-o", tmp_path / "m.knnp", "--method", "full")[0] == 0
    status, out, _ = knnpress_main("predict", tmp_path / "m.knnp", tmp_path)
    assert status == 0
    assert f'"{evil}.png"' in out.splitlines()[1] + out.splitlines()[-1]
    for line in out.splitlines():
        for separator in ";\t":  # as a spreadsheet would: quotes count where a cell begins
            (cells,) = csv.reader([line], delimiter=separator)
            assert not any(cell.strip().startswith(("=", "+", "-", "@")) for cell in cells), line


def test_file_names_that_are_no_utf8_do_not_cost_the_output(photos, model, tmp_path):
    folder = os.fsencode(tmp_path / "odd")
    os.mkdir(folder)
    for name in (b"fine.png", b"caf\xe9.png"):
        shutil.copy(photos / "test" / "rows" / "0.png", os.path.join(folder, name))
    plainest = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run([KNNPRESS, "predict", model, folder], capture_output=True, env=os.environ | plainest)
    assert done.returncode == 0, done.stderr
    assert [line.split(b",")[0] for line in done.stdout.splitlines()] == [b"item", b"caf\\udce9.png", b"fine.png"]


@pytest.mark.parametrize("closed", [">&-", "<&- >&- 2>&-", "> /dev/full", "2> /dev/full"])
def test_closed_or_full_streams_are_tolerated(closed, model, photos, vectors, tmp_path):
    def shell(command):
        done = subprocess.run(["sh", "-c", f"{KNNPRESS} {command} {closed}"], capture_output=True, text=True)
        assert not re.search("Traceback|Exception", done.stderr)
        return done

    done = shell(f"predict {model} {photos / 'test' / 'rows'} -o {tmp_path / 'out.csv'}")
    assert len(read_csv(tmp_path / "out.csv")) == 12  # and nothing else is written into it
    full = closed == "> /dev/full"
    assert done.returncode == (2 if full else 0)
    if full:
        assert "No space left on device" in done.stderr
    if closed.startswith("<"):
        assert shell(f"inspect {tmp_path / 'absent'}").returncode == 2
    if closed == "2> /dev/full":
        assert shell(f"compress {vectors} -o {tmp_path / 'm.knnp'} -v").returncode == 0
        assert kp.load(tmp_path / "m.knnp").predict(np.zeros((1, 3))).tolist() == ["low"]


@pytest.mark.skipif(os.name != "posix", reason="closes files as a shell of Unix does")
def test_what_libraries_write_to_closed_streams_goes_into_no_file(tmp_path):
    code = """
import os, sys
from knnpress.cli.output import open_streams
open_streams()
with open(sys.argv[1], "wb") as file:
    for stream in (1, 2):
        os.write(stream, b"a warning of a library, say")
"""
    command = ["sh", "-c", '"$0" -c "$1" "$2" <&- >&- 2>&-', sys.executable, code, tmp_path / "out.csv"]
    assert subprocess.run(command).returncode == 0
    assert (tmp_path / "out.csv").read_bytes() == b""


def test_negative_numbers_are_not_escaped_as_formulas(vectors, tmp_path, knnpress_main):
    with np.load(vectors) as file:
        np.savez(tmp_path / "signs.npz", X=file["X"], y=2 * file["y"] - 1)
    knnpress_main("compress", tmp_path / "signs.npz", "-o", tmp_path / "m.knnp", "--prototypes", 2)
    _, out, _ = knnpress_main("predict", tmp_path / "m.knnp", tmp_path / "signs.npz")
    assert {row[1] for row in csv.reader(out.splitlines()[1:])} == {"-1", "1"}


def test_models_made_in_python_are_served(photos, vectors, tmp_path, knnpress_main):
    from sklearn.pipeline import make_pipeline

    train = load_image_folder(photos / "train")
    pipeline = make_pipeline(descriptors.RegionCovariance("gradient"), kp.SCC(6, random_state=0))
    kp.save(pipeline.fit(train.images, train.y), tmp_path / "pipeline.knnp")
    _, out, _ = knnpress_main("predict", tmp_path / "pipeline.knnp", photos / "test")
    assert {row[1] for row in csv.reader(out.splitlines()[1:])} == {"0", "1", "2"}
    data = load_points(vectors)
    kp.save(kp.PrototypeClassifier("sqeuclidean", n_neighbors=2).fit(data.X, data.y), tmp_path / "ties.knnp")
    _, out, _ = knnpress_main("predict", tmp_path / "ties.knnp", vectors)
    predicted = [int(row[1]) for row in csv.reader(out.splitlines()[1:])]
    assert_array_equal(predicted, kp.load(tmp_path / "ties.knnp").predict(data.X))


# the terminal, the shell


def test_on_a_terminal_there_are_ruled_tables_and_names_are_only_names(tmp_path, knnpress_main, monkeypatch):
    write_folder(tmp_path / "photos", 3, seed=0, classes=("rows", "columns"))
    (tmp_path / "photos" / "rows").rename(tmp_path / "photos" / "[red]rows\x1b[2J")
    knnpress_main("compress", tmp_path / "photos", "-o", tmp_path / "m.knnp", "--method", "full")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    _, out, _ = knnpress_main("predict", tmp_path / "m.knnp", tmp_path / "photos")
    assert "─" in out or "━" in out
    assert "[red]rows\N{REPLACEMENT CHARACTER}[2J" in out
    assert "\x1b[2J" not in out


def test_progress_is_shown_when_asked_for(photos, model, knnpress_main):
    assert knnpress_main("predict", model, photos / "test")[2] == ""
    _, out, err = knnpress_main("predict", model, photos / "test", "--verbose")
    assert "describing" in err
    assert "36/36" in err
    assert "describing" not in out


def test_interruption_and_debugging(model, capsys, monkeypatch):
    def fail(error):
        def run(args):
            raise error

        return run

    monkeypatch.setattr(knnpress.cli.inspect, "run", fail(KeyboardInterrupt()))
    assert main(["inspect", str(model)]) == 130
    assert capsys.readouterr().err == "knnpress: stopped\n"
    monkeypatch.setattr(knnpress.cli.inspect, "run", fail(ImportError("pip install knnpress[images]")))
    assert main(["inspect", str(model)]) == 2
    assert capsys.readouterr().err == "knnpress: pip install knnpress[images]\n"
    with pytest.raises(ImportError):
        main(["inspect", str(model), "--debug"])
    monkeypatch.setattr(knnpress.cli.inspect, "run", fail(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):  # a mistake of ours is not the user's
        main(["inspect", str(model)])


def misused(capsys, *arguments):
    """What standard error says of a command that cannot be understood."""
    with pytest.raises(SystemExit) as stopped:
        main([str(argument) for argument in arguments])
    assert stopped.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "usage: knnpress" in err
    return " ".join(err.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "compress learn a small model from images or points"),
        ("nonsense", "'nonsense' is not a command; choose from demo, describe"),
        ("compres x", "'compres' is not a command; did you mean compress?"),
        ("compress", "required: FOLDER|POINTS, -o/--output Example: knnpress compress photos/ -o model.knnp"),
        ("compress x", "required: -o/--output Example: knnpress compress photos/ -o model.knnp"),
        ("compress x -o y --ratio 2", "2 is not a share"),
        ("compress x -o y --ratio 2%", "2% is not a share; give a number above 0, up to 1, e.g. 0.02"),
        ("compress x -o y --prototypes 0", "0 is not a count"),
        ("compress x -o y --prototypes many", "many is not a count; give 1 or more"),
        ("compress x -o y --jobs 0", "0 is not a number of threads"),
        ("compress x -o y --jobs all", "all is not a number of threads; give 1 or more, or -1 for all cores"),
        ("compare x --minutes soon", "soon is not a time; give minutes, e.g. 5"),
        ("compress x -o y --ratio 0.1 --auto", "not allowed with"),
        ("compress x -o y --ration 1", "usage: knnpress compress"),
        ("compress x -o y --ration 1", "there is no --ration; did you mean --ratio? Example: knnpress compress"),
        ("compress x -o y --colour=1", "there is no --colour=1; knnpress compress --help shows all options"),
        ("compress x z -o y", "'z' is one argument too many Example: knnpress compress"),
        ("compress x -o y --method magic", "'magic' is unknown; choose from scc, shc, snc"),
        ("compress x -o y --metric jbdl", "'jbdl' is unknown; did you mean jbld?"),
        ("describe x -o y --descriptor gabr", "'gabr' is unknown; did you mean gabor?"),
        ("tune x --method full", "'full' is unknown; choose from scc, shc, snc, swc"),
    ],
)
def test_wrong_usage_ends_with_2_and_says_how_to_go_on(arguments, words, capsys):
    assert words in misused(capsys, *arguments.split())


def test_data_in_the_place_of_a_command_are_told_from_a_typo(tmp_path, capsys):
    said = misused(capsys, tmp_path)
    assert f"{tmp_path} is a folder or file; say first what to do with it, e.g. knnpress compress {tmp_path}" in said


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([command, "--help"])
    assert stopped.value.code == 0
    assert f"Example: knnpress {command}" in " ".join(capsys.readouterr().out.split())


def test_the_shell_gets_help_at_once_and_exit_statuses(tmp_path):
    seconds = math.inf
    for _ in range(5):  # the machine may be busy
        start = time.perf_counter()
        done = subprocess.run([KNNPRESS, "--help"], capture_output=True, text=True, check=True)
        seconds = time.perf_counter() - start
        if seconds < 0.5:
            break
    assert "compress" in done.stdout
    assert seconds < 2.0  # 0.2 on a machine at rest
    code = "import sys, knnpress.cli as c\nc._parser()\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "knnpress.cli" in loaded
    assert not {"numpy", "rich", "sklearn"} & set(loaded)
    done = subprocess.run([KNNPRESS, "inspect", tmp_path / "absent.knnp"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"knnpress: {tmp_path / 'absent.knnp'}: No such file or directory\n"


def test_an_experiment_runs_resumes_and_is_reported(tmp_path, capsys):
    plan = tmp_path / "mine.toml"
    plan.write_text(
        """
        [[study]]
        data = "digits"
        source = "digits-histograms"
        subset = 100
        n_splits = 2
        ratios = [0.2]
        methods = ["full", "Subsample", "SHC"]
        settings = { SHC = { max_iter = 1 } }
        """
    )
    assert main(["experiment", str(plan), "-o", str(tmp_path / "out")]) == 0
    told = capsys.readouterr()
    assert "6 of 6 runs to do; about" in told.err
    assert "6/6 digits / 1 / SHC 0.2: error" in told.err
    assert f"knnpress report {tmp_path / 'out'} -o report.html" in told.out
    assert main(["experiment", str(plan), "-o", str(tmp_path / "out")]) == 0
    assert "0 of 6 runs to do" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "out"), "-o", str(tmp_path / "report.html")]) == 0
    assert "digits" in (tmp_path / "report.html").read_text()
    assert main(["experiment", "nothing", "-o", str(tmp_path / "out")]) == 2
    assert "there is no plan 'nothing'" in capsys.readouterr().err


# what newcomers stumble over


def test_what_is_not_a_model_is_called_what_it_is(photos, vectors, model, knnpress_main):
    assert failed(knnpress_main("predict", photos, model), f"{photos} is a folder; the model comes first", "compress")
    assert failed(knnpress_main("inspect", photos), f"{photos} is a folder; give a model", "knnpress compress")
    for command in (("predict", vectors, photos), ("inspect", vectors), ("export", vectors, "-o", "m.c")):
        assert failed(knnpress_main(*command), f"{vectors} holds points, and is not a model", "knnpress compress")


def test_points_that_do_not_suit_a_model_are_told_by_file(vectors, tmp_path, knnpress_main, rng):
    knnpress_main("compress", vectors, "-o", tmp_path / "v.knnp", "--prototypes", 2)
    np.savez(tmp_path / "wide.npz", X=rng.normal(size=(4, 5)), y=[0, 1, 0, 1])
    np.savez(tmp_path / "matrices.npz", X=np.stack([np.eye(3)] * 4), y=[0, 1, 0, 1])
    for command in ("predict", "evaluate"):
        result = knnpress_main(command, tmp_path / "v.knnp", tmp_path / "wide.npz")
        assert failed(result, f"{tmp_path / 'wide.npz'} holds points of 5 numbers", "v.knnp takes points of 3 numbers")
        result = knnpress_main(command, tmp_path / "v.knnp", tmp_path / "matrices.npz")
        assert failed(result, "holds points of 3 x 3 numbers", "takes points of 3 numbers")


def test_inspect_prints_nothing_where_it_cannot_explain_the_points(model, vectors, knnpress_main):
    assert failed(knnpress_main("inspect", model, "--points", vectors), "was made from images", vectors)


def test_the_ending_of_an_exported_file_says_its_language(vectors, tmp_path, knnpress_main):
    model = tmp_path / "m.knnp"
    knnpress_main("compress", vectors, "-o", model, "--prototypes", 2)
    for name, words in (("m.js", "export"), ("m.mjs", "export"), ("m.c", "#include"), ("m.h", "#include")):
        status, out, _ = knnpress_main("export", model, "-o", tmp_path / name)
        assert status == 0
        assert words in (tmp_path / name).read_text()
        assert facts(out)["source"] == str(tmp_path / name)
    assert failed(knnpress_main("export", model, "-o", tmp_path / "m.py"), "m.py", ".js", "--to")
    assert knnpress_main("export", model, "-o", tmp_path / "m.txt", "--to", "js")[0] == 0


def test_compress_says_why_it_chose(photos, vectors, tmp_path, knnpress_main):
    for data in (photos / "train", vectors):
        _, out, _ = knnpress_main("compress", data, "-o", tmp_path / "m.knnp", "--ratio", "0.1")
        model = kp.load(tmp_path / "m.knnp")
        tried = [one for one in getattr(model, "classifier_", model).selection_ if "error" in one]
        chosen = next(one for one in tried if one["chosen"])
        least = min(one["error"] for one in tried)
        said = facts(out)["chosen"]
        if chosen["error"] == least:
            assert f"the best of {len(tried)} settings" in said
        else:
            assert f"within noise of the best of {len(tried)} settings" in said
            assert f"({least:.2%})" in said


class Locked:
    """Stands for a file that this user may not open: to root, permissions mean nothing."""

    def __init__(self, monkeypatch, *paths):
        known = {str(path) for path in paths}
        opened = io.open

        def checked(file, *arguments, **options):
            if str(file) in known:
                raise PermissionError(13, "Permission denied", str(file))
            return opened(file, *arguments, **options)

        for home, name in ((io, "open"), (builtins, "open")):
            monkeypatch.setattr(home, name, checked)


def test_what_may_not_be_read_is_not_called_damaged_or_absent(model, vectors, knnpress_main, monkeypatch):
    np.save(vectors.with_suffix(".npy"), np.ones((4, 2)))
    Locked(monkeypatch, model, vectors, vectors.with_suffix(".npy"))
    for path, command in (
        (model, ("inspect", model)),
        (vectors, ("compress", vectors, "-o", vectors.parent / "m.knnp")),
        (vectors.with_suffix(".npy"), ("doctor", vectors.with_suffix(".npy"))),
    ):
        assert knnpress_main(*command) == (2, "", f"knnpress: {path}: Permission denied\n")


def test_images_that_may_not_be_read_are_told_so(photos, tmp_path, knnpress_main, monkeypatch):
    shutil.copytree(photos / "test", tmp_path / "photos")
    locked = tmp_path / "photos" / "rows" / "1.png"
    Locked(monkeypatch, locked)
    result = knnpress_main("describe", tmp_path / "photos", "-o", tmp_path / "p.npz")
    assert failed(result, f"{locked} cannot be read (Permission denied); ", "--skip-bad")
    assert "convert" not in result[2]
    status, out, err = knnpress_main("doctor", tmp_path / "photos")
    assert (status, err) == (1, "")
    assert "1 of 36 images: rows/1.png" in out


def test_the_error_of_a_search_is_not_that_of_its_model(vectors, tmp_path, knnpress_main):
    args = ("tune", vectors, "--prototypes", 2, "--trials", 2, "--jobs", 1)
    _, out, _ = knnpress_main(*args, "-o", tmp_path / "m.knnp")
    names = [line.split("  ")[0] for line in out.splitlines()]
    assert names.count("held-out error") == 1
    assert "error in the search" in names


def test_what_is_read_is_not_written_over(photos, model, vectors, tmp_path, knnpress_main):
    copy = tmp_path / "copy.knnp"
    shutil.copy(model, copy)
    link = tmp_path / "link.npz"
    link.symlink_to(vectors)
    labels = tmp_path / "labels.csv"
    labels.write_text("label\n" + "a\nb\n" * 20)
    records = tmp_path / "results" / "records.jsonl"
    records.parent.mkdir()
    records.write_text("{}\n")
    for command, output in (
        (("compress", vectors), vectors),
        (("compress", vectors), link),
        (("compress", vectors, "--labels", labels), labels),
        (("tune", vectors, "--trials", 1), vectors),
        (("predict", copy, photos / "test"), copy),
        (("predict", copy, photos / "test" / "rows" / "0.png"), photos / "test" / "rows" / "0.png"),
        (("predict", copy, photos / "test"), photos / "test" / "rows" / "0.png"),
        (("compress", photos / "train"), next((photos / "train").glob("*/*.png"))),
        (("compress", photos / "test", "--masks", photos / "train"), next((photos / "train").glob("*/*.png"))),
        (("export", copy, "--to", "c"), copy),
        (("report", records.parent), records),
    ):
        before = output.read_bytes()
        assert failed(knnpress_main(*command, "-o", output), f"{output} is read by this command; give another name")
        assert output.read_bytes() == before

"""What people are told: once, briefly, and with the cure."""

import warnings

import numpy as np
import pytest
from PIL import Image

import knnpress as kp
from knnpress.cli import main
from knnpress.descriptors import RegionCovariance, images
from knnpress.estimators import checks


def test_a_share_that_is_too_small_is_told_once(monkeypatch):
    monkeypatch.setattr(checks, "_warned", set())
    for n in (32, 33, 34):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            assert checks.resolve_n_prototypes(0.02, n, 4) == 4
        assert len(told) == (n == 32)
    with pytest.warns(UserWarning, match="fewer than the 5 classes"):
        checks.resolve_n_prototypes(0.02, 32, 5)


def test_the_representation_of_shc_does_not_print_the_matrix():
    cost = np.arange(10000.0).reshape(100, 100)
    text = repr(kp.SHC(cost, n_prototypes=7))
    assert text == "SHC(ground_cost=<100 x 100 array>, n_prototypes=7)"
    assert repr(kp.SHC()) == "SHC()"


@pytest.mark.parametrize("model", [kp.SCC, kp.SNC])
def test_an_unknown_word_for_gamma_is_told_all_choices(model):
    X = np.eye(2)[None] * np.arange(1.0, 9)[:, None, None] if model is kp.SCC else np.arange(16.0).reshape(8, 2)
    with pytest.raises(ValueError, match=r"gamma is 'sharp'; give a positive number, 'scale', 'auto' or 'tune'"):
        model(gamma="sharp").fit(X, np.arange(8) % 2)


def test_an_image_too_large_for_pillow_is_called_too_large(tmp_path, monkeypatch):
    Image.fromarray(np.zeros((40, 40), np.uint8)).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(ValueError, match="is too large: it has more than") as caught:
        images.decode(str(tmp_path / "huge.png"))
    assert "convert" not in str(caught.value)


def test_gray_images_get_gray_features_without_a_notice(tmp_path, capsys, rng):
    for k in range(8):
        (tmp_path / "gray" / "ab"[k % 2]).mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 255, (16, 16), np.uint8) // (1 + k % 2)
        Image.fromarray(pixels).save(tmp_path / "gray" / "ab"[k % 2] / f"{k}.png")
    points = tmp_path / "points.npz"
    assert main(["describe", str(tmp_path / "gray"), "-o", str(points)]) == 0
    assert capsys.readouterr().err == ""
    assert kp.datasets.load_points(points).X.shape == (8, 12, 12)
    with pytest.warns(UserWarning, match="singular"):  # what it was before
        RegionCovariance("color-texture").transform([rng.random((16, 16))])

"""What people are told: once, briefly, and with the cure."""

import warnings

import numpy as np
import pytest
from PIL import Image

import knnpress as kp
from knnpress.cli import main
from knnpress.descriptors import BagOfWords, RegionCovariance, SignalCovariance, WordClouds, images
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
    both = kp.DescriptorClassifier(BagOfWords(), kp.SHC(cost))
    assert repr(both) == "DescriptorClassifier(classifier=SHC(ground_cost=<100 x 100 array>), descriptor=BagOfWords())"


def test_the_representation_of_word_clouds_does_not_print_the_vectors():
    words = WordClouds(np.zeros((99, 50)), [f"word {k}" for k in range(99)], n_words=30)
    text = "WordClouds(n_words=30, vectors=<99 x 50 array>, vocabulary=<99 items>)"
    assert repr(words) == text
    model = kp.DescriptorClassifier([words], kp.SWC())
    assert repr(model) == f"DescriptorClassifier(classifier=SWC(), descriptor=[{text}])"
    assert model.descriptor[0] is words
    assert len(words.vocabulary) == 99


def test_signals_given_as_matrices_are_told_what_makes_matrices(tmp_path, rng, capsys):
    signals, y = rng.normal(size=(20, 3, 50)), np.arange(20) % 2
    with pytest.raises(ValueError, match=r"Of signals, .*SignalCovariance makes such matrices"):
        kp.SCC().fit(signals, y)
    np.savez(tmp_path / "signals.npz", X=signals, y=y)
    for command in ("compare", "doctor"):
        assert main([command, str(tmp_path / "signals.npz")]) != 0
        said = "".join(capsys.readouterr())
        assert said.count("SignalCovariance") == 1


def test_a_folder_of_texts_is_told_what_makes_points_of_texts(tmp_path, capsys):
    (tmp_path / "news" / "sport").mkdir(parents=True)
    (tmp_path / "news" / "sport" / "1.txt").write_text("A goal in the last minute.")
    for command in (["compare"], ["compress", "-o", str(tmp_path / "model.knnp")], ["doctor"]):
        assert main([command[0], str(tmp_path / "news"), *command[1:]]) != 0
        assert "WordClouds makes points" in "".join(capsys.readouterr())


def test_a_flat_channel_is_told_at_the_line_of_the_user(rng):
    signals = rng.normal(size=(4, 3, 50))
    signals[1, 2] = 0.0
    with pytest.warns(UserWarning, match="channel 2 of X.1. is flat") as told:
        SignalCovariance("oas").fit_transform(signals)
    assert [one.filename for one in told] == [__file__]


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

"""Images of every kind are decoded alike, and a bad one is called by name."""

import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from PIL import Image

from knnpress.descriptors import (
    BagOfWords,
    ColorHistogram,
    GridHistogram,
    ImageFile,
    RegionCovariance,
    ShapeContext,
)
from knnpress.descriptors.images import as_picture, decode, map_images

DESCRIPTORS = {
    "covariance": RegionCovariance(n_jobs=1),
    "words": BagOfWords(n_words=4, random_state=0, n_jobs=1),
    "shape": ShapeContext(n_jobs=1),
    "colors": ColorHistogram(n_jobs=1),
    "grid": GridHistogram(n_jobs=1),
}
every_descriptor = pytest.mark.parametrize("descriptor", DESCRIPTORS.values(), ids=DESCRIPTORS)


def photos(rng, n=3, shape=(24, 20, 3)):
    """Smooth random images, uint8."""
    return rng.integers(0, 256, size=(n, *shape)).astype(np.uint8)


def save(path, array):
    Image.fromarray(array).save(path)
    return str(path)


@pytest.mark.parametrize("kind", ["uint16", "float32", "float64", "list", "files", "opaque"])
@every_descriptor
def test_the_form_of_an_image_does_not_matter(rng, tmp_path, descriptor, kind):
    plain = photos(rng)
    forms = {
        "uint16": lambda: plain.astype(np.uint16) * 257,
        "float32": lambda: plain.astype(np.float32) / np.float32(255),
        "float64": lambda: plain / 255.0,
        "list": lambda: [image.copy(order="F") for image in plain],
        "files": lambda: [save(tmp_path / f"{k}.png", image) for k, image in enumerate(plain)],
        "opaque": lambda: np.concatenate([plain, np.full_like(plain[..., :1], 255)], axis=-1),
    }
    fitted = descriptor.fit(plain)
    assert_allclose(fitted.transform(forms[kind]()), fitted.transform(plain), rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("kind", ["one channel", "opaque", "bool"])
@every_descriptor
@pytest.mark.filterwarnings("ignore:the covariance:UserWarning")
def test_the_form_of_a_gray_image_does_not_matter(rng, descriptor, kind):
    plain = np.where(photos(rng, shape=(24, 20)) > 127, 255, 0).astype(np.uint8)
    forms = {
        "one channel": plain[..., None],
        "opaque": np.stack([plain, np.full_like(plain, 255)], axis=-1),
        "bool": plain > 0,
    }
    fitted = descriptor.fit(plain)
    assert_allclose(fitted.transform(forms[kind]), fitted.transform(plain), rtol=1e-4, atol=1e-7)


@every_descriptor
def test_images_of_different_sizes_go_together_and_none_is_modified(rng, descriptor):
    images = [photos(rng, 1, shape)[0] for shape in [(24, 20, 3), (15, 30, 3), (20, 21, 4)]]
    before = [image.copy() for image in images]
    together = descriptor.fit_transform(images)
    assert_allclose(together, np.concatenate([descriptor.transform([image]) for image in images]), rtol=1e-12)
    for image, copy in zip(images, before, strict=True):
        assert_array_equal(image, copy)


@every_descriptor
def test_results_are_the_same_for_any_number_of_threads(rng, descriptor):
    images = photos(rng, 19)
    fitted = descriptor.fit(images)
    alone = fitted.transform(images)
    try:
        for n_jobs in (2, 4):
            assert np.array_equal(fitted.set_params(n_jobs=n_jobs).transform(images), alone)
    finally:
        descriptor.set_params(n_jobs=1)


@every_descriptor
def test_transparent_pixels_do_not_count(rng, descriptor):
    pixels = photos(rng)
    mask = np.zeros((24, 20), dtype=bool)
    mask[4:20, 4:16] = True
    opaque = np.where(mask, 255, 0).astype(np.uint8)
    images = [np.dstack([image, opaque]) for image in pixels]
    painted = [np.where(mask[..., None], image, 77) for image in pixels]
    painted = [np.dstack([image, opaque]) for image in painted]
    fitted = descriptor.fit(images)
    if isinstance(descriptor, (ColorHistogram, GridHistogram)):  # those that look at single pixels
        assert_allclose(fitted.transform(images), fitted.transform(painted), rtol=1e-6)
    else:
        assert np.isfinite(fitted.transform(images)).all()
    with pytest.raises(ValueError, match=r"images\[1\] has no pixel inside its mask"):
        fitted.transform([images[0], np.dstack([pixels[1], np.zeros_like(opaque)])])


def test_files_of_every_format_are_read_alike(rng, tmp_path):
    pixels = np.repeat(np.repeat(photos(rng, 1, (6, 5, 3))[0], 4, axis=0), 4, axis=1)
    for name in ("a.png", "a.tiff", "a.bmp"):
        assert_array_equal(ImageFile(save(tmp_path / name, pixels)).read(), pixels)
    Image.fromarray(pixels).save(tmp_path / "a.webp", lossless=True)
    assert_array_equal(ImageFile(str(tmp_path / "a.webp")).read(), pixels)
    few = np.where(pixels > 127, 255, 0).astype(np.uint8)
    Image.fromarray(few).quantize(8).save(tmp_path / "a.gif")  # a palette
    assert_array_equal(ImageFile(str(tmp_path / "a.gif")).read()[..., :3], few)


def test_sixteen_bits_are_kept(rng, tmp_path):
    deep = rng.integers(0, 65536, size=(8, 9)).astype(np.uint16)
    for name in ("a.png", "a.tif"):
        read = ImageFile(save(tmp_path / name, deep)).read()
        assert read.dtype == np.uint16
        assert_array_equal(read, deep)
    assert_allclose(as_picture(deep, "alpha").pixels, deep / 65535, rtol=1e-6)


def test_thirty_two_bits_are_refused(tmp_path):
    Image.fromarray(np.full((4, 4), 70000, dtype=np.int32)).save(tmp_path / "a.tif")
    with pytest.raises(ValueError, match=r"a.tif has pixels from 70000 to 70000; save it with 16 bits"):
        ImageFile(str(tmp_path / "a.tif")).read()


def test_a_mask_beside_the_image_makes_it_transparent(rng, tmp_path):
    pixels = photos(rng, 1)[0]
    mask = (rng.random((24, 20)) < 0.7).astype(np.uint8) * 255
    file = ImageFile(save(tmp_path / "a.png", pixels), mask=save(tmp_path / "m.png", mask))
    assert_array_equal(file.read(), np.dstack([pixels, mask]))
    assert_array_equal(np.asarray(file), file.read())
    covariance = RegionCovariance(n_jobs=1)
    assert_array_equal(covariance.transform([file]), covariance.transform([pixels], masks=[mask]))
    other = ImageFile(file.path, mask=save(tmp_path / "n.png", mask[:-1]))
    with pytest.raises(ValueError, match=r"n.png is 23 x 20, its image 24 x 20"):
        other.read()


def test_a_camera_held_sideways_is_turned(rng, tmp_path):
    pixels = photos(rng, 1)[0]
    exif = Image.Exif()
    exif[0x0112] = 6  # turn a quarter clockwise
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert_array_equal(ImageFile(str(tmp_path / "a.png")).read(), np.rot90(pixels, -1))


def test_large_images_are_reduced_first():
    image = np.zeros((400, 100), dtype=np.uint8)
    image[:, 50:] = 255
    picture = as_picture(np.dstack([image, image]), "alpha", max_side=100)
    assert picture.pixels.shape == picture.mask.shape == (100, 25)
    assert picture.mask[:, 13:].all()
    assert not picture.mask[:, :12].any()
    assert as_picture(image, "alpha", max_side=400).pixels.shape == image.shape


@every_descriptor
def test_an_image_of_too_many_pixels_is_refused_by_its_size(tmp_path, descriptor):
    """64 kB of it would become gigabytes."""
    Image.new("L", (13_000, 5_200)).save(tmp_path / "bomb.png")
    with pytest.raises(ValueError, match=r"bomb\.png\) has 5200 x 13000 pixels, more than the 67,108,864 .*reduce it"):
        descriptor.fit_transform([tmp_path / "bomb.png"])


@pytest.mark.parametrize("suffix", ["jpg", "png"])
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_a_large_image_is_decoded_at_a_reduced_size_where_a_descriptor_reduces_it_anyway(
    tmp_path, suffix, mode, rng, monkeypatch
):
    monkeypatch.setattr("knnpress.descriptors.images._LARGE", 2**20)
    small = Image.fromarray(rng.integers(0, 256, (8, 10, 3)).astype(np.uint8)).convert(mode)
    small.resize((1_200, 960), Image.Resampling.BICUBIC).save(tmp_path / f"large.{suffix}", quality=95)
    found = as_picture(ImageFile(str(tmp_path / f"large.{suffix}")), "alpha", max_side=40).pixels
    whole = np.asarray(Image.open(tmp_path / f"large.{suffix}"))
    wanted = as_picture(whole, "alpha", max_side=40).pixels
    assert found.shape == wanted.shape
    assert_allclose(found, wanted, atol=0.02)
    assert max(decode(tmp_path / f"large.{suffix}", max_side=40).shape) < 300
    assert decode(tmp_path / f"large.{suffix}").shape == whole.shape


def test_a_large_image_keeps_its_size_where_a_mask_goes_with_it(tmp_path, rng):
    Image.new("L", (5_000, 4_000), 200).save(tmp_path / "large.png")
    mask = np.zeros((4_000, 5_000), dtype=np.uint8)
    mask[:2_000] = 255
    save(tmp_path / "mask.png", mask)
    picture = as_picture(ImageFile(str(tmp_path / "large.png"), str(tmp_path / "mask.png")), "alpha", max_side=100)
    assert picture.mask.mean() == 0.5
    assert as_picture(tmp_path / "large.png", "alpha", mask=mask, max_side=100).mask.mean() == 0.5


def test_depth_is_reduced_without_mixing_it_with_gaps(rng):
    depth = np.where(rng.random((400, 300)) < 0.5, 0.0, 1000.0)
    reduced = as_picture(np.dstack([np.zeros_like(depth), depth]), "depth", max_side=100).depth
    assert reduced.shape == (100, 75)
    assert set(np.unique(reduced)) == {0, 1000}


def bad_files(tmp_path):
    (tmp_path / "text.png").write_text("this is not an image")
    (tmp_path / "empty.png").write_bytes(b"")
    save(tmp_path / "whole.png", np.zeros((64, 64), dtype=np.uint8) + np.arange(64, dtype=np.uint8))
    (tmp_path / "cut.png").write_bytes((tmp_path / "whole.png").read_bytes()[:60])


@every_descriptor
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("text.png", "cannot be read as an image"),
        ("empty.png", "is empty"),
        ("cut.png", "cannot be read as an image"),
    ],
)
def test_a_bad_file_is_named(rng, tmp_path, descriptor, name, message):
    bad_files(tmp_path)
    images = [*photos(rng), tmp_path / name]
    with pytest.raises(ValueError, match=rf"images\[3\] \(.*{name}\) {message}") as error:
        descriptor.fit(photos(rng)).transform(images)
    assert str(error.value).count(name) == 1


def test_a_missing_file_is_named(rng, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere.png"):
        RegionCovariance().transform([tmp_path / "nowhere.png"])


@every_descriptor
@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda image: image.astype(np.int64),
            r"images\[1\] has pixels of type int64, whose range is unknown; give uint8",
        ),
        (lambda image: image[0, 0], r"images\[1\] has shape \(3,\)"),
        (lambda image: image[:0], r"images\[1\] has shape \(0, 20, 3\)"),
        (lambda image: np.repeat(image, 2, axis=2), r"images\[1\] has 6 channels"),
        (lambda image: np.where(image > 250, np.nan, image / 255.0), r"images\[1\] contains NaN or infinity"),
    ],
)
def test_a_bad_array_is_named(rng, descriptor, spoil, message):
    images = photos(rng)
    with pytest.raises(ValueError, match=message):
        descriptor.fit(images).transform([images[0], spoil(images[1])])


@every_descriptor
@pytest.mark.parametrize(
    ("images", "error", "message"),
    [
        ([], ValueError, "there are 0 images"),
        ("folder", TypeError, r"images is the path 'folder'; give a list of images, or load_image_folder"),
        (np.zeros((24, 20, 3)), ValueError, r"images has shape \(24, 20, 3\); .*For one image give \[image\]"),
        (np.zeros((24, 20)), ValueError, r"images has shape \(24, 20\)"),
        (7, TypeError, "images is a int"),
    ],
)
def test_what_is_not_a_list_of_images_is_refused(rng, descriptor, images, error, message):
    with pytest.raises(error, match=message):
        descriptor.fit(photos(rng)).transform(images)


def test_errors_of_the_function_carry_the_name_too(rng):
    def refuse(picture):
        raise ValueError("is odd")

    with pytest.raises(ValueError, match=r"images\[0\] is odd"):
        map_images(refuse, photos(rng), 1)


def test_a_missing_package_names_the_extra():
    script = """
import sys
import numpy
from knnpress.descriptors import ColorHistogram, RegionCovariance, SPDProjection
uses = {
    "PIL": lambda: RegionCovariance().transform(["a.png"]),
    "cv2": lambda: RegionCovariance().transform(numpy.ones((1, 8, 8))),
    "skimage": lambda: ColorHistogram().fit(numpy.ones((1, 8, 8))),
    "pymanopt": lambda: SPDProjection(1).fit([numpy.eye(2) * k for k in (1, 2, 3, 4)], [0, 0, 1, 1]),
}
for name, use in uses.items():
    sys.modules[name] = None
    try:
        use()
    except ImportError as error:
        print(name, error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["PIL", "cv2", "skimage", "pymanopt"]
    assert all("pip install knnpress[images]" in line for line in lines)


@every_descriptor
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda image: image * 255.0, r"pixels from 0 to \d+; scale them to 0 to 1, e\.g\. divide by 255"),
        (lambda image: image - 1.0, r"(floating-point pixels from -1 to |has negative brightness)"),
        (lambda image: image * 1e30, r"scale them to 0 to 1"),
        (lambda image: np.dstack([image * 255.0, np.ones((16, 16))]), r"scale them to 0 to 1"),
        (lambda image: np.ma.masked_array(image, mask=image > 0.5), r"is masked; fill the gaps, or give opacity"),
    ],
    ids=["to 255", "negative", "huge", "to 255 with opacity", "masked"],
)
def test_pixels_of_another_range_and_masked_ones_are_refused_by_name(descriptor, make, message, rng):
    """Before, they gave points of another size, or of NaN, without a word."""
    images = [rng.random((16, 16, 3)) for _ in range(3)]
    images[0][0, 0] = 0
    images[1] = make(images[0])
    if isinstance(descriptor, GridHistogram) and "scale" in message:  # whose sum is one, whatever the scale
        X = descriptor.fit(images).transform(images)
        assert_allclose(X[1], X[0], atol=1e-6)
        return
    with pytest.raises(ValueError, match=rf"^images\[1\] .*{message}"):
        descriptor.fit(images, [0, 1, 0]).transform(images)


def test_what_interpolation_overshoots_by_is_taken(rng):
    image = rng.random((16, 16, 3)) * 1.2 - 0.1
    assert np.isfinite(RegionCovariance().transform([image])).all()

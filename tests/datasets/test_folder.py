"""A folder of images, with a sub-folder for each class."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

from knnpress.datasets import find_images, load_image_folder
from knnpress.datasets.folder import match_images
from knnpress.descriptors import RegionCovariance


def pattern(value, size=(12, 10)):
    """Noise in which 0 occurs once."""
    noise = np.random.default_rng(value).integers(1, 256, size=size).astype(np.uint8)
    noise[0, 0] = 0
    return noise


def put(path, value=0, size=(12, 10)):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pattern(value, size)).save(path)


@pytest.fixture
def root(tmp_path):
    """Three cats of two litters, two dogs, one eel; a note and a hidden file."""
    for k, name in enumerate(["cat/a/1.png", "cat/a/2.JPG", "cat/b/3.gif", "dog/1.webp", "dog/2.tiff", "eel/1.bmp"]):
        put(tmp_path / "images" / name, k)
    (tmp_path / "images" / "cat" / "notes.txt").write_text("no image")
    put(tmp_path / "images" / "dog" / ".thumb.png")
    return tmp_path / "images"


def test_classes_are_the_first_folders_and_files_are_sorted(root):
    data = load_image_folder(root)
    assert data.class_names == ("cat", "dog", "eel")
    assert data.y.tolist() == [0, 0, 0, 1, 1, 2]
    assert [Path(image.path).name for image in data.images] == ["1.png", "2.JPG", "3.gif", "1.webp", "2.tiff", "1.bmp"]
    assert data.groups["folder"].tolist() == ["cat/a", "cat/a", "cat/b", "dog", "dog", "eel"]
    assert str(root) in data.citation
    assert RegionCovariance("gradient").fit_transform(data.images).shape == (6, 12, 12)


def test_the_largest_classes_are_kept_and_renumbered(root):
    put(root / "ant" / "1.png")
    data = load_image_folder(root, largest_classes=2)
    assert data.class_names == ("cat", "dog")
    assert data.y.tolist() == [0, 0, 0, 1, 1]
    assert load_image_folder(root, largest_classes=3).class_names == ("ant", "cat", "dog")  # a tie: by name


def test_masks_in_a_folder_of_their_own(root):
    for path in find_images(root):
        put((root.parent / "masks" / path.relative_to(root)).with_suffix(".png"), 0)
    data = load_image_folder(root, masks=root.parent / "masks")
    image = data.images[3].read()
    assert image.shape == (12, 10, 4) or image.shape == (12, 10, 2)
    assert image[0, 0, -1] == 0  # the mask's only zero
    assert (image[..., -1] > 0).sum() == 119


def test_masks_below_the_images_are_not_a_class_however_the_folders_are_given(root, monkeypatch):
    for path in find_images(root):
        put((root / "masks" / path.relative_to(root)).with_suffix(".png"), 0)
    put(root / "masks" / "cat" / "of nothing.png")
    monkeypatch.chdir(root.parent)
    for folder in (root, Path("images")):
        for masks in (root / "masks", Path("images/masks"), "images/../images/masks"):
            data = load_image_folder(folder, masks=masks)
            assert data.class_names == ("cat", "dog", "eel")
            assert len(data.images) == 6


def test_depth_beside_the_images_is_not_taken_for_an_image(root):
    for path in find_images(root):
        put(path.with_name(path.stem + "_depth.png"), 1)
    data = load_image_folder(root, depth=lambda path: path.with_name(path.stem + "_depth.png"))
    assert len(data.images) == 6
    image = data.images[0].read()
    assert image.dtype == np.float32
    assert_array_equal(image[..., 1], pattern(1))
    assert RegionCovariance("depth").fit_transform(data.images).shape == (6, 18, 18)


def test_a_missing_mask_is_named(root):
    (root.parent / "masks").mkdir()
    with pytest.raises(FileNotFoundError, match=r"cat/a/1.png should have .*masks/cat/a/1.png beside it"):
        load_image_folder(root, masks=root.parent / "masks")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        load_image_folder(root, masks=root / "nowhere")


def test_a_folder_without_classes_says_what_was_expected(root, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty holds no images; expected .*empty/<class>/<name>.png"):
        load_image_folder(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"dog holds 2 images without a sub-folder"):
        load_image_folder(root / "dog")
    put(tmp_path / "one" / "cat" / "1.png")
    with pytest.raises(ValueError, match=r"one holds one class \('cat'\); a classifier needs at least 2"):
        load_image_folder(tmp_path / "one")
    with pytest.raises(FileNotFoundError, match="nowhere is not a folder"):
        load_image_folder(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="largest_classes is 0"):
        load_image_folder(root, largest_classes=0)


def test_a_bad_file_is_named_when_it_is_read(root):
    (root / "dog" / "3.png").write_text("no image")
    data = load_image_folder(root)
    with pytest.raises(ValueError, match=r"images\[5\] \(.*dog/3.png\) cannot be read as an image"):
        RegionCovariance("gradient").fit_transform(data.images)


def test_linked_folders_are_followed_and_loops_end(root):
    put(root.parent / "elsewhere" / "deep" / "1.png", 7)
    (root / "fox").symlink_to(root.parent / "elsewhere", target_is_directory=True)
    (root / "cat" / "back").symlink_to(root, target_is_directory=True)  # a loop: all classes would be cats
    (root / "cat" / "a" / "self").symlink_to(root / "cat", target_is_directory=True)
    (root / "dog" / "more").symlink_to(root / "cat" / "b", target_is_directory=True)
    (root.parent / "elsewhere" / "again").symlink_to(root / "fox", target_is_directory=True)
    data = load_image_folder(root)
    names = [data.class_names[c] for c in data.y]
    places = [str(Path(image.path).relative_to(root)) for image in data.images]
    assert names == [place.split("/")[0] for place in places]
    assert places[:3] == ["cat/a/1.png", "cat/a/2.JPG", "cat/b/3.gif"]
    assert places[3:] == ["dog/1.webp", "dog/2.tiff", "dog/more/3.gif", "eel/1.bmp", "fox/deep/1.png"]


def test_folders_that_link_to_one_another_are_read_once_for_each_class(tmp_path):
    for k in range(12):  # 12! ways through them
        put(tmp_path / str(k) / "1.png", k)
        for other in range(12):
            (tmp_path / str(k) / f"to {other}").symlink_to(tmp_path / str(other), target_is_directory=True)
    assert len(find_images(tmp_path)) == 144


@pytest.mark.parametrize("name", ["fox", "dog/3.png"])
def test_a_link_to_nothing_is_refused_by_name(root, name):
    (root / name).symlink_to(root / "gone")
    with pytest.raises(FileNotFoundError, match=f"{name} is a link to .*gone, which is not there"):
        find_images(root)


def test_images_stay_in_order_and_as_often_as_they_are_named(root):
    first, second = root / "dog" / "1.webp", root / "cat" / "a" / "1.png"
    put(root.parent / "masks" / "1.png")
    found = [(path, Path(path.name)) for path in (first, second, first)]
    images = match_images(found, masks=root.parent / "masks")
    assert [image.path for image in images] == [first, second, first]
    assert {image.mask for image in images} == {root.parent / "masks" / "1.png"}
    assert [image.folder for image in images] == [None, None, None]

"""Data to start with: what ships with the dependencies, readers of local copies, and of your own files."""

from knnpress.datasets.dataset import Dataset, ImageDataset
from knnpress.datasets.digits import load_digits_covariances, load_digits_histograms
from knnpress.datasets.folder import find_images, load_image_folder
from knnpress.datasets.local import (
    load_coil20,
    load_eth80,
    load_fpha,
    load_kth_tips2b,
    load_kylberg,
    load_mpeg7,
    load_scene15,
)
from knnpress.datasets.points import load_groups, load_points, load_unlabelled
from knnpress.datasets.stored import open_zarr
from knnpress.datasets.synthetic import make_wishart_classes

__all__ = [
    "Dataset",
    "ImageDataset",
    "find_images",
    "load_coil20",
    "load_digits_covariances",
    "load_digits_histograms",
    "load_eth80",
    "load_fpha",
    "load_groups",
    "load_image_folder",
    "load_kth_tips2b",
    "load_kylberg",
    "load_mpeg7",
    "load_points",
    "load_scene15",
    "load_unlabelled",
    "make_wishart_classes",
    "open_zarr",
]

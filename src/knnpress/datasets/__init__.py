"""Data to start with: what ships with the dependencies."""

from knnpress.datasets.dataset import Dataset
from knnpress.datasets.digits import load_digits_covariances, load_digits_histograms

__all__ = ["Dataset", "load_digits_covariances", "load_digits_histograms"]

"""Compressors that choose among the training points, or average them."""

from knnpress.compression.selection.centroids import ClassCentroids
from knnpress.compression.selection.keep_all import KeepAll
from knnpress.compression.selection.subsample import Subsample

__all__ = ["ClassCentroids", "KeepAll", "Subsample"]

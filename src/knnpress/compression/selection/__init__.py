"""Compressors that choose among the training points, average them, or move them step by step."""

from knnpress.compression.selection.centroids import ClassCentroids
from knnpress.compression.selection.cloud_centroids import CloudCentroids
from knnpress.compression.selection.condensed import Condensed
from knnpress.compression.selection.fast_condensed import FastCondensed
from knnpress.compression.selection.keep_all import KeepAll
from knnpress.compression.selection.lvq import LearningVectorQuantization
from knnpress.compression.selection.medoids import Medoids
from knnpress.compression.selection.mutation import RandomMutation
from knnpress.compression.selection.reduced import Reduced
from knnpress.compression.selection.subsample import Subsample

__all__ = [
    "ClassCentroids",
    "CloudCentroids",
    "Condensed",
    "FastCondensed",
    "KeepAll",
    "LearningVectorQuantization",
    "Medoids",
    "RandomMutation",
    "Reduced",
    "Subsample",
]

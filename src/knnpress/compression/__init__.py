"""Compressors: from a training set to a few prototypes."""

from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import (
    ClassCentroids,
    CloudCentroids,
    Condensed,
    FastCondensed,
    KeepAll,
    LearningVectorQuantization,
    Medoids,
    RandomMutation,
    Reduced,
    Subsample,
)
from knnpress.compression.stochastic import StochasticCompression
from knnpress.compression.tuning import Tuning, tune

__all__ = [
    "ClassCentroids",
    "CloudCentroids",
    "Compressor",
    "Condensed",
    "FastCondensed",
    "KeepAll",
    "LearningVectorQuantization",
    "Medoids",
    "Prototypes",
    "RandomMutation",
    "Reduced",
    "StochasticCompression",
    "Subsample",
    "Tuning",
    "tune",
]

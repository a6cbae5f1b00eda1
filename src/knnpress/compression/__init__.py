"""Compressors: from a training set to a few prototypes."""

from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import ClassCentroids, KeepAll, Subsample
from knnpress.compression.stochastic import StochasticCompression

__all__ = ["ClassCentroids", "Compressor", "KeepAll", "Prototypes", "StochasticCompression", "Subsample"]

"""Compressors: from a training set to a few prototypes."""

from knnpress.compression.prototypes import Compressor, Prototypes
from knnpress.compression.selection import KeepAll

__all__ = ["Compressor", "KeepAll", "Prototypes"]

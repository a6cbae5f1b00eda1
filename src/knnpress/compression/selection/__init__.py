"""Compressors that choose among the training points."""

from knnpress.compression.selection.keep_all import KeepAll

__all__ = ["KeepAll"]

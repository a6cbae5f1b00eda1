"""Images and signals as points: covariance matrices, histograms with their ground costs, and projections."""

from knnpress.descriptors.bins import ColorHistogram, GridHistogram
from knnpress.descriptors.covariance import RegionCovariance
from knnpress.descriptors.images import ImageFile
from knnpress.descriptors.projection import SPDProjection
from knnpress.descriptors.shape import ShapeContext
from knnpress.descriptors.signals import SignalCovariance
from knnpress.descriptors.words import BagOfWords

__all__ = [
    "BagOfWords",
    "ColorHistogram",
    "GridHistogram",
    "ImageFile",
    "RegionCovariance",
    "SPDProjection",
    "ShapeContext",
    "SignalCovariance",
]

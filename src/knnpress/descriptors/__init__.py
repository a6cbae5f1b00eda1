"""Images, signals and texts as points, by scikit-learn transformers.

========================  ===================================================  =======================================
`RegionCovariance`        images to SPD matrices (n, d, d)                     covariance of the features of the pixels
`SignalCovariance`        signals (n, channels, times) to SPD matrices         covariance of the channels
`BagOfWords`              images to histograms (n, n_words)                    how often each word is used
`ShapeContext`            images to histograms (n, n_radial n_angular)         where the edges are
`ColorHistogram`          images to histograms (n, n_bins^3)                   how often each colour occurs
`GridHistogram`           images to histograms (n, size^2)                     where it is bright
`WordClouds`              texts or counts of words to `knnpress.Clouds`        the vectors of a document's words
`LocalFeatures`           images to `knnpress.Clouds`                          features of pixels, and where they are
`ContourPoints`           images to `knnpress.Clouds`                          points of edges or of a silhouette
`Recenter`                SPD matrices of subjects or sessions to alike ones   by the mean of each group
`SPDProjection`           SPD matrices to smaller ones                         keeps the classes apart
========================  ===================================================  =======================================

Descriptors of histograms have a `ground_cost_` once fitted, for `Sinkhorn` and `SHC`.

Images are a list of arrays (h, w) or (h, w, c) of any sizes, of `ImageFile` or paths; or an array (n, h, w[, c]). They
hold uint8, uint16, bool, or floating point from 0 to 1; gray, RGB, or either with opacity as a further channel:
transparent pixels are left out. The features of a pixel are listed in `knnpress.descriptors.features`.
"""

from knnpress.descriptors.bins import ColorHistogram, GridHistogram
from knnpress.descriptors.covariance import RegionCovariance
from knnpress.descriptors.documents import WordClouds
from knnpress.descriptors.images import ImageFile
from knnpress.descriptors.local import ContourPoints, LocalFeatures
from knnpress.descriptors.projection import SPDProjection
from knnpress.descriptors.recenter import Recenter
from knnpress.descriptors.shape import ShapeContext
from knnpress.descriptors.signals import SignalCovariance
from knnpress.descriptors.words import BagOfWords

__all__ = [
    "BagOfWords",
    "ColorHistogram",
    "ContourPoints",
    "GridHistogram",
    "ImageFile",
    "LocalFeatures",
    "Recenter",
    "RegionCovariance",
    "SPDProjection",
    "ShapeContext",
    "SignalCovariance",
    "WordClouds",
]

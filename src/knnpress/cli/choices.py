"""What the command line calls descriptors and methods. Light, so that help comes at once."""

from __future__ import annotations

from typing import Any

__all__ = ["CONDENSING", "DESCRIPTORS", "LEARNED", "METHODS", "METRICS", "POINT_FILES"]

_FEATURES = ("color-texture", "color-derivatives", "gradient", "gabor", "color-gabor", "sift", "depth")

#: Of each descriptor the class in `knnpress.descriptors` and its settings
DESCRIPTORS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: ("RegionCovariance", {"features": name}) for name in _FEATURES},
    "bag-of-words": ("BagOfWords", {}),
    "shape-context": ("ShapeContext", {}),
    "color-histogram": ("ColorHistogram", {}),
    "grid-histogram": ("GridHistogram", {}),
    "local-features": ("LocalFeatures", {}),
    "contour": ("ContourPoints", {}),
}

#: Classifiers that learn their prototypes, in `knnpress.estimators`
LEARNED = {"scc": "SCC", "shc": "SHC", "snc": "SNC", "swc": "SWC"}

#: Compressors that find out themselves how many prototypes they need
CONDENSING = ("full", "condensed", "reduced", "fast-condensed")

#: All methods; those that are no classifier are compressors, in `knnpress.compression`
METHODS = {
    **LEARNED,
    "full": "KeepAll",
    "subsample": "Subsample",
    "condensed": "Condensed",
    "reduced": "Reduced",
    "fast-condensed": "FastCondensed",
    "random-mutation": "RandomMutation",
    "medoids": "Medoids",
    "centroids": "ClassCentroids",
    "lvq": "LearningVectorQuantization",
}

#: Metrics, and the methods that learn under each
METRICS = {
    "jbld": "scc",
    "tangent": "scc",
    "logeuclid": "scc",
    "sinkhorn": "shc",
    "hellinger": "shc",
    "euclidean": "snc",
}

#: Endings of files that hold points
POINT_FILES = (".npz", ".npy", ".mat")

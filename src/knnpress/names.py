"""What descriptors and methods are called: `shape-context` on the command line, `ShapeContext` in Python, both in both.

Light, so that help comes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_FEATURES = ("color-texture", "color-derivatives", "gradient", "gabor", "color-gabor", "sift", "depth")

#: For each descriptor, its class in `knnpress.descriptors` and its settings
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

#: All methods; those that are not classifiers are compressors, in `knnpress.compression`
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


def same_name(name: str, known: Iterable[str]) -> str | None:
    """The known name that differs in nothing but case, hyphens, underscores and spaces; None where there is none.

    Examples
    --------
    >>> same_name("shape-context", ["BagOfWords", "ShapeContext"])
    'ShapeContext'
    """
    return next((one for one in known if _letters(one) == _letters(name)), None)


def _letters(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def command_name(name: str, table: Mapping[str, Any]) -> str:
    """The command line's name of what may be given by its class, e.g. "centroids" of ClassCentroids; else `name`.

    `table` is `DESCRIPTORS`, `METHODS` or a part of it.
    """
    classes = {entry if isinstance(entry, str) else entry[0]: key for key, entry in reversed([*table.items()])}
    same = same_name(name, table)
    return same or classes.get(same_name(name, classes) or "", name)


def descriptor_class(name: str) -> tuple[str, dict[str, Any]] | None:
    """The class in `knnpress.descriptors` and the settings that a name stands for; None where it is not known here."""
    return DESCRIPTORS.get(same_name(name, DESCRIPTORS) or "")

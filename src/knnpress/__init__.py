"""knnpress: nearest-neighbour classification of covariance matrices and histograms, fast and from few prototypes."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnpress import compression, datasets, descriptors, exceptions, geometries, plot
    from knnpress.clouds import Clouds, StoredClouds
    from knnpress.comparison import Comparison, compare
    from knnpress.estimators import SCC, SHC, SNC, SWC, DescriptorClassifier, PrototypeClassifier, PrototypeSampler
    from knnpress.export import export_c, export_js
    from knnpress.model_file import load, save

__all__ = [
    "SCC",
    "SHC",
    "SNC",
    "SWC",
    "Clouds",
    "Comparison",
    "DescriptorClassifier",
    "PrototypeClassifier",
    "PrototypeSampler",
    "StoredClouds",
    "__version__",
    "compare",
    "compression",
    "datasets",
    "descriptors",
    "exceptions",
    "export_c",
    "export_js",
    "geometries",
    "load",
    "plot",
    "save",
]

#: Where the names that are not modules live
_HOMES = {
    **dict.fromkeys(["SCC", "SHC", "SNC", "SWC", "DescriptorClassifier"], "knnpress.estimators"),
    **dict.fromkeys(["PrototypeClassifier", "PrototypeSampler"], "knnpress.estimators"),
    **dict.fromkeys(["Clouds", "StoredClouds"], "knnpress.clouds"),
    **dict.fromkeys(["Comparison", "compare"], "knnpress.comparison"),
    **dict.fromkeys(["load", "save"], "knnpress.model_file"),
    **dict.fromkeys(["export_c", "export_js"], "knnpress.export"),
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use: scikit-learn takes a second to import."""
    if name == "__version__":
        from importlib.metadata import version

        return version("knnpress")
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name in __all__:
        return import_module(f"knnpress.{name}")
    raise AttributeError(f"module 'knnpress' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

"""The thin scikit-learn layer over geometries, compressors and neighbours."""

from knnpress.estimators.described import DescriptorClassifier
from knnpress.estimators.prototype import PrototypeClassifier, PrototypeSampler
from knnpress.estimators.scc import SCC
from knnpress.estimators.shc import SHC
from knnpress.estimators.snc import SNC
from knnpress.estimators.swc import SWC

__all__ = ["SCC", "SHC", "SNC", "SWC", "DescriptorClassifier", "PrototypeClassifier", "PrototypeSampler"]

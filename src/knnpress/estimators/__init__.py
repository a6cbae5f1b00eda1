"""The thin scikit-learn layer over geometries, compressors and neighbours."""

from knnpress.estimators.described import DescriptorClassifier
from knnpress.estimators.prototype import PrototypeClassifier, PrototypeSampler
from knnpress.estimators.scc import SCC
from knnpress.estimators.shc import SHC
from knnpress.estimators.snc import SNC

__all__ = ["SCC", "SHC", "SNC", "DescriptorClassifier", "PrototypeClassifier", "PrototypeSampler"]

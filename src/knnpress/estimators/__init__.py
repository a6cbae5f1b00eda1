"""The thin scikit-learn layer over geometries, compressors and neighbours."""

from knnpress.estimators.described import DescriptorClassifier
from knnpress.estimators.learned import SCC, SHC, SNC
from knnpress.estimators.prototype import PrototypeClassifier, PrototypeSampler

__all__ = ["SCC", "SHC", "SNC", "DescriptorClassifier", "PrototypeClassifier", "PrototypeSampler"]

"""What works on your data: descriptors, metrics and sizes compared on held-out points, and one recommendation."""

from knnpress.comparison.result import Comparison
from knnpress.comparison.run import compare

__all__ = ["Comparison", "compare"]

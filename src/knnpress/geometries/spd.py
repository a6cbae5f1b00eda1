"""The geometries of symmetric positive definite matrices, by their old address."""

from __future__ import annotations

from knnpress.geometries.airm import AIRM
from knnpress.geometries.jbld import JBLD
from knnpress.geometries.log_euclidean import LogEuclidean
from knnpress.geometries.matrices import check_spd

__all__ = ["AIRM", "JBLD", "LogEuclidean", "check_spd"]

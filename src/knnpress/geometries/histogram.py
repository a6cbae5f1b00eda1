"""The transport geometries of histograms, by their old address."""

from __future__ import annotations

from knnpress.geometries.emd import EMD
from knnpress.geometries.histogram_checks import check_ground_cost, check_histograms, resolve_reg
from knnpress.geometries.sinkhorn import Sinkhorn

__all__ = ["EMD", "Sinkhorn", "check_ground_cost", "check_histograms", "resolve_reg"]

"""Distances that respect the geometry of their points.

========================  ==========================  ============================================================
`JBLD`                    SPD matrices (n, d, d)      Jensen-Bregman log-det divergence
`AIRM`                    SPD matrices (n, d, d)      affine-invariant Riemannian distance
`LogEuclidean`            SPD matrices (n, d, d)      squared Frobenius distance of logarithms
`Tangent`                 SPD matrices (n, d, d)      squared distance of logarithms in the tangent space at a mean
`SquaredEuclidean`        vectors (n, d)              squared Euclidean distance
`Sinkhorn`                histograms (n, d)           entropic optimal transport on a ground cost
`EMD`                     histograms (n, d)           exact optimal transport on a ground cost (extra: ot)
`CloudSinkhorn`           clouds, `knnpress.Clouds`   entropic optimal transport between sets of weighted points
`CloudEMD`                clouds, `knnpress.Clouds`   exact optimal transport between them (extra: ot)
`Hellinger`               histograms (n, d)           squared Euclidean distance of square roots of bins
========================  ==========================  ============================================================
"""

from __future__ import annotations

from knnpress.geometries.airm import AIRM
from knnpress.geometries.base import EmbeddedGeometry, Geometry, SmoothGeometry
from knnpress.geometries.cloud_emd import CloudEMD
from knnpress.geometries.clouds import CloudSinkhorn
from knnpress.geometries.emd import EMD
from knnpress.geometries.euclidean import SquaredEuclidean
from knnpress.geometries.hellinger import Hellinger
from knnpress.geometries.jbld import JBLD
from knnpress.geometries.log_euclidean import LogEuclidean
from knnpress.geometries.sinkhorn import Sinkhorn
from knnpress.geometries.tangent import Tangent

__all__ = [
    "AIRM",
    "EMD",
    "JBLD",
    "CloudEMD",
    "CloudSinkhorn",
    "EmbeddedGeometry",
    "Geometry",
    "Hellinger",
    "LogEuclidean",
    "Sinkhorn",
    "SmoothGeometry",
    "SquaredEuclidean",
    "Tangent",
    "as_geometry",
    "geometry_name",
]

_BY_NAME: dict[str, type[Geometry]] = {
    "jbld": JBLD,
    "airm": AIRM,
    "logeuclid": LogEuclidean,
    "tangent": Tangent,
    "sqeuclidean": SquaredEuclidean,
    "hellinger": Hellinger,
    "sinkhorn": Sinkhorn,
    "emd": EMD,
    "clouds": CloudSinkhorn,
    "clouds-emd": CloudEMD,
}


def geometry_name(geometry: Geometry) -> str:
    """The name of a geometry, such as "jbld"; for one from elsewhere, the name of its class."""
    return next((name for name, cls in _BY_NAME.items() if type(geometry) is cls), type(geometry).__name__)


def as_geometry(geometry: Geometry | str) -> Geometry:
    """Return a geometry given by object or by name.

    Names: "jbld", "airm", "logeuclid", "tangent", "sqeuclidean", "hellinger", "clouds", "clouds-emd"; "sinkhorn" and
    "emd" need their ground cost, so give the object.
    """
    if isinstance(geometry, str):
        if geometry not in _BY_NAME:
            raise ValueError(f"geometry is {geometry!r}; choose one of {', '.join(map(repr, _BY_NAME))}, or an object")
        return _BY_NAME[geometry]()
    if isinstance(geometry, type) or not isinstance(geometry, Geometry):
        given = geometry.__name__ if isinstance(geometry, type) else f"a {type(geometry).__name__}"
        raise TypeError(f"geometry is {given}; give a geometry such as JBLD(), or a name")
    return geometry

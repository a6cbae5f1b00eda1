"""Figures that the paper prints: Kusner, Kolkin, Tyree and Weinberger, ICCV 2015.

Its errors are only drawn, not printed, so that there are none here.
"""

from __future__ import annotations

from dataclasses import dataclass

CITATION = "Kusner, Kolkin, Tyree and Weinberger, Image Data Compression for Covariance and Histogram Descriptors, 2015"


@dataclass(frozen=True)
class Printed:
    """What the paper says of one data set at one ratio.

    Attributes
    ----------
    speed_up : float
        Of testing, over the full training set.
    speed_up_std : float
    matches_full : bool
        Whether the paper marks the cell as matching full kNN up to significance.
    train_seconds : int
    """

    speed_up: float
    speed_up_std: float
    matches_full: bool
    train_seconds: int


def _row(ratios: tuple[float, ...], *cells: tuple[float, float, bool, int]) -> dict[float, Printed]:
    return dict(zip(ratios, (Printed(*cell) for cell in cells), strict=True))


_FEW, _MANY = (0.02, 0.04, 0.08, 0.16), (0.1, 0.2, 0.3, 0.4)

#: By data set, then by ratio: the tables of speed-ups and of training times
PAPER: dict[str, dict[float, Printed]] = {
    "eth80": _row(
        _FEW, (47.6, 0.1, False, 69), (24.5, 0.1, False, 106), (12.3, 0.2, False, 159), (6.2, 0.02, True, 276)
    ),
    "ethz": _row(
        _FEW, (48.1, 1.0, False, 124), (24.5, 0.1, False, 195), (12.4, 0.05, False, 353), (6.2, 0.01, False, 610)
    ),
    "rgbd": _row(
        _FEW, (34.0, 0.8, False, 1106), (20.3, 0.2, False, 2010), (10.9, 0.2, False, 3840), (6.8, 2.5, False, 7860)
    ),
    "scene15": _row(
        _FEW, (36.0, 0.6, True, 78), (20.6, 0.3, True, 112), (11.3, 0.1, True, 162), (5.9, 0.08, True, 260)
    ),
    "kth": _row(_FEW, (43.0, 1.0, True, 211), (22.6, 0.7, True, 348), (12.0, 0.4, True, 542), (6.2, 0.2, True, 978)),
    "coil20": _row(
        _FEW, (46.8, 1.4, False, 15), (23.5, 0.5, False, 201), (11.8, 0.5, False, 283), (5.9, 0.2, False, 557)
    ),
    "kylberg": _row(
        _FEW, (46.9, 2.2, True, 101), (23.9, 0.3, True, 166), (12.0, 0.04, True, 324), (6.0, 0.04, True, 677)
    ),
    "feret": _row(_MANY, (9.9, 0.1, False, 99), (5.0, 0.1, True, 139), (3.3, 0.006, True, 164), (2.5, 0.01, True, 186)),
    "mpeg7": _row(
        _MANY, (9.9, 0.2, False, 58), (4.9, 0.06, False, 1166), (3.2, 0.01, False, 1773), (2.4, 0.04, False, 2332)
    ),
}

#: Data sets of which only a part is here, so that times cannot be compared
PARTIAL = {"kth"}

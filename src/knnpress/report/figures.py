"""The figures as files, drawn by matplotlib: for papers, slides and places that show no HTML."""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from knnpress.pictures import heat
from knnpress.report.analysis import Case, cells_of, margin
from knnpress.report.curves import Series, curves_of
from knnpress.report.exhibits import Gallery, Map, Montage, Suspects
from knnpress.report.looks import PALETTE
from knnpress.report.records import DataSet
from knnpress.typing import Array

__all__ = ["FORMATS", "confusion", "curves", "differences", "gallery", "montage", "render", "suspects", "the_map"]

_MARKERS = {
    **{"circle": "o", "square": "s", "diamond": "D", "up": "^", "down": "v", "left": "<", "right": ">"},
    **{"cross": "x", "plus": "+", "star": "*", "hexagon": "h", "none": ""},
}
FORMATS = ("png", "svg")
_SIDE = 96  # pixels of a picture in a grid
_NEEDS = "PNG and SVG files of the figures need matplotlib: pip install knnpress[report]"


def render(draw: Callable[[Any], None], size: tuple[float, float]) -> dict[str, bytes]:
    """Draw a figure; the same figure is the same file.

    Parameters
    ----------
    draw : callable
        Takes a matplotlib Figure.
    size : (width, height)
        In inches.

    Returns
    -------
    dict of str to bytes
        By suffix.

    Raises
    ------
    ImportError
        Where there is no matplotlib.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(_NEEDS) from error
    look: Any = {
        **{
            "svg.hashsalt": "knnpress",
            "svg.fonttype": "none",
            "text.parse_math": False,
            "font.family": "DejaVu Sans",
            "font.size": 9,
        },
        **{"axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": "#5d5d68", "legend.frameon": False},
    }
    with matplotlib.rc_context(look), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # a name in letters that the font lacks
        figure = Figure(figsize=size, layout="constrained")
        draw(figure)
        files = {}
        for kind in FORMATS:
            file = io.BytesIO()
            figure.savefig(
                file, format=kind, dpi=160, metadata={"png": {"Software": None}, "svg": {"Date": None}}[kind]
            )
            files[kind] = file.getvalue()
    return files


def curves(case: Case) -> dict[str, bytes]:
    """Error against the share of the training set."""
    shown = [series for series in curves_of(case) if not series.hidden]
    name = case.data.title + (f", {case.variant}" if case.variant else "")

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for series in shown:
            _draw_series(axes, series)
        axes.set_xscale("log")
        ticks = [100 * ratio for ratio in case.ratios]
        axes.set_xticks(ticks, [f"{tick:g} %" for tick in ticks])
        axes.minorticks_off()
        means = [p[1] for s in shown for p in s.curve if p[1] > 0] + [
            s.line[0] for s in shown if s.line and s.line[0] > 0
        ]
        if means and max(means) > 8 * min(means):
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(_locator([1, 2, 5]))
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
            axes.tick_params(axis="y", which="minor", length=0)
            axes.set_ylim(bottom=min(means) / 1.6)
        else:
            axes.set_ylim(bottom=0)
        axes.set(xlabel="prototypes, share of the training set", ylabel="test error, %", title=name)
        axes.grid(axis="y", color="#e3e0da", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))

    return render(draw, (8, 4.4))


def _locator(subs: list[int]) -> Any:
    from matplotlib.ticker import LogLocator

    return LogLocator(subs=subs)


def _draw_series(axes: Any, series: Series) -> None:
    colour, marker = PALETTE[series.look.colour][0], _MARKERS[series.look.marker]
    dash = tuple(map(float, series.look.dash.split()))
    style: dict[str, Any] = {"color": colour, "linewidth": 2.2 if series.strong else 1.4}
    style["linestyle"] = (0, tuple(d / 1.5 for d in dash)) if dash else "-"
    title: str | None = series.title
    if series.curve:
        x, mean, std = (np.array(part, float) for part in zip(*series.curve, strict=True))
        axes.fill_between(x, np.maximum(mean - std, 0.01), mean + std, color=colour, alpha=0.12, linewidth=0)
        axes.plot(x, mean, marker=marker, markersize=5, label=title, **style)
        title = None
    if series.line:
        mean_line, deviation = series.line
        if series.strong and deviation is not None:
            axes.axhspan(max(mean_line - deviation, 0.01), mean_line + deviation, color=colour, alpha=0.1, linewidth=0)
        axes.axhline(mean_line, label=title, **style)
    if series.own:
        share, own, deviation = series.own
        axes.errorbar(
            *([share], [own], [deviation or 0.0]),
            fmt=marker or "o",
            color=colour,
            markerfacecolor="white",
            markersize=7,
            linewidth=1.2,
        )


def differences(cases: list[Case]) -> dict[str, bytes]:
    """Ours minus the full set in all cells, with intervals."""
    cells = [cell for case in cases for cell in cells_of(case)]

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        for y, cell in enumerate(cells):
            difference = 100 * cell.comparison.difference
            limit = 100 * margin(cell.full)
            axes.barh(y, limit, left=0, height=0.8, color="#eef1fb")
            if cell.comparison.low is not None and cell.comparison.high is not None:
                axes.plot(
                    [100 * cell.comparison.low, 100 * cell.comparison.high],
                    [y, y],
                    color=PALETTE["ours"][0],
                    linewidth=1.5,
                )
            good = cell.not_worse and cell.within
            colour = PALETTE["ours"][0] if good else PALETTE["red"][0]
            axes.plot(difference, y, marker="o" if good else "X", color=colour, markersize=6)
        axes.axvline(0, color=PALETTE["full"][0], linewidth=1)
        axes.set_yticks(range(len(cells)), [f"{cell.case.data.title}, {100 * cell.ratio:g} %" for cell in cells])
        axes.invert_yaxis()
        axes.set_xscale("symlog", linthresh=1)  # half a point counts, ten points or twelve are much the same
        low, high = axes.get_xlim()
        ticks = [tick for tick in (-50, -20, -10, -5, -2, -1, -0.5, 0, 0.5, 1, 2, 5, 10, 20, 50) if low < tick < high]
        axes.set_xticks(ticks, [f"{tick:g}".replace("-", "−") for tick in ticks])
        axes.minorticks_off()
        axes.grid(axis="x", color="#e3e0da", linewidth=0.7)
        axes.set_axisbelow(True)
        axes.set(
            xlabel="points of test error more than the full training set\n"
            "(95 % interval; shaded: the margin; ✕: worse or beyond)",
            title="Ours minus the full training set",
        )

    return render(draw, (8, 1.3 + 0.27 * len(cells)))


def the_map(data: DataSet, points: Map) -> dict[str, bytes]:
    """Training set and prototypes in two dimensions."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        classes = sorted({*points.labels.tolist(), *points.prototype_labels.tolist()})
        for k, label in enumerate(classes):
            colour = _hsv(k, len(classes))
            mine, theirs = points.points[points.labels == label], points.prototypes[points.prototype_labels == label]
            axes.scatter(*mine.T, s=5, color=[colour], alpha=0.55, linewidths=0)
            axes.scatter(*theirs.T, s=95, color=[colour], edgecolors="white", linewidths=1)
            for x, y in theirs.tolist():
                axes.text(
                    x,
                    y,
                    data.class_sign(label),
                    color="white",
                    fontsize=6,
                    ha="center",
                    va="center_baseline",
                    fontweight="bold",
                )
        axes.set(xticks=[], yticks=[], title=f"{data.title}: training set and prototypes, marked by class")
        axes.set_aspect("equal")
        axes.spines[:].set_visible(False)

    return render(draw, (6.4, 6.4))


def _hsv(k: int, n: int) -> tuple[float, float, float]:
    import colorsys

    return colorsys.hsv_to_rgb((k / n + 0.62) % 1, 0.75 - 0.2 * (k % 2), 0.62 + 0.12 * (k % 3))


def confusion(data: DataSet, matrix: Array) -> dict[str, bytes]:
    """Rows true, columns predicted."""
    n = len(matrix)
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.imshow(heat(np.where(np.eye(n, dtype=bool), -0.8 * share, np.sqrt(share))))
        names = [data.class_name(k) for k in range(n)]
        size = min(8.0, 260 / n)
        axes.set_xticks(range(n), names, rotation=90, fontsize=size)
        axes.set_yticks(range(n), names, fontsize=size)
        if n <= 12:
            for i, j in np.argwhere(matrix > 0).tolist():
                axes.text(
                    j, i, str(matrix[i, j]), ha="center", va="center", fontsize=size, color="w" if i == j else "k"
                )
        axes.set(xlabel="taken for", ylabel="true class", title=data.title)

    return render(draw, (6.6, 6.2))


def gallery(data: DataSet, prototypes: Gallery) -> dict[str, bytes]:
    """Prototypes, each beside the nearest training image if there is one."""
    tiles = [
        ([_raster(pixels) if prototypes.kind == "bars" else pixels, nearest], data.class_name(label))
        for pixels, label, nearest in zip(prototypes.prototypes, prototypes.labels, prototypes.nearest, strict=True)
    ]
    return _grid(tiles)


def suspects(data: DataSet, doubtful: Suspects) -> dict[str, bytes]:
    """The images of points that look mislabelled."""
    rows = zip(doubtful.images, doubtful.rows, doubtful.labels, doubtful.predicted, strict=True)
    return _grid([([i], f"{row}: {data.class_name(a)}?\nlike {data.class_name(b)}") for i, row, a, b in rows])


def montage(data: DataSet, pictures: Montage) -> dict[str, bytes]:
    """Images of the data set."""
    return _grid([([i], data.class_name(label)) for i, label in zip(pictures.images, pictures.labels, strict=True)])


def _grid(tiles: list[tuple[list[Array | None], str]]) -> dict[str, bytes]:
    """Tiles of pictures side by side, with a text below; all pictures as one, since many are slow to draw."""
    wide = max(sum(picture is not None for picture in pictures) for pictures, _ in tiles)
    across = 12 // wide
    down = math.ceil(len(tiles) / across)
    step_x, step_y = round(_SIDE * (wide + 0.15)), round(_SIDE * 1.45)
    sheet = np.full((down * step_y, across * step_x, 3), 255, np.uint8)
    corners = [(k // across * step_y, k % across * step_x) for k in range(len(tiles))]
    for (y, x), (pictures, _) in zip(corners, tiles, strict=True):
        for k, picture in enumerate(picture for picture in pictures if picture is not None):
            _paste(sheet[y : y + _SIDE, x + k * (_SIDE + 2) :][:, :_SIDE], picture)

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        axes.imshow(sheet, interpolation="nearest")
        for (y, x), (_, text) in zip(corners, tiles, strict=True):
            axes.text(x + _SIDE * wide / 2, y + _SIDE + 3, text, fontsize=5.5, ha="center", va="top")
        axes.axis("off")

    return render(draw, (10, 0.2 + 10 * sheet.shape[0] / sheet.shape[1]))


def _paste(room: Array, picture: Array) -> None:
    """Draw a picture as large as fits into the middle of a square."""
    height, width = picture.shape[:2]
    rows, columns = (max(1, side * _SIDE // max(height, width)) for side in (height, width))
    scaled = picture[np.arange(rows) * height // rows][:, np.arange(columns) * width // columns]
    top, left = (_SIDE - rows) // 2, (_SIDE - columns) // 2
    room[top : top + rows, left : left + columns] = scaled if scaled.ndim == 3 else scaled[..., None]


def _raster(heights: Array, size: int = _SIDE) -> Array:
    """Bars as pixels, (size, size, 3)."""
    share = np.maximum(heights, 0) / max(float(heights.max()), np.finfo(float).tiny)
    tall = share[np.arange(size) * len(share) // size]
    filled = np.arange(size)[::-1, None] < size * tall
    ink = np.array([int(PALETTE["ours"][0][k : k + 2], 16) for k in (1, 3, 5)])
    return np.where(filled[..., None], ink, 240).astype(np.uint8)

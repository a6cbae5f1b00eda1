"""Prototypes, map, confusions, suspects and montage of a data set on the page."""

from __future__ import annotations

from html import escape

import numpy as np

from knnpress.pictures import heat, image_tag
from knnpress.report import words
from knnpress.report.exhibits import (
    Gallery,
    Map,
    Suspects,
    confusion_of,
    gallery_of,
    map_of,
    montage_of,
    suspects_of,
)
from knnpress.report.looks import title_of
from knnpress.report.records import DataSet, Exhibit
from knnpress.report.table import Cell, Column, Table, as_html
from knnpress.typing import Array

__all__ = ["confusion_table", "show_montage", "show_prototypes", "show_rest", "suspects_table"]

_MOST_CLASSES = 20  # beyond which a confusion matrix is a picture
_MOST_OPEN = 24  # prototypes beyond which they are folded away
_SHOWN_IMAGES = 24


def show_prototypes(data: DataSet, exhibit: Exhibit, images: bool) -> str:
    """The learned prototypes, as HTML; beside them images of the data only if `images`. Many are folded away."""
    gallery = gallery_of(exhibit, images)
    if gallery is None:
        return ""
    shown = _gallery(data, gallery, _which(exhibit))
    return shown if len(gallery.prototypes) <= _MOST_OPEN else _folded("Learned prototypes", shown)


def show_rest(data: DataSet, exhibit: Exhibit, images: bool) -> str:
    """Map, confusions and suspects, as HTML, folded; images of the data only if `images`."""
    suspects, the_map, confusion = suspects_of(exhibit, images), map_of(exhibit), confusion_of(exhibit)
    what = _which(exhibit)
    parts = [
        _folded("Which classes are confused", _confusion(data, confusion, what)) if confusion is not None else "",
        _folded("Map of the training set", _map(data, the_map, exhibit.map)) if the_map else "",
        as_html(suspects_table(data, suspects, what), fold=True) if suspects else "",
    ]
    return "".join(parts)


def _which(exhibit: Exhibit) -> str:
    """The model that is shown."""
    what = title_of(exhibit.method) if exhibit.method else "ours"
    return what + (f" at {words.ratio_of(exhibit.ratio)}" if exhibit.ratio is not None else "")


def _folded(title: str, content: str) -> str:
    return f"<details><summary><h3>{escape(title)}</h3></summary>{content}</details>"


def _gallery(data: DataSet, gallery: Gallery, what: str) -> str:
    said = {
        "correlation": "correlation matrix of the learned covariance",
        "picture": "learned histogram as a picture",
        "bars": "learned histogram",
    }[gallery.kind]
    items = []
    for k, (pixels, label, nearest) in enumerate(zip(gallery.prototypes, gallery.labels, gallery.nearest, strict=True)):
        name = data.class_name(label)
        alt = f"Prototype {k + 1}, class {name}: {said}"
        shown = _bars(pixels, alt) if gallery.kind == "bars" else image_tag(pixels, alt, "sharp")
        beside = image_tag(nearest, f"Training image nearest to prototype {k + 1}") if nearest is not None else ""
        items.append(f'<li><div class="shown">{shown}{beside}</div>{escape(name)}</li>')
    few = f", {len(items)} of {gallery.total}" if gallery.total > len(items) else f", {len(items)} in all"
    near = "; beside each the training image nearest to it" if any(n is not None for n in gallery.nearest) else ""
    scale = _heat_scale() if gallery.kind == "correlation" else ""
    wide = " bars" if gallery.kind == "bars" else ""
    heading = "<h3>Learned prototypes</h3>" if len(items) <= _MOST_OPEN else ""
    return (
        f'<figure class="gallery">{heading}<ul class="cards{wide}">{"".join(items)}</ul>'
        f"<figcaption>{escape(what)}{few}: each is the {said}{near}. {scale}</figcaption></figure>"
    )


def _heat_scale() -> str:
    return (
        "Correlation −1" + image_tag(heat(np.linspace(-1, 1, 64)[None]), "from teal over white to rust", "scale") + "1."
    )


def _bars(heights: Array, alt: str) -> str:
    top = float(heights.max()) or 1.0
    steps = "".join(f"V{40 - 38 * max(0.0, float(h)) / top:.1f}h1" for h in heights)
    return (
        f'<svg class="bars" viewBox="0 0 {len(heights)} 40" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(alt)}">'
        f'<path fill="currentColor" d="M0 40{steps}V40Z"/></svg>'
    )


def _colour(label: int, n: int) -> str:
    return f"hsl({(label * 360 / max(n, 1) + 222) % 360:.0f} {62 - 14 * (label % 2)}% {46 + 8 * (label % 3) - 6}%)"


def _map(data: DataSet, the_map: Map, how: str) -> str:
    classes = sorted({*the_map.labels.tolist(), *the_map.prototype_labels.tolist()})
    n, size, edge = len(classes), 560, 16

    def place(points: Array) -> list[tuple[str, str]]:
        scaled = edge + (size - 2 * edge) * np.column_stack([points[:, 0], 1 - points[:, 1]])
        return [(f"{x:.1f}", f"{y:.1f}") for x, y in scaled.tolist()]

    dots, crowns, names, options = [], [], [], ['<option value="">all classes</option>']
    for k, label in enumerate(classes):
        colour, name, sign = _colour(k, n), escape(data.class_name(label)), escape(data.class_sign(label))
        entry = escape(data.class_entry(label))
        path = "".join(f"M{x} {y}h0" for x, y in place(the_map.points[the_map.labels == label]))
        dots.append(
            f'<g data-class="{label}"><path class="dot" stroke="{colour}" d="{path}"><title>{name}</title></path></g>'
        )
        marks = "".join(
            f'<circle class="prototype" cx="{x}" cy="{y}" r="9" fill="{colour}"/>'
            f'<text x="{x}" y="{float(y) + 4:.1f}">{sign}</text>'
            for x, y in place(the_map.prototypes[the_map.prototype_labels == label])
        )
        crowns.append(f'<g data-class="{label}"><title>prototype of {name}</title>{marks}</g>' if marks else "")
        names.append(f'<li><i style="background:{colour}"></i>{entry}</li>')
        options.append(f'<option value="{label}">{entry}</option>')
    alt = (
        f"Map of {len(the_map.points)} training points of {n} classes with {len(the_map.prototypes)} prototypes on it, "
        "marked by class."
    )
    how = words.stop(how[0].upper() + how[1:]) if how else ""
    return (
        '<figure class="map"><div class="controls">'
        f"<label>Show <select>{''.join(options)}</select></label></div>"
        f'<svg viewBox="0 0 {size} {size}" role="img" aria-label="{escape(alt)}">{"".join(dots)}{"".join(crowns)}</svg>'
        f'<ul class="names">{"".join(names)}</ul><figcaption>Small dots: training points. Marked discs: prototypes, '
        f"by class. {escape(how)}</figcaption></figure>"
    )


def _confusion(data: DataSet, matrix: Array, what: str) -> str:
    n, total, right = len(matrix), int(matrix.sum()), int(np.trace(matrix))
    names = [data.class_name(k) for k in range(n)]
    wrong = sorted(
        ((int(matrix[i, j]), i, j) for i in range(n) for j in range(n) if i != j and matrix[i, j]),
        key=lambda w: (-w[0], w[1:]),
    )
    most = "; ".join(f"{names[i]} taken for {names[j]} ({count} ×)" for count, i, j in wrong[:6])
    told = f"{what}, {total - right} errors in {total} test points of the first split. " + (
        f"Most often: {most}." if most else ""
    )
    if n <= _MOST_CLASSES:
        shown = _confusion_table(data, matrix)
    else:
        share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
        signed = np.where(np.eye(n, dtype=bool), -share, np.sqrt(share))
        alt = f"Confusion matrix of {n} classes, rows true: teal on the diagonal is right, rust off it is wrong."
        shown = image_tag(heat(np.kron(signed, np.ones((4, 4)))), alt, "matrix sharp")
    return f'<figure class="panel">{shown}<figcaption>{escape(told)}</figcaption></figure>'


def _confusion_table(data: DataSet, matrix: Array) -> str:
    n = len(matrix)
    heads = "".join(
        f'<th scope="col" title="{escape(data.class_name(k))}">{escape(data.class_sign(k))}</th>' for k in range(n)
    )
    rows = []
    for i in range(n):
        total = max(1, int(matrix[i].sum()))
        cells = "".join(
            f'<td{" class=hit" if i == j else ""} style="--a:{(v / total) ** 0.5 if v else 0:.2f}">{v or "·"}</td>'
            for j, v in enumerate(matrix[i].tolist())
        )
        rows.append(f'<tr><th scope="row">{escape(data.class_entry(i))}</th>{cells}</tr>')
    return (
        '<div class="scroll" tabindex="0" role="group" aria-label="Confusion matrix"><table class="confusion">'
        '<caption class="hidden">Confusion matrix: true classes in rows, predicted in columns</caption>'
        f'<thead><tr><th scope="col">true ↓ taken for →</th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody>'
        "</table></div>"
    )


def suspects_table(data: DataSet, suspects: Suspects, what: str) -> Table:
    """Training points that may be mislabelled."""
    rows = []
    for row, label, guess, loss, picture in zip(
        suspects.rows, suspects.labels, suspects.predicted, suspects.losses, suspects.images, strict=True
    ):
        shown = f"{image_tag(picture, f'Training image {row}')}{row}" if picture is not None else None
        likely = [Cell(data.class_name(label)), Cell(data.class_name(guess))]
        rows.append([Cell(str(row), (row,), html=shown), *likely, Cell(f"{loss:.2f}", (loss,))])
    return Table(
        f"{data.name}-suspects",
        "Labels to look at",
        [Column("training row"), Column("labelled as", left=True), Column("looks like", left=True), Column("−log p")],
        [("", rows)],
        note=f"Training points whose own label {what or 'ours'} finds least likely: mislabelled, or hard.",
    )


def confusion_table(data: DataSet, matrix: Array) -> Table:
    """Rows true, columns predicted."""
    names = [data.class_name(k) for k in range(len(matrix))]
    rows = [[Cell(names[i]), *(Cell(str(v), (v,)) for v in matrix[i].tolist())] for i in range(len(matrix))]
    columns = [Column("true class", left=True), *(Column(f"taken for {name}") for name in names)]
    return Table(f"{data.name}-confusion", "Confusion matrix", columns, [("", rows)])


def show_montage(data: DataSet, exhibit: Exhibit, images: bool) -> str:
    """A few images of the data set, as HTML; nothing unless `images`."""
    montage = montage_of(exhibit, images)
    if montage is None:
        return ""
    n = len(montage.images)
    shown = sorted({round(k) for k in np.linspace(0, n - 1, _SHOWN_IMAGES)})
    items = "".join(
        f"<li>{image_tag(montage.images[k], f'Image of class {name}')}{escape(name)}</li>"
        for k in shown
        for name in [data.class_name(montage.labels[k])]
    )
    return (
        f'<figure class="montage"><h3 class="hidden">Some of the data</h3><ul class="cards small">{items}</ul></figure>'
    )

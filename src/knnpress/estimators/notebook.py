"""A fitted model as a notebook shows it."""

from __future__ import annotations

from html import escape
from typing import Any

import numpy as np

from knnpress.clouds import Cloud, Clouds
from knnpress.geometries.base import CloudGeometry
from knnpress.geometries.cloud_points import as_clouds
from knnpress.pictures import correlation, heat, image_tag

_SHOWN = 20  # prototypes; more would fill the notebook


def model_summary(model: Any) -> str:
    """Prototypes, held-out error and size of a fitted model, as HTML."""
    m, ratio = len(model.prototypes_), model.compression_ratio_
    facts = {
        "prototypes": f"{m:,} of {round(m / ratio):,} points" if ratio else f"{m:,}",
        "held-out error": held_out_error(model),
        "size": f"{prototype_bytes(model) / 1000:,.1f} kB",
        "metric": getattr(model, "metric_", ""),
    }
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left">{name}</th><td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in facts.items()
        if value
    )
    return f'<div class="knnpress-model"><table>{rows}</table>{_pictures(model)}</div>'


def held_out_error(model: Any) -> str:
    """The held-out error of the chosen setting when the model was fitted; empty where there were no held-out points."""
    seen = [one for one in getattr(model, "selection_", []) if one.get("chosen") and "n_prototypes" not in one]
    return f"{seen[-1]['error']:.2%} ± {seen[-1]['standard_error']:.2%}" if seen else ""


def prototype_bytes(model: Any) -> int:
    """Bytes of the prototypes."""
    points = model.prototypes_
    return int(points.points.nbytes + points.weights.nbytes) if isinstance(points, Clouds) else int(points.nbytes)


def _pictures(model: Any) -> str:
    """The first prototypes of each class: matrices as correlations, histograms as bars, clouds in a plane."""
    points: Any = model.prototypes_
    labels = model.prototype_labels_
    if isinstance(model._fitted_geometry(), CloudGeometry):
        points = as_clouds(points)
        if points.shape[1] != 2:
            return ""
    order = np.argsort(labels, kind="stable")
    shown = order[np.unique(np.linspace(0, len(order) - 1, min(len(order), _SHOWN)).round().astype(int))]
    items = "".join(
        f'<div style="width:64px;text-align:center">{_picture(points[k])}{escape(str(labels[k]))}</div>' for k in shown
    )
    few = f"<div>{len(shown)} of {len(order)} shown</div>" if len(shown) < len(order) else ""
    return f'<div style="display:flex;flex-wrap:wrap;gap:6px">{items}</div>{few}'


def _picture(point: Any) -> str:
    if isinstance(point, Cloud):
        return _circles(point)
    if point.ndim == 2:
        small = heat(correlation(point))
        return image_tag(np.kron(small, np.ones((max(1, 64 // len(small)),) * 2 + (1,), np.uint8)), "prototype")
    heights = point - min(0.0, float(point.min()))
    top = float(heights.max()) or 1.0
    steps = "".join(f"V{40 - 38 * float(height) / top:.1f}h1" for height in heights)
    return (
        f'<svg viewBox="0 0 {len(point)} 40" preserveAspectRatio="none" width="64" height="40" role="img" '
        f'aria-label="prototype"><path fill="currentColor" d="M0 40{steps}V40Z"/></svg>'
    )


def _circles(cloud: Cloud) -> str:
    """A cloud in a plane, each point as large as its weight."""
    low, high = cloud.points.min(axis=0), cloud.points.max(axis=0)
    places = 7.0 + 50.0 * (cloud.points - low) / (float((high - low).max()) or 1.0)
    circles = "".join(
        f'<circle cx="{x:.1f}" cy="{64 - y:.1f}" r="{7 * np.sqrt(weight / cloud.weights.max()):.1f}"/>'
        for (x, y), weight in zip(places, cloud.weights, strict=True)
    )
    return (
        '<svg viewBox="0 0 64 64" width="64" height="64" role="img" aria-label="prototype">'
        f'<g fill="currentColor" fill-opacity="0.6">{circles}</g></svg>'
    )

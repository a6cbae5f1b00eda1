"""The pictures of the documentation: ``python docs/site/pictures.py`` draws them into docs/pictures, in about a minute.

What the pictures of the gallery show is taken from the examples themselves, which are run.
"""

from __future__ import annotations

import argparse
import logging
import runpy
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.patches import Ellipse
from scipy.optimize import linear_sum_assignment
from sklearn.exceptions import ConvergenceWarning

from knnpress.geometries import AIRM, JBLD, Hellinger, LogEuclidean, Sinkhorn, SquaredEuclidean

mpl.use("Agg")
logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # readers have fonts that are not here
ROOT = Path(__file__).parents[2]
TEAL, ORANGE, VIOLET, GRAY = "#0f766e", "#b45309", "#7c3aed", "#6b7280"
STYLE = {
    "svg.hashsalt": "knnpress",
    "svg.fonttype": "none",  # text stays text, in a font that the browser has
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Helvetica", "Arial"],
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def between_matrices() -> Any:
    """The way from one covariance to another, and what is half way, under each geometry."""
    ends = np.array([[[6.0, 0.0], [0.0, 0.4]], [[0.5, 0.35], [0.35, 5.0]]])
    means: dict[str, Callable[[np.ndarray], np.ndarray]] = {
        "Euclidean": lambda w: np.tensordot(w, ends, axes=1),
        "log-Euclidean": lambda w: LogEuclidean().centroid(ends, w),
        "AIRM": lambda w: AIRM().centroid(ends, w),
        "JBLD": lambda w: JBLD().centroid(ends, w),
    }
    drawing, axes = plt.subplots(len(means), 1, figsize=(7, 6), layout="constrained", sharex=True)
    for axis, (name, mean) in zip(axes, means.items(), strict=True):
        for k, t in enumerate(np.linspace(0, 1, 7)):
            C = ends[0] if t == 0 else ends[1] if t == 1 else mean(np.array([1 - t, t]))
            size, turn = np.linalg.eigh(C)
            angle = np.degrees(np.arctan2(turn[1, 1], turn[0, 1]))
            kind = {"facecolor": GRAY if t in (0, 1) else TEAL if name != "Euclidean" else ORANGE, "alpha": 0.45}
            axis.add_patch(Ellipse((6.5 * k, 0), *(2 * np.sqrt(size[::-1])), angle=angle, edgecolor="#111827", **kind))
            axis.annotate(f"{np.sqrt(np.linalg.det(C)):.1f}", (6.5 * k, -3.3), ha="center", color=GRAY)
        axis.set(xlim=(-4, 43), ylim=(-3.8, 2.8), aspect="equal", xticks=[], yticks=[])
        axis.set_title(name, loc="left")
        axis.spines[:].set_visible(False)
    return drawing


def spheres() -> Any:
    """Matrices diag(a, b) that are equally far from the identity."""
    a = np.linspace(0.02, 4.0, 140)
    grid = np.zeros((len(a) ** 2, 2, 2))
    grid[:, 0, 0], grid[:, 1, 1] = (part.ravel() for part in np.meshgrid(a, a))
    one = np.eye(2)[None]
    distances = {
        "Euclidean": np.linalg.norm(grid - one, axis=(1, 2)),
        "AIRM": AIRM().pairwise(grid, one)[:, 0],
        "JBLD": np.sqrt(JBLD().pairwise(grid, one)[:, 0]),
    }
    drawing, axes = plt.subplots(1, 3, figsize=(8, 2.9), layout="constrained", sharey=True)
    for axis, (name, D) in zip(axes, distances.items(), strict=True):
        D = D.reshape(len(a), len(a)) / D.reshape(len(a), len(a))[0].min()
        levels = np.array([0.15, 0.3, 0.45, 0.6, 0.75])
        axis.contour(a, a, D, levels * (2.5 if name == "Euclidean" else 1), colors=TEAL, linewidths=1)
        axis.plot(1, 1, "o", color=ORANGE, markersize=4)
        axis.set(title=name, aspect="equal", xlabel="variance a", xlim=(0, 4), ylim=(0, 4))
    axes[0].set_ylabel("variance b")
    return drawing


def bump(x: np.ndarray, centre: float, width: float = 3.0) -> np.ndarray:
    """A histogram with one hill."""
    heights = np.exp(-((x - centre) ** 2) / 2 / width**2) + 1e-6
    return np.asarray(heights / heights.sum())


def between_histograms() -> Any:
    """Half way between two histograms."""
    x = np.arange(64.0)
    H = np.stack([bump(x, 14), bump(x, 48)])
    cost = (x[:, None] - x) ** 2 / 64
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of marginals that differ by a millionth
        transported = Sinkhorn(cost).centroid(H)
    middles = {
        "Euclidean": (SquaredEuclidean().centroid(H), ORANGE),
        "Hellinger": (Hellinger().centroid(H), VIOLET),
        "Sinkhorn": (transported, TEAL),
    }
    drawing, axes = plt.subplots(1, 3, figsize=(8, 2.2), layout="constrained", sharey=True)
    for axis, (name, (middle, colour)) in zip(axes, middles.items(), strict=True):
        for h in H:
            axis.fill_between(x, h, color=GRAY, alpha=0.25, linewidth=0)
        axis.plot(x, middle, color=colour)
        axis.set(title=name, xlabel="bin", yticks=[])
    return drawing


def moved_histogram() -> Any:
    """How far a histogram is from its copy that has been moved."""
    x = np.arange(64.0)
    moves = np.arange(41)
    H = np.stack([bump(x, 12 + k) for k in moves])
    cost = np.abs(x[:, None] - x)
    drawing, axis = plt.subplots(figsize=(5, 2.8), layout="constrained")
    distances = {
        "Sinkhorn": (Sinkhorn(cost), TEAL),
        "Hellinger": (Hellinger(), VIOLET),
        "Euclidean": (SquaredEuclidean(), ORANGE),
    }
    for name, (geometry, colour) in distances.items():
        D = geometry.pairwise(H, H[:1])[:, 0]
        axis.plot(moves, D / D.max(), color=colour, label=name)
    axis.set(xlabel="bins by which it has moved", ylabel="distance, of its largest", ylim=(0, 1.05))
    axis.legend(frameon=False)
    return drawing


def transported_cloud() -> Any:
    """Which point of a cloud goes where in another."""
    rng = np.random.default_rng(3)
    one, other = rng.normal(size=(9, 2)), rng.normal(size=(9, 2)) * [0.7, 1.3] + [3.2, 0.4]
    row, column = linear_sum_assignment(((one[:, None] - other) ** 2).sum(axis=-1))
    drawing, axis = plt.subplots(figsize=(5, 2.8), layout="constrained")
    for i, j in zip(row, column, strict=True):
        axis.plot(*np.stack([one[i], other[j]]).T, color=GRAY, linewidth=0.8)
    axis.plot(*one.T, "o", color=TEAL)
    axis.plot(*other.T, "s", color=ORANGE)
    axis.set(xticks=[], yticks=[], aspect="equal")
    axis.spines[:].set_visible(False)
    return drawing


def bars(title: str, values: dict[str, float], label: str = "test error, %") -> Any:
    """One bar for each of a few methods; the last is the one that the example is about."""
    drawing, axis = plt.subplots(figsize=(5, 0.5 + 0.34 * len(values)), layout="constrained")
    heights = [100 * value for value in values.values()]
    axis.barh(list(values), heights, color=[GRAY] * (len(values) - 1) + [TEAL], height=0.6)
    axis.bar_label(axis.containers[0], fmt="%.1f", padding=3)
    axis.set(xlabel=label, xlim=(0, 1.15 * max(heights)))
    axis.set_title(title, loc="left")
    axis.invert_yaxis()
    return drawing


def gallery(name: str) -> Any:
    """What an example found."""
    found = runpy.run_path(str(ROOT / "examples" / f"{name}.py"), run_name="__main__")
    if name == "digits":
        values = {"all 899 points": found["errors"]["all points"], "18 random points": found["errors"]["random points"]}
        return bars("Digits", {**values, "18 learned prototypes": found["errors"]["learned"]})
    if name == "wrong_labels":
        values = {"nearest of all points": found["full_error"], "vote of the 7 nearest": found["voted_error"]}
        return bars("A fifth of the labels is wrong", {**values, "20 learned prototypes": found["error"]})
    if name == "geometries":
        values = {name: found["errors"][name, "mixed"] for name in ("Flat", "LogEuclidean", "AIRM", "JBLD")}
        return bars("After the sensors were mixed", values)
    if name == "documents":
        values = {"nearest, by words": 1 - found["by_word"], "nearest, by transport": 1 - found["by_meaning"]}
        return bars("Documents that share no word", {**values, "6 learned prototypes": 1 - found["learned"]})
    if name == "eeg":
        values = {name: 1 - score for name, score in found["scores"].items()}
        learned = values.pop("SCC, 2 prototypes a class")
        return bars("Imagined movements", {**values, "SCC, 2 prototypes per class": learned})
    if name == "big_data":
        model = found["there"]
        drawing, axes = plt.subplots(2, 6, figsize=(5, 2.0), layout="constrained")
        order = np.argsort(model.prototype_labels_, kind="stable")
        for axis, j in zip(axes.ravel(), order, strict=True):
            axis.imshow(model.prototypes_[j], cmap="gray")
            axis.set_title(f"class {model.prototype_labels_[j]}", fontsize=7)
            axis.set_axis_off()
        return drawing
    drawing, axes = plt.subplots(3, 4, figsize=(4, 3.1), layout="constrained")
    rng = np.random.default_rng(0)
    for row, (kind, weave) in zip(axes, found["WEAVES"].items(), strict=True):
        row[0].set_ylabel(kind)
        for axis in row:
            axis.imshow(found["draw"](weave, rng), interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            axis.spines[:].set_visible(False)
    return drawing


PICTURES: dict[str, Callable[[], Any]] = {
    "between-matrices": between_matrices,
    "spheres": spheres,
    "between-histograms": between_histograms,
    "moved-histogram": moved_histogram,
    "transported-cloud": transported_cloud,
}
PICTURES |= {
    f"example-{path.stem}": lambda name=path.stem: gallery(name) for path in sorted((ROOT / "examples").glob("*.py"))
}


def main() -> None:
    """Draw what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"which ones, of {', '.join(PICTURES)} (default: all)")
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "docs" / "pictures")
    args = parser.parse_args()
    args.output.mkdir(parents=True, exist_ok=True)
    for name in args.names or PICTURES:
        with mpl.rc_context(STYLE):
            drawing = PICTURES[name]()
            file = args.output / f"{name}.svg"
            drawing.savefig(file, metadata={"Date": None}, facecolor="white", bbox_inches="tight")
            plt.close(drawing)


if __name__ == "__main__":
    main()

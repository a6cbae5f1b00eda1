"""What methods are, what they are called, and how they are told apart: by dash and marker, never by colour alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: Learned prototypes by our own settings
OURS = ("SCC", "SHC", "SNC", "SWC")

#: What the short names stand for
LONG_NAMES = {
    "SCC": ", stochastic covariance compression",
    "SHC": ", stochastic histogram compression",
    "SNC": ", stochastic neighbor compression",
    "SWC": ", stochastic Wasserstein compression",
}

#: What metrics are called, in a heading and within a sentence
_METRICS = {
    "jbld": ("JBLD", "the log-det divergence"),
    "tangent": ("Tangent", "the tangent space"),
    "logeuclid": ("LogEuclidean", "matrix logarithms"),
    "sinkhorn": ("Sinkhorn", "Sinkhorn's distance"),
    "hellinger": ("Hellinger", "roots of bins"),
}

#: For light and for dark paper
PALETTE = {
    "ours": ("#1d4fd7", "#86a8ff"),
    "full": ("#1c1c22", "#f1efec"),
    "rust": ("#b8470a", "#f59a5c"),
    "green": ("#15793b", "#5fce8a"),
    "pink": ("#b81d66", "#f586b6"),
    "violet": ("#6f3fc4", "#bda0ff"),
    "teal": ("#0d7480", "#55cbd8"),
    "ochre": ("#8a6500", "#e3bd4f"),
    "red": ("#b3261e", "#ff8f87"),
    "grey": ("#6a6a74", "#a5a5ae"),
}


@dataclass(frozen=True)
class Look:
    """A colour of the palette, an SVG dash pattern and the name of a marker."""

    colour: str
    dash: str
    marker: str


@dataclass(frozen=True)
class Family:
    """Methods of one kind, which the first figure shows as one: a title and a look."""

    title: str
    look: Look


#: By the role of a method, in the order of the key
FAMILIES = {
    "ours": Family("ours, default settings", Look("ours", "", "circle")),
    "alone": Family("ours, the paper's geometry alone", Look("teal", "5 2", "hexagon")),
    "paper": Family("the paper's settings", Look("violet", "7 3", "diamond")),
    "same size": Family("other ways to reduce the training set", Look("rust", "4 2", "square")),
    "full": Family("full 1-NN", Look("full", "", "plus")),
    "today": Family("others that people use today", Look("green", "2 3", "up")),
}


@dataclass(frozen=True)
class _Method:
    role: str
    look: Look
    words: str
    title: str = ""
    common: str = ""  # what it is called where data sets of several kinds are pooled


_LEARNED = "a few artificial points, learned so that nearest neighbours among them are right"
_ALONE = _Method("alone", Look("teal", "5 2", "hexagon"), "the same without the choice of a geometry")
_METHODS = {
    "full": _Method("full", Look("full", "", "none"), "every training point is kept; the nearest names the class"),
    **{name: _Method("ours", Look("ours", "", "circle"), _LEARNED, f"{name} (ours)", "ours") for name in OURS},
    "SCC groups": _Method(
        "ours", Look("ours", "5 2", "circle"), "the same, told which points belong together", "SCC, groups given"
    ),
    **{
        name: _Method(_ALONE.role, _ALONE.look, _ALONE.words, title, "ours, the paper's geometry alone")
        for name, title in {"SCC jbld": "SCC, JBLD alone", "SHC sinkhorn": "SHC, Sinkhorn alone"}.items()
    },
    **{
        f"{name} paper": _Method(
            "paper",
            Look("violet", "7 3", "diamond"),
            "the same with the settings of the paper that introduced it",
            f"{name}, the paper's settings",
            "the paper's settings",
        )
        for name in OURS
    },
    "Subsample": _Method("same size", Look("grey", "2 3", "square"), "training points drawn at random"),
    "Condensed": _Method(
        "same size",
        Look("green", "8 3 2 3", "up"),
        "training points added until all others are classified rightly (Hart's condensed nearest neighbour)",
    ),
    "Reduced": _Method(
        "same size", Look("teal", "5 2", "down"), "the condensed set without points that it can do without"
    ),
    "FastCondensed": _Method(
        "same size",
        Look("ochre", "10 3", "cross"),
        "a condensed set that does not depend on the order of points (FCNN)",
    ),
    "RandomMutation": _Method(
        "same size", Look("rust", "4 2 1 2", "plus"), "training points exchanged at random as long as that helps (RMHC)"
    ),
    "ClassCentroids": _Method(
        "same size", Look("pink", "3 2", "star"), "means of the points of each class, or of clusters of them"
    ),
    "LearningVectorQuantization": _Method(
        "same size",
        Look("red", "6 2 2 2", "left"),
        "points pulled towards training points of their class and pushed from others",
        "learning vector quantization",
    ),
    "full k": _Method(
        "today",
        Look("grey", "12 3", "none"),
        "every training point is kept; the k nearest vote, k by cross-validation",
        "full k-NN",
    ),
    "MDM": _Method("today", Look("pink", "9 5", "none"), "one Riemannian mean for each class; the nearest names it"),
    "tangent space + LR": _Method("today", Look("red", "2 4", "none"), "logistic regression in the tangent space"),
    "tangent space + SVM": _Method(
        "today", Look("green", "2 2 8 2", "none"), "a linear support vector machine in the tangent space"
    ),
    "SPDNet": _Method("today", Look("ochre", "10 3 2 3 2 3", "none"), "a neural network on covariance matrices"),
    "roots + LR": _Method("today", Look("rust", "1 4", "none"), "logistic regression on the square roots of bins"),
}
_DASHES = ("3 3", "6 2", "1 3", "8 2 2 2", "12 4", "5 5 1 5", "4 1")
_MARKERS = ("left", "right", "star", "hexagon", "square", "diamond", "up")
_COLOURS = ("grey", "teal", "rust", "pink", "green", "ochre", "violet")


def is_full(method: str) -> bool:
    """Whether a method keeps the whole training set."""
    return method == "full" or method.startswith("full ")


def family_of(method: str) -> str:
    """The role of a method, a key of `FAMILIES`; an unknown name counts as what people use."""
    known = _METHODS.get(method)
    return known.role if known else "today"


def common_name(method: str) -> str:
    """The name that SCC on one data set and SHC on another share."""
    known = _METHODS.get(method)
    return (known.common if known else "") or title_of(method)


def method_words(method: str) -> str:
    """What a method does, for somebody who has not heard of it; empty where that is unknown."""
    known = _METHODS.get(method)
    return known.words if known else ""


def method_order(methods: Iterable[str]) -> list[str]:
    """Full kNN, ours, the paper's settings, the other known methods, then unknown names, then other full sets."""
    known = list(_METHODS)

    def place(method: str) -> tuple[int, int, str]:
        at = known.index(method) if method in known else len(known)
        return (is_full(method) and method not in known, at, method)

    return sorted(set(methods), key=place)


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A look for each method; unknown ones get the looks that are left, in order."""
    order = method_order(methods)
    spare = {
        method: Look(_COLOURS[k % len(_COLOURS)], _DASHES[k % len(_DASHES)], _MARKERS[k % len(_MARKERS)])
        for k, method in enumerate(method for method in order if method not in _METHODS)
    }
    return {method: _METHODS[method].look if method in _METHODS else spare[method] for method in order}


def title_of(method: str) -> str:
    """The name of a method for the reader."""
    known = _METHODS.get(method)
    if known and known.title:
        return known.title
    return "full 1-NN" if method == "full" else f"full 1-NN, {method[5:]}" if is_full(method) else method


def metric_title(metric: str) -> str:
    """The name of a metric in a heading; itself, where it is not known here."""
    return _METRICS[metric][0] if metric in _METRICS else metric


def metric_words(metric: str) -> str:
    """What a metric is called within a sentence; itself, where it is not known here."""
    return _METRICS[metric][1] if metric in _METRICS else metric


def palette_css() -> str:
    """The palette as CSS variables, for light and for dark."""
    light, dark = ("".join(f"--m-{name}:{pair[k]};" for name, pair in PALETTE.items()) for k in (0, 1))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"

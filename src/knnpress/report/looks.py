"""How methods are told apart, on the page and in figures: by dash and marker, and never by colour alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["LONG_NAMES", "METHOD_WORDS", "OURS", "Look", "is_full", "looks", "method_order", "palette_css", "title_of"]

#: Learned prototypes by our own settings
OURS = ("SCC", "SHC", "SNC")

#: What the short names stand for
LONG_NAMES = {
    "SCC": ", stochastic covariance compression",
    "SHC": ", stochastic histogram compression",
    "SNC": ", stochastic neighbor compression",
}

#: What a method does, for somebody who has not heard of it
METHOD_WORDS = {
    "full": "every training point is kept, and the nearest one names the class",
    **dict.fromkeys(OURS, "a few artificial points, learned so that nearest neighbours among them are right"),
    **dict.fromkeys((f"{name} paper" for name in OURS), "the same with the settings of the paper that introduced it"),
    "Subsample": "training points drawn at random",
    "ClassCentroids": "means of the points of each class, or of clusters of them",
    "Condensed": "training points added until all others are classified rightly (Hart's condensed nearest neighbour)",
    "Reduced": "the condensed set without points that it can do without",
    "FastCondensed": "a condensed set that does not depend on the order of the points (FCNN)",
    "RandomMutation": "training points exchanged at random as long as that helps (RMHC)",
    "MDM": "one Riemannian mean for each class; the nearest mean names it",
    "tangent space + LR": "logistic regression in the tangent space",
    "SPDNet": "a neural network on covariance matrices",
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


_KNOWN = {
    "full": Look("full", "", "none"),
    **dict.fromkeys(OURS, Look("ours", "", "circle")),
    **{f"{name} paper": Look("violet", "7 3", "diamond") for name in OURS},
    "Subsample": Look("grey", "2 3", "square"),
    "Condensed": Look("green", "8 3 2 3", "up"),
    "Reduced": Look("teal", "5 2", "down"),
    "FastCondensed": Look("ochre", "10 3", "cross"),
    "RandomMutation": Look("rust", "4 2 1 2", "plus"),
    "ClassCentroids": Look("pink", "3 2", "star"),
    "MDM": Look("pink", "9 5", "none"),
    "tangent space + LR": Look("red", "2 4", "none"),
    "SPDNet": Look("ochre", "10 3 2 3 2 3", "none"),
}
_DASHES = ("3 3", "6 2", "1 3", "8 2 2 2", "12 4", "5 5 1 5", "4 1")
_MARKERS = ("left", "right", "star", "hexagon", "square", "diamond", "up")
_COLOURS = ("grey", "teal", "rust", "pink", "green", "ochre", "violet")
_TITLES = {
    "full": "full 1-NN",
    **{name: f"{name} (ours)" for name in OURS},
    **{f"{name} paper": f"{name}, the paper's settings" for name in OURS},
}


def is_full(method: str) -> bool:
    """Whether a method keeps the whole training set."""
    return method == "full" or method.startswith("full ")


def method_order(methods: Iterable[str]) -> list[str]:
    """Full kNN, ours, the paper's settings, the others as known, then names never heard of, then other full sets."""
    known = list(_KNOWN)

    def place(method: str) -> tuple[int, int, str]:
        return (is_full(method) and method != "full", known.index(method) if method in known else len(known), method)

    return sorted(set(methods), key=place)


def looks(methods: Iterable[str]) -> dict[str, Look]:
    """A look for each method; those never heard of get what is left, in order."""
    strange = [method for method in method_order(methods) if method not in _KNOWN]
    spare = {
        method: Look(_COLOURS[k % len(_COLOURS)], _DASHES[k % len(_DASHES)], _MARKERS[k % len(_MARKERS)])
        for k, method in enumerate(strange)
    }
    return {method: _KNOWN.get(method) or spare[method] for method in method_order(methods)}


def title_of(method: str) -> str:
    """The name of a method for the reader."""
    return _TITLES.get(method) or (f"full 1-NN, {method[5:]}" if is_full(method) else method)


def palette_css() -> str:
    """The palette as CSS variables, for light and for dark."""
    light, dark = ("".join(f"--m-{name}:{pair[k]};" for name, pair in PALETTE.items()) for k in (0, 1))
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"

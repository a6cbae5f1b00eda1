"""What a model contains, as tables: for ``inspect``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import safe_open
from sklearn.base import BaseEstimator

from knnpress.cli.output import print_facts, print_table
from knnpress.cli.queries import load_model, read_points
from knnpress.clouds import Clouds
from knnpress.datasets.points import read_array
from knnpress.descriptors import RegionCovariance, WordClouds
from knnpress.descriptors.features import FEATURES
from knnpress.estimators.described import as_described
from knnpress.exceptions import InvalidPointError
from knnpress.geometries import CloudSinkhorn
from knnpress.typing import Array

_FORMAT = "knnpress-model"
_WORDS = 8  # of a prototype that are shown
_SHORT = 6  # items of a list that are shown one by one
_SHOWN_APART = {"prototypes_", "prototype_labels_", "prototype_weights_", "classes_", "compression_ratio_"}
_SHOWN_APART |= {"geometry_", "selection_"}
_CHANNELS, _BAR = 64, 40  # that are shown, and characters of the longest bar
_SAID = {"error", "standard_error", "loss", "n_folds", "chosen"}  # of a setting, by held-out points


def print_contents(path: Path, points: Path | None, groups: str | None) -> None:
    """Print what a model file holds; of channels, how much they have to do with decisions about a file of points."""
    model = load_model(path)
    described = as_described(model)
    explained = None
    if points is not None:  # before anything is printed
        if not hasattr(described.classifier_, "feature_relevance"):
            kind = type(described.classifier_).__name__
            raise ValueError(f"{path} holds a {kind}, which does not explain; use SCC")
        explained = read_points(described, points, path, groups)
    with safe_open(path, "numpy") as file:
        about = json.loads(file.metadata()[_FORMAT])
    facts = {
        "file": str(path),
        "size": f"{path.stat().st_size:,} bytes",
        "written by": f"knnpress {about['knnpress']}, format {about['version']}",
        "kind": type(model).__name__,
    }
    classifier, steps = described.classifier_, [*described.descriptors_, described.classifier_]
    print_facts(facts | (_prototype_facts(classifier) if hasattr(classifier, "prototypes_") else {}))
    for step in steps:
        print(f"\n{type(step).__name__}")
        fitted = {name: value for name, value in vars(step).items() if name.endswith("_") and name not in _SHOWN_APART}
        known = {name: value for name, value in (step.get_params(deep=False) | fitted).items() if value is not None}
        print_facts({name: _brief(value) for name, value in known.items()})
    if hasattr(classifier, "prototypes_"):
        print()
        labels = classifier.prototype_labels_.tolist()
        rows = [[str(name), str(labels.count(name))] for name in classifier.classes_.tolist()]
        print_table(["class", "prototypes"], rows, right=(1,))
        _print_channels(classifier, explained, points, _feature_names(steps))
        _print_words(steps)
        _print_selection(getattr(classifier, "selection_", []))


def _feature_names(steps: list[Any]) -> tuple[str, ...]:
    """What the rows of a covariance of an image stand for; nothing where they have no names."""
    features = getattr(steps[0], "features", None) if isinstance(steps[0], RegionCovariance) else None
    return FEATURES[features].names if isinstance(features, str) else ()


def _print_channels(classifier: Any, points: Array | None, path: Path | None, usual: tuple[str, ...]) -> None:
    """How much each channel has to do with decisions about points of a file, or about the prototypes."""
    if not hasattr(classifier, "feature_relevance") or len(classifier.classes_) < 2:
        return
    try:
        relevance = classifier.feature_relevance(classifier.prototypes_ if points is None else points)
    except InvalidPointError:
        if points is not None:
            raise
        print("\nwhich features matter cannot be said, since some prototypes are singular in 64 bits")
        return
    given = None if path is None else read_array(path, "channels")
    names = [*usual] if len(usual) == len(relevance) else [str(k) for k in range(len(relevance))]
    if given is not None and given.shape == relevance.shape:
        names = [str(name) for name in given]
    longest = max(np.abs(relevance).max(), np.finfo(np.float64).tiny)
    shown = np.sort(np.argsort(-np.abs(relevance), kind="stable")[:_CHANNELS])
    rows = [
        [
            names[k],
            f"{relevance[k]:.1%}",
            ("#" if relevance[k] > 0 else "-") * round(_BAR * abs(relevance[k]) / longest),
        ]
        for k in shown
    ]
    print()
    print_table(
        [
            "feature" if usual else "channel",
            "share",
            "in decisions about " + ("prototypes" if path is None else str(path)),
        ],
        rows,
        (1,),
    )
    if len(shown) < len(names):
        print(f"the {len(shown)} of {len(names)} channels with most to do with them")


def _print_words(steps: list[Any]) -> None:
    """What prototypes of documents are about: the words nearest to their points, heaviest first."""
    words = next((step for step in steps if isinstance(step, WordClouds) and step.vocabulary is not None), None)
    if words is None:
        return
    named = words.words_of(steps[-1].prototypes_, _WORDS)
    rows = [
        [str(label), ", ".join(f"{word} {weight:.0%}" for word, weight in one)]
        for label, one in zip(steps[-1].prototype_labels_.tolist(), named, strict=True)
    ]
    print()
    print_table(["class", "nearest words of its prototype"], rows)


def _print_selection(tried: list[dict[str, Any]]) -> None:
    """Held-out results of the settings that were tried; the chosen ones are marked."""
    settings = [{name: value for name, value in one.items() if name not in _SAID} for one in tried]
    rows = [
        [
            "*" if one["chosen"] else "",
            _error_of(one) if "error" in one else "",
            str(one.get("n_folds", "")),
            ", ".join(
                f"{name} {value if isinstance(value, str) else _brief(value)}" for name, value in setting.items()
            ),
        ]
        for one, setting in zip(tried, settings, strict=True)
    ]
    if rows:
        print()
        print_table(["chosen", "held-out error", "folds", "setting"], rows, right=(1, 2))


def _error_of(one: dict[str, Any]) -> str:
    """What a setting erred on held-out points; of a single fold nobody knows how much that is chance."""
    return f"{one['error']:.2%}" + ("" if one.get("n_folds") == 1 else f" ± {one['standard_error']:.2%}")


def _prototype_facts(classifier: Any) -> dict[str, str]:
    prototypes = classifier.prototypes_
    if isinstance(prototypes, Clouds):
        each = f"{repr(prototypes)[7:-1]}, {prototypes.nbytes:,} bytes were none of their points shared"
    elif isinstance(classifier._fitted_geometry(), CloudSinkhorn):
        k, d = prototypes.shape[1], prototypes.shape[2] - 1
        each = f"cloud of {k} points in {d} dimensions with their weights, {prototypes[0].nbytes:,} bytes in memory"
    else:
        shape = " x ".join(map(str, prototypes.shape[1:]))
        each = f"{shape} {'matrix' if prototypes.ndim == 3 else 'numbers'}, {prototypes[0].nbytes:,} bytes in memory"
    return {
        "geometry": _brief(classifier._fitted_geometry()),
        "classes": str(len(classifier.classes_)),
        "prototypes": f"{len(prototypes)}, {classifier.compression_ratio_:.2%} of the training set",
        "each": each,
    }


def _brief(value: Any) -> str:
    """A value in a few words."""
    if isinstance(value, np.ndarray):
        return f"array of {' x '.join(map(str, value.shape))}, {value.dtype}"
    if isinstance(value, BaseEstimator):
        params = [(name, v) for name, v in value.get_params(deep=False).items() if v is not None]
        return f"{type(value).__name__}({', '.join(f'{name}={_brief(v)}' for name, v in params)})"
    if isinstance(value, dict):
        return ", ".join(f"{name} {v if isinstance(v, str) else _brief(v)}" for name, v in value.items())
    if isinstance(value, (list, tuple)) and len(value) > _SHORT:
        return f"{len(value)} values, the last {_brief(value[-1])}"
    return f"{value:.6g}" if isinstance(value, float) else repr(value)

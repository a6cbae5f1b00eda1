"""Writes the model files of this version that later versions must read: python tests/data/make.py 0.1 [KIND ...]

From scikit-learn's digits alone. Run once a release, with its version; files of earlier versions stay as they are. With
kinds of models after the version, only theirs are written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import knnpress as kp
from knnpress.descriptors import Recenter, SignalCovariance
from knnpress.geometries import JBLD

HERE = Path(__file__).parent
N_ASKED = 30


def queries(kind: str) -> Any:
    """Points that a model of a kind is asked about: the last of the digits."""
    return points(kind)[-N_ASKED:]


def points(kind: str) -> Any:
    """Digits as a kind of model takes them."""
    if kind == "swc":
        return clouds(load_digits().images)
    if kind == "shc":
        return kp.datasets.load_digits_histograms().X
    images = load_digits().images
    if kind == "windows":  # the rows of an image as channels
        return images[:, 1:7] + 0.1 * np.sin(np.arange(48.0)).reshape(6, 8)
    return images.reshape(-1, 64) if kind == "snc" else kp.datasets.load_digits_covariances().X


def clouds(images: np.ndarray) -> kp.Clouds:
    """Pixels that are not black, as weighted points of the plane."""
    image, row, column = np.nonzero(images)
    offsets = np.searchsorted(image, np.arange(len(images) + 1))
    return kp.Clouds(np.column_stack([row, column]).astype(float), offsets, images[image, row, column])


def models() -> dict[str, Any]:
    """One model of each kind, small and quick."""
    y = load_digits().target[:300]
    fixed = {"n_prototypes": 10, "max_iter": 2, "gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "soft"}
    cost = kp.datasets.load_digits_histograms().ground_cost
    return {
        "scc": kp.SCC(metric="tangent", **fixed).fit(points("scc")[:300], y),
        "shc": kp.SHC(ground_cost=cost, metric="sinkhorn", **fixed).fit(points("shc")[:300], y),
        "snc": kp.SNC(**fixed).fit(points("snc")[:300], y),
        "knn": kp.PrototypeClassifier(JBLD(), n_neighbors=3).fit(points("knn")[:20], y[:20]),
        "swc": kp.SWC(n_points=6, **fixed).fit(points("swc")[:60], y[:60]),
        "windows": kp.DescriptorClassifier([SignalCovariance(), Recenter()], kp.SCC(metric="jbld", **fixed)).fit(
            points("windows")[:300], y
        ),
    }


def main(version: str, *kinds: str) -> None:
    to = HERE / f"answers-{version}.json"
    answers = json.loads(to.read_text()) if kinds else {}
    for kind, model in models().items():
        if kinds and kind not in kinds:
            continue
        kp.save(model, HERE / f"{kind}-{version}.knnp")
        answers[kind] = np.round(model.predict_proba(queries(kind)), 6).tolist()
    to.write_text(json.dumps(answers) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

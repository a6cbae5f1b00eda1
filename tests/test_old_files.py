"""Model files of earlier versions are read, and answer as they did. tests/data/make.py writes those of a release."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import knnpress as kp

FOLDER = Path(__file__).parent / "data"
FILES = sorted(FOLDER.glob("*.knnp"))


def make():
    """The script that wrote the files."""
    spec = importlib.util.spec_from_file_location("make_data", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_files():
    assert {path.stem.split("-")[0] for path in FILES} == {"knn", "scc", "shc", "snc", "swc", "windows"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_answers_as_it_did_when_it_was_written(path, tmp_path):
    kind, version = path.stem.split("-")
    expected = np.array(json.loads((FOLDER / f"answers-{version}.json").read_text())[kind])
    model, X = kp.load(path), make().queries(kind)
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=2e-6)
    best = np.sort(expected, axis=1)
    sure = best[:, -1] > best[:, -2]  # neighbours may be of as many classes as they are
    assert sure.sum() >= 10
    np.testing.assert_array_equal(model.predict(X[sure]), model.classes_[expected[sure].argmax(axis=1)])
    kp.save(model, tmp_path / "again.knnp")
    np.testing.assert_allclose(kp.load(tmp_path / "again.knnp").predict_proba(X), expected, atol=2e-6)
    if kind != "swc":  # which cannot be exported
        kp.export_c(model, tmp_path / "model.c")

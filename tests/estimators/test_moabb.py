"""Pipelines for MOABB's evaluations and pyRiemann's transfer classifiers, as docs/how-to/eeg.md has them."""

import re
from pathlib import Path

import numpy as np
import pytest
from pyriemann.transfer import TLCenter, TLClassifier, encode_domains
from sklearn.pipeline import make_pipeline

import knnpress as kp

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "eeg.md"
FIXED = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}
MODELS = {
    "scc": kp.SCC(2, metric="jbld", **FIXED),
    "tangent": kp.SCC(2, metric="tangent", **FIXED),
    "centroids": kp.PrototypeClassifier("jbld", kp.compression.ClassCentroids(), 2),
}


def two_domains(rng, n=60):
    """Classes that are the other way round in the source, whose points are ten times as many."""
    domain = np.repeat(["source", "target"], [10 * n, n])
    y = np.tile(["left", "right"], len(domain) // 2)
    S = rng.normal(size=(len(y), 3, 40))
    S[(y == "left") == (domain == "target"), 0] *= 2.0
    X = S @ S.transpose(0, 2, 1) / 40
    return X, y, domain


@pytest.mark.parametrize("name", MODELS)
def test_weights_of_domains_count_in_transfer_classifiers(rng, name):
    X, y, domain = two_domains(rng)
    coded = encode_domains(X, y, domain)[1]
    target = domain == "target"

    def fitted(source):
        model = TLClassifier("target", MODELS[name], domain_weight={"source": source, "target": 1.0})
        return model.fit(X, coded)

    absent = fitted(0.0)
    assert np.mean(absent.predict(X[target]) == y[target]) > 0.85
    alone = kp.PrototypeClassifier if name == "centroids" else kp.SCC
    assert isinstance(absent.estimator, alone)
    reference = type(absent.estimator)(**absent.estimator.get_params(deep=False)).fit(X[target], y[target])
    assert np.array_equal(absent.predict(X), reference.predict(X))
    assert np.mean(fitted(1.0).predict(X[target]) == y[target]) < 0.15  # ten to one for the source
    assert np.mean(fitted(1e-3).predict(X[target]) == y[target]) > 0.85


def test_weights_reach_the_last_step_of_a_pipeline_in_a_transfer_classifier(rng):
    X, y, domain = two_domains(rng)
    coded = encode_domains(X, y, domain)[1]
    inner = make_pipeline(kp.descriptors.Recenter(), kp.SCC(2, metric="jbld", **FIXED))
    model = make_pipeline(
        TLCenter("target"), TLClassifier("target", inner, domain_weight={"source": 1e-3, "target": 1.0})
    )
    model.fit(X, coded)
    target = domain == "target"
    assert np.mean(model.predict(X[target]) == y[target]) > 0.85


@pytest.mark.filterwarnings("ignore")
def test_the_pipelines_of_the_page_run_in_moabb(tmp_path, monkeypatch):
    pytest.importorskip("moabb", reason="MOABB is not installed: pip install moabb")
    if not PAGE.is_file():
        pytest.skip("the documentation is not here, only the package")
    for name in ("MNE_DATA", "MOABB_RESULTS", "HOME", "_MNE_FAKE_HOME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    code = re.search(r"<!-- not run: MOABB[^\n]*-->\s*```python\n(.*?)```", PAGE.read_text(), re.S)[1]
    found = {}
    exec(compile(code, str(PAGE), "exec"), found)
    scores = found["scores"]
    assert set(scores["pipeline"]) == {"MDM", "SCC", "SCC, delays"}
    assert len(scores) == 6  # of two subjects
    assert scores["score"].between(0, 1).all()

"""Models in other people's machinery: their processes, clusters and pipelines give the answers of this process."""

from __future__ import annotations

import joblib
import numpy as np
import pytest
from points import labelled
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

import knnpress as kp
from knnpress.geometries import JBLD

pytestmark = pytest.mark.slow
QUICK = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02, "vote": "soft", "max_iter": 3}


@pytest.fixture(scope="module")
def learned():
    X, y = labelled("jbld", 60)
    model = kp.SCC(6, metric="jbld", **QUICK).fit(X, y)
    return model, X, y, model.predict_proba(X)


def blocks(X):
    return [X[start : start + 20] for start in range(0, len(X), 20)]


@pytest.mark.parametrize("backend", ["loky", "multiprocessing", "threading"])
def test_joblib(learned, backend):
    model, X, _, expected = learned
    found = joblib.Parallel(2, backend=backend)(joblib.delayed(model.predict_proba)(block) for block in blocks(X))
    np.testing.assert_array_equal(np.concatenate(found), expected)


@pytest.mark.filterwarnings("ignore")
def test_dask(learned):
    distributed = pytest.importorskip("distributed")
    model, X, y, expected = learned
    quiet = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with distributed.LocalCluster(**quiet) as cluster, distributed.Client(cluster) as client:
        found = client.gather(client.map(model.predict_proba, blocks(X)))
        np.testing.assert_array_equal(np.concatenate(found), expected)
        here = cross_val_score(clone(model), X, y, cv=3)
        with joblib.parallel_backend("dask"):
            np.testing.assert_array_equal(cross_val_score(clone(model), X, y, cv=3, n_jobs=2), here)


@pytest.mark.filterwarnings("ignore")
def test_ray(learned, monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed: pip install ray")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    model, X, _, expected = learned
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=200_000_000)
    try:
        answer = ray.remote(lambda model, block: model.predict_proba(block))
        shared = ray.put(model)  # its arrays are read-only there
        found = ray.get([answer.remote(shared, block) for block in blocks(X)])
        np.testing.assert_array_equal(np.concatenate(found), expected)
        fitted = ray.get(ray.remote(lambda X, y: clone(model).fit(X, y).prototypes_).remote(X, learned[2]))
        np.testing.assert_array_equal(fitted, model.prototypes_)
    finally:
        ray.shutdown()


def test_imbalanced_learn(learned):
    pipeline = pytest.importorskip("imblearn.pipeline")
    _, X, y, _ = learned
    sampler = kp.PrototypeSampler(JBLD(), kp.compression.Medoids(), n_prototypes=9, random_state=0)
    steps = pipeline.make_pipeline(sampler, kp.PrototypeClassifier("jbld"))
    assert cross_val_score(steps, X, y, cv=3).mean() > 0.6
    points, labels = sampler.fit_resample(X, y)
    np.testing.assert_array_equal(
        kp.PrototypeClassifier("jbld").fit(points, labels).predict(X), steps.fit(X, y).predict(X)
    )

"""What cannot be a parameter is refused before any work, by a sentence that names it; `docs/reference/bad-input.md`."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone

import knnpress as kp
from knnpress.compression import ClassCentroids, StochasticCompression, Subsample

RNG = np.random.default_rng(0)
Y = np.arange(24) % 2
VECTORS = RNG.normal(size=(24, 3)) + Y[:, None]
MATRICES = VECTORS[:, :, None] * VECTORS[:, None] + np.eye(3)
HISTOGRAMS = RNG.dirichlet(np.ones(4), 24)
CLOUDS = kp.Clouds.from_list([row + RNG.normal(size=(4, 3)) for row in VECTORS])
PLAIN = {"n_prototypes": 2, "gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "nearest", "max_iter": 1}

MODELS = {
    "SCC": (kp.SCC(metric="jbld", **PLAIN), MATRICES),
    "SHC": (kp.SHC(np.ones((4, 4)) - np.eye(4), metric="sinkhorn", **PLAIN), HISTOGRAMS),
    "SNC": (kp.SNC(**PLAIN), VECTORS),
    "SWC": (kp.SWC(n_points=2, **PLAIN), CLOUDS),
    "StochasticCompression": (
        kp.SNC(2, compressor=StochasticCompression(**{k: v for k, v in PLAIN.items() if k != "n_prototypes"})),
        VECTORS,
    ),
    "PrototypeClassifier": (kp.PrototypeClassifier("sqeuclidean", Subsample(), 2, random_state=0), VECTORS),
}

#: Nothing of that is any parameter, but for those of `FREE` and what `MEANT` says.
NONSENSE = {
    "text": "x",
    "bytes": b"x",
    "a list": [1],
    "an array": np.array([1, 2]),
    "a complex number": 1j,
    "a class": object,
    "a fraction below zero": -1.5,
}
FREE = {"checkpoint": ["text"], "verbose": ["a fraction below zero"], "callback": ["a class"]}


def cases():
    for model, (example, _) in MODELS.items():
        inner = "compressor__" if model == "StochasticCompression" else ""
        params = example.get_params(deep=bool(inner))
        for name in params:
            if (inner and not name.startswith(inner)) or name in ("geometry", "ground_cost"):
                continue
            for what in NONSENSE:
                if what not in FREE.get(name.removeprefix(inner), []):
                    yield pytest.param(model, name, what, id=f"{model}-{name}-{what}")


@pytest.mark.parametrize(("model", "name", "what"), list(cases()))
def test_nonsense_for_a_parameter_is_refused_by_its_name(model, name, what):
    example, X = MODELS[model]
    clf = clone(example).set_params(**{name: NONSENSE[what]})
    with pytest.raises((TypeError, ValueError)) as raised:
        clf.fit(X, Y)
    assert re.search(rf"\b{name.split('__')[-1]}\b", str(raised.value))
    assert len(str(raised.value)) < 300
    assert not hasattr(clf, "prototypes_")


BEYOND = {
    "max_iter": [-1, 1.5, np.nan, np.inf, True, 2**70],
    "random_state": [-1, np.nan, 0.5],
    "n_jobs": [0, 1.5, np.inf],
    "n_neighbors": [0, 1.5, np.inf],
    "warm_start": [None, 1.5],
    "gamma": [0, -1, np.nan, np.inf, True, 2**5000],
    "prior": [-1, np.nan],
    "smoothing": [-0.1, 1, np.nan],
    "n_prototypes": [0, -1, 1.5, np.nan, 2**5000],
    "compressor__tol": [-1, 1.5, np.nan, None, True],
    "compressor__learning_rate": [0, -1, np.nan, np.inf, None],
    "compressor__batch_size": [0, 1.5, np.nan, np.inf],
    "compressor__label_noise": [-0.1, 1, np.nan],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name in BEYOND for value in BEYOND[name]])
def test_numbers_that_mean_nothing_are_refused_by_name(name, value):
    clf = clone(MODELS["SNC"][0]).set_params(compressor=StochasticCompression()).set_params(**{name: value})
    with pytest.raises(ValueError, match=rf"{name.removeprefix('compressor__')} is .*; ") as told:
        clf.fit(VECTORS, Y)
    assert len(str(told.value)) < 300


def test_what_scikit_learn_users_give_is_taken():
    """Scalars of NumPy, states of all kinds, truth values for numbers."""
    for name, value in [
        *(("max_iter", np.int64(2)), ("random_state", np.random.RandomState(0)), ("random_state", np.uint8(3))),
        *(("random_state", np.random.default_rng(0)), ("random_state", np.random), ("warm_start", np.True_)),
        *(("verbose", False), ("n_jobs", -1), ("prior", np.inf), ("gamma", np.float32(2)), ("max_iter", 0)),
        ("class_weight", {0: 1.0, 1: 2.0}),
    ]:
        clone(MODELS["SNC"][0]).set_params(**{name: value}).fit(VECTORS, Y)


def test_a_parameter_set_after_a_fit_is_refused_by_the_next_and_the_model_stays():
    clf = clone(MODELS["SNC"][0]).fit(VECTORS, Y)
    before = clf.prototypes_.copy()
    with pytest.raises(ValueError, match="max_iter is 'x'; give a number of iterations"):
        clf.set_params(max_iter="x").fit(VECTORS, Y)
    with pytest.raises(ValueError, match="max_iter is 'x'"):
        clf.partial_fit(VECTORS, Y)
    assert np.array_equal(clf.prototypes_, before)


def test_samplers_and_compressors_alone_check_as_well():
    with pytest.raises(ValueError, match="random_state is 'x'; give a whole number"):
        kp.PrototypeSampler("sqeuclidean", Subsample(), 2, random_state="x").fit_resample(VECTORS, Y)
    with pytest.raises(ValueError, match="tol is 'x'; give a share of the loss"):
        StochasticCompression(tol="x").compress(VECTORS, Y, geometry=kp.geometries.SquaredEuclidean(), n_prototypes=2)
    with pytest.raises(TypeError, match="init is 'x'; give a compressor"):
        kp.SNC(2, compressor=StochasticCompression(init="x")).fit(VECTORS, Y)
    kp.SNC(2, compressor=StochasticCompression(init=ClassCentroids())).fit(VECTORS, Y)


@pytest.mark.parametrize("gamma", [1e160, 1e-160, 2**5000, 0.0])
def test_a_gamma_whose_square_is_no_number_is_refused_at_any_door(gamma):
    for learn in ("fit", "partial_fit"):
        with pytest.raises(ValueError, match=r"gamma is .*; give a positive number"):
            getattr(clone(MODELS["SNC"][0]).set_params(gamma=gamma), learn)(VECTORS, Y)


BAD_FOR_COMPARE = {
    "minutes": ["x", [1], None, np.nan, -1, 2**5000, np.inf],
    "random_state": ["x", -1, 1.5],
    "n_jobs": ["x", 0],
    "verbose": ["x", None],
    "descriptors": [-1, object, 0],
    "n_splits": ["x", 1, 2.5],
    "max_points": ["x", 1],
    "ground_cost": ["x", 2**5000],
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name in BAD_FOR_COMPARE for value in BAD_FOR_COMPARE[name]]
)
def test_compare_refuses_nonsense_by_name(name, value):
    with pytest.raises(ValueError, match=rf"^{name} (is|cannot be read as numbers).*[;:] "):
        kp.compare(VECTORS, Y, **{"minutes": 0.01, name: value})


def test_compare_of_no_points_says_so():
    with pytest.raises(ValueError, match="X has 0 points"):
        kp.compare(VECTORS[:0], Y[:0])

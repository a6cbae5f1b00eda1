"""What is saved is loaded to the last bit; what is broken is refused with a reason; nothing in a file is run."""

from __future__ import annotations

import copy
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
from functools import cache
from pathlib import Path

import joblib
import numpy as np
import pytest
from cases import one_at_a_time
from numpy.testing import assert_array_equal
from points import GROUND_COST, histograms, labelled, spd
from safetensors import safe_open
from safetensors.numpy import save as to_safetensors
from sklearn.base import BaseEstimator, clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

import knnpress as kp
from knnpress import descriptors, model_file
from knnpress.cli import main
from knnpress.compression import ClassCentroids, KeepAll, StochasticCompression, Subsample
from knnpress.exceptions import InvalidPointError, ModelFileError
from knnpress.geometries import EMD, JBLD, LogEuclidean, Sinkhorn, SquaredEuclidean

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # three iterations are few

FIXED = {"gamma": 2.0, "prior": 1.0, "smoothing": 0.02}
QUICK = {"n_prototypes": 6, "max_iter": 3, "random_state": 0, **FIXED}
MODELS = {
    "scc": (kp.SCC(**QUICK), "jbld"),
    "scc-logeuclid": (
        kp.SCC(**QUICK, metric="logeuclid", compressor=StochasticCompression(init=ClassCentroids(JBLD(), max_iter=2))),
        "jbld",
    ),
    "shc": (kp.SHC(GROUND_COST, **QUICK), "sinkhorn-divergence"),
    "shc-list": (kp.SHC(GROUND_COST.tolist(), reg=0.3, value="dual", **QUICK), "sinkhorn-dual"),
    "snc": (kp.SNC(**QUICK, vote="soft", n_jobs=1, compressor=StochasticCompression(init=Subsample())), "sqeuclidean"),
    "full": (kp.PrototypeClassifier("jbld"), "jbld"),
    "full-emd": (kp.PrototypeClassifier(EMD(GROUND_COST), Subsample(), n_prototypes=6, n_neighbors=3), "emd"),
    "nested": (
        kp.PrototypeClassifier(
            Sinkhorn(GROUND_COST, reg=np.float64(0.25), value="dual"),
            StochasticCompression(gamma=1.0, init=ClassCentroids(SquaredEuclidean()), max_iter=2),
            n_prototypes=6,
        ),
        "sinkhorn-dual",
    ),
    "pipeline": (Pipeline([("far", kp.SCC(**QUICK)), ("none", "passthrough"), ("near", kp.SNC(**QUICK))]), "jbld"),
}
LABELS = {
    "int": np.array([7, -3, 40]),
    "int8": np.array([7, -3, 40], dtype=np.int8),
    "big-endian": np.array([7, -3, 40], dtype=">i4"),
    "float": np.array([0.0, -1.0, 1e15]),
    "bool": np.array([True, False, True]),
    "text": np.array(["zebra", "äpfel", "🐱"]),
    "wide text": np.array(["zebra", "ape", "cat"], dtype="U40"),
    "objects": np.array(["zebra", "äpfel \ud800", ""], dtype=object),
}


@cache
def fitted_once(name, labels):
    model, points = MODELS[name]
    X, y = labelled(points, 60)
    return clone(model).fit(X, LABELS[labels][y]), X


def fitted(name, labels="int", **params):
    """A model of one's own, and its training points."""
    if params:
        model, points = MODELS[name]
        X, y = labelled(points, 60)
        return clone(model).set_params(**params).fit(X, LABELS[labels][y]), X
    return copy.deepcopy(fitted_once(name, labels))


def saved(model, path):
    kp.save(model, path)
    return kp.load(path)


def contents(path):
    """What the header says, and the tensors."""
    with safe_open(path, "numpy") as file:
        return json.loads(file.metadata()["knnpress-model"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def rewrite(path, about, tensors):
    """Write what somebody changed; without the checksum, which would tell."""
    about = {name: value for name, value in about.items() if name != "checksum"} if isinstance(about, dict) else about
    path.write_bytes(to_safetensors(tensors, {"knnpress-model": json.dumps(about)}))


def same(a, b):
    """Whether two values are equal in type, layout and every bit."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        a, b = (x.astype(x.dtype.newbyteorder("="), order="K") for x in (a, b))
        if (a.shape, a.dtype, a.flags.c_contiguous) != (b.shape, b.dtype, b.flags.c_contiguous):
            return False
        return same(a.tolist(), b.tolist()) if a.dtype == object else a.tobytes() == b.tobytes()
    if isinstance(a, BaseEstimator):
        return vars(a).keys() == vars(b).keys() and all(same(vars(a)[k], vars(b)[k]) for k in vars(a))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b or (a != a and b != b)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.knn"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of every model."""
    folder = tmp_path_factory.mktemp("models")
    for name in MODELS:
        kp.save(fitted(name, "objects" if name == "scc" else "text")[0], folder / name)
    return folder


@pytest.mark.parametrize(("name", "labels"), one_at_a_time(MODELS, LABELS))
def test_a_loaded_model_is_the_saved_one_to_the_last_bit(name, labels, path):
    model, X = fitted(name, labels)
    X = X[:12]
    loaded = saved(model, path)
    assert same(loaded, model)
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert loaded.predict(X).dtype == model.predict(X).dtype.newbyteorder("=")
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert_array_equal(loaded.transform(X), model.transform(X))
    assert same(saved(loaded, path), model)  # and once more


def test_descriptors_are_saved_with_their_classifier(path, rng):
    images, y = rng.random((12, 24, 24, 3)), np.arange(12) % 3
    scc = kp.SCC(n_prototypes=3, gamma=1.0, max_iter=1, random_state=0)
    shc = kp.PrototypeClassifier(Sinkhorn(descriptors.GridHistogram(size=3).fit(images).ground_cost_))
    for steps in (
        [descriptors.RegionCovariance("gradient"), scc],
        [descriptors.RegionCovariance("color-texture"), descriptors.SPDProjection(4, max_iter=2), scc],
        [descriptors.GridHistogram(size=3), shc],
        [descriptors.BagOfWords(n_words=5, random_state=0), kp.SNC(n_prototypes=3, gamma=1.0, max_iter=1)],
    ):
        model = make_pipeline(*steps).fit(images, y)
        loaded = saved(model, path)
        assert same(loaded, model)
        assert_array_equal(loaded.transform(images), model.transform(images))
        for step in model:
            assert same(saved(step, path), step)
    own = make_pipeline(descriptors.RegionCovariance(lambda image: image), scc).fit(images, y)
    with pytest.raises(TypeError, match=r"Pipeline\.regioncovariance\.features: a function is not part of knnpress"):
        kp.save(own, path)


def test_models_that_learn_on_are_saved_at_any_time(path):
    X, y = labelled("sqeuclidean", 60)
    model = kp.SNC(n_prototypes=6, max_iter=2)
    for rows in (y == 1, slice(0, 30), slice(30, 60)):  # one class at first
        model.partial_fit(X[rows], y[rows], classes=[0, 1, 2])
        loaded = saved(model, path)
        assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
        loaded.partial_fit(X, y)


def test_a_loaded_model_can_be_fitted_again(path):
    model, X = fitted("nested")
    again = saved(model, path).fit(X, model.predict(X))
    assert_array_equal(again.classes_, model.classes_)


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, -(2**70), 0.1, -0.0, float("inf"), float("-inf"), float("nan"), "", "naïve \ud800 \0"),
        *(np.float64(0.1), np.float32(0.1), np.int8(3), np.bool_(True), np.str_("word"), np.float64("nan")),
        *(
            [],
            [1, [2.0, "x"]],
            (),
            (1, (2,)),
            [float(k) / 3 for k in range(100)],
            {},
            {"a": {"b": (1.5,)}},
            {3: None},
            {np.int64(1): 2, np.int64(3): 4},
        ),
        *(np.zeros((0, 3)), np.arange(6.0).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3))),
        *(
            np.array(5),
            np.array("word"),
            np.array([["a", "bc"]]),
            np.array(["a", "bc"], ">U2"),
            np.array([None, "a", 1, 0.5], dtype=object),
        ),
        *(np.eye(3, dtype=np.float32), np.eye(3), np.array([[-0.0, 1.0], [1.0, np.nan]]), np.eye(3)[None, None]),
        *(np.array([[1.0, 0.0], [-0.0, 1.0]]), np.asfortranarray(np.ones((2, 3, 3))), np.arange(10)[:]),
        *(LogEuclidean(), [EMD(np.eye(2))]),
    ],
    ids=lambda value: f"{type(value).__name__}",
)
def test_parameters_and_attributes_of_every_kind_come_back(value, path):
    model, _ = fitted("snc")
    model.extra_ = value
    model.prior = value
    loaded = saved(model, path)
    assert same(loaded.extra_, value)
    assert same(loaded.prior, value)


def test_what_belongs_to_one_run_is_not_kept(path):
    for random_state in (np.random.default_rng(0), np.random.RandomState(0)):
        assert saved(fitted("scc", random_state=random_state)[0], path).random_state is None
    assert saved(fitted("scc", random_state=np.int64(3))[0], path).random_state == 3
    assert saved(fitted("pipeline", memory=str(path.parent / "cache"))[0], path).memory is None
    assert model_file._Writer().parameter("callback", print, "SCC") is None
    assert model_file._Writer().parameter("checkpoint", "a file", "SCC") is None


def test_thirty_two_prototypes_of_size_nineteen_take_less_than_60_kb(path, rng):
    X, y = spd(rng, 400, 19), np.arange(400) % 4
    kp.save(kp.SCC(n_prototypes=32, gamma=1.0, max_iter=3).fit(X, y), path)
    assert path.stat().st_size < 60_000
    kp.save(kp.PrototypeClassifier("jbld").fit(X[:32], y[:32]), path)
    assert path.stat().st_size < 60_000


def test_a_symmetric_ground_cost_takes_half_the_room(path, rng):
    cost = rng.random((64, 64))
    sizes = {}
    for name, ground_cost in {"symmetric": cost + cost.T, "other": cost}.items():
        model = kp.PrototypeClassifier(Sinkhorn(ground_cost, value="dual")).fit(histograms(rng, 2, 64), [0, 1])
        assert same(saved(model, path).geometry.ground_cost, ground_cost)
        sizes[name] = path.stat().st_size
    assert sizes["other"] - sizes["symmetric"] > 0.45 * cost.nbytes


def test_the_same_model_gives_the_same_bytes(path):
    model, _ = fitted("nested", "text")
    kp.save(model, path)
    first = path.read_bytes()
    kp.save(kp.load(path), path)
    assert path.read_bytes() == first


class Foreign(BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X

    def compress(self, X, y, **settings):
        return Subsample().compress(X, y, **settings)


class Reckless(kp.SNC):
    def __reduce__(self):
        raise AssertionError("this ran")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda m: Pipeline([("scale", StandardScaler()), ("snc", m)]),
            r"Pipeline\.scale: a StandardScaler is not part",
        ),
        (lambda m: Pipeline([("mine", Foreign()), ("snc", m)]), r"Pipeline\.mine: a Foreign is not part"),
        (lambda m: m.set_params(compressor=Foreign()), r"SNC\.compressor: a Foreign is not part"),
        (
            lambda m: m.set_params(compressor__init=lambda X: X),
            r"SNC\.compressor\.init: a function is not part of knnpress; .*Replace it",
        ),
        (lambda m: m.set_params(compressor__init=KeepAll), r"SNC\.compressor\.init: a .* is not part of knnpress"),
        (lambda m: m.set_params(vote=Path()), r"SNC\.vote: a PosixPath is not part"),
        (lambda m: m.set_params(prior={"a": [1, 1j]}), r"SNC\.prior\['a'\]\[1\]: a complex is not part"),
        (lambda m: m.set_params(prior=np.array([1j])), r"SNC\.prior: an array of dtype complex128"),
        (lambda m: m.set_params(prior=np.array([[1], None], dtype=object)), r"SNC\.prior: an array of objects"),
        (lambda m: m.set_params(prior=np.ma.array([1.0, 2.0], mask=[0, 1])), r"SNC\.prior: a MaskedArray"),
        (lambda m: StandardScaler().fit(np.eye(2)), "cannot save a StandardScaler; give a classifier"),
        (lambda m: JBLD(), "cannot save a JBLD; give a classifier"),
        (lambda m: "model", "cannot save a str; give a classifier"),
        (lambda m: kp.SNC, "cannot save a .*; give a classifier"),
        (lambda m: Reckless(**QUICK), "cannot save a Reckless; give a classifier"),
        (lambda m: type("SNC", (kp.SNC,), {})(**QUICK), "cannot save a SNC; give a classifier"),
    ],
)
def test_what_is_not_of_knnpress_is_refused_by_name(make, message, path):
    model = make(clone(MODELS["snc"][0]))
    if isinstance(model, (kp.SNC, Pipeline)):
        X, y = labelled("sqeuclidean", 30)
        kept, params = model.get_params(deep=False), {"prior": 1.0, "compressor": None, "vote": "soft"}
        (model.set_params(**params) if isinstance(model, kp.SNC) else model).fit(X, y).set_params(**kept)
    with pytest.raises(TypeError, match=message):
        kp.save(model, path)
    assert list(path.parent.iterdir()) == []


def test_an_unfitted_model_and_a_value_within_itself_are_refused(path):
    with pytest.raises(NotFittedError, match="not fitted"):
        kp.save(kp.SCC(), path)
    model, _ = fitted("snc")
    model.prior = []
    model.prior.append(model.prior)
    with pytest.raises(TypeError, match="contains itself"):
        kp.save(model, path)


def test_a_model_that_could_not_be_loaded_is_not_saved(path):
    model, _ = fitted("scc")
    model.prototypes_[3] *= -1
    with pytest.raises(ValueError, match=r"prototypes_\[3\] is not positive definite"):
        kp.save(model, path)


# Writing


def test_a_new_file_gets_the_usual_mode_and_an_old_one_keeps_its_own(path):
    model, _ = fitted("snc")
    before = os.umask(0o027)
    try:
        kp.save(model, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o604)
        kp.save(model, path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o604
    finally:
        os.umask(before)


def test_a_link_stays_a_link(path):
    model, _ = fitted("snc")
    link = path.with_name("link")
    link.symlink_to(path)
    kp.save(model, str(link))
    assert link.is_symlink()
    assert kp.load(path).gamma_ == model.gamma_


def test_a_missing_folder_a_folder_and_a_device_are_refused(path):
    model, _ = fitted("snc")
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; make it first"):
        kp.save(model, path.parent / "nowhere" / "model")
    for place in (path.parent, Path(os.devnull)):
        with pytest.raises(ValueError, match="is a folder or a device"):
            kp.save(model, place)
        with pytest.raises(ModelFileError, match="is a folder or a device"):
            kp.load(place)
    with pytest.raises(FileNotFoundError):
        kp.load(path)


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError("No space left on device")])
def test_a_failed_save_leaves_the_old_file_and_nothing_else(call, failure, path, monkeypatch):
    model, _ = fitted("snc")
    kp.save(model, path)
    old = path.read_bytes()

    def fail(*args):
        raise failure

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(type(failure) if isinstance(failure, OSError) else failure):
        kp.save(fitted("scc")[0], path)
    monkeypatch.undo()
    assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


def test_a_process_interrupted_or_killed_while_saving_leaves_the_old_file(path):
    kp.save(fitted("snc")[0], path)
    old = path.read_bytes()
    code = f"""
import os, sys, time
import knnpress as kp
model = kp.load({str(path)!r})
model.verbose = 1
def wait(*args):
    print("ready", flush=True)
    time.sleep(60)
os.replace = wait
try:
    kp.save(model, {str(path)!r})
except KeyboardInterrupt:
    print("interrupted", flush=True)
kp.save(model, {str(path)!r})
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout.readline() == b"ready\n"
        assert len(list(path.parent.iterdir())) == 2  # it is in the middle
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == b"interrupted\n"
        assert path.read_bytes() == old
        assert process.stdout.readline() == b"ready\n"
        assert len(list(path.parent.iterdir())) == 2  # what was interrupted left nothing
        process.kill()
        assert process.wait(30) != 0
    assert path.read_bytes() == old
    assert kp.load(path).verbose == 0


# Reading what is broken


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"\x80", bytes(8), b"\xff" * 100, b"\x00\x00\x00\x00\x00\x00\x00\x7f{}", pickle.dumps({"a": 1})),
        *(b"\x02\0\0\0\0\0\0\0{}", b"\x02\0\0\0\0\0\0\0[]", b"PK\x03\x04 a zip", (b"[" * 100_000).ljust(100_008)),
        len(b"[" * 50_000).to_bytes(8, "little") + b"[" * 50_000,
        b'\x4a\0\0\0\0\0\0\0{"a":{"dtype":"F64","shape":[4000000000000],"data_offsets":[0,32000000000000]}}',
        to_safetensors({"a": np.zeros(3)}),
        to_safetensors({"a": np.zeros(3)}, {"format": "pt"}),
    ],
    ids=range(14),
)
def test_a_file_of_another_kind_is_refused(content, path):
    path.write_bytes(content)
    with pytest.raises(
        ModelFileError, match=r"model\.knn is not a sound model: .*; take a fresh copy, or save it again"
    ):
        kp.load(path)


def test_a_safetensors_file_of_another_program_is_refused_as_such(path):
    path.write_bytes(to_safetensors({"a": np.zeros(3)}, {"format": "pt"}))
    with pytest.raises(ModelFileError, match="another program wrote it"):
        kp.load(path)


@pytest.mark.parametrize("code", ["[" * 100_000, '{"tuple":' * 50_000, "[1]", "null", "1", "{}", "{", '"', "NaN", ""])
def test_json_of_another_kind_is_refused(code, path):
    path.write_bytes(to_safetensors({}, {"knnpress-model": code}))
    with pytest.raises(ModelFileError, match="not a sound model"):
        kp.load(path)
    path.write_bytes(to_safetensors({}, {"knnpress-model": f'{{"version": 1, "knnpress": "1", "model": {code}}}'}))
    with pytest.raises(ModelFileError, match="not a sound model"):
        kp.load(path)


def nested(depth):
    code = 0
    for _ in range(depth):
        code = {"tuple": [code]}
    return code


def put(*keys, value):
    """A change of the model's part of the header."""

    def change(about, tensors):
        place = about["model"]
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value

    return change


def tensor(name, function):
    def change(about, tensors):
        tensors[f"SCC.{name}"] = function(tensors[f"SCC.{name}"])

    return change


def drop(*keys):
    def change(about, tensors):
        place = about["model"]
        for key in keys[:-1]:
            place = place[key]
        del place[keys[-1]]

    return change


def first(value):
    def change(array):
        array = array.copy()
        array.flat[0] = value
        return array

    return change


CHANGES = {
    "newer": (
        lambda about, tensors: about.update(version=2, knnpress="9.9"),
        r"^[^:]*was written by a newer knnpress \(9\.9\); pip install --upgrade knnpress$",
    ),
    "older": (lambda about, tensors: about.update(version=0), "unknown version 0"),
    "no version": (lambda about, tensors: about.update(version="one"), "not a sound model"),
    "no model": (lambda about, tensors: about.pop("model"), "KeyError"),
    "a list": (lambda about, tensors: about.update(model=[1]), "holds a list, which is not a model"),
    "os.system": (put("class", value="os.system"), r"holds a 'os\.system', which this knnpress does not have"),
    "a protocol": (put("class", value="Geometry"), "holds a 'Geometry', which this knnpress does not have"),
    "a dataclass": (put("class", value="Prototypes"), "holds a 'Prototypes', which this knnpress"),
    "a module": (put("class", value="datasets"), "holds a 'datasets', which this knnpress"),
    "a scaler": (put("class", value="StandardScaler"), "holds a 'StandardScaler', which this knnpress"),
    "no class": (put("class", value=["SCC"]), "not a sound model"),
    "a geometry": (
        lambda about, tensors: about.update(model={"class": "JBLD", "params": {}, "fitted": {}}),
        "JBLD, which is not a model",
    ),
    "unknown parameter": (put("params", "gama", value=1), "SCC with 'gama', which SCC does not have"),
    "a method": (put("fitted", "predict", value=1), "SCC with 'predict', which SCC does not have"),
    "no attribute": (put("fitted", "gamma", value=1), "SCC with 'gamma', which SCC does not have"),
    "a property": (
        lambda about, tensors: about.update(
            model={"class": "Pipeline", "params": {"steps": []}, "fitted": {"classes_": 1}}
        ),
        "Pipeline with 'classes_', which Pipeline does not have",
    ),
    "private": (put("fitted", "_learns", value=1), "SCC with '_learns', which SCC does not have"),
    "special": (put("fitted", "__class__", value=1), "SCC with '__class__', which SCC does not have"),
    "unfitted": (put("fitted", value={}), "not fitted"),
    "no prototypes": (drop("fitted", "prototypes_"), "prototypes_ of its SCC is missing"),
    "no size": (drop("fitted", "n_features_in_"), "n_features_in_ of its SCC is missing"),
    "no parameters": (drop("params"), "KeyError"),
    "unknown value": (put("fitted", "extra_", value={"pickle": "abc"}), "holds 'pickle' where a value should be"),
    "empty value": (put("fitted", "extra_", value={}), "where a value should be"),
    "metric": (put("params", "metric", value="airm"), "metric is 'airm'"),
    "deep": (put("fitted", "extra_", value=nested(400)), "RecursionError"),
    "used twice": (put("fitted", "extra_", value={"array": "SCC.prototypes_"}), "'SCC.prototypes_' is missing"),
    "missing tensor": (lambda about, tensors: tensors.pop("SCC.prototypes_"), r"'SCC.prototypes_' is missing"),
    "no triangle": (tensor("prototypes_", lambda a: a[:, :-1].copy()), "numbers are not a triangle"),
    "other size": (tensor("prototypes_", lambda a: a[:, :6].copy()), "n_features_in_ is 4, but points have size 3"),
    "no prototype": (tensor("prototypes_", lambda a: a[:0].copy()), "not a sound model"),
    "NaN": (tensor("prototypes_", first(np.nan)), r"prototypes_\[0\] contains NaN"),
    "not positive": (tensor("prototypes_", first(-1.0)), r"prototypes_\[0\] is not positive definite"),
    "float32": (tensor("prototypes_", lambda a: a.astype(np.float32)), "has dtype float32"),
    "integers": (
        tensor("prototypes_", lambda a: np.eye(4)[None].repeat(6, 0)[:, *np.tril_indices(4)].astype(int)),
        "no",
    ),
    "a text": (put("fitted", "prototypes_", value="all"), "must be arrays"),
    "fewer labels": (tensor("prototype_labels_", lambda a: a[:3].copy()), "for each of the 6 prototypes"),
    "fewer weights": (
        tensor("prototype_weights_", lambda a: a[:3].copy()),
        "prototype_weights_ must be a number for each of the 6 prototypes",
    ),
    "other labels": (tensor("prototype_labels_", first(8)), "prototype_labels_ must be one of classes_"),
    "float labels": (
        tensor("prototype_labels_", lambda a: a.astype(float)),
        "prototype_labels_ must be one of classes_",
    ),
    "unsorted": (tensor("classes_", lambda a: a[::-1].copy()), "sorted and different"),
    "repeated": (tensor("classes_", first(7)), "sorted and different"),
    "square": (tensor("classes_", lambda a: a[None]), "sorted and different"),
    "gamma": (put("fitted", "gamma_", value={"float": "nan"}), "gamma_ is nan"),
    "gamma text": (put("fitted", "gamma_", value="2.0"), "gamma_ is '2.0'"),
    "memory": (
        lambda about, tensors: about.update(
            model={"class": "Pipeline", "params": {"steps": [], "memory": "somewhere"}, "fitted": {}}
        ),
        "callback, checkpoint, memory, which no model file may",
    ),
    "a step": (
        lambda about, tensors: about.update(
            model={"class": "Pipeline", "params": {"steps": [{"tuple": ["a", 3]}]}, "fitted": {}}
        ),
        "the step 'a' of its pipeline is a int",
    ),
    "no steps": (
        lambda about, tensors: about.update(model={"class": "Pipeline", "params": {"steps": []}, "fitted": {}}),
        "not a sound model",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_file_is_refused_with_a_reason(name, path):
    change, message = CHANGES[name]
    kp.save(fitted("scc")[0], path)
    about, tensors = contents(path)
    rewrite(path, about, tensors)
    kp.load(path)
    change(about, tensors)
    rewrite(path, about, tensors)
    with pytest.raises(ModelFileError, match=message) as caught:
        kp.load(path)
    assert str(path) in str(caught.value)


def test_text_outside_unicode_and_unscaled_histograms_are_refused(path):
    kp.save(fitted("shc", "text")[0], path)
    about, tensors = contents(path)
    rewrite(path, about, tensors | {"SHC.classes_": tensors["SHC.classes_"] + np.uint32(0x110000)})
    with pytest.raises(ModelFileError, match="not Unicode"):
        kp.load(path)
    rewrite(path, about, tensors | {"SHC.prototypes_": 2 * tensors["SHC.prototypes_"]})
    with pytest.raises(ModelFileError, match="scaled to sum to one"):
        kp.load(path)


def test_the_text_of_other_objects_is_never_run(path, tmp_path):
    trap = tmp_path / "trap"

    class Trap:
        def __reduce__(self):
            return (trap.write_text, ("ran",))

    for content in (pickle.dumps(Trap()), pickle.dumps(Trap(), 0)):
        path.write_bytes(content)
        with pytest.raises(ModelFileError):
            kp.load(path)
        kp.save(fitted("scc", "objects")[0], path)
        about, tensors = contents(path)
        about["model"]["fitted"]["classes_"] = {"objects": [content.decode("latin1")] * 3, "shape": [3]}
        rewrite(path, about, tensors)
        with pytest.raises(ModelFileError):
            kp.load(path)
    assert not trap.exists()
    source = Path(model_file.__file__).read_text()
    assert not any(word in source for word in ("pickle", "eval(", "exec(", "__import__", "marshal", "allow_pickle"))


def test_every_class_that_a_file_may_name_is_public_and_has_one_name():
    classes = model_file._classes()
    assert {"SCC", "SHC", "SNC", "PrototypeClassifier", "JBLD", "Sinkhorn", "Subsample", "Pipeline"} <= set(classes)
    assert all(cls.__module__.startswith("knnpress.") for name, cls in classes.items() if name != "Pipeline")
    for home in (kp, kp.geometries, kp.compression, descriptors):
        for name in set(home.__all__) - {"__version__"}:
            assert classes.get(name, getattr(home, name)) is getattr(home, name)


def without_checksum(content):
    """The file as it would be without a checksum, which would tell of most changes before anything is read."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    about = json.loads(header["__metadata__"]["knnpress-model"])
    about.pop("checksum", None)
    header["__metadata__"]["knnpress-model"] = json.dumps(about)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def byte_mutants(content, rng):
    """Copies with bytes flipped, cut off, put in, taken out."""
    header = 8 + int.from_bytes(content[:8], "little")
    while True:
        mutant = bytearray(content)
        for _ in range(rng.integers(1, 4)):
            at = int(rng.integers(header if rng.random() < 0.8 else len(mutant)))
            kind = rng.integers(4)
            letters = bytes(rng.choice(list(b'0123456789_{}[],:"ae-.'), int(rng.integers(1, 4))).tolist())
            if kind == 0:
                mutant[at : at + len(letters)] = letters
            elif kind == 1:
                mutant[at:at] = letters
            elif kind == 2:
                del mutant[at : at + int(rng.integers(1, 9))]
            elif rng.random() < 0.2:
                del mutant[at:]
            else:
                mutant[at : at + 1] = bytes([mutant[at] ^ (1 << int(rng.integers(8)))]) if at < len(mutant) else b""
        yield bytes(mutant)


JUNK = [None, True, -1, 0, 3, 2**80, 0.5, 1e308, "", "SCC", "jbld", [], [1], {}, {"float": "nan"}, {"tuple": []}]
JUNK += [{"dict": [[1, 2]]}, {"array": "SCC.prototypes_"}, {"objects": ["a"], "shape": [1]}]
JUNK += [{"class": "JBLD", "params": {}, "fitted": {}}, {"objects": [1], "shape": [-1, 10**15]}, {"floats": "?"}]


def places(code):
    """Every place in a JSON value, as the container and the key."""
    for key in list(code) if isinstance(code, dict) else range(len(code)):
        yield code, key
        if isinstance(code[key], (dict, list)):
            yield from places(code[key])


def json_mutants(content, rng):
    """Files whose header was changed in a few places and still is a header."""
    size = int.from_bytes(content[:8], "little")
    while True:
        header = json.loads(content[8 : 8 + size])
        about = json.loads(header["__metadata__"]["knnpress-model"])
        for _ in range(rng.integers(1, 4)):
            inside = list(places(about if rng.random() < 0.7 else {k: v for k, v in header.items() if k[0] != "_"}))
            place, key = inside[rng.integers(len(inside))]
            kind = rng.integers(3)
            other, other_key = inside[rng.integers(len(inside))]
            if kind == 0 and isinstance(place, dict):
                place.pop(key, None)
            elif kind == 1 and key in other:
                place[key] = json.loads(json.dumps(other[other_key])) if other_key in other else 0
            else:
                place[key] = json.loads(json.dumps(JUNK[rng.integers(len(JUNK))]))
        header["__metadata__"]["knnpress-model"] = json.dumps(about)
        text = json.dumps(header).encode()
        yield len(text).to_bytes(8, "little") + text + content[8 + size :]


@pytest.mark.parametrize("mutants", [byte_mutants, json_mutants])
def test_a_mutated_file_is_refused_or_loads_and_nothing_else_happens(mutants, files, path, rng):
    loaded = 0
    with np.errstate(all="ignore"):
        for name in ("scc", "shc", "nested", "pipeline", "full"):
            mutant = mutants(without_checksum((files / name).read_bytes()), rng)
            for _ in range(80):
                path.write_bytes(next(mutant))
                try:
                    model = kp.load(path)
                except ModelFileError as error:
                    assert str(path) in str(error)  # noqa: PT017
                    continue
                loaded += 1
                assert type(model) in model_file._classes().values()
                assert all(np.isfinite(m.prototypes_).all() for m in [model] if hasattr(m, "prototypes_"))
    assert 0 < loaded < 360  # the mutants are neither all harmless nor all nonsense


@pytest.mark.parametrize("name", ["scc", "shc", "pipeline"])
def test_a_flipped_bit_is_refused_or_makes_no_difference(name, files, path, rng):
    whole, model = (files / name).read_bytes(), kp.load(files / name)
    start = 8 + int.from_bytes(whole[:8], "little")
    tensors = rng.integers(8 * start, 8 * len(whole), 60)
    for bit in (*tensors, *rng.integers(0, 8 * start, 60)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << (bit % 8)
        path.write_bytes(changed)
        try:
            loaded = kp.load(path)
        except ModelFileError:
            continue
        assert bit < 8 * start, f"bit {bit} of a tensor"
        assert same(model, loaded), f"bit {bit} of the header"


def test_a_damaged_number_is_said_to_be_damage(files, path):
    whole = bytearray((files / "scc").read_bytes())
    whole[-3] ^= 1
    path.write_bytes(whole)
    with pytest.raises(ModelFileError, match="checksum"):
        kp.load(path)


def test_a_file_without_a_checksum_as_earlier_versions_wrote_it_is_read(files, path):
    about, tensors = contents(files / "scc")
    assert "checksum" in about
    rewrite(path, about, tensors)
    assert "checksum" not in contents(path)[0]
    assert same(kp.load(files / "scc"), kp.load(path))
    rewrite(path, {**about, "chfcksum": "0"}, tensors)
    with pytest.raises(ModelFileError, match="chfcksum"):
        kp.load(path)


@pytest.mark.parametrize("gamma", [1e300, 1e160, 1e-200, 2**70 * 10**300])
def test_a_sharpness_beyond_numbers_is_refused(gamma, files, path):
    about, tensors = contents(files / "scc")
    about["model"]["fitted"]["gamma_"] = gamma
    rewrite(path, about, tensors)
    with pytest.raises(ModelFileError, match="gamma_"):
        kp.load(path)


@pytest.mark.parametrize("value", ["x", None, [1], float("1e400"), -1])
def test_a_ratio_that_is_not_a_share_is_refused(value, files, path):
    about, tensors = contents(files / "scc")
    about["model"]["fitted"]["compression_ratio_"] = value if value != float("inf") else {"float": "inf"}
    rewrite(path, about, tensors)
    with pytest.raises(ModelFileError, match="compression_ratio_"):
        kp.load(path)


def test_a_file_cut_off_anywhere_is_refused(files, path):
    content = (files / "scc").read_bytes()
    for size in [*range(0, 300, 7), *range(300, len(content), 101), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError):
            kp.load(path)


@pytest.mark.parametrize("dump", [pickle.dump, joblib.dump])
def test_a_pickle_is_recognised(dump, tmp_path):
    with open(tmp_path / "model.pkl", "wb") as file:
        dump(kp.SNC(), file)
    with pytest.raises(ModelFileError, match=r"from joblib\.dump or the like; joblib\.load reads it, if you trust it"):
        kp.load(tmp_path / "model.pkl")


def test_arrays_that_are_equal_are_written_once(path, rng):
    texts, vectors = ["boat ship", "queen king"] * 10, rng.normal(size=(400, 30))
    words = ["boat", "ship", "queen", "king", *(f"word{k}" for k in range(396))]
    model = kp.DescriptorClassifier(descriptors.WordClouds(vectors, words), kp.SWC(n_prototypes=2, n_points=2, **FIXED))
    model.fit(texts, np.arange(20) % 2)
    model.save(path)
    assert path.stat().st_size < 1.5 * (vectors.nbytes + np.array(words).nbytes)
    again = kp.load(path)
    assert_array_equal(again.descriptor.vectors, vectors)
    assert_array_equal(again.descriptors_[0].vectors, vectors)
    assert_array_equal(again.predict_proba(texts), model.predict_proba(texts))
    kp.save(again, path.with_name("again.knnp"))
    assert path.with_name("again.knnp").read_bytes() == path.read_bytes()


def test_layouts_and_types_are_told_apart_where_arrays_look_equal(path, rng):
    C = rng.normal(size=(30, 30))
    model = kp.SNC(**QUICK).fit(*labelled(histograms, 40, 3))
    model.extra_ = [C, np.asfortranarray(C), C.view(np.int64), C.copy(), C[:15]]
    model.save(path)
    for one, other in zip(kp.load(path).extra_, model.extra_, strict=True):
        assert_array_equal(one, other)
        assert (one.dtype, one.flags.f_contiguous) == (other.dtype, other.flags.f_contiguous)


def test_prototypes_that_were_learned_far_from_the_data_are_saved(tmp_path, capsys):
    """Their vectors are sound, and all that queries need; as matrices they are singular but for rounding."""
    X, y = labelled("tangent", 40)
    model = kp.SCC(n_prototypes=3, metric="tangent", gamma="scale", prior=1.0, smoothing=0.02, vote="nearest").fit(X, y)
    model.prototype_vectors_ *= 60 / np.abs(model.prototype_vectors_).max()
    model.prototypes_ = model.geometry_.unembed(model.prototype_vectors_)
    with pytest.raises(InvalidPointError, match="not positive definite"):
        model.geometry_.check(model.prototypes_)
    model.save(tmp_path / "m.knnp")
    loaded = kp.load(tmp_path / "m.knnp")
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert main(["inspect", str(tmp_path / "m.knnp")]) == 0
    assert "which features matter cannot be said" in capsys.readouterr().out
    with pytest.raises(InvalidPointError, match=r"prototypes_\[0\] is not .*; learn with a stronger prior"):
        loaded.explain(X[0])
    model.prototypes_ = model.prototypes_[::-1]  # not what its vectors stand for
    with pytest.raises(InvalidPointError, match="not positive definite"):
        model.save(tmp_path / "m.knnp")

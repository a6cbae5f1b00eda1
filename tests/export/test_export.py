"""Models as C and JavaScript: the same answers as Python's, and no fault whatever the input."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import knnpress as kp
from knnpress.cli import main
from knnpress.descriptors import Recenter, SignalCovariance
from knnpress.export.c import c_string
from knnpress.geometries import AIRM, JBLD, CloudEMD, Hellinger, LogEuclidean, Sinkhorn, SquaredEuclidean, Tangent

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O2")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
needs_compiler = pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="there is no node")

#: Reads points from stdin, writes the class of each, and its probabilities; then asks again without them.
DRIVER = """
#include <stdio.h>
#include "model.h"
int main(void) {
  static double x[KNNPRESS_POINT_SIZE], p[KNNPRESS_N_CLASSES + 1];
  while (fread(x, sizeof(double), KNNPRESS_POINT_SIZE, stdin) == KNNPRESS_POINT_SIZE) {
    p[0] = knnpress_predict(x, p + 1);
    if (p[0] != knnpress_predict(x, NULL)) return 3;
    fwrite(p, sizeof(double), KNNPRESS_N_CLASSES + 1, stdout);
  }
  return 0;
}
"""
HEADER = """
#define KNNPRESS_POINT_SIZE {size}
#define KNNPRESS_N_CLASSES {classes}
extern const char *const knnpress_classes[];
extern const char knnpress_version[];
int knnpress_predict(const double *x, double *probabilities);
"""


def build(model, folder, compiler=COMPILERS[0] if COMPILERS else "", flags=STRICT, dtype="float64", **settings):
    """A program that answers points as `DRIVER` says."""
    kp.export_c(model, folder / "model.c", dtype=dtype, **settings)
    size = model.n_features_in_ ** (model.prototypes_.ndim - 1)
    (folder / "model.h").write_text(HEADER.format(size=size, classes=len(model.classes_)))
    (folder / "main.c").write_text(DRIVER)
    program = folder / "program"
    subprocess.run(
        [compiler, *flags, *STRICT, folder / "main.c", folder / "model.c", "-o", program, "-lm"],
        check=True,
        timeout=120,
    )
    return program


def ask(command, X, n_classes):
    """Class indices and probabilities of points."""
    done = subprocess.run(
        command if isinstance(command, list) else [command],
        input=np.ascontiguousarray(X, dtype=np.float64).tobytes(),
        capture_output=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = np.frombuffer(done.stdout).reshape(len(X), n_classes + 1)
    return answers[:, 0].astype(int), answers[:, 1:]


@cache
def covariances():
    data = kp.datasets.load_digits_covariances()
    return data.X, data.y


@cache
def histograms():
    data = kp.datasets.load_digits_histograms()
    return data.X, data.y, data.ground_cost


def learned(kind, **settings):
    return kind(n_prototypes=20, max_iter=3, prior=1.0, smoothing=0.02, gamma="scale", **settings)


def covariance_model(metric, vote="nearest"):
    X, y = covariances()
    return learned(kp.SCC, metric=metric, vote=vote).fit(X[:600], y[:600]), X[600:]


def histogram_model(vote="nearest", **settings):
    X, y, cost = histograms()
    return learned(kp.SHC, ground_cost=cost, vote=vote, **settings).fit(X[:400], y[:400]), X[400:900]


def vector_model(vote="nearest"):
    X, y = load_digits(return_X_y=True)
    return learned(kp.SNC, vote=vote).fit(X[:600], y[:600]), X[600:]


def learned_neighbours():
    X, y = covariances()
    return learned(kp.SCC, metric="jbld", vote="nearest", n_neighbors=3).fit(X[:600], y[:600]), X[600:]


def neighbour_model(geometry, X, y, k):
    return kp.PrototypeClassifier(geometry, n_neighbors=k).fit(X[:150], y[:150]), X[150:400]


MODELS = {
    "jbld": lambda: covariance_model("jbld"),
    "jbld, soft": lambda: covariance_model("jbld", "soft"),
    "tangent": lambda: covariance_model("tangent", "soft"),
    "logeuclid": lambda: covariance_model("logeuclid"),
    "vectors": lambda: vector_model(),
    "vectors, soft": lambda: vector_model("soft"),
    "hellinger": lambda: histogram_model(metric="hellinger"),
    "sinkhorn": lambda: histogram_model(metric="sinkhorn"),
    "sinkhorn, soft": lambda: histogram_model("soft", metric="sinkhorn"),
    "sinkhorn, dual": lambda: histogram_model(metric="sinkhorn", value="dual"),
    "sinkhorn, transport": lambda: histogram_model(metric="sinkhorn", value="transport"),
    "jbld, 5 neighbours": lambda: neighbour_model(JBLD(), *covariances(), 5),
    "tangent, 3 neighbours": lambda: neighbour_model(Tangent(), *covariances(), 3),
    "logeuclid, 1 neighbour": lambda: neighbour_model(LogEuclidean(), *covariances(), 1),
    "vectors, 4 neighbours": lambda: neighbour_model(SquaredEuclidean(), *histograms()[:2], 4),
    "hellinger, 2 neighbours": lambda: neighbour_model(Hellinger(), *histograms()[:2], 2),
    "sinkhorn, 3 neighbours": lambda: neighbour_model(Sinkhorn(histograms()[2]), *histograms()[:2], 3),
}


def some(names, *others):
    """Names for the usual tests, and others for the long ones."""
    return [*names, *(pytest.param(name, marks=pytest.mark.slow) for name in others)]


#: A model of each geometry and each vote; the others are made of the same parts.
USUAL = [
    *("jbld, soft", "tangent", "logeuclid", "vectors, soft", "hellinger", "sinkhorn, soft", "sinkhorn, transport"),
    "jbld, 5 neighbours",
]
ONE_OF_EACH = some(USUAL, *(name for name in MODELS if name not in USUAL))
#: A model of each kind of table
KINDS = ["jbld, soft", "tangent", "vectors, soft", "hellinger", "sinkhorn, soft"]
ASKED_ANYTHING = [
    *((name, "float64") for name in ("jbld", "tangent", "vectors, soft", "hellinger, 2 neighbours", "sinkhorn, soft")),
    ("jbld", "float32"),
    *(
        pytest.param(name, "float32", marks=pytest.mark.slow)
        for name in ("tangent", "vectors, soft", "hellinger, 2 neighbours", "sinkhorn, soft")
    ),
]
ONE_OF_EACH_KIND = some(KINDS, *(name for name in MODELS if name not in KINDS))


@cache
def made(name):
    return learned_neighbours() if name == "jbld, 3 learned neighbours" else MODELS[name]()


def clear(model, X, margin):
    """Points whose two best classes, or whose k-th and next neighbour, differ by more than a margin of distance."""
    D = model.transform(X)
    k = model.n_neighbors
    if hasattr(model, "vote_") and model.vote_ == "soft":
        scores = np.sort(np.log(model.predict_proba(X) + 1e-300), axis=1)
        return scores[:, -1] - scores[:, -2] > margin
    if k == 1:
        own = np.stack([D[:, model._codes() == c].min(axis=1) for c in range(len(model.classes_))], axis=1)
        best = np.sort(own, axis=1)
        return best[:, 1] - best[:, 0] > margin
    return (np.diff(np.sort(D, axis=1)[:, : k + 1], axis=1) > margin).all(axis=1)


def assert_same_answers(model, X, winner, probabilities, margin=1e-9, probability_error=1e-6):
    assert (winner >= 0).all()
    apart = clear(model, X, margin)
    assert apart.mean() > 0.9
    np.testing.assert_array_equal(model.classes_[winner[apart]], model.predict(X[apart]))
    np.testing.assert_allclose(probabilities[apart], model.predict_proba(X[apart]), atol=probability_error)


@needs_compiler
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_c_answers_as_python_does(name, tmp_path):
    model, X = made(name)
    # the transport value feels an error of the marginals as it is, the others by its square
    margin = 1e-3 if "transport" in name else 1e-9
    error = 0.05 if "transport" in name else 1e-6
    winner, probabilities = ask(build(model, tmp_path), X, len(model.classes_))
    assert_same_answers(model, X, winner, probabilities, margin, error)


@needs_compiler
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_single_precision_answers_nearly_as_python_does(name, tmp_path):
    model, X = made(name)
    winner, _ = ask(build(model, tmp_path, dtype="float32"), X, len(model.classes_))
    wrong = model.classes_[winner] != model.predict(X)
    assert wrong.sum() <= max(1, 0.001 * len(X))


@needs_compiler
@pytest.mark.parametrize("compiler", some(COMPILERS[:1], *COMPILERS[1:]))
@pytest.mark.parametrize(("name", "dtype"), ASKED_ANYTHING)
def test_any_input_gets_a_class_or_none_and_never_a_fault(name, dtype, compiler, tmp_path, rng):
    model, X = made(name)
    program = build(model, tmp_path, compiler, SANITIZED, dtype)
    strange = strange_points(X, rng)
    winner, probabilities = ask(program, strange, len(model.classes_))
    assert ((winner >= -1) & (winner < len(model.classes_))).all()
    assert (winner[~np.isfinite(strange).all(axis=tuple(range(1, X.ndim)))] == -1).all()
    found = probabilities[winner >= 0]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    sound = [python_takes(model, x) for x in strange]
    assert not (winner[~np.array(sound)] >= 0).any(), "a point that Python refuses was given a class"
    if dtype == "float64":
        assert (winner[sound] >= 0).all(), "a point that Python takes was refused"


def python_takes(model, x):
    try:
        model.predict(x[None])
    except ValueError:
        return False
    return True


def strange_points(X, rng):
    """Points of many kinds that are no points, among some that are."""
    points = [X[0], np.zeros_like(X[0]), np.ones_like(X[0]), -X[0], 1e-300 * X[0], 1e300 * X[0], 1e40 * X[0]]
    for value in (np.nan, np.inf, -np.inf, -1.0, 0.0, 1e308, 5e-324, -1e-300):
        for _ in range(3):
            point = X[rng.integers(len(X))].copy()
            point[tuple(rng.integers(size) for size in point.shape)] = value
            points.append(point)
        points.append(np.full_like(X[0], value))
    if X.ndim == 3:
        d = X.shape[1]
        half = rng.normal(size=(d, d - 1))
        points += [
            np.eye(d),
            1e-200 * np.eye(d),
            1e200 * np.eye(d),
            half @ half.T,
            np.triu(X[0]),
            np.diag(rng.normal(size=d)),
        ]
        points += [np.diag(10.0 ** np.linspace(-150, 150, d)), X[0] + np.triu(np.full((d, d), 1e-12), 1)]
    for scale in (1e-3, 1.0, 1e3):
        points += list(scale * rng.normal(size=(10, *X.shape[1:])))
    return np.stack(points)


@cache
def links_sanitizers(compiler):
    command = [compiler, *SANITIZED, "-x", "c", "-", "-o", os.devnull]
    return subprocess.run(command, input=b"int main(void) { return 0; }", capture_output=True).returncode == 0


@needs_compiler
@pytest.mark.parametrize("compiler", some(COMPILERS[-1:], *COMPILERS[:-1]))
@pytest.mark.parametrize("name", ["jbld", "vectors, 4 neighbours", "hellinger, 2 neighbours", "sinkhorn, dual"])
def test_sanitizers_and_compilers_agree(name, compiler, tmp_path):
    if not links_sanitizers(compiler):
        pytest.skip(f"{compiler} is here without its sanitizers")
    model, X = made(name)
    winner, probabilities = ask(build(model, tmp_path, compiler, SANITIZED), X[:100], len(model.classes_))
    assert_same_answers(model, X[:100], winner, probabilities)


REJECTING = some(
    ["jbld, soft", "tangent", "vectors, soft", "hellinger", "sinkhorn"],
    *("jbld", "logeuclid", "sinkhorn, soft", "sinkhorn, dual", "jbld, 3 learned neighbours"),
)


def half_strange(name, n):
    """Points of a model's kind, and as many that are like none of its classes."""
    model, X = made(name)
    X = X[:n]
    other = np.roll(X, 1, axis=0)
    strange = X[:, ::-1, ::-1] + 0.3 * other if X.ndim == 3 else np.abs(X - other) + 1e-3
    return model, np.concatenate([X, strange])


def assert_rejects_as_python_does(model, X, winner, reject, margin):
    score = model.outlier_score(X)
    sure = np.abs(score - (1.0 - reject)) > margin
    assert sure.mean() > 0.9
    refused = score > 1.0 - reject
    assert 0.05 < refused.mean() < 0.95, "the test would say nothing"
    np.testing.assert_array_equal((winner < 0)[sure], refused[sure])
    taken = sure & ~refused & clear(model, X, 1e-5)
    np.testing.assert_array_equal(model.classes_[winner[taken]], model.predict(X[taken]))


@needs_compiler
@pytest.mark.parametrize("dtype", some(["float64"], "float32"))
@pytest.mark.parametrize("name", REJECTING)
def test_c_rejects_what_python_rejects(name, dtype, tmp_path):
    model, X = half_strange(name, 60 if "sinkhorn" in name else 150)
    for reject in (0.0, 0.2) if name == "jbld, soft" else (0.07,):
        winner, _ = ask(build(model, tmp_path, dtype=dtype, reject=reject), X, len(model.classes_))
        assert_rejects_as_python_does(model, X, winner, reject, 1e-6 if dtype == "float64" else 1e-3)


@needs_node
@pytest.mark.parametrize("name", some(["jbld, soft", "sinkhorn"], "tangent", "hellinger", "jbld, 3 learned neighbours"))
def test_javascript_rejects_what_python_rejects(name, tmp_path):
    model, X = half_strange(name, 30)
    winner, _ = ask(node_program(model, tmp_path, reject=0.1), X, len(model.classes_))
    assert_rejects_as_python_does(model, X, winner, 0.1, 1e-6)


#: As `DRIVER`, of windows: the first number read is how many samples each has.
WINDOW_DRIVER = """
#include <stdio.h>
#include <stdlib.h>
#define KNNPRESS_IMPLEMENTATION
#include "model.h"
int main(void) {
  double n, p[KNNPRESS_N_CLASSES + 1];
  while (fread(&n, sizeof n, 1, stdin) == 1) {
    double *x = malloc(sizeof(double) * KP_D * (size_t)n + 1);
    if (fread(x, sizeof(double) * KP_D, (size_t)n, stdin) != (size_t)n) return 3;
    p[0] = knnpress_predict_window(x, (int)n, p + 1);
    if (p[0] != knnpress_predict_window(x, (int)n, NULL)) return 4;
    fwrite(p, sizeof p, 1, stdout);
    free(x);
  }
  return 0;
}
"""
NODE_WINDOW = """
import { readFileSync, writeFileSync } from "node:fs";
import { classes, pointSize, predictWindow } from "./model.mjs";
const bytes = readFileSync(0), start = bytes.byteOffset, d = Math.sqrt(pointSize), out = [];
const x = new Float64Array(bytes.buffer.slice(start, start + bytes.length));
for (let at = 0; at < x.length; at += 1 + d * x[at]) {
  const p = new Array(classes.length).fill(0);
  out.push(predictWindow(x.subarray(at + 1, at + 1 + d * x[at]), x[at], p), ...p);
}
writeFileSync(1, Buffer.from(Float64Array.from(out).buffer));
"""


def signals(rng, n, n_times=60):
    """Windows of two classes from two subjects, each of whom mixes the channels in a way of their own."""
    y, subject = np.arange(n) % 2, np.where(np.arange(n) // 2 % 2, "left", "right")
    raw = rng.normal(size=(n, 5, n_times)) * np.where(y[:, None, None], [[3.0], [1], [1], [1], [2]], 1.0)
    mixing = {"left": 0.1 * np.eye(5) + 0.02 * rng.normal(size=(5, 5)), "right": np.eye(5)}
    return np.stack([mixing[s] @ (window + 7.0) for s, window in zip(subject, raw, strict=True)]), y, subject


def window_model(metric, estimator, recenter, rng):
    X, y, subject = signals(rng, 160)
    steps = [SignalCovariance(estimator), *([] if recenter is None else [recenter])]
    groups = None if recenter is None else subject
    model = kp.DescriptorClassifier(steps, learned(kp.SCC, metric=metric, vote="soft"))
    return model.fit(X, y, groups=groups), X[subject == "left"]


CHAINS = [
    ("jbld", "ledoit_wolf", None),
    ("jbld", "oas", Recenter()),
    ("tangent", "empirical", Recenter(target="mean", shrinkage=3.0)),
    ("logeuclid", "ledoit_wolf", Recenter("logeuclid", shrinkage=1.0)),
    ("jbld", "empirical", Recenter("logdet", target="mean")),
    ("tangent", "oas", None),
]


def ask_windows(command, windows):
    parts = [np.concatenate([[window.shape[1]], window.ravel()]) for window in windows]
    done = subprocess.run(command, input=np.concatenate(parts).tobytes(), capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout).reshape(len(windows), 3)


def window_program(language, model, folder, *, compiler="gcc", flags=(), **settings):
    if language == "js":
        kp.export_js(model, folder / "model.mjs", **settings)
        (folder / "main.mjs").write_text(NODE_WINDOW)
        return ["node", str(folder / "main.mjs")]
    kp.export_c(model, folder / "model.h", **settings)
    (folder / "main.c").write_text(WINDOW_DRIVER)
    subprocess.run([compiler, *flags, *STRICT, "main.c", "-o", "program", "-lm"], cwd=folder, check=True)
    return [str(folder / "program")]


LANGUAGES = [
    pytest.param("c", marks=pytest.mark.skipif("gcc" not in COMPILERS, reason="there is no gcc")),
    pytest.param("js", marks=needs_node),
]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize(
    ("metric", "estimator", "recenter"),
    [*CHAINS[:3], *(pytest.param(*chain, marks=pytest.mark.slow) for chain in CHAINS[3:])],
)
def test_windows_are_described_and_recentred_as_in_python(language, metric, estimator, recenter, tmp_path, rng):
    model, X = window_model(metric, estimator, recenter, rng)
    group = None if recenter is None else "left"
    answers = ask_windows(window_program(language, model, tmp_path, group=group), X)
    np.testing.assert_array_equal(model.classes_[answers[:, 0].astype(int)], model.predict(X, groups=group))
    np.testing.assert_allclose(answers[:, 1:], model.predict_proba(X, groups=group), atol=1e-8)
    few = X[:10, :, :6]  # where covariances are shrunk by much
    answers = ask_windows([str(tmp_path / "program")] if language == "c" else ["node", str(tmp_path / "main.mjs")], few)
    np.testing.assert_allclose(answers[:, 1:], model.predict_proba(few, groups=group), atol=1e-7)


@needs_compiler
@pytest.mark.parametrize("compiler", some(COMPILERS[:1], *COMPILERS[1:]))
@pytest.mark.parametrize("estimator", some(["ledoit_wolf"], "oas", "empirical"))
def test_any_window_gets_a_class_or_none_and_never_a_fault(estimator, compiler, tmp_path, rng):
    model, X = window_model("tangent", estimator, Recenter(), rng)
    program = window_program("c", model, tmp_path, compiler=compiler, flags=SANITIZED, group="left", reject=0.5)
    windows = [X[0], X[0][:, :0], X[0][:, :1], X[0][:, :2], np.zeros((5, 9)), np.ones((5, 9))]
    windows += [1e200 * X[0], 1e-200 * X[0], 1e100 * X[0], 1e-100 * X[0]]
    for value in (np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324):
        windows += [np.full((5, 9), value), X[1].copy(), rng.choice([value, 1.0, -2.0], size=(5, 40))]
        windows[-2][2, 3] = value
    winner = ask_windows(program, windows)[:, 0]
    assert np.isin(winner, [-1, 0, 1]).all()
    assert (winner[1:3] == -1).all()
    assert (winner[[not np.isfinite(window).all() for window in windows]] == -1).all()
    # without rejection, what Python takes is taken, and what it refuses is refused
    program = window_program("c", model, tmp_path, compiler=compiler, flags=SANITIZED, group="left")
    taken = ask_windows(program, windows)[:, 0] >= 0
    np.testing.assert_array_equal(taken, [python_takes_window(model, window) for window in windows])


def python_takes_window(model, window):
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.predict(window[None], groups="left")
    except ValueError:
        return False
    return True


def test_a_file_is_for_one_group(tmp_path, rng, capsys):
    X, y, subject = signals(rng, 40)
    model = kp.DescriptorClassifier([SignalCovariance(), Recenter()], kp.PrototypeClassifier("jbld"))
    model.fit(X, y, groups=subject)
    with pytest.raises(ValueError, match=r"for one group: group is None, and Recenter knows 2 groups.*'left', 'right'"):
        kp.export_c(model, tmp_path / "model.c")
    with pytest.raises(ValueError, match=r"group is 'middle'.*give one of them"):
        kp.export_js(model, tmp_path / "model.mjs", group="middle")
    model.save(tmp_path / "model.knnp")
    kp.export_c(model, tmp_path / "expected.c", group="right")
    assert "re-centred first, by the mean of group right" in (tmp_path / "expected.c").read_text()
    command = ["export", str(tmp_path / "model.knnp"), "-o", str(tmp_path / "model.c")]
    assert main([*command, "--group", "right"]) == 0
    assert (tmp_path / "model.c").read_bytes() == (tmp_path / "expected.c").read_bytes()
    assert main(command) == 2
    assert "give one of them" in capsys.readouterr().err


HOSTILE = [
    '"',
    "\n",
    "??/",
    "??=",
    "*/",
    "/*",
    "\\",
    "\\x41",
    "%s%n",
    "é",
    "漢字",
    "a" * 300,
    "",
    "\udc80",
    "</script>",
    "0",
    "'",
]


@needs_compiler
@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_of_classes_come_through_unharmed(compiler, tmp_path, rng):
    X = rng.normal(size=(len(HOSTILE), 3))
    model = kp.PrototypeClassifier("sqeuclidean").fit(X, np.array(HOSTILE, dtype=object))
    kp.export_c(model, tmp_path / "model.c")
    (tmp_path / "main.c").write_text(
        '#include <stdio.h>\n#include "model.c"\nint main(void) { int c; for (c = 0; c < KNNPRESS_N_CLASSES; c++) '
        "{ fputs(knnpress_classes[c], stdout); putchar(1); } fputs(knnpress_version, stdout); return 0; }"
    )
    subprocess.run([compiler, *STRICT, tmp_path / "main.c", "-o", tmp_path / "names", "-lm"], check=True)
    out = subprocess.run([tmp_path / "names"], capture_output=True, check=True).stdout
    *names, version = out.decode().split("\x01")
    assert names == [str(name).encode(errors="backslashreplace").decode() for name in model.classes_]
    assert version == kp.__version__


@pytest.mark.skipif(not COMPILERS, reason="there is no C compiler")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("flag", ["-DKNNPRESS_NO_VECTORS", "-march=native"])
def test_vectors_of_any_width_or_none_give_the_same_answers(flag, dtype, tmp_path):
    model, X = made("jbld, soft")
    winner, probabilities = ask(build(model, tmp_path, flags=(flag,), dtype=dtype), X[:100], len(model.classes_))
    np.testing.assert_array_equal(model.classes_[winner], model.predict(X[:100]))
    error = 1e-9 if dtype == "float64" else 1e-2
    np.testing.assert_allclose(probabilities, model.predict_proba(X[:100]), atol=error)


def test_a_c_string_has_no_character_that_means_something():
    assert c_string('a"\n??/') == '"a\\042\\012\\077\\077\\057"'


def test_a_name_that_a_c_string_would_cut_is_refused(tmp_path):
    model = kp.PrototypeClassifier("sqeuclidean").fit([[0.0], [1.0]], np.array(["a\0b", "c"], dtype=object))
    with pytest.raises(ValueError, match="holds a NUL"):
        kp.export_c(model, tmp_path / "model.c")


@pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler")
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_the_header_is_for_c_and_for_cpp(name, tmp_path):
    model, X = made(name)
    kp.export_c(model, tmp_path / "model.h", dtype="float32")
    code = tmp_path / "code.cpp"
    code.write_text('#define KNNPRESS_IMPLEMENTATION\n#include "model.h"\n#include "model.h"\n')
    (tmp_path / "main.c").write_text(DRIVER)  # of C, with the declarations alone
    strict = ["-Wall", "-Wextra", "-Werror", "-O1", "-c"]
    subprocess.run(["g++", "-std=c++17", "-Wpedantic", *strict, code, "-o", tmp_path / "code.o"], check=True)
    subprocess.run(["gcc", "-std=c99", *strict, tmp_path / "main.c", "-o", tmp_path / "main.o"], check=True)
    subprocess.run(["gcc", tmp_path / "main.o", tmp_path / "code.o", "-o", tmp_path / "program", "-lm"], check=True)
    winner, _ = ask(tmp_path / "program", X[:20], len(model.classes_))
    assert (model.classes_[winner] == model.predict(X[:20])).mean() > 0.9


@pytest.mark.skipif(shutil.which("gcc") is None, reason="only gcc says how much stack it uses")
@pytest.mark.parametrize("dtype", some(["float64"], "float32"))
@pytest.mark.parametrize("name", ONE_OF_EACH_KIND)
def test_the_stack_is_no_more_than_stated_and_nothing_else_is_written(name, dtype, tmp_path):
    model, _ = made(name)
    kp.export_c(model, tmp_path / "model.c", dtype=dtype)
    subprocess.run(["gcc", *STRICT, "-fstack-usage", "-c", "model.c"], cwd=tmp_path, check=True)
    used = sum(int(line.split("\t")[1]) for line in (tmp_path / "model.su").read_text().splitlines())
    stated = int(re.search(r"([\d,]+) bytes of stack", (tmp_path / "model.c").read_text())[1].replace(",", ""))
    assert used <= stated <= 3 * used + 1024
    sizes = subprocess.run(["size", "-A", "model.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    section = dict(re.findall(r"^(\.\S+)\s+(\d+)", sizes, re.MULTILINE))
    assert section[".data"] == section[".bss"] == "0"
    needs = subprocess.run(["nm", "-u", "model.o"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    libm = {"sqrt", "log", "exp", "logf", "memset", "memcpy", "__stack_chk_fail", "_GLOBAL_OFFSET_TABLE_"}
    assert set(needs.replace("U", " ").split()) <= libm


def test_what_cannot_be_exported_says_why(tmp_path):
    X, y = covariances()
    target = tmp_path / "model.c"
    with pytest.raises(TypeError, match=r"under AIRM: .*learn the model under Tangent or JBLD"):
        kp.export_c(kp.PrototypeClassifier(AIRM()).fit(X[:50], y[:50]), target)
    with pytest.raises(TypeError, match=r"cannot export a PCA: of descriptors, only SignalCovariance .*model\[-1\]"):
        kp.export_c(make_pipeline(PCA(3), kp.PrototypeClassifier("sqeuclidean")).fit(X[:50, 0], y[:50]), target)
    with pytest.raises(TypeError, match=r"reject is given, and a PrototypeClassifier does not know how far"):
        kp.export_c(kp.PrototypeClassifier("jbld").fit(X[:50], y[:50]), target, reject=0.1)
    with pytest.raises(ValueError, match=r"reject is 5; give the share"):
        kp.export_c(made("jbld")[0], target, reject=5)
    with pytest.raises(ValueError, match=r"group is 'a', and the model has no Recenter"):
        kp.export_c(made("jbld")[0], target, group="a")
    clouds = kp.Clouds(np.arange(8.0)[:, None], [0, 2, 4, 6, 8])
    with pytest.raises(TypeError, match=r"under CloudSinkhorn: clouds have any number of points"):
        kp.export_c(
            kp.SWC(2, n_points=2, gamma=1.0, max_iter=1, prior=1.0, vote="nearest").fit(clouds, [0, 0, 1, 1]), target
        )
    with pytest.raises(TypeError, match=r"under CloudEMD: clouds have any number of points"):
        kp.export_c(kp.PrototypeClassifier(CloudEMD()).fit(clouds, [0, 0, 1, 1]), target)
    with pytest.raises(TypeError, match="cannot export a int"):
        kp.export_c(3, target)
    with pytest.raises(ValueError, match="not fitted"):
        kp.export_c(kp.SCC(), target)
    with pytest.raises(ValueError, match="choose 'float64' or 'float32'"):
        kp.export_c(made("jbld")[0], target, dtype="float16")
    H, labels, cost = histograms()
    fine = kp.PrototypeClassifier(Sinkhorn(cost, reg=1e-3 * cost.max())).fit(H[:20], labels[:20])
    with pytest.raises(ValueError, match=r"1000 times reg.*learn with a larger reg"):
        kp.export_c(fine, target)
    coarse = kp.PrototypeClassifier(Sinkhorn(cost, reg=cost.max() / 100)).fit(H[:20], labels[:20])
    with pytest.raises(ValueError, match="use dtype='float64'"):
        kp.export_c(coarse, target, dtype="float32")
    far = kp.PrototypeClassifier("sqeuclidean").fit([[1e20], [-1e20]], [0, 1])
    with pytest.raises(ValueError, match="beyond the range of float32"):
        kp.export_c(far, target, dtype="float32")
    assert not target.exists()
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        kp.export_c(made("jbld")[0], tmp_path / "nowhere" / "model.c")


def test_the_command_writes_what_the_function_writes(tmp_path, capsys):
    model, _ = made("hellinger")
    model.save(tmp_path / "model.knnp")
    kp.export_c(model, tmp_path / "expected.c", dtype="float32")
    assert main(["export", str(tmp_path / "model.knnp"), "-o", str(tmp_path / "got.c"), "--dtype", "float32"]) == 0
    assert (tmp_path / "got.c").read_bytes() == (tmp_path / "expected.c").read_bytes()
    assert capsys.readouterr().err == ""


def test_the_command_says_what_cannot_be_exported_and_what_is_left_out(tmp_path, capsys):
    X, y = covariances()
    kp.PrototypeClassifier("airm").fit(X[:20], y[:20]).save(tmp_path / "airm.knnp")
    assert main(["export", str(tmp_path / "airm.knnp"), "-o", str(tmp_path / "model.c")]) == 2
    assert "under AIRM" in capsys.readouterr().err
    assert not (tmp_path / "model.c").exists()
    signals = np.random.default_rng(0).normal(size=(20, 3, 50))
    both = kp.DescriptorClassifier(kp.descriptors.SignalCovariance(), kp.PrototypeClassifier("jbld"))
    both.fit(signals, np.arange(20) % 2).save(tmp_path / "both.knnp")
    assert main(["export", str(tmp_path / "both.knnp"), "-o", str(tmp_path / "model.c")]) == 0
    assert capsys.readouterr().err == ""
    assert "knnpress_predict_window" in (tmp_path / "model.c").read_text()
    images = np.random.default_rng(0).random((20, 16, 16, 3))
    both = kp.DescriptorClassifier(kp.descriptors.RegionCovariance("gradient"), kp.PrototypeClassifier("jbld"))
    both.fit(list(images), np.arange(20) % 2).save(tmp_path / "images.knnp")
    assert main(["export", str(tmp_path / "images.knnp"), "-o", str(tmp_path / "model.c")]) == 0
    assert "takes the points that RegionCovariance makes" in capsys.readouterr().err


def test_an_exported_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    model, _ = made("vectors")
    target = tmp_path / "model.c"
    target.write_text("old")
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        kp.export_c(model, target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["model.c"]


NODE = """
import {{ readFileSync, writeFileSync }} from "node:fs";
import {{ classes, pointSize, predict, version }} from "{module}";
const bytes = readFileSync(0), start = bytes.byteOffset;
const x = new Float64Array(bytes.buffer.slice(start, start + bytes.length));
const n = x.length / pointSize, out = new Float64Array(n * (classes.length + 1));
for (let i = 0; i < n; i++) {{
  const point = x.subarray(i * pointSize, (i + 1) * pointSize), p = new Array(classes.length).fill(0);
  out[i * (classes.length + 1)] = predict(point, p);
  if (predict(point) !== out[i * (classes.length + 1)]) throw new Error("probabilities matter");
  out.set(p, i * (classes.length + 1) + 1);
}}
if (!version) throw new Error("no version");
writeFileSync(1, Buffer.from(out.buffer));
"""


def node_program(model, folder, dtype="float64", **settings):
    kp.export_js(model, folder / "model.mjs", dtype=dtype, **settings)
    (folder / "main.mjs").write_text(NODE.format(module="./model.mjs"))
    return ["node", str(folder / "main.mjs")]


@needs_node
@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_javascript_answers_as_python_does(name, tmp_path):
    model, X = made(name)
    margin = 1e-3 if "transport" in name else 1e-9
    error = 0.05 if "transport" in name else 1e-6
    X = X[:60] if "sinkhorn" in name else X
    winner, probabilities = ask(node_program(model, tmp_path), X, len(model.classes_))
    assert_same_answers(model, X, winner, probabilities, margin, error)


@needs_node
@pytest.mark.parametrize(("name", "dtype"), ASKED_ANYTHING)
def test_javascript_refuses_what_python_refuses(name, dtype, tmp_path, rng):
    model, X = made(name)
    strange = strange_points(X, rng)
    winner, _ = ask(node_program(model, tmp_path, dtype), strange, len(model.classes_))
    np.testing.assert_array_equal(winner >= 0, [python_takes(model, x) for x in strange])


@needs_node
def test_javascript_names_its_classes(tmp_path, rng):
    X = rng.normal(size=(len(HOSTILE), 3))
    model = kp.PrototypeClassifier("sqeuclidean").fit(X, np.array(HOSTILE, dtype=object))
    kp.export_js(model, tmp_path / "model.mjs")
    assert "</script>" not in (tmp_path / "model.mjs").read_text()
    code = (
        f'import {{ classes, predict }} from "{tmp_path}/model.mjs"; console.log(JSON.stringify(classes)); predict([1])'
    )
    done = subprocess.run(["node", "--input-type=module", "-e", code], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout) == [str(name) for name in model.classes_]
    assert "x holds 1 numbers; give 3" in done.stderr


def test_the_command_writes_javascript(tmp_path):
    model, _ = made("hellinger")
    model.save(tmp_path / "model.knnp")
    kp.export_js(model, tmp_path / "expected.mjs")
    assert main(["export", str(tmp_path / "model.knnp"), "-o", str(tmp_path / "got.mjs"), "--to", "js"]) == 0
    assert (tmp_path / "got.mjs").read_bytes() == (tmp_path / "expected.mjs").read_bytes()


#: Imports a module from its text, and answers points
PAGE = """
async ([source, points]) => {
  const { classes, predict } = await import(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  return points.map((x) => {
    const p = new Array(classes.length).fill(0);
    return [predict(x, p), ...p];
  });
}
"""


PAGE_ALONE = PAGE.replace("predict(x, p)", "predict(x)")


@pytest.fixture(scope="module")
def page():
    driver = pytest.importorskip("playwright.sync_api", reason="no Playwright: pip install playwright")
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("no Chromium: apt-get install chromium")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser.new_page()
        browser.close()


BROWSED = ["jbld, soft", "hellinger"]


@pytest.mark.parametrize("name", some(BROWSED, *(name for name in MODELS if name not in BROWSED)))
def test_a_browser_answers_as_python_does(name, page, tmp_path):
    model, X = made(name)
    X = X[:40]
    margin = 1e-3 if "transport" in name else 1e-9
    error = 0.05 if "transport" in name else 1e-6
    kp.export_js(model, tmp_path / "model.mjs")
    source = (tmp_path / "model.mjs").read_text()
    answers = np.array(page.evaluate(PAGE, [source, X.reshape(len(X), -1).tolist()]))
    assert_same_answers(model, X, answers[:, 0].astype(int), answers[:, 1:], margin, error)
    alone = [row[0] for row in page.evaluate(PAGE_ALONE, [source, X.reshape(len(X), -1).tolist()])]
    np.testing.assert_array_equal(alone, answers[:, 0])


@cache
def real_points(name):
    """Points of research data, their labels, and a ground cost or None."""
    folder = os.environ["KNNPRESS_DATA"]
    if name == "physionet":
        try:
            with np.load(os.path.join(folder, "physionet_mi.npz")) as arrays:
                X, y = arrays["X"], arrays["y"]
        except FileNotFoundError as error:
            pytest.skip(str(error))
        order = np.random.default_rng(0).permutation(len(y))
        return X[order], y[order], None
    try:
        data = getattr(kp.datasets, f"load_{name}")()
    except FileNotFoundError as error:
        pytest.skip(str(error))
    rows = np.random.default_rng(0).permutation(len(data.y))[:1000]
    images = [data.images[row] for row in rows]
    if name == "coil20":
        words = kp.descriptors.ShapeContext()
        return words.fit_transform(images), data.y[rows], words.ground_cost_
    return kp.descriptors.RegionCovariance().fit_transform(images), data.y[rows], None


REAL = [
    ("eth80", "jbld"),
    ("eth80", "tangent"),
    ("eth80", "logeuclid"),
    ("physionet", "jbld"),
    ("physionet", "tangent"),
]
REAL += [("physionet", "logeuclid"), ("coil20", "sinkhorn"), ("coil20", "hellinger"), ("coil20", "vectors")]


@needs_compiler
@pytest.mark.slow
@pytest.mark.data
@pytest.mark.skipif("KNNPRESS_DATA" not in os.environ, reason="KNNPRESS_DATA is not set")
@pytest.mark.parametrize(("name", "metric"), REAL)
def test_c_answers_as_python_does_on_real_data(name, metric, tmp_path):
    X, y, cost = real_points(name)
    half = len(y) // 2
    kinds = {"sinkhorn": kp.SHC, "hellinger": kp.SHC, "vectors": kp.SNC}
    settings = {} if metric == "vectors" else {"metric": metric}
    if metric == "sinkhorn":
        settings["ground_cost"] = cost
    model = kinds.get(metric, kp.SCC)(
        n_prototypes=40, gamma="scale", prior=1.0, smoothing=0.02, vote="soft", max_iter=5, **settings
    ).fit(X[:half], y[:half])
    queries, answers = X[half:], {}
    for compiler in COMPILERS:
        for dtype in ("float64", "float32"):
            answers[dtype] = ask(build(model, tmp_path, compiler, dtype=dtype), queries, len(model.classes_))
        assert_same_answers(model, queries, *answers["float64"])
        same = model.classes_[answers["float32"][0]] == model.predict(queries)
        print(f"{name} {metric} {compiler}: {len(queries)} points, float32 the same for {same.mean():.2%}")
        assert same.mean() >= 0.999


CORTEX_EXAMPLE = Path(__file__).parents[2] / "examples" / "cortex_m4"
CORTEX = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2")
CORTEX_TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")


@pytest.mark.slow
@pytest.mark.skipif(not all(map(shutil.which, CORTEX_TOOLS)), reason="there is no compiler or emulator of Cortex-M")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["jbld", "tangent", "vectors, soft", "hellinger", "sinkhorn"])
def test_a_cortex_m4_answers_as_python_does(name, dtype, tmp_path):
    model, X = made(name)
    n = 3 if "sinkhorn" in name else 30
    kp.export_c(model, tmp_path / "model.c", dtype=dtype)
    kp.export_c(model, tmp_path / "model.h", dtype=dtype)
    rows = ",\n".join("{" + ", ".join(map(repr, x.ravel().tolist())) + "}" for x in X[:n])
    (tmp_path / "points.h").write_text(
        f"#define N_POINTS {n}\nstatic const double points[N_POINTS][KNNPRESS_POINT_SIZE] = {{\n{rows}\n}};\n"
    )
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror"]
    in_folder = {"cwd": tmp_path, "check": True, "timeout": 120}
    subprocess.run(["arm-none-eabi-gcc", *CORTEX, *strict, "-fstack-usage", "-c", "model.c"], **in_folder)
    main, script = CORTEX_EXAMPLE / "main.c", CORTEX_EXAMPLE / "link.ld"
    link = ["-nostartfiles", "-specs=rdimon.specs", "-T", script, "-lm", "-o", "model.elf"]
    subprocess.run(["arm-none-eabi-gcc", *CORTEX, *strict, "-I.", main, *link], **in_folder)
    size = subprocess.run(["arm-none-eabi-size", "model.o"], capture_output=True, text=True, **in_folder).stdout
    flash, data, bss = map(int, size.splitlines()[1].split()[:3])
    stack = sum(int(line.split("\t")[1]) for line in (tmp_path / "model.su").read_text().splitlines())
    print(f"{name} {dtype}: flash {flash:,} bytes, RAM {data + bss} bytes and {stack:,} of stack")
    assert data + bss == 0
    machine = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    out = subprocess.run([*machine, "-kernel", "model.elf"], capture_output=True, text=True, **in_folder).stdout
    answers = np.array([list(map(float, line.split())) for line in out.splitlines() if line.strip()])
    assert len(answers) == n, out
    winner, probabilities = answers[:, 0].astype(int), answers[:, 1:]
    np.testing.assert_array_equal(model.classes_[winner], model.predict(X[:n]))
    error = 1e-6 if dtype == "float64" else 1e-2
    np.testing.assert_allclose(probabilities, model.predict_proba(X[:n]), atol=error)

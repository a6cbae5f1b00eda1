"""A fit that is broken off goes on from its checkpoint and ends as if it had not been."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from points import GEOMETRIES, GROUND_COST, labelled
from safetensors.numpy import load_file, save_file

from knnpress import SNC
from knnpress.compression import StochasticCompression, Subsample
from knnpress.geometries import JBLD, Sinkhorn
from knnpress.learning import checkpoint
from knnpress.learning.checkpoint import Checkpoint, checkpoint_at
from knnpress.learning.state import DescentState

#: Where nothing is left to be chosen, there is one descent
FIXED = {"gamma": 3.0, "prior": 1.0, "smoothing": 0.02, "init": Subsample(), "vote": "nearest"}
#: A geometry by its name, with parameters that bring every optimiser, stage, fold and start into play
FITS = {
    "jbld": {"max_iter": 4, "prior": 1.0},
    "logeuclid": {"max_iter": 20, **FIXED},
    "sqeuclidean": {"max_iter": 2, "optimizer": "cg", "prior": 1.0},
    "sinkhorn-divergence": {"max_iter": 20, "tol": 0.0, **FIXED},
    "sinkhorn-dual": {"max_iter": 4, "batch_size": 30, **FIXED},
    "sinkhorn-transport": {"max_iter": 20, "chart": "paper", **FIXED},
    "adam": {"max_iter": 4, "batch_size": 30, "gamma": 3.0, "prior": 0.1, "smoothing": 0.0},
}
every_fit = pytest.mark.parametrize("name", FITS)
pytestmark = pytest.mark.filterwarnings("ignore:the loss was still falling")


class Crash(Exception):
    pass


@pytest.fixture
def eager(monkeypatch):
    """Every state is written, not one every few seconds."""
    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_PAUSE", 0.0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


def compress(name, path=None, crash=None, random_state=0, n=60, n_jobs=1, **params):
    """Learn prototypes; the callback raises when it is called for the `crash`-th time."""
    geometry = GEOMETRIES.get(name, JBLD())
    X, y = labelled(name, n) if name in GEOMETRIES else labelled("jbld", n)
    seen = []

    def look(step, total, facts):
        if "note" in facts:  # told again of what is done
            return
        seen.append(facts["loss"])
        if len(seen) == crash:
            raise Crash

    rng = random_state if random_state is None else np.random.default_rng(random_state)
    found = StochasticCompression(checkpoint=path, **{**FITS.get(name, {}), **params}).compress(
        geometry.check(X), y, geometry=geometry, n_prototypes=6, random_state=rng, n_jobs=n_jobs, callback=look
    )
    return found, seen


def left_behind(path, crash=7, **settings):
    """A checkpoint that a fit of "jbld" left."""
    with pytest.raises(Crash):
        compress("jbld", path, crash=crash, **settings)
    return path


@every_fit
def test_a_fit_broken_off_again_and_again_ends_as_an_unbroken_one_without_a_checkpoint(name, path, eager):
    whole, seen = compress(name)
    crashes = 0
    while True:
        try:
            # each goes a little further, with another number of threads
            found, rest = compress(name, path, crash=max(2, len(seen) // 6) + crashes % 3, n_jobs=1 + crashes % 2)
            break
        except Crash:
            assert path.exists()
            crashes += 1
    assert crashes >= 2
    assert_array_equal(found.points, whole.points)
    assert_array_equal(found.labels, whole.labels)
    assert found.gamma == whole.gamma
    assert found.trace.keys() == whole.trace.keys()
    assert_array_equal(found.trace["loss_curve"], whole.trace["loss_curve"])
    assert_array_equal(found.trace["weights"], whole.trace["weights"])
    assert not path.exists()
    assert len(rest) < len(seen)


def test_what_is_done_is_not_done_again(path, eager):
    whole, seen = compress("jbld")
    left_behind(path, crash=len(seen) - 2)
    found, rest = compress("jbld", path)
    assert rest == seen[-3:]  # the iteration that crashed was not kept
    assert_array_equal(found.points, whole.points)


def test_one_that_resumes_counts_on_and_tells_nothing_twice(path, eager):
    X, y = labelled("jbld", 60)

    def told(crash_every, checkpoint):
        """What a callback heard until the fit ended, all but the calls that it crashed at."""
        heard, calls = [], 0

        def look(step, total, facts):
            nonlocal calls
            calls += 1
            if calls % crash_every == 0:
                raise Crash
            heard.append((step, facts.get("note")))

        learner = StochasticCompression(max_iter=4, prior=1.0, checkpoint=checkpoint)
        settings = {"geometry": JBLD(), "n_prototypes": 6, "n_jobs": 1, "callback": look}
        for crashes in range(1000):
            try:
                learner.compress(X, y, random_state=np.random.default_rng(0), **settings)
            except Crash:
                continue
            return heard, crashes

    whole, _ = told(10**9, None)
    pieces, crashes = told(30, path)
    assert crashes > 5
    notes = [heard for heard in whole if heard[1]]
    assert len(notes) > 3
    assert [heard for heard in pieces if heard[1]] == notes
    assert list(dict.fromkeys(pieces)) == list(dict.fromkeys(whole))
    assert len(pieces) <= len(whole) + crashes  # one that was not yet kept comes again


def test_a_fit_that_ends_well_leaves_nothing_and_one_that_fails_its_state(path, eager):
    compress("jbld", path)
    assert list(path.parent.iterdir()) == []
    left_behind(path)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_the_start_is_kept_as_well(path, eager):
    calls = []

    class Slow(Subsample):
        def compress(self, *args, **kwargs):
            calls.append(1)
            return super().compress(*args, **kwargs)

    compress("jbld", init=Slow())
    n_starts = len(calls)
    left_behind(path, init=Slow())
    assert n_starts < len(calls) < 2 * n_starts
    compress("jbld", path, init=Slow())
    assert len(calls) == 2 * n_starts


def test_without_a_seed_what_resumes_begins_as_it_did(path, eager):
    left_behind(path, random_state=None)
    found, rest = compress("jbld", path, random_state=None)
    whole, seen = compress("jbld", path, random_state=None)
    assert len(rest) < len(seen)
    assert_array_equal(found.points, whole.points)


def test_a_generator_is_left_as_an_unbroken_fit_leaves_it(path, eager):
    X, y = labelled("jbld", 60)
    rngs = [np.random.default_rng(5) for _ in range(2)]
    StochasticCompression(max_iter=2, **FIXED).compress(X, y, geometry=JBLD(), random_state=rngs[0])
    learner = StochasticCompression(max_iter=2, checkpoint=path, **FIXED)
    with pytest.raises(Crash):
        learner.compress(X, y, geometry=JBLD(), random_state=np.random.default_rng(5), callback=raises)
    learner.compress(X, y, geometry=JBLD(), random_state=rngs[1])
    assert rngs[0].random() == rngs[1].random()


def raises(step, total, facts):
    if step == 2:
        raise Crash


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n": 61}, r"X was array of shape \(60, 4, 4\).* and is array of shape \(61, 4, 4\)"),
        ({"max_iter": 9}, "max_iter was 4 and is 9"),
        ({"random_state": 1}, r"random_state was one that draws \d+ and is one that draws \d+"),
        ({"random_state": None}, r"random_state was one that draws \d+ and is one that draws 0"),
        ({"init": Subsample()}, "init was None and is Subsample"),
        ({"gamma": 2.0, "tol": 0.1}, r"gamma was 'auto' and is 2\.0; tol was [\d.]+ and is 0\.1"),
    ],
)
def test_a_checkpoint_of_another_fit_is_refused_and_says_what_differs(path, eager, settings, message):
    before = left_behind(path).read_bytes()
    with pytest.raises(ValueError, match=f"checkpoint .*fit.checkpoint is of another fit: {message}.*\\. Delete it to"):
        compress("jbld", path, **settings)
    assert path.read_bytes() == before


def test_other_points_labels_weights_and_costs_are_told_apart(path, eager):
    X, y = labelled("sinkhorn-dual", 60)
    learner = StochasticCompression(max_iter=3, checkpoint=path, **FIXED)

    def learn(X, y, geometry, **more):
        learner.compress(X, y, geometry=geometry, random_state=np.random.default_rng(0), **more)

    geometry = Sinkhorn(GROUND_COST, value="dual")
    with pytest.raises(Crash):
        learn(X, y, geometry, callback=raises)
    moved = X.copy()
    moved[0, :2] += [1e-15, -1e-15]
    turned = np.roll(y, 1)
    for change, message in [
        ((moved, y, geometry), "X was array"),
        ((X, turned, geometry), "y was array"),
        ((X, y, Sinkhorn(2.0 * GROUND_COST, value="dual")), "geometry.ground_cost was array"),
        ((X, y, Sinkhorn(GROUND_COST, value="dual", tol=1e-4)), r"geometry.tol was 1e-05 and is 0\.0001"),
    ]:
        with pytest.raises(ValueError, match=f"another fit: {message}"):
            learn(*change)
    with pytest.raises(ValueError, match="sample_weight was None and is array"):
        learn(X, y, geometry, sample_weight=np.ones(60))
    with pytest.raises(ValueError, match="groups was None and is array"):
        learn(X, y, geometry, groups=np.arange(60) % 7)
    learn(X, y, geometry)


def test_a_checkpoint_of_another_version_is_refused(path, eager, monkeypatch):
    left_behind(path)
    monkeypatch.setattr(checkpoint, "version", lambda name: "99.0")
    with pytest.raises(ValueError, match=r"another fit: knnpress was .* and is 99\.0"):
        compress("jbld", path)
    monkeypatch.undo()
    monkeypatch.setattr(checkpoint, "_VERSION", 4)
    with pytest.raises(ValueError, match="cannot be used: it has version 3, and this knnpress writes 4"):
        compress("jbld", path)
    monkeypatch.undo()
    rewritten(path, lambda tensors, about: about.update(version=2))  # the format before this one
    with pytest.raises(ValueError, match=r"it has version 2, and .* writes 3\. Delete it to start afresh"):
        compress("jbld", path)


def rewritten(path, change):
    """The checkpoint as safetensors would write it after a change of its tensors or of what it says of itself."""
    tensors = load_file(path)
    raw = path.read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])["__metadata__"]
    about = json.loads(header["knnpress-checkpoint"])
    change(tensors, about)
    save_file(tensors, path, {"knnpress-checkpoint": json.dumps(about)})


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("the minutes of our last meeting"),
        lambda path: path.write_bytes(path.read_bytes()[:-9]),
        lambda path: path.write_bytes(path.read_bytes()[:20]),
        lambda path: path.write_bytes(path.read_bytes()[:-3] + b"\0\1\2"),
        lambda path: save_file({"theta": np.ones(3)}, path),
        lambda path: SNC(3, max_iter=1).fit(*labelled("sqeuclidean", 60)).save(path),
        lambda path: rewritten(path, lambda tensors, about: tensors.pop(max(tensors))),
        lambda path: rewritten(path, lambda tensors, about: about.pop("about")),
        lambda path: rewritten(path, lambda tensors, about: about.update(n_done=about["n_done"] - 1)),
        lambda path: rewritten(path, lambda tensors, about: about.update(n_done=10**15)),
        lambda path: rewritten(path, lambda tensors, about: about.update(n_done="all")),
        lambda path: rewritten(path, lambda tensors, about: about.update(about=[1, 2])),
        lambda path: save_file({"a": np.ones(3)}, path, {"knnpress-checkpoint": "[" * 100_000}),
    ],
    ids=range(14),
)
def test_a_damaged_checkpoint_is_refused_and_kept(path, eager, damage):
    damage(left_behind(path))
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"checkpoint .*fit.checkpoint cannot be used: .*\. Delete it to start afresh"):
        compress("jbld", path)
    assert path.read_bytes() == before


def test_its_own_writing_is_what_safetensors_reads(path, eager):
    left_behind(path)
    before = path.read_bytes()
    rewritten(path, lambda tensors, about: None)
    assert before != path.read_bytes()  # another order
    compress("jbld", path)


def test_a_place_that_cannot_be_written_is_refused_before_the_work(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        compress("jbld", tmp_path / "nowhere" / "fit", crash=1)
    with pytest.raises(ValueError, match="is a folder or a device"):
        compress("jbld", tmp_path, crash=1)


def test_a_disk_that_fills_does_not_end_the_fit(path, eager, monkeypatch):
    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "replacing", full)
    with pytest.warns(UserWarning, match=r"fit.checkpoint cannot be written \(.*No space left.*\); the fit goes on"):
        found, _ = compress("jbld", path)
    assert_array_equal(found.points, compress("jbld")[0].points)


def test_it_writes_every_few_seconds_and_seldom_where_that_takes_long(path, monkeypatch):
    clock, written = [0.0], []
    monkeypatch.setattr(checkpoint.time, "monotonic", lambda: clock[0])
    cost = [0.001]

    class Slow(Checkpoint):
        def _write(self, left):
            written.append(clock[0])
            clock[0] += cost[0]

    kept = Slow(path, {})

    def work(state, keep):
        for _ in range(1000):
            clock[0] += 0.01
            keep(lambda: DescentState(np.zeros(1), [], {}))
        return {}

    kept.step(work)
    assert 4 <= len(written) <= 5
    cost[0] = 1.0
    begin = len(written)
    for _ in range(30):
        kept.step(work)
    assert (len(written) - begin) * cost[0] < 0.03 * 300


def test_steps_are_known_by_their_number(path, eager):
    reached = DescentState(
        u=np.array(7.0),
        loss_curve=[3.0, 2.0],
        optimizer={"rate": np.array(0.5)},
        earlier_curve=[],
        n_stages_left=2,
        memories=[{}, {"0/potential": np.array(1.5)}, {}],
    )

    def first(state, keep):
        return {"a": np.arange(3.0), "empty": np.zeros((0, 2))}

    def second(state, keep):
        if state is None:
            keep(lambda: reached)
            raise Crash
        assert state == reached
        return {"b": state.u + 1}

    def fit():
        with checkpoint_at(path, dict) as kept:
            assert kept.step(first)["a"].sum() == 3.0
            kept.step(second)

    with pytest.raises(Crash):
        fit()
    with checkpoint_at(path, dict) as kept:
        assert_array_equal(kept.step(pytest.fail)["a"], np.arange(3.0))
        assert kept.step(second)["b"] == 8
    assert not path.exists()


def test_without_a_path_every_step_is_computed_and_nothing_kept():
    with checkpoint_at(None, pytest.fail) as kept:
        assert kept.step(lambda state, keep: {"a": np.array(state is keep is None)})["a"]


CHILD = """
import json, sys, warnings
import numpy as np, knnpress as kp
from knnpress.compression import StochasticCompression, Subsample
from knnpress.learning import checkpoint
warnings.simplefilter("ignore")
kind, out, path, n, seconds, pause, settings = map(json.loads, sys.argv[1:])
checkpoint._SECONDS, checkpoint._PAUSE = seconds, pause
settings = {"checkpoint": path, "random_state": 0, "callback": lambda *_: print(end=".", flush=True), **settings}
data = None
if settings.pop("fixed", False):
    data = kp.datasets.make_wishart_classes(n, 11, n_classes=10)
    settings |= {"gamma": 5.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest"}
    settings |= {"compressor": StochasticCompression(init=Subsample(), tol=0.0)}
if kind == "shc":
    data = kp.datasets.load_digits_histograms()
    clf = kp.SHC(data.ground_cost, n_prototypes=20, metric="sinkhorn", **settings)
else:
    data = data or kp.datasets.load_digits_covariances()
    clf = kp.SCC(30, metric="jbld", **settings)
np.save(out, clf.fit(data.X[:n], data.y[:n]).prototypes_)
"""


def child(tmp_path, kind, name, n, seconds, pause, **settings):
    """A process that fits, writes a dot after each iteration, and the prototypes at the end."""
    arguments = [kind, str(tmp_path / f"{name}.npy"), str(tmp_path / name), n, seconds, pause, settings]
    command = [sys.executable, "-c", CHILD, *map(json.dumps, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)


def kill(process):
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def dots(process):
    """How often it went on until it ended well."""
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return output.count(b".")


@pytest.mark.parametrize("kind", ["scc", pytest.param("shc", marks=pytest.mark.slow)])
def test_a_killed_process_goes_on(tmp_path, kind):
    settings = {"n": 150, "seconds": 0.0, "pause": 0.0, "fixed": True, "max_iter": 24}
    n_steps = dots(child(tmp_path, kind, "whole", **settings))
    process = child(tmp_path, kind, "broken", **settings)
    assert process.stdout.read(8) == b"." * 8
    kill(process)
    assert (tmp_path / "broken").exists()
    assert 0 < dots(child(tmp_path, kind, "broken", **settings)) <= n_steps - 7
    assert_array_equal(np.load(tmp_path / "broken.npy"), np.load(tmp_path / "whole.npy"))
    assert not (tmp_path / "broken").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["scc", "shc"])
def test_ten_kills_at_random_moments_change_nothing(tmp_path, kind):
    settings = {"n": 1797, "seconds": 0.5, "pause": 50.0, "max_iter": 60}
    begin = time.monotonic()
    dots(child(tmp_path, kind, "whole", **settings))
    seconds = time.monotonic() - begin
    draws = random.Random(0)
    for _ in range(10):
        process = child(tmp_path, kind, "broken", **settings)
        assert process.stdout.read(1) == b"."  # it has read what was kept
        time.sleep(draws.uniform(0.0, seconds / 10))
        assert process.poll() is None
        kill(process)
    dots(child(tmp_path, kind, "broken", **settings))
    a, b = (np.load(tmp_path / f"{name}.npy") for name in ("whole", "broken"))
    assert np.abs(a - b).max() <= 1e-9  # SHC, too, whose potentials are kept

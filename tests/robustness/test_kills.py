"""Whatever ends a process, or fills its disk, what was written stays whole and the work goes on. Ten times each."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import knnpress as kp
from knnpress.cli import main
from knnpress.experiments import read_records

KNNPRESS = Path(sys.executable).parent / "knnpress"
TIMES = 10
# A disk that is full after so many bytes of a file: the system then says so in the middle of a write
LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
"""
PLAN = """
[[study]]
data = "digits"
source = "digits-covariances"
subset = 120
n_splits = 2
ratios = [0.2]
methods = ["full", "Subsample", "Condensed"]
"""
unix_only = pytest.mark.skipif(os.name != "posix", reason="signals and limits of Unix")


@pytest.fixture
def points(tmp_path):
    """A file of points that take some seconds to learn from."""
    data = kp.datasets.load_digits_covariances()
    np.savez(tmp_path / "points.npz", X=data.X, y=data.y)
    return tmp_path / "points.npz"


def wait_until_it_listens(process, number=signal.SIGTERM):
    """Until it has said what to do at a signal; before, Python is still being loaded."""
    status = Path(f"/proc/{process.pid}/status")
    for _ in range(6000):
        caught = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("SigCgt"))
        if int(caught, 16) & (1 << (number - 1)):
            return
        time.sleep(0.05)
    raise TimeoutError("it never did")


def leftovers(folder):
    return [path.name for path in folder.rglob("*.tmp")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])  # the latter where the terminal is closed
def test_a_command_that_is_terminated_says_so_and_leaves_nothing_half_written(name, points, tmp_path):
    number = getattr(signal, name)
    command = [KNNPRESS, "compress", points, "-o", tmp_path / "m.knnp", "--prototypes", "200", "-v"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    wait_until_it_listens(process, number)
    process.send_signal(number)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == "knnpress: stopped"
    assert sorted(os.listdir(tmp_path)) == ["points.npz"]


@unix_only
def test_a_command_that_nohup_started_outlives_its_terminal(monkeypatch, tmp_path):
    kp.PrototypeClassifier("sqeuclidean").fit(np.eye(2), [0, 1]).save(tmp_path / "m.knnp")
    monkeypatch.setattr("knnpress.cli.inspect.run", lambda args: os.kill(os.getpid(), signal.SIGHUP))
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert main(["inspect", str(tmp_path / "m.knnp")]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


@unix_only
@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_a_compress_that_is_ended_again_and_again_makes_the_same_model(how, points, tmp_path):
    def command(name):
        place = ["-o", tmp_path / f"{name}.knnp", "--checkpoint", tmp_path / f"{name}.ckpt"]
        return [KNNPRESS, "compress", points, "--prototypes", "30", *place]

    begin = time.monotonic()
    subprocess.run(command("whole"), check=True, stdout=subprocess.DEVNULL)
    seconds, draw, ended = time.monotonic() - begin, random.Random(0), 0
    for _ in range(TIMES):
        process = subprocess.Popen(command("broken"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(draw.uniform(0.2, 0.8) * seconds)
        if process.poll() is None:
            process.send_signal(how)
            ended += 1
        process.wait(timeout=300)
        if how is signal.SIGTERM:
            assert leftovers(tmp_path) == []
    assert ended >= TIMES // 2  # one that went on for long enough was done
    subprocess.run(command("broken"), check=True, stdout=subprocess.DEVNULL)
    whole, broken = (kp.load(tmp_path / f"{name}.knnp") for name in ("whole", "broken"))
    assert np.abs(whole.prototypes_ - broken.prototypes_).max() <= 1e-9


@unix_only
@pytest.mark.slow
def test_a_process_killed_while_it_saves_leaves_a_whole_model(tmp_path):
    code = """
import sys, numpy as np, knnpress as kp
data = kp.datasets.load_digits_covariances()
models = [kp.PrototypeClassifier("jbld").fit(data.X[k:], data.y[k:]) for k in (0, 1)]
for turn in range(10**9):
    models[turn % 2].save(sys.argv[1])
    print(end=".", flush=True)
"""
    draw = random.Random(0)
    for _ in range(TIMES):
        process = subprocess.Popen([sys.executable, "-c", code, tmp_path / "m.knnp"], stdout=subprocess.PIPE)
        assert process.stdout.read(2) == b".."
        time.sleep(draw.uniform(0.0, 0.1))
        process.kill()
        process.communicate()
        assert len(kp.load(tmp_path / "m.knnp").prototypes_) in (1796, 1797)


@unix_only
@pytest.mark.slow
def test_a_disk_that_fills_during_a_save_leaves_the_old_model(tmp_path):
    code = f"""{LIMITED}
import knnpress as kp
try:
    kp.load(sys.argv[2]).set_params(n_neighbors=3).save(sys.argv[2])
except OSError as error:
    sys.exit(7)
"""
    data = kp.datasets.load_digits_covariances()
    kp.PrototypeClassifier("jbld").fit(data.X[:200], data.y[:200]).save(tmp_path / "m.knnp")
    before = (tmp_path / "m.knnp").read_bytes()
    for limit in np.linspace(0, len(before) - 1, TIMES).astype(int):
        done = subprocess.run([sys.executable, "-c", code, str(limit), tmp_path / "m.knnp"])
        assert done.returncode == 7
        assert (tmp_path / "m.knnp").read_bytes() == before
        assert os.listdir(tmp_path) == ["m.knnp"]


@unix_only
@pytest.mark.slow
def test_a_disk_that_fills_during_checkpoints_does_not_end_the_fit(tmp_path):
    code = f"""{LIMITED}
import warnings, numpy as np, knnpress as kp
from knnpress.learning import checkpoint
checkpoint._SECONDS = checkpoint._PAUSE = 0.0
data = kp.datasets.load_digits_covariances()
settings = {{"gamma": 5.0, "prior": 1.0, "metric": "jbld", "max_iter": 5, "random_state": 0}}
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    model = kp.SCC(20, checkpoint=sys.argv[2], **settings).fit(data.X[:200], data.y[:200])
assert any("cannot be written" in str(warning.message) for warning in told), told
plain = kp.SCC(20, **settings).fit(data.X[:200], data.y[:200])
assert np.array_equal(plain.prototypes_, model.prototypes_)
"""
    for limit in range(0, 1000 * TIMES, 1000):
        subprocess.run([sys.executable, "-c", code, str(limit), tmp_path / "fit.ckpt"], check=True)
        assert leftovers(tmp_path) == []


@unix_only
@pytest.mark.slow
def test_a_disk_that_fills_during_an_experiment_costs_one_record(tmp_path):
    code = f"""{LIMITED}
from knnpress.cli import main
sys.exit(main(["experiment", *sys.argv[2:]]))
"""
    (tmp_path / "mine.toml").write_text(PLAN)
    out = tmp_path / "out"
    plan = [str(tmp_path / "mine.toml"), "-o", str(out)]
    subprocess.run([KNNPRESS, "experiment", *plan], check=True, stdout=subprocess.DEVNULL)
    ids, whole = [record["id"] for record in read_records(out / "records.jsonl")], (out / "records.jsonl").read_bytes()
    # times in the records differ from run to run, and so do their lengths
    for k, limit in enumerate(np.linspace(1, 0.9 * len(whole), TIMES).astype(int)):
        (out / "records.jsonl").unlink()
        done = subprocess.run([sys.executable, "-c", code, str(limit), *plan], capture_output=True, text=True)
        assert done.returncode == 2, k
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].endswith(
            ".json: File too large" if k < 1 else "records.jsonl: File too large"
        )
        subprocess.run([KNNPRESS, "experiment", *plan], check=True, stdout=subprocess.DEVNULL)
        assert sorted(record["id"] for record in read_records(out / "records.jsonl")) == sorted(ids)
    assert_array_equal(leftovers(tmp_path), [])

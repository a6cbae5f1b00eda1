"""Files from strangers: mutants of every kind of file that knnpress reads are refused by the documented error, or read.

No crash, no hang, no memory beyond four times the file, no code, nothing written and nothing read elsewhere.
KNNPRESS_MUTANTS says how many mutants there are in all (make fuzz: 20,000).
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import sys
import tracemalloc
import zipfile
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from points import GROUND_COST, histograms, labelled
from scipy.io import savemat
from test_model_file import byte_mutants, json_mutants, without_checksum

import knnpress as kp
from knnpress.cli import main
from knnpress.datasets import load_points, load_unlabelled, open_zarr, stored
from knnpress.datasets.doctor import as_point_set, examine, mend
from knnpress.datasets.points import read_raw_points
from knnpress.exceptions import ModelFileError
from knnpress.experiments.plan import load_plan
from knnpress.experiments.records import read_records
from knnpress.report.read import read_results

MUTANTS = int(os.environ.get("KNNPRESS_MUTANTS", "600"))
SLACK = 16 * 2**20  # bytes that any call may take
SECONDS = 20  # that a file may take to be read or refused, on a busy machine

# ---- the watch ------------------------------------------------------------------------------------------------

_watch: dict[str, object] = {"folder": None, "seen": []}
_RUNS = (
    "pickle.",
    "os.system",
    "subprocess.",
    "os.exec",
    "os.posix_spawn",
    "socket.connect",
    "os.fork",
    "ctypes.dlopen",
)
_CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.chmod", "os.link", "os.symlink", "os.truncate")
_LIBRARY = tuple({sys.prefix, sys.base_prefix, str(Path(kp.__file__).parent), "/proc/", "/sys/", "/etc/", "/dev/"})


def _hook(event, args):
    folder = _watch["folder"]
    if folder is None:
        return
    seen = _watch["seen"]
    if event.startswith((*_RUNS, *_CHANGES)):
        seen.append(f"{event} {args}")
    elif event == "open" and isinstance(args[0], (str, bytes)):
        path = os.fsdecode(args[0])
        writes = bool(args[2] & (os.O_WRONLY | os.O_RDWR)) if isinstance(args[2], int) else False
        if writes or not os.path.realpath(path).startswith((folder, *_LIBRARY)):
            seen.append(f"open {path} {args[1]}")


sys.addaudithook(_hook)


@contextmanager
def watched(folder, size):
    """Fails where the block runs, writes or reads what it should not, or takes too long or too much memory."""

    def late(*_):
        raise AssertionError(f"not done after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    tracemalloc.start()
    _watch.update(folder=os.path.realpath(folder), seen=[])
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        seen, _watch["folder"] = list(_watch["seen"]), None
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        signal.signal(signal.SIGALRM, before)
    assert not seen, seen
    assert peak <= 4 * size + SLACK, f"{peak:,} bytes for a file of {size:,}"


# ---- mutants --------------------------------------------------------------------------------------------------

NUMBERS = [
    "0",
    "-1",
    "1e999",
    "NaN",
    "9" * 40,
    str(2**31),
    str(2**63),
    "2147483647",
    "0.5",
    "null",
    '""',
    "[]",
    "{}",
    "true",
]


def flip(content, rng):
    """Bytes changed, put in, taken out, doubled or cut off."""
    mutant = bytearray(content)
    for _ in range(rng.integers(1, 6)):
        at = int(rng.integers(len(mutant) + 1))
        kind = rng.integers(6)
        if kind == 0 and at < len(mutant):
            mutant[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            mutant[at : at + 4] = rng.choice([b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f", b"\0\0\0\x80"])
        elif kind == 2:
            mutant[at:at] = rng.bytes(int(rng.integers(1, 9)))
        elif kind == 3:
            del mutant[at : at + int(rng.integers(1, 17))]
        elif kind == 4:
            mutant[at:at] = mutant[at : at + int(rng.integers(1, 65))]
        elif rng.random() < 0.3:
            del mutant[at:]
    return bytes(mutant)


def reword(content, rng):
    """Numbers and words of a text exchanged, lines doubled or dropped, brackets without end."""
    text = content.decode("utf-8", errors="replace")
    for _ in range(rng.integers(1, 4)):
        found = list(re.finditer(r"-?\d[\d.e+-]*|\"[^\"]*\"|\w+", text)) or [re.match("", text)]
        place, other = found[rng.integers(len(found))], found[rng.integers(len(found))]
        kind = rng.integers(5)
        new = NUMBERS[rng.integers(len(NUMBERS))] if kind < 2 else other[0] if kind == 2 else ""
        if kind == 3 and rng.random() < 0.1:
            new = "[" * 100_000
        text = text[: place.start()] + new + text[place.end() :]
        if kind == 4:
            lines = text.splitlines(keepends=True) or [""]
            lines.insert(int(rng.integers(len(lines))), lines[rng.integers(len(lines))])
            text = "".join(lines)
    return text.encode("utf-8", errors="replace")


def either(content, rng):
    return (flip if rng.random() < 0.3 else reword)(content, rng)


DTYPES = [b"|O", b"<U9999999", b">f8", b"<c16", b"|V8", b"<i2", b"|b1", b"<M8[s]", b"|S3", b"<f2", b"<U1"]


def new_header(content, rng):
    """A .npy file whose header states something else."""
    kind = rng.integers(4)
    if kind == 0:
        return re.sub(rb"'[<|][a-zA-Z]\d+'", b"'" + DTYPES[rng.integers(len(DTYPES))] + b"'", content, count=1)
    if kind == 1:
        shape = rng.choice([10**9, 2**31, 0, -1, 3, 5, 2**62], int(rng.integers(0, 5)))
        text = f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})".encode()
        return re.sub(rb"\([\d, ]*\)", text, content, count=1)
    if kind == 2:
        return content.replace(b"False", b"True ", 1)
    return flip(content[:128], rng) + content[128:]


def npz(content, rng):
    """An archive that is whole, of arrays that are not; or one that is not whole."""
    if rng.random() < 0.25:
        return flip(content, rng)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = list(members)[rng.integers(len(members))]
    kind = rng.integers(5)
    if kind == 4:
        new = ["../../evil.npy", "/tmp/evil.npy", "X.npy", "y", "..\\y.npy"][rng.integers(5)]
        members[new] = members.pop(name)
    else:
        members[name] = (flip if kind == 3 else new_header)(members[name], rng)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if rng.random() < 0.5 else zipfile.ZIP_STORED) as archive:
        for name, member in members.items():
            archive.writestr(name, member)
    return file.getvalue()


def npy(content, rng):
    return new_header(content, rng) if rng.random() < 0.7 else flip(content, rng)


def model(content, rng):
    content = without_checksum(content) if rng.random() < 0.9 else content
    return next((json_mutants if rng.random() < 0.5 else byte_mutants)(content, rng))


# ---- what is read, and how ------------------------------------------------------------------------------------


def see_doctor(path):
    points, findings = as_point_set(read_raw_points(path))
    if points is not None:
        mend(points, findings + examine(points))


def read_points(path):
    """By all doors; the file is refused if one of them refuses it."""
    refused = None
    for read in (load_points, load_unlabelled, see_doctor):
        try:
            read(path)
        except ValueError as error:
            refused = error
    if refused is not None:
        raise refused


def read_labels(path):
    load_points(path.parent / "a.npy", path)


def read_store(path):
    store = path.parent if path.parent.suffix == ".zarr" else path.parent.parent
    open_zarr(store)
    see_doctor(store)


def read_records_and_results(path):
    refused = None
    for read in (lambda: read_records(path), lambda: read_results(path.parent)):
        try:
            read()
        except ValueError as error:
            refused = error
    if refused is not None:
        raise refused


def read_exhibits(path):
    """A report does without exhibits that it cannot read, and says so."""
    notices = read_results(path.parent.parent).notices
    if notices:
        raise ValueError(notices[0])


PLAN = """
title = "A plan"
seed = 3
include = ["digits"]

[defaults]
n_splits = 2
ratios = [0.02, 0.5]

[[study]]
data = "mine"
source = "a.npz"
descriptor = [{ kind = "RegionCovariance", features = "gradient" }]
methods = ["full", "SCC"]
once = []
subset = 100
settings = { SCC = { max_iter = 3 } }
"""
RECORD = {
    **{
        "kind": "run",
        "id": "mine / 0 / SCC 0.02",
        "plan": "0123456789abcdef",
        "data": "mine",
        "variant": "",
        "split": 0,
    },
    **{"method": "SCC", "ratio": 0.02, "n_train": 100, "n_test": 50, "n_prototypes": 2, "test_error": 0.25},
    **{"train_seconds": 1.5, "params": {"gamma": 1.0}, "versions": {"knnpress": "0.1"}, "machine": {"cores": 2}},
}


def write_originals(root):
    """A sound file of each kind."""
    X, y = labelled("jbld", 12)
    H = histograms(np.random.default_rng(0), 12)
    np.savez(root / "a.npz", X=X, y=y, class_names=["low", "mid", "high"])
    np.savez_compressed(root / "b.npz", X=H, y=np.array(["dog", "cat"] * 6), ground_cost=GROUND_COST)
    np.save(root / "a.npy", X)
    (root / "a.csv").write_text("file,label\n" + "".join(f"{k}.png,{name}\n" for k, name in enumerate(y)))
    savemat(root / "a.mat", {"X": X.transpose(1, 2, 0), "y": y})
    cells = np.empty((1, 12), dtype=object)
    cells[0] = list(X)
    savemat(root / "b.mat", {"X": cells, "y": y.astype(float), "note": "text", "s": {"a": 1}}, do_compression=True)
    kp.SCC(n_prototypes=3, gamma=1.0, max_iter=3, n_jobs=1, random_state=0).fit(X, y).save(root / "a.knnp")
    sinkhorn = kp.geometries.Sinkhorn(GROUND_COST)
    kp.PrototypeClassifier(sinkhorn, n_jobs=1).fit(H, np.array(["dog", "cat"] * 6)).save(root / "b.knnp")
    clouds = kp.Clouds(H[:, :3].repeat(2, axis=0), 2 * np.arange(13))
    clouds.save(root / "clouds.npz")
    own = {"gamma": 1.0, "prior": 1.0, "smoothing": 0.02, "vote": "nearest", "reg": 1.0, "n_points": 2}
    kp.SWC(n_prototypes=3, max_iter=1, n_jobs=1, random_state=0, **own).fit(clouds, y).save(root / "c.knnp")
    (root / "a.toml").write_text(PLAN)
    results = root / "results"
    results.mkdir()
    (results / "records.jsonl").write_text("".join(json.dumps(RECORD | {"split": k}) + "\n" for k in range(3)))
    about = {"title": "Mine", "n": 12, "class_names": ["a", "b"], "ratios": [0.02]}
    (results / "plan.json").write_text(json.dumps({"name": "mine", "title": "T", "data": {"mine": about}}))
    (results / "exhibits").mkdir()
    np.savez(results / "exhibits" / "mine.npz", prototypes=X)
    (results / "exhibits" / "mine.json").write_text(json.dumps({"method": "SCC", "ratio": 0.02}))
    write_stores(root, X, y)


def write_stores(root, X, y):
    import zarr

    for version in (2, 3):
        group = zarr.open_group(root / f"v{version}.zarr", mode="w", zarr_format=version)
        for name, values in (("X", X), ("y", y)):
            group.create_array(name, data=values, chunks=(5, *values.shape[1:]))


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    root = tmp_path_factory.mktemp("originals")
    write_originals(root)
    return root


#: File, how to mutate it, how to read it, and the error that it may end in
KINDS = {
    "model SCC": ("a.knnp", model, kp.load, ModelFileError),
    "model Sinkhorn": ("b.knnp", model, kp.load, ModelFileError),
    "npz": ("a.npz", npz, read_points, ValueError),
    "npz compressed": ("b.npz", npz, read_points, ValueError),
    "npy": ("a.npy", npy, read_points, ValueError),
    "labels": ("a.csv", either, read_labels, ValueError),
    "mat": ("a.mat", flip, read_points, ValueError),
    "mat of cells, compressed": ("b.mat", flip, read_points, ValueError),
    "plan": ("a.toml", either, load_plan, ValueError),
    "records": ("results/records.jsonl", either, read_records_and_results, ValueError),
    "plan of results": ("results/plan.json", either, lambda path: read_results(path.parent), ValueError),
    "exhibits": ("results/exhibits/mine.npz", npz, read_exhibits, ValueError),
    "clouds": ("clouds.npz", npz, kp.Clouds.load, ValueError),
    "model of clouds": ("c.knnp", model, kp.load, ModelFileError),
    "zarr 2 group": ("v2.zarr/.zgroup", either, read_store, ValueError),
    "zarr 2 array": ("v2.zarr/X/.zarray", either, read_store, ValueError),
    "zarr 2 labels": ("v2.zarr/y/.zarray", either, read_store, ValueError),
    "zarr 3 array": ("v3.zarr/X/zarr.json", either, read_store, ValueError),
    "zarr 3 labels": ("v3.zarr/y/zarr.json", either, read_store, ValueError),
}


def ask(result):
    """What is read must also be fit for use, or at least say so."""
    if isinstance(result, kp.Clouds):
        assert np.isfinite(result.points).all()
        assert np.isfinite(result.weights).all()
        assert (result.sizes > 0).all()
    if hasattr(result, "prototypes_"):
        assert np.isfinite(result.prototypes_).all()
    if hasattr(result, "cells"):
        assert len(result.cells()) < 10**6


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_a_mutant_is_refused_or_read_and_nothing_else_happens(kind, originals, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a plan may name any folder, the current one included
    name, mutate, read, error = KINDS[kind]
    shutil.copytree(originals, tmp_path / "files")
    path = tmp_path / "files" / name
    content, rng = path.read_bytes(), np.random.default_rng(list(KINDS).index(kind))
    with np.errstate(all="ignore"):
        read(path)  # imports what it needs
        refused = 0
        count = -(-MUTANTS // len(KINDS))
        for number in range(count):
            mutant = mutate(content, rng)
            path.write_bytes(mutant)
            size = sum(file.stat().st_size for file in path.parent.iterdir() if file.is_file())
            with watched(tmp_path, size):
                try:
                    ask(read(path))
                except error as found:
                    refused += 1
                    assert str(found), "an error without a word"  # noqa: PT017
                except FileNotFoundError as found:
                    assert "zarr" in name or "include" in str(found), found  # noqa: PT017
                except BaseException:
                    (tmp_path / "culprit").write_bytes(mutant)
                    print(f"mutant {number} of {kind}: {tmp_path / 'culprit'}")
                    raise
    assert refused > 0, "the mutants are all harmless"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["files"]


# ---- code ------------------------------------------------------------------------------------------------------


class Trap:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def test_no_pickle_is_ever_opened(originals, tmp_path):
    mark = tmp_path / "mark"
    trap = np.array([Trap(mark)], dtype=object)
    np.savez(tmp_path / "a.npz", X=trap, y=[0])
    np.savez(tmp_path / "b.npz", X=np.eye(2), y=trap)
    np.save(tmp_path / "c.npy", trap)
    for name in ("a.npz", "b.npz", "c.npy"):
        with pytest.raises(ValueError, match="allow_pickle=False"):
            read_points(tmp_path / name)
        with pytest.raises(ValueError, match="holds no clouds"):
            kp.Clouds.load(tmp_path / name)
        assert main(["doctor", str(tmp_path / name)]) == 2
    shutil.copytree(originals / "results", tmp_path / "results")
    np.savez(tmp_path / "results" / "exhibits" / "mine.npz", prototypes=trap)
    assert any("exhibits/mine.npz cannot be read" in notice for notice in read_results(tmp_path / "results").notices)
    (tmp_path / "d.knnp").write_bytes((tmp_path / "c.npy").read_bytes())
    with pytest.raises(ModelFileError):
        kp.load(tmp_path / "d.knnp")
    assert not mark.exists()
    np.load(tmp_path / "c.npy", allow_pickle=True)
    assert mark.exists()  # the trap works


@pytest.mark.parametrize("dtype", ["|O", "<i8"])
@pytest.mark.parametrize("name", ["X", "y"])
def test_no_pickle_in_a_zarr_store_is_ever_opened(originals, tmp_path, name, dtype):
    import pickle

    mark, store = tmp_path / "mark", tmp_path / "a.zarr"
    shutil.copytree(originals / "v2.zarr", store)
    about = json.loads((store / name / ".zarray").read_text())
    about |= {"dtype": dtype, "filters": [{"id": "pickle", "protocol": 5}], "compressor": None, "fill_value": None}
    (store / name / ".zarray").write_text(json.dumps(about))
    for chunk in (store / name).iterdir():
        if not chunk.name.startswith("."):
            chunk.write_bytes(pickle.dumps([[Trap(mark)], "|O", [1]]))
    for read in (open_zarr, read_raw_points):
        with pytest.raises(ValueError, match=r"a\.zarr .*(pickle|cannot be read)"):
            read(store)
    assert not mark.exists()


def test_an_array_of_zarr_2_that_would_be_unpickled_is_refused():
    """zarr 3 refuses such a store itself; zarr 2 reads it."""
    from numcodecs import Pickle, Zstd

    sound = SimpleNamespace(dtype=np.dtype(int), filters=None, compressor=Zstd())
    assert stored._checked({"y": sound}, "y", "a.zarr") is sound
    for trap in ({"filters": [Pickle()], "compressor": None}, {"filters": None, "compressor": Pickle()}):
        with pytest.raises(ValueError, match=r"y of a\.zarr is stored with 'pickle'; store it as plain numbers"):
            stored._checked({"y": SimpleNamespace(dtype=np.dtype(int), **trap)}, "y", "a.zarr")
    with pytest.raises(ValueError, match=r"y of a\.zarr has dtype object"):
        stored._checked({"y": SimpleNamespace(dtype=np.dtype(object), filters=None, compressor=None)}, "y", "a.zarr")


# ---- sizes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(10**9, 4), (10**6, 10**6, 10**6), (2**62,), (3, 2**40)])
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_header_that_promises_too_much_is_refused_before_any_memory_is_taken(shape, suffix, tmp_path):
    path = tmp_path / f"a{suffix}"
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": shape})
    if suffix == ".npz":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("X.npy", file.getvalue() + bytes(64))
    else:
        path.write_bytes(file.getvalue() + bytes(64))
    with watched(tmp_path, 0), pytest.raises(ValueError, match=r"header promises [\d,]+ bytes, and 64 are there"):
        load_unlabelled(path)


def test_an_archive_that_grows_beyond_measure_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**16, 1024)})
        for _ in range(512):
            file.write(bytes(2**20))
    assert (tmp_path / "a.npz").stat().st_size < 2**20
    with watched(tmp_path, 0), pytest.raises(ValueError, match=r"would become 536,8\d\d,\d\d\d; if you trust the file"):
        load_unlabelled(tmp_path / "a.npz")


def test_a_matlab_file_that_states_too_much_is_refused_before_any_memory_is_taken(originals, tmp_path):
    content = (originals / "a.mat").read_bytes()
    for at in range(128, len(content) - 4, 4):  # every size and dimension is among these
        for value in (b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff"):
            (tmp_path / "a.mat").write_bytes(content[:at] + value + content[at + 4 :])
            with watched(tmp_path, len(content)), suppress(ValueError):
                load_points(tmp_path / "a.mat")


def test_labels_of_a_store_that_claim_to_be_endless_are_refused(originals, tmp_path):
    shutil.copytree(originals / "v3.zarr", tmp_path / "a.zarr")
    path = tmp_path / "a.zarr" / "y" / "zarr.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"shape": [10**12]}))
    with watched(tmp_path, 0), pytest.raises(ValueError, match=r"a\.zarr cannot be read as zarr .*would become 8,000,"):
        open_zarr(tmp_path / "a.zarr")


# ---- plans and records that never end -----------------------------------------------------------------------


def test_a_plan_within_itself_and_brackets_without_end_are_refused(tmp_path):
    plan = tmp_path / "a.toml"
    plan.write_text(f'include = ["{plan}"]\n' + PLAN)
    with pytest.raises(ValueError, match=r"a\.toml"):
        load_plan(plan)
    plan.write_text("title = " + "[" * 100_000)
    with pytest.raises(ValueError, match=r"a\.toml"):
        load_plan(plan)
    (tmp_path / "records.jsonl").write_text("[" * 100_000 + "\n")
    with pytest.raises(ValueError, match="line 1 is no record"):
        read_records(tmp_path / "records.jsonl")


# ---- names from inside an archive ------------------------------------------------------------------------------


def test_names_inside_an_archive_are_only_names(tmp_path):
    folder = tmp_path / "inner"
    folder.mkdir()
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        for name in ("X.npy", "y.npy", "../escaped.npy", "/escaped.npy", "..\\escaped.npy"):
            file = io.BytesIO()
            np.save(file, np.eye(4) if name == "X.npy" else np.arange(4))
            archive.writestr(name, file.getvalue())
    with watched(tmp_path, 10**4):
        assert load_points(folder / "a.npz").X.shape == (4, 4)
    assert main(["doctor", str(folder / "a.npz"), "--fix", "-o", str(folder / "b.npz")]) == 0
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*.np*")) == ["inner/a.npz", "inner/b.npz"]


def test_a_data_set_named_like_a_path_shows_nothing_from_there(originals, tmp_path):
    shutil.copytree(originals / "results", tmp_path / "results")
    np.savez(tmp_path / "secret.npz", prototypes=np.eye(3))
    record = json.dumps(RECORD | {"data": "../../secret", "id": "x"})
    (tmp_path / "results" / "records.jsonl").write_text(record + "\n")
    with watched(tmp_path / "results", 10**5):
        results = read_results(tmp_path / "results")
    assert not results.exhibits["../../secret"].arrays

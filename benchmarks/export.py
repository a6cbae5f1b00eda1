"""Models of real data as C: are the answers Python's, how long does a query take, what memory does it need?

    python benchmarks/export.py [--data-dir FOLDER] [--only TEXT] [-o build/export.md]

Every model is exported in both precisions, and compiled by each compiler there is (gcc, clang) with
``-std=c99 -Wall -Wextra -Werror -O2``, and again with ``-fsanitize=address,undefined``. The first answers all test
points of a split, the second the first hundred. Where arm-none-eabi-gcc and qemu-system-arm are, the float32 file is
also linked for a Cortex-M4 and answers a few points there. Any answer that should be Python's and is not ends the run.

A point is clear where the log-odds of its two best classes differ by more than 1e-9. Times are processor time of one
query and one thread, the least of several rounds, in C for the class alone and with probabilities: "kernel" is the
function that gives the distances of a checked point, by this processor's instructions and by those of any x86-64, which
is what the file is compiled for; "predict" is the method. Data sets whose files are not in the folder
are left out.
"""

from __future__ import annotations

import argparse
import copy
import re
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from learner import Task, digits, eth80, halves, physionet, shapes
from sklearn.datasets import load_digits

import knnpress as kp
from knnpress import _core

COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Werror", "-O2")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
CORTEX_TOOLS = ("arm-none-eabi-gcc", "arm-none-eabi-size", "qemu-system-arm")
CORTEX = ("-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16")
EXAMPLE = Path(__file__).parent.parent / "examples" / "cortex_m4"

#: Answers the points of a file, `rounds` times; to stdout the answers, to stderr the least nanoseconds of a query,
#: without and with probabilities
DRIVER = """
#define _POSIX_C_SOURCE 200112L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include "model.h"
static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}
int main(int argc, char **argv) {
  const int n = argc > 1 ? atoi(argv[1]) : 0, rounds = argc > 2 ? atoi(argv[2]) : 0, many = n < 50 ? n : 50;
  double *x = malloc((size_t)n * KNNPRESS_POINT_SIZE * sizeof(double)), p[KNNPRESS_N_CLASSES], best[2] = {1e300, 1e300};
  int i, round, sum = 0;
  if (!x || fread(x, sizeof(double) * KNNPRESS_POINT_SIZE, (size_t)n, stdin) != (size_t)n) return 3;
  for (i = 0; i < n; i++) {
    const int winner = knnpress_predict(x + i * KNNPRESS_POINT_SIZE, p);
    if (winner != knnpress_predict(x + i * KNNPRESS_POINT_SIZE, NULL)) return 4; /* probabilities change nothing */
    printf("%d\\n", winner);
  }
  for (round = 0; round < rounds; round++) {
    double *const to = round & 1 ? p : NULL, began = now(), took;
    for (i = 0; i < many; i++) sum += knnpress_predict(x + i * KNNPRESS_POINT_SIZE, to);
    took = (now() - began) / many;
    if (took < best[round & 1]) best[round & 1] = took;
  }
  fprintf(stderr, "%.1f %.1f %d\\n", best[0], best[1], sum); /* the sum: so that no call is left out */
  free(x);
  return 0;
}
"""


@dataclass
class Row:
    """What one model gave."""

    data: str
    metric: str
    m: int
    size: str
    n: int
    clear: int  # all of them answered as Python does, or the run ended
    single: float
    kernel: float
    plain_kernel: float  # by the instructions that the compiled file has, too
    predict: float
    times: dict[tuple[str, str], tuple[float, float]]  # without and with probabilities
    objects: dict[str, int]
    stack: dict[str, int]
    cortex: str


def vectors() -> Task:
    """Digits of scikit-learn, pixel by pixel."""
    X, y = load_digits(return_X_y=True)
    return Task(X, y, None, halves(y))


#: name: (how to read it, size, metrics)
TASKS: dict[str, tuple[Callable[[str], Task], float, list[str]]] = {
    "digits, covariances": (lambda _: digits("covariances"), 0.02, ["jbld", "tangent", "logeuclid"]),
    "ETH-80": (lambda f: eth80(f, False), 0.02, ["jbld", "tangent", "logeuclid"]),
    "physionet": (lambda f: physionet(f, True), 0.02, ["jbld", "tangent", "logeuclid"]),
    "digits, vectors": (lambda _: vectors(), 0.02, ["sqeuclidean"]),
    "digits, histograms": (lambda _: digits("histograms"), 0.04, ["sinkhorn", "hellinger", "sqeuclidean"]),
    "COIL-20": (lambda f: shapes(f, "coil20"), 58, ["sinkhorn", "hellinger", "sqeuclidean"]),
}


def learned(task: Task, metric: str, size: float, train: np.ndarray) -> Any:
    """A model by fixed settings: how it was learned does not matter here."""
    fixed: dict[str, Any] = {"gamma": "scale", "prior": 1.0, "smoothing": 0.02, "vote": "soft", "max_iter": 10}
    fixed |= {"n_prototypes": size, "n_jobs": 1}
    warnings.filterwarnings("ignore", "the loss was still falling")
    if task.X.ndim == 3:
        model = kp.SCC(metric=metric, **fixed)
    elif metric == "sqeuclidean":
        model = kp.SNC(**fixed)
    else:
        model = kp.SHC(ground_cost=task.cost, metric=metric, **fixed)
    return model.fit(task.X[train], task.y[train])


def measured(data: str, metric: str, model: Any, X: np.ndarray, folder: Path) -> Row:
    """One model in all precisions, by all compilers."""
    expected = np.searchsorted(model.classes_, model.predict(X))
    scores = np.sort(np.log(model.predict_proba(X) + 1e-300), axis=1)
    clear = scores[:, -1] - scores[:, -2] > 1e-9
    times, objects, stack, alike = {}, {}, {}, []
    for dtype in ("float64", "float32"):
        kp.export_c(model, folder / "model.c", dtype=dtype)
        kp.export_c(model, folder / "model.h", dtype=dtype)
        (folder / "main.c").write_text(DRIVER)
        for compiler in COMPILERS:
            answers, times[dtype, compiler] = ask(compiled(compiler, folder), X, 80)
            careful, _ = ask(compiled(compiler, folder, *SANITIZED), X[:100], 0)
            for found in (answers, careful):
                wrong = found != expected[: len(found)]
                if dtype == "float64" and (wrong & clear[: len(found)]).any():
                    raise SystemExit(f"{data}, {metric}, {compiler}: {wrong.sum()} answers are not Python's")
            alike.append(float((answers == expected).mean()) if dtype == "float32" else 1.0)
        objects[dtype], stack[dtype] = object_size(folder)
    if min(alike) < 0.999:
        raise SystemExit(
            f"{data}, {metric}: in float32 {min(alike):.2%} of the answers are Python's; 99.9 % are wanted"
        )
    kernel, plain, whole = python_times(model, X)
    shape = "x".join(map(str, X.shape[1:]))
    on_board = cortex(model, X, expected, folder)
    m = len(model.prototypes_)
    return Row(
        data,
        metric,
        m,
        shape,
        len(X),
        int(clear.sum()),
        min(alike),
        kernel,
        plain,
        whole,
        times,
        objects,
        stack,
        on_board,
    )


def compiled(compiler: str, folder: Path, *more: str) -> Path:
    """The driver with the model."""
    program = folder / "program"
    files = [folder / "main.c", folder / "model.c"]
    subprocess.run([compiler, *STRICT, *more, *files, "-o", program, "-lm"], check=True)
    return program


def ask(program: Path, X: np.ndarray, rounds: int) -> tuple[np.ndarray, tuple[float, float]]:
    """Answers of all points, and the least microseconds of a query, without and with probabilities."""
    done = subprocess.run([program, str(len(X)), str(rounds)], input=X.tobytes(), capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(f"the program ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    alone, with_probabilities = (float(text) / 1e3 for text in done.stderr.split()[:2])
    return np.array(done.stdout.split(), dtype=int), (alone, with_probabilities)


def object_size(folder: Path) -> tuple[int, int]:
    """Bytes of code and tables, and of stack, by gcc."""
    if "gcc" not in COMPILERS:
        return 0, 0
    subprocess.run(["gcc", *STRICT, "-fstack-usage", "-c", "model.c"], cwd=folder, check=True)
    return sizes("size", folder / "model.o")[0], stack_used(folder)


def sizes(tool: str, path: Path) -> tuple[int, int]:
    """Constant bytes, and bytes that are written."""
    out = subprocess.run([tool, path], capture_output=True, text=True, check=True).stdout
    constant, data, bss = map(int, out.splitlines()[1].split()[:3])
    return constant, data + bss


def stack_used(folder: Path) -> int:
    """Sum over the functions: none calls itself, so that no call takes more."""
    return sum(int(line.split("\t")[1]) for line in (folder / "model.su").read_text().splitlines())


def python_times(model: Any, X: np.ndarray) -> tuple[float, float, float]:
    """Least microseconds of one query: the kernel's, the same by the instructions of any processor, and predict's."""

    def least(call: Callable[[np.ndarray], Any]) -> float:
        best = np.inf
        for _ in range(20):
            began = time.thread_time()
            for k in range(50):
                call(points[k : k + 1])
            best = min(best, (time.thread_time() - began) / 50)
        return 1e6 * best

    times, usual = [], _core.target()
    for target in (usual, "baseline"):
        _core.set_target(target)
        points, ready = copy.deepcopy(model)._check_query(X[:50])  # a copy, as what is ready is laid out for one target
        times.append(least(ready.distances))
    _core.set_target(usual)
    points = X[:50]
    return times[0], times[1], least(model.predict)


def cortex(model: Any, X: np.ndarray, expected: np.ndarray, folder: Path) -> str:
    """Flash and stack on a Cortex-M4 in float32, libm included, after the same answers there."""
    if not all(map(shutil.which, CORTEX_TOOLS)):
        return "-"
    n = 3 if "sinkhorn" in str(model.metric_) else 20
    rows = ",\n".join("{" + ", ".join(map(repr, x.ravel().tolist())) + "}" for x in X[:n])
    (folder / "points.h").write_text(
        f"#define N_POINTS {n}\nstatic const double points[N_POINTS][KNNPRESS_POINT_SIZE] = {{\n{rows}\n}};\n"
    )
    compiler = ["arm-none-eabi-gcc", *CORTEX, *STRICT]
    shutil.copy(EXAMPLE / "link.ld", folder)
    link = ["-nostartfiles", "-specs=rdimon.specs", "-T", "link.ld", "-lm", "-o", "model.elf"]
    subprocess.run([*compiler, "-I.", EXAMPLE / "main.c", *link], cwd=folder, check=True)
    machine = ["qemu-system-arm", "-M", "mps2-an386", "-nographic", "-semihosting-config", "enable=on,target=native"]
    out = subprocess.run(
        [*machine, "-kernel", "model.elf"], cwd=folder, capture_output=True, text=True, check=True, timeout=600
    ).stdout
    answers = [int(line.split()[0]) for line in out.splitlines() if line.strip()]
    if answers != expected[:n].tolist():
        raise SystemExit(f"the Cortex-M4 answered {answers}, Python {expected[:n].tolist()}")
    # flash of the model and what it takes of libm: main without printf
    (folder / "bare.c").write_text(
        '#include "model.h"\nvoid start(void);\nstatic volatile double x[KNNPRESS_POINT_SIZE];\n'
        "volatile int answer;\nvoid start(void) { answer = knnpress_predict((const double *)x, 0); for (;;) ; }\n"
    )
    bare = ["-nostartfiles", "-specs=nosys.specs", "-T", "link.ld", "-Wl,--gc-sections", "-lm", "-o", "bare.elf"]
    subprocess.run([*compiler, "-fstack-usage", "-c", "model.c"], cwd=folder, check=True)
    subprocess.run([*compiler, "bare.c", "model.o", *bare], cwd=folder, check=True)
    flash, ram = sizes("arm-none-eabi-size", folder / "bare.elf")
    if (written := sizes("arm-none-eabi-size", folder / "model.o")[1]) != 0:
        raise SystemExit(f"{written} bytes of the model are written; all should be constant")
    own = 8 * X[0].size + 4  # of bare.c; the rest is newlib's
    return f"{flash / 1000:.1f} / {(ram - own) / 1000:.1f} / {stack_used(folder) / 1000:.1f}"


def rows(folder: str, only: str) -> Iterator[Row]:
    """All models of the data sets that are there."""
    for name, (read, size, metrics) in TASKS.items():
        if only not in name:
            continue
        try:
            task = read(folder)
        except FileNotFoundError as error:
            print(f"{name} is left out: {error}")
            continue
        train, test = task.splits[0]
        for metric in metrics:
            with tempfile.TemporaryDirectory() as scratch:
                yield measured(name, metric, learned(task, metric, size, train), task.X[test], Path(scratch))


def table(found: list[Row]) -> str:
    """Markdown."""
    both, by = ("float64", "float32"), [(t, c) for t in ("float64", "float32") for c in COMPILERS]
    titles = ["data", "geometry", "point", "prototypes", "clear points alike, float64", "all alike, float32"]
    titles += [
        "Python, µs: kernel",
        "baseline kernel",
        "predict",
        *(f"C, µs: {dtype}, {compiler}" for dtype, compiler in by),
    ]
    titles += [f"object, kB: {both[0]}", both[1], f"stack, kB: {both[0]}", both[1]]
    titles += ["Cortex-M4, float32, kB: flash / RAM / stack"]
    lines = ["| " + " | ".join(titles) + " |", "| --- | --- | --- |" + " ---: |" * (len(titles) - 3)]
    for row in found:
        cells = [row.data, row.metric, row.size, row.m, f"{row.clear} of {row.clear}", f"{row.single:.2%} of {row.n}"]
        cells += [
            f"{row.kernel:.1f}",
            f"{row.plain_kernel:.1f}",
            f"{row.predict:.0f}",
            *("{:.1f} / {:.1f}".format(*row.times[key]) for key in by),
        ]
        cells += [f"{size[dtype] / 1000:.1f}" for size in (row.objects, row.stack) for dtype in both]
        lines.append("| " + " | ".join(map(str, [*cells, row.cortex])) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=re.split("\n\n", __doc__ or "")[0])
    parser.add_argument("--data-dir", default="data")
    parser.add_argument("--only", default="", help="data sets whose name holds this")
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    found: list[Row] = []
    for row in rows(args.data_dir, args.only):
        found.append(row)
        print(row, flush=True)
        if args.output is not None:
            args.output.parent.mkdir(parents=True, exist_ok=True)
            args.output.write_text(table(found))
    print(table(found))


if __name__ == "__main__":
    main()

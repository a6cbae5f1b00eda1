"""Random calls from several threads of several processes, for as long as you like: `make soak`, `make soak SECONDS=60`.

Fits, predictions, searches, saves to files that all processes share, loads, broken files, and Ctrl-C at random moments.
Every answer is compared with one that was computed in peace. Ends with status 1 where one is wrong, a process dies, or
the memory of one grows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
from points import GROUND_COST, labelled
from sklearn.base import clone

import knnpress as kp
from knnpress.compression import ClassCentroids, FastCondensed
from knnpress.exceptions import InvalidPointError, ModelFileError
from knnpress.geometries import JBLD, Sinkhorn

PROCESSES, THREADS = 2, 3
SETTINGS = {"n_prototypes": 6, "gamma": 2.0, "max_iter": 4, "random_state": 0}
MODELS = {
    "scc": (kp.SCC(**SETTINGS), "jbld"),
    "shc": (kp.SHC(GROUND_COST, **SETTINGS), "sinkhorn-divergence"),
    "snc": (kp.SNC(**SETTINGS), "sqeuclidean"),
    "full": (kp.PrototypeClassifier("jbld", n_neighbors=3), "jbld"),
    "condensed": (kp.PrototypeClassifier(Sinkhorn(GROUND_COST), FastCondensed()), "sinkhorn-divergence"),
    "centroids": (kp.PrototypeClassifier("airm", ClassCentroids(), n_prototypes=6, random_state=0), "jbld"),
}
GROWTH, SPARE = 1.15, 30.0  # times, and megabytes, that memory may grow from the second fifth of the time to the last


class Wrong(Exception):
    """An answer that differs."""


class Worker:
    """One process: threads that call at random, and the answers they must get."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.seed = folder, seed
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.rss: list[float] = []
        self.data = {points: labelled(points, 90) for points in {points for _, points in MODELS.values()}}
        self.data["many"] = (labelled("jbld", 700, seed=1)[0], np.arange(700) % 2)
        self.known = {name: self.fitted(name, 1) for name in MODELS}
        self.answers = {name: self.answer(name, model, 1) for name, model in self.known.items()}
        X, y = self.data["many"]
        self.neighbours = kp.PrototypeClassifier("jbld").fit(X, y).kneighbors(X[:100], 2)

    def fitted(self, name, n_jobs):
        model, points = MODELS[name]
        return clone(model).set_params(n_jobs=n_jobs).fit(*self.data[points])

    def answer(self, name, model, n_jobs):
        X = self.data[MODELS[name][1]][0]
        return model.set_params(n_jobs=n_jobs).predict_proba(X)

    def compare(self, what, name, model, n_jobs):
        if not np.array_equal(model.prototypes_, self.known[name].prototypes_):
            raise Wrong(f"{what}: prototypes of {name}")
        if not np.array_equal(self.answer(name, model, n_jobs), self.answers[name]):
            raise Wrong(f"{what}: predictions of {name}")

    # ---- what is done at random

    def fit(self, draw):
        name, n_jobs = draw.choice(list(MODELS)), draw.choice([1, 2, 4])
        self.compare("fit", name, self.fitted(name, n_jobs), n_jobs)

    def predict(self, draw):
        name = draw.choice(list(MODELS))
        self.compare("predict", name, clone_fitted(self.known[name]), draw.choice([1, 2, 4]))

    def save(self, draw):
        name = draw.choice(list(MODELS))
        self.known[name].save(self.folder / name)  # which the other processes write, too

    def load(self, draw):
        name = draw.choice(list(MODELS))
        if (self.folder / name).exists():
            self.compare("load", name, kp.load(self.folder / name), 1)

    def load_damaged(self, draw):
        name = draw.choice(list(MODELS))
        if not (self.folder / name).exists():
            return
        content = bytearray((self.folder / name).read_bytes())
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        place = self.folder / f"damaged-{os.getpid()}-{threading.get_ident()}"
        place.write_bytes(content)
        try:
            model = kp.load(place)
        except ModelFileError:
            return
        self.compare("a damaged file", name, model, 1)

    def search(self, draw):
        X, y = self.data["many"]
        distance, index = kp.PrototypeClassifier("jbld", n_jobs=draw.choice([1, 4])).fit(X, y).kneighbors(X[:100], 2)
        if not (np.array_equal(index, self.neighbours[1]) and np.array_equal(distance, self.neighbours[0])):
            raise Wrong("search: neighbours")

    def refuse(self, draw):
        X = self.data["jbld"][0].copy()
        X[draw.randrange(len(X)), 0, 0] = draw.choice([np.nan, -1.0, np.inf])
        try:
            JBLD().pairwise(X)
        except InvalidPointError:
            return
        raise Wrong("refuse: bad points were taken")

    # ---- the work

    def work(self, number, until):
        draw = random.Random(f"{self.seed} {number}")
        actions = [self.fit, self.predict, self.save, self.load, self.load_damaged, self.search, self.refuse]
        while time.monotonic() < until and not self.wrong:
            try:
                action = draw.choice(actions)
                action(draw)
                self.counts[action.__name__] += 1
            except KeyboardInterrupt:
                self.counts["interrupt"] += 1
            except Exception as error:
                self.wrong.append(f"{type(error).__name__}: {error}")

    def run(self, seconds):
        until = time.monotonic() + seconds
        threads = [threading.Thread(target=self.work, args=(k, until)) for k in range(1, THREADS)]
        threads.append(threading.Thread(target=self.watch, args=(seconds, until)))
        for thread in threads:
            thread.start()
        while time.monotonic() < until and not self.wrong:
            try:
                self.work(0, until)  # the main thread: Ctrl-C comes here
            except KeyboardInterrupt:
                self.counts["interrupt"] += 1
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        for thread in threads:
            thread.join()
        print(json.dumps({"counts": self.counts, "wrong": self.wrong, "rss": self.rss}))

    def watch(self, seconds, until):
        while time.monotonic() < until and not self.wrong:
            with open("/proc/self/statm") as file:
                self.rss.append(int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20)
            time.sleep(seconds / 200)


def clone_fitted(model):
    """Another object with the same prototypes, so that threads may set its parameters."""
    other = clone(model)
    other.__dict__.update({name: value for name, value in vars(model).items() if name.endswith("_")})
    return other


def soak(seconds: float, seed: int) -> int:
    """Start the processes, interrupt them now and then, and judge what they say."""
    draw, failed = random.Random(seed), False
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--seconds", str(seconds), "--folder", folder]
        processes = [
            subprocess.Popen([*command, "--worker", str(seed + k)], stdout=subprocess.PIPE, text=True)
            for k in range(PROCESSES)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()  # it is ready
        until = time.monotonic() + seconds
        while time.monotonic() < until - 1.0 and all(process.poll() is None for process in processes):
            time.sleep(draw.uniform(0.05, 1.0))
            draw.choice(processes).send_signal(signal.SIGINT)
        total: Counter[str] = Counter()
        for process in processes:
            output, _ = process.communicate(timeout=600)
            if process.returncode != 0 or not output.strip():
                print(f"a process ended with status {process.returncode}")
                failed = True
                continue
            said = json.loads(output.splitlines()[-1])
            total.update(said["counts"])
            fifth = max(1, len(said["rss"]) // 5)
            early, late = np.median(said["rss"][fifth : 2 * fifth]), np.median(said["rss"][-fifth:])
            print(f"memory {early:.0f} MB, then {late:.0f} MB; wrong: {said['wrong'] or 'nothing'}")
            failed |= bool(said["wrong"]) or late > GROWTH * early + SPARE
        left = [name for name in os.listdir(folder) if name.endswith(".tmp")]
    print(f"{sum(total.values())} calls: {dict(total.most_common())}; files left half written: {len(left)}")
    return int(failed or bool(left) or not total["fit"])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    warnings.simplefilter("ignore")  # few iterations do not converge
    if args.worker is None:
        sys.exit(soak(args.seconds, args.seed))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    worker = Worker(args.folder, args.worker)
    print("ready", flush=True)
    worker.run(args.seconds)

"""A results folder as `knnpress experiment` would write it, with made-up figures."""

import json
from pathlib import Path

import numpy as np

PLAN = "0123456789abcdef"
MACHINE = {"cpu": "Imaginary CPU", "cores": 2}
VERSIONS = {"knnpress": "0.1", "numpy": "2.4"}
FEW, MANY = (0.02, 0.04, 0.08, 0.16), (0.1, 0.2, 0.3, 0.4)
SIZED = {"Subsample": 8.0, "Condensed": 6.0, "Reduced": 5.5, "FastCondensed": 5.0, "RandomMutation": 4.0}


def record(data, method, split, error, ratio=None, variant="", n_train=1000, n_test=1000, **more):
    """One run; `error` is a share."""
    size = " " + str(ratio) if ratio is not None else ""
    prototypes = n_train if method.startswith("full") else round(ratio * n_train) if ratio else None
    share = (prototypes or n_train) / n_train
    return {
        "id": f"{data} {variant} / {split} / {method}{size}",
        "plan": PLAN,
        **{"data": data, "variant": variant, "split": split, "method": method, "ratio": ratio, "seed": split},
        **{
            "n_train": n_train,
            "n_test": n_test,
            "n_prototypes": prototypes,
            "test_error": error,
            "train_error": error / 2,
        },
        **{"train_seconds": 0.5 + 30 * share, "train_cpu_seconds": 1 + 58 * share},
        **{"query_seconds": 4e-6 + 1e-4 * share, "full_query_seconds": 1.04e-4},
        **{"distance_seconds": 1e-4 * share * (1 + 0.01 * split), "full_distance_seconds": 1e-4},
        **{"params": {"gamma": 2.5 + split, "tol": 1e-3}, "versions": VERSIONS, "machine": MACHINE},
        "finished": f"2025-01-0{split + 1}T10:00:00",
        **more,
    }


def records(data, full, kind, ratios, splits=5, variant="", seed=0):
    """All methods on one data set; `full` is the error of the full set in per cent."""
    rng = np.random.default_rng([seed, len(data), len(variant), ord(data[0])])
    ours = {"covariance": "SCC", "histogram": "SHC"}[kind]
    found = []

    def add(method, error, ratio=None, only=None, **more):
        for split in range(splits) if only is None else only:
            noisy = max(0.0, error * float(1 + 0.06 * rng.normal()) / 100)
            found.append(record(data, method, split, min(noisy, 1.0), ratio, variant, **more))

    add("full", full)
    for ratio in ratios:
        add(ours, full * (0.75 + 0.02 / ratio * 0.4), ratio)
        add(f"{ours} paper", full * (1 + 0.02 / ratio), ratio)
        for method, factor in SIZED.items():
            add(method, min(70, full * (1 + factor * (0.02 / ratio) ** 0.7)), ratio)
    for method in ("Condensed", "Reduced", "FastCondensed"):
        add(method, full * 1.2, n_prototypes=int(270 + 10 * len(method)))
    others = ["full Euclidean", "full AIRM"] if kind == "covariance" else ["full EMD", "full L1", "full chi-square"]
    for k, method in enumerate(others):
        add(method, full * (1 + 0.5 * k), only=[0], n_test=300, reference_error=full / 100)
    if kind == "covariance":
        add("MDM", full * 6, n_prototypes=8)
        add("tangent space + LR", full * 0.6)
    return found


def about(title, kind, ratios, classes):
    """What plan.json says of a data set."""
    return {
        **{"title": title, "kind": kind, "protocol": "Five splits, half and half, stratified.", "features": "Made up"},
        **{"citation": "Nobody, Nowhere, 2024", "n": 2000, "dims": 9 if kind == "covariance" else 16},
        **{"n_classes": len(classes), "class_names": classes, "ratios": list(ratios)},
        "geometry": "jbld" if kind == "covariance" else "sinkhorn",
    }


def exhibit(kind, n_classes, seed=0, grid=None, images=True, m=None):
    """Arrays to show."""
    rng = np.random.default_rng(seed)
    m = m or 2 * n_classes
    labels = np.arange(m) % n_classes
    if kind == "covariance":
        A = rng.normal(size=(m, 9, 14)) + labels[:, None, None] * 0.1
        prototypes = A @ A.transpose(0, 2, 1)
    else:
        prototypes = rng.dirichlet(np.ones(16), m)
    train_labels = rng.integers(n_classes, size=500)
    centres = rng.normal(size=(n_classes, 2)) * 4
    confusion = np.diag(rng.integers(50, 90, n_classes)) + rng.poisson(0.8, (n_classes, n_classes))
    arrays = {
        **{"prototypes": prototypes, "prototype_labels": labels, "confusion": confusion},
        **{"map_train": centres[train_labels] + rng.normal(size=(500, 2)), "map_labels": train_labels},
        **{"map_prototypes": centres[labels] + 0.5 * rng.normal(size=(m, 2)), "map_prototype_labels": labels},
        **{"suspects_row": np.array([7, 401, 33]), "suspects_label": np.array([0, 1, 2])},
        **{"suspects_predicted": np.array([1, 2, 0]), "suspects_loss": np.array([9.5, 7.25, 3.125])},
    }
    if grid:
        arrays["grid"] = np.array(grid)
    if images:
        arrays["nearest_images"] = pictures(rng, m)
        arrays["suspects_images"] = pictures(rng, 3)
        arrays["montage"], arrays["montage_labels"] = pictures(rng, 2 * n_classes), np.arange(2 * n_classes) % n_classes
    return arrays


def pictures(rng, n, side=40):
    """Coloured waves, (n, side, side, 3)."""
    y, x = np.mgrid[:side, :side] / 6
    phases = rng.uniform(0, 6, (n, 3, 1, 1))
    waves = np.sin(x * np.cos(phases) + y * np.sin(phases) + phases) * 100 + 128
    return np.clip(waves.transpose(0, 2, 3, 1) + rng.normal(0, 8, (n, side, side, 3)), 0, 255).astype(np.uint8)


def write(folder, plan, lines, exhibits=None):
    """Write the folder; `lines` are records or raw text."""
    folder = Path(folder)
    (folder / "exhibits").mkdir(parents=True, exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(plan))
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "records.jsonl").write_text("\n".join(texts) + "\n")
    for name, (arrays, facts) in (exhibits or {}).items():
        np.savez(folder / "exhibits" / f"{name}.npz", **arrays)
        (folder / "exhibits" / f"{name}.json").write_text(json.dumps(facts))
    return folder


CLASSES = ["apple", "car", "cow", "cup", "dog", "horse", "pear", "tomato"]


def whole(folder):
    """A folder with everything: three data sets, variants, a failure, a broken line and exhibits."""
    shapes = [f"shape {k}" for k in range(30)]
    plan = {
        **{"name": "all", "fingerprint": PLAN, "title": "A made-up experiment"},
        "data": {
            "eth80": about("ETH-80", "covariance", FEW, CLASSES),
            "coil20": about("COIL-20", "histogram", FEW, [f"object {k}" for k in range(20)]),
            "mpeg7": about("MPEG-7", "histogram", MANY, shapes),
        },
    }
    lines = [
        *records("eth80", 1.3, "covariance", FEW),
        *records("eth80", 9.0, "covariance", FEW, variant="by object"),
        *records("eth80", 4.0, "covariance", FEW, variant="noise 5 %"),
        *records("coil20", 2.4, "histogram", FEW),
        *records("mpeg7", 22.0, "histogram", MANY),
        record("eth80", "SPDNet", 0, 0.0, failure="No module named 'torch'", test_error=None),
        {"id": "eth80 / tuning / SCC", "plan": PLAN, "kind": "tuning", "data": "eth80", "params": {"sharpness": 1.0}},
        '{"id": "broken off',
    ]
    facts = {"method": "SCC", "ratio": 0.02, "map": "Multidimensional scaling of 500 training points"}
    exhibits = {
        "eth80": (exhibit("covariance", 8), facts),
        "coil20": (exhibit("histogram", 20, grid=(4, 4)), facts | {"method": "SHC"}),
        "mpeg7": (exhibit("histogram", 30, images=False), facts | {"method": "SHC", "ratio": 0.1}),
    }
    return write(folder, plan, lines, exhibits)


def small(folder):
    """A folder with a little of everything: one data set, two ratios, three splits, a broken line."""
    plan = {"name": "s", "fingerprint": PLAN, "title": "Small"}
    plan["data"] = {"things": about("Things", "covariance", (0.02, 0.04), CLASSES[:3])}
    lines = [*records("things", 3.0, "covariance", (0.02, 0.04), splits=3), "broken"]
    facts = {"method": "SCC", "ratio": 0.02, "map": "Made up"}
    return write(folder, plan, lines, {"things": (exhibit("covariance", 3), facts)})

"""A folder of images to a small model and back, by the command line and in Python.

Three kinds of woven texture are drawn and written to ``photos/<class>/``. ``knnpress compress`` learns a model from the
folder, ``predict`` and ``evaluate`` use it, and Python opens the same file. Needs the extra ``images``.
"""

import csv
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

import knnpress as kp
from knnpress.cli import main

WEAVES = {"canvas": (4, 4), "denim": (4, 9), "silk": (13, 9)}  # waves across and along


def draw(weave, rng, size=48):
    """Draw one woven texture, at any angle and brightness, with some noise."""
    y, x = np.mgrid[0:size, 0:size] / size
    turn = rng.uniform(-0.3, 0.3)
    u, v = x * np.cos(turn) - y * np.sin(turn), x * np.sin(turn) + y * np.cos(turn)
    across, along = (2 * np.pi * waves for waves in weave)
    light = np.sin(across * u + rng.uniform(0, 6)) + np.sin(along * v + rng.uniform(0, 6))
    light = rng.uniform(0.3, 0.7) + 0.12 * light + 0.05 * rng.normal(size=light.shape)
    colour = light[..., None] * rng.uniform(0.8, 1.2, size=3)
    return Image.fromarray((255 * colour).clip(0, 255).astype(np.uint8))


def knnpress(*arguments):
    """Run a command of the command line, as ``knnpress compress ...`` in a terminal would."""
    assert main([str(argument) for argument in arguments]) == 0


with TemporaryDirectory() as folder:
    root, rng = Path(folder), np.random.default_rng(0)
    for part, count in {"photos": 30, "held-out": 20}.items():
        for name, weave in WEAVES.items():
            (root / part / name).mkdir(parents=True)
            for k in range(count):
                draw(weave, rng).save(root / part / name / f"{k:02}.png")

    knnpress("compress", root / "photos", "-o", root / "model.knnp", "--descriptor", "gradient", "--prototypes", 6)
    knnpress("predict", root / "model.knnp", root / "held-out", "-o", root / "out.csv")

    with open(root / "out.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    right = [row["item"].startswith(row["prediction"] + "/") for row in rows]  # items are called <class>/<name>.png
    print(f"{sum(right)} of {len(right)} textures are told apart")
    assert len(right) == 60
    assert np.mean(right) > 0.95

    model = kp.load(root / "model.knnp")  # the descriptor and the prototypes, in one file
    held_out = kp.datasets.load_image_folder(root / "held-out")
    names = np.array(held_out.class_names)[held_out.y]
    assert model.score(held_out.images, names) == np.mean(right)
    print(f"the model has {len(model.classifier_.prototypes_)} prototypes")

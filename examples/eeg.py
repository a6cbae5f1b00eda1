"""Imagined movements from EEG: knnpress among pyRiemann's steps, on simulated trials.

Eight sensors see a mixture of three sources. Imagining a movement of the left or the right hand dims the rhythm of the
other side of the brain; at rest both are strong. The covariance of a trial holds all of that. Needs pyRiemann
(``pip install pyriemann``).
"""

import numpy as np
from pyriemann.classification import MDM
from pyriemann.estimation import Covariances
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import knnpress as kp

CLASSES = {"rest": (1.0, 1.0), "left hand": (1.0, 0.5), "right hand": (0.5, 1.0)}  # strength of the left, right rhythm
rng = np.random.default_rng(0)
mixing = rng.normal(size=(8, 3))


def simulate(strengths, n_times=250):
    """Draw one trial, (channels, times): a second at 250 Hz."""
    t = np.arange(n_times) / 250
    rhythms = [s * np.sin(2 * np.pi * rng.uniform(9, 12) * t + rng.uniform(0, 6)) for s in strengths]
    blink = rng.normal() * np.exp(-(((t - rng.uniform()) / 0.1) ** 2))  # the same for all classes, and large
    sources = np.stack([*rhythms, 3 * blink])
    return mixing @ sources + rng.normal(size=(len(mixing), n_times))


names = np.repeat(list(CLASSES), 60)
trials = np.stack([simulate(CLASSES[name]) for name in names])  # (180, 8, 250)

mean = make_pipeline(Covariances("oas"), MDM())  # pyRiemann: one mean a class
learned = make_pipeline(Covariances("oas"), kp.SCC(n_prototypes=6))
own = kp.DescriptorClassifier(kp.descriptors.SignalCovariance("oas"), kp.PrototypeClassifier("jbld", n_neighbors=5))

scores = {}
for name, model in {"pyRiemann's MDM": mean, "SCC, 2 prototypes a class": learned, "full 5-NN, JBLD": own}.items():
    scores[name] = cross_val_score(model, trials, names, cv=3).mean()
    print(f"{name:26} {scores[name]:6.1%} of the trials are told rightly")

assert scores["SCC, 2 prototypes a class"] > 0.85
assert scores["SCC, 2 prototypes a class"] > scores["pyRiemann's MDM"] - 0.02

"""Prototypes shrug off wrong labels: a fifth of the training labels is replaced by others.

A nearest neighbour believes every label. A vote of several withstands that best here, but needs all points at every
query. Learned prototypes stand for many points each, and the loss of a single point is bounded (`label_noise`), so that
a wrong one cannot draw a prototype to it: most of what the vote gains, from 20 points.
"""

import numpy as np

import knnpress as kp

data = kp.datasets.load_digits_covariances()
X, y, X_test, y_test = data.X[::2], data.y[::2], data.X[1::2], data.y[1::2]

rng = np.random.default_rng(0)
wrong = rng.random(len(y)) < 0.2
noisy = np.where(wrong, (y + rng.integers(1, 10, len(y))) % 10, y)

full = kp.PrototypeClassifier("jbld").fit(X, noisy)
voted = kp.PrototypeClassifier("jbld", n_neighbors=7).fit(X, noisy)
learned = kp.SCC(n_prototypes=20).fit(X, noisy)

full_error, voted_error, error = (1 - clf.score(X_test, y_test) for clf in (full, voted, learned))
print(f"{wrong.mean():.0%} of {len(y)} labels are wrong. Test errors:")
print(f"nearest of all points         {full_error:6.1%}")
print(f"vote of the 7 nearest points  {voted_error:6.1%}")
print(f"20 learned prototypes         {error:6.1%}")

assert full_error > 0.15
assert error < full_error / 2
assert voted_error <= error < voted_error + 0.03  # most of what the vote gains

# Points that their own prototypes speak against are the ones to look at first.
trust = learned.predict_proba(X)[np.arange(len(y)), noisy]
suspects = np.argsort(trust)[:100]
print(f"of the 100 training points with the least trusted labels, {wrong[suspects].sum()} are in fact wrong")
assert wrong[suspects].mean() > 0.8

"""Documents that share no word can still be near: bags of words under a ground cost.

Every topic is written about by two schools of authors, who use different words for the same things. Word vectors know
which words are alike; clustered, they become the bins of a histogram, and the distances between the clusters the ground
cost. One school is learned from, the other is classified.
"""

import numpy as np
from sklearn.cluster import KMeans

import knnpress as kp

rng = np.random.default_rng(0)
TOPICS = ["cooking", "sailing", "chess"]
n_words, n_dims = 600, 25

# Word vectors: each word belongs to one of 60 meanings. Words of even number are used by one school, odd ones by the
# other. Real ones come from fastText, GloVe or the like.
meanings = rng.normal(size=(60, n_dims))
meaning = rng.integers(60, size=n_words)
vectors = meanings[meaning] + 0.25 * rng.normal(size=(n_words, n_dims))

# A topic uses meanings of its own, and those of every text ("the", "and", ...).
usage = {topic: rng.dirichlet(np.full(60, 0.2)) + 1 / 60 for topic in TOPICS}


def write(topic, school, length=80):
    """Draw one document, as indices of words."""
    words = np.flatnonzero(np.arange(n_words) % 2 == school)
    chance = usage[topic][meaning[words]]
    return rng.choice(words, size=length, p=chance / chance.sum())


y = np.repeat(TOPICS, 60)
documents, others = ([write(topic, school) for topic in y] for school in (0, 1))

# 600 words are too fine a histogram: clusters of their vectors are the bins.
clusters = KMeans(40, n_init=3, random_state=0).fit(vectors)
centres = clusters.cluster_centers_
ground_cost = np.linalg.norm(centres[:, None] - centres, axis=-1)


def counts(documents, bins, n_bins):
    """Count what falls into each bin, (n, n_bins)."""
    return np.stack([np.bincount(bins[words], minlength=n_bins) for words in documents])


plain, plain_test = (counts(d, np.arange(n_words), n_words) for d in (documents, others))
X, X_test = (counts(d, clusters.labels_, 40) for d in (documents, others))

by_word = kp.PrototypeClassifier("sqeuclidean").fit(plain, y).score(plain_test, y)
by_meaning = kp.PrototypeClassifier(kp.geometries.Sinkhorn(ground_cost)).fit(X, y).score(X_test, y)
shc = kp.SHC(ground_cost, n_prototypes=6).fit(X, y)
learned = shc.score(X_test, y)

print(f"nearest neighbour by words        {by_word:6.1%} right")
print(f"nearest neighbour by transport    {by_meaning:6.1%} right")
print(f"6 learned prototypes (SHC)        {learned:6.1%} right")
assert by_word < 0.6  # no word in common: as good as a guess
assert by_meaning > 0.9
assert learned > 0.9

# A prototype is a histogram, so it can be read: the bins that a topic has most of, in multiples of the average.
for topic in TOPICS:
    k = list(shc.prototype_labels_).index(topic)
    top = np.argsort(shc.prototypes_[k] / X.mean(axis=0))[::-1][:3]
    print(f"{topic:8} stands out by the clusters {top.tolist()}")

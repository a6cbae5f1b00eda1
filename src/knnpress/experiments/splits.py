"""Rows to train on and rows to test on, as a study divides its data."""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from knnpress.datasets import Dataset, ImageDataset
from knnpress.experiments.study import Study
from knnpress.typing import Array, Indices


def divide(study: Study, data: Dataset | ImageDataset, seed: int) -> list[tuple[Indices, Indices]]:
    """Rows to train on and rows to test on, for each split of a study."""
    kind, y = study.splits, data.y
    single = [data.class_names[c] for c in np.flatnonzero(np.bincount(y) == 1)]
    if single and (kind == "half" or kind == "own"):
        raise ValueError(
            f"{study.name} has classes of a single point: {', '.join(map(repr, single[:5]))}"
            f"{'' if len(single) <= 5 else ', …'}; add points, or remove them: a split needs one to learn from and one "
            "to test on"
        )
    if kind == "half":
        return _shuffled(y, study.n_splits, len(y) // 2, seed)
    if kind == "own":
        own = list(data.splits[: study.n_splits])
        if not own:
            raise ValueError(f"{study.name} has no splits of its own; choose another kind")
        return own + _shuffled(y, study.n_splits - len(own), len(own[0][1]), seed)
    if kind.endswith(" a class"):
        count, most = int(kind.removesuffix(" a class")), int(np.bincount(y).max())
        if count >= most:
            raise ValueError(
                f"{study.name} has splits {kind!r}, and its largest class has {most} points: none would be left to "
                "test on; give fewer"
            )
        return [_per_class(y, count, np.random.default_rng([seed, k])) for k in range(study.n_splits)]
    if study.group is not None:
        if study.group not in data.groups:
            raise ValueError(f"{study.name} has no group {study.group!r}; it knows {', '.join(data.groups) or 'none'}")
        groups = np.asarray(data.groups[study.group])
        if kind.startswith("each "):
            return [(np.flatnonzero(groups != g), np.flatnonzero(groups == g)) for g in np.unique(groups)]
        return [_half_of_groups(y, groups, np.random.default_rng([seed, k])) for k in range(study.n_splits)]
    raise ValueError(f"{study.name} has splits {kind!r}; choose 'half', 'half by G', 'N a class', 'each G' or 'own'")


def _shuffled(y: Indices, count: int, n_test: int, seed: int) -> list[tuple[Indices, Indices]]:
    if count <= 0:
        return []
    return list(StratifiedShuffleSplit(count, test_size=n_test, random_state=seed).split(y, y))


def _per_class(y: Indices, count: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    chosen = [rng.permutation(np.flatnonzero(y == c))[:count] for c in np.unique(y)]
    train = np.sort(np.concatenate(chosen))
    return train, np.setdiff1d(np.arange(len(y)), train)


def _half_of_groups(y: Indices, groups: Array, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Half of the groups of each class to train on."""
    train = np.zeros(len(y), dtype=bool)
    for c in np.unique(y):
        known = rng.permutation(np.unique(groups[y == c]))
        train |= (y == c) & np.isin(groups, known[: -(-len(known) // 2)])
    return np.flatnonzero(train), np.flatnonzero(~train)

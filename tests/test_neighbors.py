"""Nearest neighbours and votes against literal loops, with many ties."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from knnpress.execution import threads
from knnpress.neighbors import nearest, vote

# few distinct values, so that most rows have ties
tied_distances = arrays(
    np.float64, st.tuples(st.integers(1, 80), st.integers(1, 9)), elements=st.integers(0, 3).map(float)
)


def look_up(D):
    """`distances` and X for which the distances of the points X are the matrix D."""
    return lambda rows: D[rows], np.arange(len(D))


def literal_nearest(D, k):
    order = [sorted(range(len(row)), key=lambda j: (row[j], j))[:k] for row in D.tolist()]
    return [[row[j] for j in js] for row, js in zip(D.tolist(), order, strict=True)], order


def literal_winner(labels):
    counts = Counter(labels)
    most = max(counts.values())
    return next(label for label in labels if counts[label] == most)


@settings(deadline=None, max_examples=40)
@given(D=tied_distances, data=st.data())
def test_nearest_takes_the_smallest_distances_and_among_equals_the_lowest_index(D, data):
    k = data.draw(st.integers(1, D.shape[1]))
    n_jobs = data.draw(st.sampled_from([1, 2]))
    distance, index = nearest(*look_up(D), D.shape[1], k, n_jobs)
    assert (distance.tolist(), index.tolist()) == literal_nearest(D, k)


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("bytes_a_block", [1, 8 * 8 * 5, 2**20])
def test_nearest_does_not_depend_on_the_blocks(monkeypatch, k, bytes_a_block):
    D = np.random.default_rng(0).integers(0, 4, size=(203, 8)).astype(float)
    monkeypatch.setattr(threads, "BLOCK_BYTES", bytes_a_block)
    distance, index = nearest(*look_up(D), 8, k, 2)
    assert (distance.tolist(), index.tolist()) == literal_nearest(D, k)


def test_nearest_never_asks_for_more_than_a_block_of_distances(monkeypatch):
    monkeypatch.setattr(threads, "BLOCK_BYTES", 8 * 5 * 10)
    D = np.zeros((100, 5))
    asked = []
    nearest(lambda rows: asked.append(len(rows)) or D[rows], np.arange(100), 5, 2, 1)
    assert sum(asked) == 100
    assert max(asked) <= 10


@settings(deadline=None)
@given(labels=arrays(np.intp, st.tuples(st.integers(1, 20), st.integers(1, 7)), elements=st.integers(0, 3)))
def test_vote_elects_the_commonest_class_and_in_a_tie_the_one_met_first(labels):
    winner, share = vote(labels, 5)
    assert winner.tolist() == [literal_winner(row) for row in labels.tolist()]
    expected = [[row.count(c) / len(row) for c in range(5)] for row in labels.tolist()]
    np.testing.assert_allclose(share, expected, atol=1e-15)


@pytest.mark.parametrize(
    ("labels", "winner"),
    [([2, 0, 0, 2], 2), ([0, 2, 2, 0], 0), ([1, 0, 2], 1), ([1, 2, 0, 0, 2], 2), ([1, 0, 0, 2, 2, 2], 2)],
)
def test_vote_ties_go_to_the_class_whose_nearest_voter_is_nearer(labels, winner):
    assert vote(np.array([labels]), 3)[0].tolist() == [winner]

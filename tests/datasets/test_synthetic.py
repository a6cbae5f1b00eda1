"""Points of a seeded generator."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from knnpress.datasets import make_wishart_classes
from knnpress.datasets.synthetic import _factors
from knnpress.estimators import PrototypeClassifier
from knnpress.geometries import JBLD


def test_points_are_valid_and_every_class_occurs():
    data = make_wishart_classes(500, 6, 7, random_state=3)
    JBLD().check(data.X)
    assert_array_equal(np.unique(data.y), np.arange(7))
    assert len(data.class_names) == 7


def test_points_depend_on_the_seed_and_not_on_how_many_there_are():
    many, few = make_wishart_classes(1500, 3, 2), make_wishart_classes(1030, 3, 2)
    assert_array_equal(many.X[:1030], few.X)
    assert_array_equal(many.y[:1030], few.y)
    assert not np.array_equal(few.X, make_wishart_classes(1030, 3, 2, random_state=1).X)
    assert not np.array_equal(few.X[:6], few.X[1024:])


def test_what_is_written_to_a_map_is_what_is_made_in_memory(tmp_path):
    out = np.memmap(tmp_path / "X", dtype=float, mode="w+", shape=(1100, 3, 3))
    data = make_wishart_classes(1100, 3, 2, out=out)
    assert data.X is out
    assert_array_equal(out, make_wishart_classes(1100, 3, 2).X)


def test_a_mode_has_the_mean_that_it_should():
    scale = _factors(np.random.default_rng([0, 0]), 1, 3, 0.25)[0]
    data = make_wishart_classes(4000, 3, 1, n_modes=1)
    assert np.abs(data.X.mean(axis=0) / (scale @ scale) - 1).max() < 0.2


def test_classes_can_be_told_apart_but_not_without_error():
    data = make_wishart_classes(1200, 5, 4)
    model = PrototypeClassifier("jbld", n_neighbors=5).fit(data.X[:800], data.y[:800])
    assert 0.02 < 1 - model.score(data.X[800:], data.y[800:]) < 0.5


def test_impossible_wishes_are_refused():
    with pytest.raises(ValueError, match="singular"):
        make_wishart_classes(10, 5, 2, degrees=4)
    with pytest.raises(ValueError, match="expected"):
        make_wishart_classes(10, 5, 2, out=np.empty((9, 5, 5)))

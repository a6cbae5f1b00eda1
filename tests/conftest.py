import numpy as np
import pytest

from knnpress import _core


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


@pytest.fixture(params=_core.targets())
def target(request):
    """Runs a test once on every instruction set that this machine has."""
    before = _core.target()
    _core.set_target(request.param)
    yield request.param
    _core.set_target(before)

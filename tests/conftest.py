import signal

import numpy as np
import pytest

from knnpress import _core

# A background job of a shell ignores Ctrl-C, and its children inherit that: the tests of
# interruption need it back.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def rng():
    return np.random.default_rng(20240607)


@pytest.fixture
def many_blocks(monkeypatch):
    """Even a few rows are cut into several blocks, which threads then share."""
    monkeypatch.setattr("knnpress.execution.threads._MIN_ROWS", 1)
    monkeypatch.setattr("knnpress.execution.threads._MIN_BYTES", 1)


@pytest.fixture(params=_core.targets())
def target(request):
    """Runs a test once on every instruction set that this machine has."""
    before = _core.target()
    _core.set_target(request.param)
    yield request.param
    _core.set_target(before)

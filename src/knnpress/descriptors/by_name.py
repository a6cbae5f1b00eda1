"""Descriptors of images by the names that commands have for them."""

from __future__ import annotations

from typing import Any

from knnpress import descriptors
from knnpress.names import DESCRIPTORS


def make_descriptor(name: str, seed: int, n_jobs: int | None) -> Any:
    """The descriptor that is called `name` in commands, not fitted."""
    kind, settings = DESCRIPTORS[name]
    descriptor = getattr(descriptors, kind)(n_jobs=n_jobs, **settings)
    return descriptor.set_params(random_state=seed) if "random_state" in descriptor.get_params() else descriptor

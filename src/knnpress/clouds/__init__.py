"""Clouds: sets of weighted points, in memory or in a store."""

from knnpress.clouds.checks import LARGEST
from knnpress.clouds.memory import Cloud, Clouds
from knnpress.clouds.stored import StoredClouds, as_read, clouds_of_block, equal_steps

__all__ = ["LARGEST", "Cloud", "Clouds", "StoredClouds", "as_read", "clouds_of_block", "equal_steps"]

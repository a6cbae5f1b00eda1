"""The tables of a report."""

from knnpress.report.tables.cells import TEST
from knnpress.report.tables.errors import errors, minus_full, overviews, same_size
from knnpress.report.tables.others import other_distances, other_models
from knnpress.report.tables.records import everything, failures, settings
from knnpress.report.tables.times import speed_ups, training_times

__all__ = [
    "TEST",
    "errors",
    "everything",
    "failures",
    "minus_full",
    "other_distances",
    "other_models",
    "overviews",
    "same_size",
    "settings",
    "speed_ups",
    "training_times",
]

"""The tables of a report."""

from knnpress.report.tables.errors import errors, minus_full, overviews, same_size
from knnpress.report.tables.exhibits import confusion_table, suspects_table
from knnpress.report.tables.others import other_distances, other_models
from knnpress.report.tables.parts import TEST
from knnpress.report.tables.pooled import others_win, ranks_table
from knnpress.report.tables.runs import everything, failures, settings
from knnpress.report.tables.times import speed_ups, training_times

__all__ = [
    "TEST",
    "confusion_table",
    "errors",
    "everything",
    "failures",
    "minus_full",
    "other_distances",
    "other_models",
    "others_win",
    "overviews",
    "ranks_table",
    "same_size",
    "settings",
    "speed_ups",
    "suspects_table",
    "training_times",
]

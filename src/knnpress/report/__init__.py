"""From the records of an experiment to a page: reads, averages and tests, and never computes a model or a distance."""

from knnpress.report.read import Results, read_results
from knnpress.report.write import Written, write_report

__all__ = ["Results", "Written", "read_results", "write_report"]

"""The paper's experiments, and your own: a plan, its runs, and their records.

A plan (`load_plan`) says which data, methods, sizes and splits; `run_plan` writes a JSON line for each run, and goes
on where it stopped. `knnpress.report` makes a page of the records.
"""

from knnpress.experiments.plan import Plan, load_plan, plan_names
from knnpress.experiments.records import read_records
from knnpress.experiments.runner import run_plan
from knnpress.experiments.study import Study

__all__ = ["Plan", "Study", "load_plan", "plan_names", "read_records", "run_plan"]

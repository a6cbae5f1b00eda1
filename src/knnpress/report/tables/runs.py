"""The records themselves: with which settings, what failed, and everything for the spreadsheet."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from knnpress.experiments.records import Record
from knnpress.report import formatting
from knnpress.report.analysis import Case
from knnpress.report.looks import title_of
from knnpress.report.statistics import Summary
from knnpress.report.table import Cell, Column, Table
from knnpress.report.tables.parts import mean_std


def settings(cases: dict[str, list[Case]]) -> Table:
    """The parameters that ours ran with."""
    groups = []
    for some in cases.values():
        case = some[0]
        rows = []
        for method in case.methods:
            records = [r for ratio in (*case.ratios, None) for r in case.records(method, ratio)]
            text = _params(records)
            if text:
                rows.append([Cell(title_of(method)), Cell(text)])
        if rows:
            groups.append((case.data.title, rows))
    columns = [Column("method", left=True), Column("parameters", left=True)]
    return Table("settings", "Settings", columns, groups, "data set", "Over all splits and sizes; a … b is a range.")


def _params(records: list[Record]) -> str:
    """key=value of all runs; a range where numbers differ."""
    found: dict[str, list[Any]] = {}
    for record in records:
        for key, value in record.params.items():
            if value not in found.setdefault(key, []):
                found[key].append(value)
    return ", ".join(f"{key} = {_param(found[key])}" for key in sorted(found))


def _param(values: list[Any]) -> str:
    numbers = [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]
    if len(numbers) == len(values) and len(values) > 1:
        return f"{min(numbers):.4g} … {max(numbers):.4g}"
    texts = [f"{v:.4g}" if isinstance(v, float) else v if isinstance(v, str) else json.dumps(v) for v in values]
    return " or ".join(texts[:4]) + (" or …" if len(texts) > 4 else "")


def failures(cases: dict[str, list[Case]]) -> Table:
    """Runs that gave no result, and why."""
    found: dict[tuple[str, str, str], int] = {}
    for some in cases.values():
        for case in some:
            for record in case.failures:
                name = f"{case.data.title}{', ' + case.variant if case.variant else ''}"
                key = (name, title_of(record.method), str(record.failure))
                found[key] = found.get(key, 0) + 1
    rows = [[Cell(a), Cell(b), Cell(c), Cell(str(n), (n,))] for (a, b, c), n in found.items()]
    columns = [Column("data set", left=True), Column("method", left=True), Column("why", left=True), Column("runs")]
    return Table("failures", "Runs without a result", columns, [("", rows)])


def everything(cases: dict[str, list[Case]]) -> Table:
    """A line for each data set, variant, method and size, for the spreadsheet."""
    figures: dict[str, Callable[[Record], float | None]] = {
        "test error %": lambda r: None if r.test_error is None else 100 * r.test_error,
        "training error %": lambda r: None if r.train_error is None else 100 * r.train_error,
        "prototypes": lambda r: r.n_prototypes,
        "training s": lambda r: r.train_seconds,
        "training CPU s": lambda r: r.train_cpu_seconds,
        "query us": lambda r: None if r.query_seconds is None else 1e6 * r.query_seconds,
        "full query us": lambda r: None if r.full_query_seconds is None else 1e6 * r.full_query_seconds,
        "distance us": lambda r: None if r.distance_seconds is None else 1e6 * r.distance_seconds,
        "full distance us": lambda r: None if r.full_distance_seconds is None else 1e6 * r.full_distance_seconds,
    }
    columns = [
        *(Column(name, left=True) for name in ("data set", "variant", "method", "ratio", "splits")),
        *(Column(name, (f"{name} mean", f"{name} std")) for name in figures),
    ]
    rows = []
    for some in cases.values():
        for case in some:
            for method in case.methods:
                for ratio in (*case.ratios, None):
                    error = case.summary(method, ratio)
                    if error is None:
                        continue
                    found = [case.summary(method, ratio, figure) for figure in figures.values()]
                    rows.append(
                        [
                            *(Cell(text) for text in (case.data.name, case.variant, method)),
                            Cell("" if ratio is None else f"{ratio:g}", (ratio,)),
                            Cell(str(error.n), (error.n,)),
                            *(Cell(_mean_text(s), mean_std(s, 1)) for s in found),
                        ]
                    )
    return Table("all", "Everything", columns, [("", rows)])


def _mean_text(summary: Summary | None) -> str:
    return formatting.MISSING if summary is None else f"{summary.mean:.4g}"

"""What people use today: other models, and other distances on the full training set."""

from __future__ import annotations

from knnpress.report import formatting
from knnpress.report.analysis import Case
from knnpress.report.looks import is_full, metric_title, title_of
from knnpress.report.table import Cell, Column, Table
from knnpress.report.tables.parts import (
    VERSUS,
    columns_at,
    kept_cell,
    mean_std,
    query_cell,
    quotient,
    summary_cell,
    value_in,
    versus_cell,
)


def other_models(case: Case) -> Table:
    """Ours at each ratio, and everything that has no ratio: error, size, time, and ours minus it."""
    columns = [
        Column("model", left=True),
        Column("error, %", ("error mean %", "error std %")),
        Column("prototypes or points kept", ("prototypes", "share of training set %")),
        Column("training", ("training s mean", "training s std")),
        Column("a query", ("query us mean",)),
        *columns_at(case.ratios if case.ours else [], VERSUS, "ours at {} minus it"),
    ]
    models: list[tuple[str, float | None]] = [(case.ours, ratio) for ratio in case.ratios] if case.ours else []
    models += [(method, None) for method in case.methods if case.records(method, None)]
    rows = [_model(case, *model) for model in models if case.summary(*model) is not None]
    return Table(
        f"{case.data.name}-models",
        "Other models, their sizes and times",
        columns,
        [("", rows)],
        note="Points of error; ▼ ours errs significantly less, ▲ significantly more, ≈ neither. A query goes through "
        "predict.",
    )


def _model(case: Case, method: str, ratio: float | None) -> list[Cell]:
    train = case.summary(method, ratio, lambda record: record.train_seconds)
    ours = method == case.ours
    versus = [None if ours else case.compare((str(case.ours), r), (method, ratio)) for r in case.ratios if case.ours]
    title = title_of(method) + (f" at {formatting.ratio_of(ratio)}" if ratio is not None else "")
    return [
        Cell(title, mark="ours" if ours else ""),
        summary_cell(case.summary(method, ratio)),
        kept_cell(case, method, ratio),
        Cell(formatting.duration(train.mean if train else None), mean_std(train, 1)),
        query_cell(case.summary(method, ratio, lambda record: record.query_seconds)),
        *map(versus_cell, versus),
    ]


def other_distances(case: Case) -> Table:
    """Full sets under other distances, against the usual one on the same queries."""
    usual = metric_title(case.data.geometry) or "the usual one"
    columns = [
        Column("distance", left=True),
        Column("its error, %", ("error %",)),
        Column(f"{usual} on the same queries, %", (f"{usual} error %",)),
        Column("difference, points", ("difference",)),
        Column("queries", ("queries",)),
        Column("a query", ("query us",)),
        Column(f"time ÷ {usual}'s", (f"time / {usual}",)),
    ]
    rows = []
    for method in case.methods:
        figures = [
            (record.test_error, record.reference_error, record)
            for record in case.records(method, None)
            if is_full(method) and record.reference_error is not None
        ]
        for error, reference, record in figures[:1]:
            if error is None or reference is None:
                continue
            slower = quotient("query_seconds", "full_query_seconds")(record)
            rows.append(
                [
                    Cell(method.removeprefix("full ")),
                    Cell(formatting.percent(error), (100 * error,)),
                    Cell(formatting.percent(reference), (100 * reference,)),
                    Cell(formatting.points(error - reference), (100 * (error - reference),)),
                    Cell(f"{record.n_test:,}", (record.n_test,)),
                    Cell(f"{formatting.microseconds(record.query_seconds)} µs", (value_in(record.query_seconds, 1e6),)),
                    Cell(f"{slower:.3g} ×" if slower else formatting.MISSING, (slower,)),
                ]
            )
    return Table(
        f"{case.data.name}-distances",
        "Other distances on the full training set",
        columns,
        [("", rows)],
        note="1-NN on the first split. Slow distances were tried on some of the queries only.",
    )

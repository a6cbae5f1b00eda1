"""Times, of testing and of training, beside the paper's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from knnpress.report import formatting
from knnpress.report.analysis import AgainstFull, Case, cells_of
from knnpress.report.paper import PAPER, PARTIAL, Printed
from knnpress.report.statistics import Summary
from knnpress.report.table import Cell, Column, Table
from knnpress.report.tables.parts import empty_cell, kept_cell, mean_std, query_cell, quotient


def speed_ups(cases: dict[str, list[Case]]) -> Table:
    """Time of a query against the full set, compressed."""
    columns = [
        Column("asked for"),
        Column("prototypes", ("prototypes", "share of training set %")),
        Column("points per prototype", ("1/share",)),
        Column("distances alone", ("distances mean", "distances std")),
        Column("end to end", ("end to end mean", "end to end std")),
        Column("query, full", ("query us, full",)),
        Column("query, ours", ("query us, ours",)),
        Column("as good as full", ("not significantly worse",), left=True),
        Column("the paper", ("paper mean", "paper std", "paper matches full"), left=True),
    ]
    note = (
        "Time of a query against the full training set, divided by the time against the prototypes, both measured back "
        "to back; in brackets, how much that is of the training points per prototype. “Distances alone” "
        "is without pruning on either side; “end to end” is through predict, the full set by all its distances. ✓: not "
        "significantly worse than the full set (the same test)."
    )
    if _in_paper(cases):
        note += " The figures of the paper come from another machine."
    groups = [(case.data.title, _rows(case, _speed_up)) for case in _plain(cases)]
    return _beside_the_paper(Table("speed-up", "Speed-up of testing", columns, groups, "data set", note), cases, 1)


def _speed_up(case: Case, ratio: float, printed: Printed | None) -> list[Cell] | None:
    ours = str(case.ours)
    share = case.share(ours, ratio)
    if share is None:
        return None
    cell = next((cell for cell in cells_of(case) if cell.ratio == ratio), None)
    paper = empty_cell(3)
    if printed:
        text = f"{printed.speed_up:g} ± {printed.speed_up_std:g}{' ✓' if printed.matches_full else ''}"
        paper = Cell(text, (printed.speed_up, printed.speed_up_std, printed.matches_full))
    return [
        Cell(formatting.ratio_of(ratio)),
        kept_cell(case, ours, ratio),
        Cell(f"{1 / share:.1f}", (1 / share,)),
        _factor(case.summary(ours, ratio, quotient("full_distance_seconds", "distance_seconds")), share),
        _factor(case.summary(ours, ratio, quotient("full_query_seconds", "query_seconds")), share),
        query_cell(case.summary(ours, ratio, lambda record: record.full_query_seconds)),
        query_cell(case.summary(ours, ratio, lambda record: record.query_seconds)),
        _as_good(cell),
        paper,
    ]


def _factor(summary: Summary | None, share: float) -> Cell:
    if summary is None:
        return empty_cell(2)
    return Cell(f"{formatting.times(summary)} ({100 * summary.mean * share:.0f} %)", (summary.mean, summary.std))


def _as_good(cell: AgainstFull | None) -> Cell:
    if cell is None or cell.comparison.worse is None:
        return Cell("too few splits", (None,))
    return Cell("✓ yes", (True,), "good") if cell.not_worse else Cell("✗ no", (False,), "bad")


def training_times(cases: dict[str, list[Case]]) -> Table:
    """How long learning takes, beside the paper's own figures."""
    columns = [
        Column("prototypes"),
        Column("ours", ("ours s mean", "ours s std")),
        Column("ours, CPU time", ("ours CPU s mean",)),
        Column("the paper's settings, here", ("paper's settings s mean", "paper's settings s std")),
        Column("the paper's own figure", ("paper s",)),
        Column("paper ÷ ours", ("paper / ours",)),
    ]
    note = "Hyper-parameters given."
    if _in_paper(cases):
        note = (
            "Hyper-parameters given, as in the table of the paper. "
            "Its machine was another, so the last column compares programs and machines together."
        )
    groups = []
    for case in _plain(cases):
        aside = " (a part of the paper's data: no ratio)" if case.data.name in PARTIAL else ""
        groups.append((case.data.title + aside, _rows(case, _training_time)))
    return _beside_the_paper(Table("training-time", "Training time", columns, groups, "data set", note), cases, 2)


def _training_time(case: Case, ratio: float, printed: Printed | None) -> list[Cell] | None:
    train = case.summary(str(case.ours), ratio, lambda record: record.train_seconds)
    if train is None:
        return None
    cpu = case.summary(str(case.ours), ratio, lambda record: record.train_cpu_seconds)
    old = case.summary(f"{case.ours} paper", ratio, lambda record: record.train_seconds)
    theirs = printed.train_seconds if printed else None
    factor = theirs / train.mean if theirs and train.mean > 0 and case.data.name not in PARTIAL else None
    text = f"{factor:.{0 if factor >= 10 else 1}f} ×" if factor else formatting.MISSING
    return [
        Cell(formatting.ratio_of(ratio)),
        Cell(_seconds(train), mean_std(train, 1)),
        Cell(formatting.duration(cpu.mean if cpu else None), (cpu.mean if cpu else None,)),
        Cell(_seconds(old), mean_std(old, 1)),
        Cell(formatting.duration(theirs), (theirs,)),
        Cell(text, (factor,)),
    ]


def _plain(cases: dict[str, list[Case]]) -> list[Case]:
    """The plain experiments that ours is in."""
    return [some[0] for some in cases.values() if some[0].ours and not some[0].variant]


def _rows(case: Case, row: Callable[[Case, float, Printed | None], list[Cell] | None]) -> list[list[Cell]]:
    printed = PAPER.get(case.data.name, {})
    rows = (row(case, ratio, printed.get(ratio)) for ratio in case.ratios)
    return [cells for cells in rows if cells]


def _in_paper(cases: dict[str, list[Case]]) -> bool:
    return any(name in PAPER for name in cases)


def _beside_the_paper(table: Table, cases: dict[str, list[Case]], n_columns: int) -> Table:
    """The table without empty groups, and with its last columns only where the paper has the data."""
    groups = [(title, rows) for title, rows in table.groups if rows]
    if _in_paper(cases):
        return replace(table, groups=groups)
    shorter = [(title, [row[:-n_columns] for row in rows]) for title, rows in groups]
    return replace(table, columns=table.columns[:-n_columns], groups=shorter)


def _seconds(summary: Summary | None) -> str:
    if summary is None:
        return formatting.MISSING
    if summary.std is None or summary.mean >= 59.5:
        return formatting.duration(summary.mean) + (
            "" if summary.std is None else f" ± {formatting.duration(summary.std)}"
        )
    digits = 0 if summary.mean >= 9.95 else 1 if summary.mean >= 0.95 else 2
    return f"{summary.mean:.{digits}f} ± {summary.std:.{digits}f} s"

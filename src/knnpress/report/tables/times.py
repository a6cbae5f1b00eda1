"""Times, of testing and of training, beside the paper's own."""

from __future__ import annotations

from knnpress.report import formatting
from knnpress.report.analysis import AgainstFull, Case, cells_of
from knnpress.report.paper import PAPER, PARTIAL
from knnpress.report.statistics import Summary
from knnpress.report.table import Cell, Column, Table
from knnpress.report.tables.parts import empty_cell, mean_in, mean_std, quotient


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
    groups = []
    for name, some in cases.items():
        case, rows = some[0], []
        if case.variant or not case.ours:
            continue
        against = {cell.ratio: cell for cell in cells_of(case)}
        for ratio in case.ratios:
            share = case.share(case.ours, ratio)
            distances = case.summary(case.ours, ratio, quotient("full_distance_seconds", "distance_seconds"))
            end = case.summary(case.ours, ratio, quotient("full_query_seconds", "query_seconds"))
            if share is None:
                continue
            full = case.summary(case.ours, ratio, lambda r: r.full_query_seconds)
            query = case.summary(case.ours, ratio, lambda r: r.query_seconds)
            size = case.summary(case.ours, ratio, lambda r: r.n_prototypes)
            printed = PAPER.get(name, {}).get(ratio)
            rows.append(
                [
                    Cell(formatting.ratio_of(ratio)),
                    Cell(
                        f"{size.mean:,.0f} ({formatting.percent(share)} %)" if size else formatting.MISSING,
                        (size.mean if size else None, 100 * share),
                    ),
                    Cell(f"{1 / share:.1f}", (1 / share,)),
                    _factor(distances, share),
                    _factor(end, share),
                    Cell(
                        f"{formatting.microseconds(full.mean)} µs" if full else formatting.MISSING,
                        (mean_in(full, 1e6),),
                    ),
                    Cell(
                        f"{formatting.microseconds(query.mean)} µs" if query else formatting.MISSING,
                        (mean_in(query, 1e6),),
                    ),
                    _as_good(against.get(ratio)),
                    Cell(
                        f"{printed.speed_up:g} ± {printed.speed_up_std:g}{' ✓' if printed.matches_full else ''}"
                        if printed
                        else formatting.MISSING,
                        (printed.speed_up, printed.speed_up_std, printed.matches_full) if printed else (None,) * 3,
                    ),
                ]
            )
        if rows:
            groups.append((case.data.title, rows))
    known = any(name in PAPER for name in cases)
    return Table(
        "speed-up",
        "Speed-up of testing",
        columns if known else columns[:-1],
        groups if known else [(title, [row[:-1] for row in rows]) for title, rows in groups],
        "data set",
        "Time of a query against the full training set, divided by the time against the prototypes, both measured back "
        "to back; in brackets, how much that is of the training points per prototype. “Distances alone” "
        "is without pruning on either side; “end to end” is through predict, the full set by all its distances. ✓: not "
        "significantly worse than the full set (the same test)."
        f"{' The figures of the paper come from another machine.' if known else ''}",
    )


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
    groups = []
    for name, some in cases.items():
        case = some[0]
        if case.variant or not case.ours:
            continue
        rows = []
        for ratio in case.ratios:
            train = case.summary(case.ours, ratio, lambda r: r.train_seconds)
            if train is None:
                continue
            cpu = case.summary(case.ours, ratio, lambda r: r.train_cpu_seconds)
            old = case.summary(f"{case.ours} paper", ratio, lambda r: r.train_seconds)
            printed = PAPER.get(name, {}).get(ratio)
            ratio_to = (
                printed.train_seconds / train.mean if printed and train.mean > 0 and name not in PARTIAL else None
            )
            rows.append(
                [
                    Cell(formatting.ratio_of(ratio)),
                    Cell(_seconds(train), mean_std(train, 1)),
                    Cell(formatting.duration(cpu.mean if cpu else None), (cpu.mean if cpu else None,)),
                    Cell(_seconds(old), mean_std(old, 1)),
                    Cell(
                        formatting.duration(printed.train_seconds if printed else None),
                        (printed.train_seconds if printed else None,),
                    ),
                    Cell(
                        f"{ratio_to:.0f} ×"
                        if ratio_to and ratio_to >= 10
                        else f"{ratio_to:.1f} ×"
                        if ratio_to
                        else formatting.MISSING,
                        (ratio_to,),
                    ),
                ]
            )
        if rows:
            groups.append(
                (case.data.title + (" (a part of the paper's data: no ratio)" if name in PARTIAL else ""), rows)
            )
    known = any(name in PAPER for name in cases)
    return Table(
        "training-time",
        "Training time",
        columns if known else columns[:-2],
        groups if known else [(title, [row[:-2] for row in rows]) for title, rows in groups],
        "data set",
        "Hyper-parameters given, as in the table of the paper. "
        "Its machine was another, so the last column compares programs and machines together."
        if known
        else "Hyper-parameters given.",
    )


def _seconds(summary: Summary | None) -> str:
    if summary is None:
        return formatting.MISSING
    if summary.std is None or summary.mean >= 59.5:
        return formatting.duration(summary.mean) + (
            "" if summary.std is None else f" ± {formatting.duration(summary.std)}"
        )
    digits = 0 if summary.mean >= 9.95 else 1 if summary.mean >= 0.95 else 2
    return f"{summary.mean:.{digits}f} ± {summary.std:.{digits}f} s"

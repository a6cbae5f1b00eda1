"""The tables of a report."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from knnpress.report import words
from knnpress.report.analysis import Case, cells_of, margin, rivals_of
from knnpress.report.analysis import Cell as Against
from knnpress.report.looks import is_full, title_of
from knnpress.report.paper import PAPER, PARTIAL
from knnpress.report.records import Record
from knnpress.report.statistics import Comparison, Summary
from knnpress.report.table import Cell, Column, Table

__all__ = [
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

TEST = (
    "corrected resampled t-test (Nadeau and Bengio 2003: variance (1/k + n_test/n_train) s² of the mean over k splits, "
    "k − 1 degrees of freedom)"
)


def overviews(cases: dict[str, list[Case]]) -> list[Table]:
    """Ours minus full, all data sets at a glance: a table for each set of ratios."""
    groups: dict[tuple[float, ...], list[Case]] = {}
    for some in cases.values():
        for case in some:
            if case.variant == "" and cells_of(case):
                groups.setdefault(tuple(case.ratios), []).append(case)
    tables = []
    for k, (ratios, members) in enumerate(groups.items()):
        parts = ("difference", "low", "high", "not worse", "within margin")
        columns = [
            Column("data set", left=True),
            Column("full 1-NN, error %", ("full mean %", "full std %")),
            *(Column(f"at {words.ratio_of(r)}", tuple(f"{p} at {words.ratio_of(r)}" for p in parts)) for r in ratios),
        ]
        rows = []
        for case in members:
            cells = {cell.ratio: cell for cell in cells_of(case)}
            reach = _reach(list(cells.values()))
            rows.append(
                [
                    Cell(case.data.title, (case.data.name,)),
                    _summary_cell(case.summary("full", None)),
                    *(_overview_cell(cells[r], reach) if r in cells else _empty(len(parts)) for r in ratios),
                ]
            )
        note = (
            "Points of test error more (+) or less (−) than the full training set, and the 95 % interval, drawn about "
            "a tick at zero with the margin shaded. ✓ / ✗: not significantly / significantly worse at 5 %, one-sided, "
            f"by the {TEST}. ≤ / >: within / beyond the margin."
        )
        title = "Ours minus the full training set" + (
            f", {words.ratio_of(ratios[0])} and up" if len(groups) > 1 else ""
        )
        last = k == len(groups) - 1
        tables.append(Table(f"overview{k + 1 if k else ''}", title, columns, [("", rows)], note=note if last else ""))
    return tables


def _overview_cell(cell: Against, reach: float) -> Cell:
    comparison = cell.comparison
    values = (100 * comparison.difference, _percent(comparison.low), _percent(comparison.high), *_marks(cell))
    text = f"{words.points(comparison.difference)} {words.interval(comparison)} {_signs(cell)}"
    html = (
        f"<b>{words.points(comparison.difference)}</b> {_signs_html(cell)}<br>"
        f"<small>{words.interval(comparison)}</small>{_whisker(cell, reach)}"
    )
    return Cell(text, values, "good" if cell.not_worse and cell.within else "bad", html)


def minus_full(cases: list[Case]) -> Table:
    """Ours minus full, with intervals and p-values."""
    columns = [
        Column("prototypes"),
        Column("full 1-NN, %", ("full mean %", "full std %")),
        Column("ours, %", ("ours mean %", "ours std %")),
        Column("difference, points", ("difference",)),
        Column("95 % interval", ("low", "high")),
        Column("", ("splits",)),
        Column("p (worse)", ("p worse",)),
        Column("verdict", ("not worse", "within margin"), left=True),
    ]
    groups, k = [], 0
    for case in cases:
        cells = cells_of(case)
        reach = _reach(cells)
        k = max([k, *(c.comparison.n for c in cells)])
        rows = [
            [
                Cell(words.ratio_of(cell.ratio)),
                _summary_cell(cell.full),
                _summary_cell(cell.ours),
                Cell(words.points(cell.comparison.difference), (100 * cell.comparison.difference,)),
                Cell(words.interval(cell.comparison), (_percent(cell.comparison.low), _percent(cell.comparison.high))),
                Cell(words.count(cell.comparison.n, "split"), (cell.comparison.n,), html=_whisker(cell, reach)),
                Cell(words.p_value(cell.comparison.p_worse), (cell.comparison.p_worse,)),
                Cell(_verdict(cell), _marks(cell), "good" if cell.not_worse and cell.within else "bad"),
            ]
            for cell in cells
        ]
        if rows:
            groups.append((_variant(case) if len(cases) > 1 else "", rows))
    return Table(
        f"{cases[0].data.name}-minus-full",
        "Ours minus the full training set",
        columns,
        groups,
        "variant" if len(cases) > 1 else "",
        f"By the {TEST} over {words.count(k, 'split')}; p one-sided for “worse”. The drawing shows the interval, a "
        "tick at zero, and the margin shaded.",
    )


def errors(cases: list[Case]) -> Table:
    """Test errors of all methods at all sizes."""
    ratios = sorted({ratio for case in cases for ratio in case.ratios})
    columns = [
        Column("method", left=True),
        *(Column(words.ratio_of(r), (f"{words.ratio_of(r)} mean", f"{words.ratio_of(r)} std")) for r in ratios),
        Column("own or only size", ("own mean", "own std", "own size % of training set")),
    ]
    groups = []
    for case in cases:
        failed = {record.method for record in case.failures}
        rows = []
        for method in [*case.methods, *sorted(failed - set(case.methods))]:
            own = case.summary(method, None)
            size = case.summary(method, None, _size)
            text = words.spread(own)
            if own and size and not is_full(method):
                text += f" (at {words.percent(size.mean)} %)"
            if own is None and method in failed:
                text = "failed"
            own_cell = Cell(text, (*_mean_std(own), _percent(size.mean if size else None)))
            row = [_summary_cell(case.summary(method, r)) for r in ratios]
            rows.append([Cell(title_of(method), mark="ours" if method == case.ours else ""), *row, own_cell])
        groups.append((_variant(case) if len(cases) > 1 else "", rows))
    return Table(
        f"{cases[0].data.name}-errors",
        "Test error in %, mean ± standard deviation",
        columns,
        groups,
        "variant" if len(cases) > 1 else "",
        "Sizes are shares of the training set. A figure without ± comes from a single split.",
    )


def same_size(cases: list[Case]) -> Table:
    """Ours minus every other method of the same size."""
    ratios = sorted({ratio for case in cases for ratio in case.ratios})
    parts = ("difference", "low", "high", "p worse", "p better")
    columns = [
        Column("ours minus", left=True),
        *(Column(f"at {words.ratio_of(r)}", tuple(f"{p} at {words.ratio_of(r)}" for p in parts)) for r in ratios),
    ]
    groups = []
    for case in cases:
        rows = [
            [
                Cell(title_of(method)),
                *(_versus(case.compare((str(case.ours), r), (method, r)), len(parts)) for r in ratios),
            ]
            for method in (rivals_of(case) if case.ours else ())
        ]
        if rows:
            groups.append((_variant(case) if len(cases) > 1 else "", rows))
    return Table(
        f"{cases[0].data.name}-same-size",
        "Ours minus others of the same size, points",
        columns,
        groups,
        "variant" if len(cases) > 1 else "",
        "▼ ours errs significantly less, ▲ significantly more, ≈ neither, one-sided at 5 % by the same test; with the "
        "95 % interval.",
    )


def other_models(case: Case) -> Table:
    """Ours at each ratio, and everything that has no ratio: error, size, time, and ours minus it."""
    parts = ("difference", "low", "high", "p worse", "p better")
    columns = [
        Column("model", left=True),
        Column("error, %", ("error mean %", "error std %")),
        Column("prototypes or points kept", ("prototypes", "share of training set %")),
        Column("training", ("training s mean", "training s std")),
        Column("a query", ("query us mean",)),
        *(
            Column(f"ours at {words.ratio_of(r)} minus it", tuple(f"{p} at {words.ratio_of(r)}" for p in parts))
            for r in case.ratios
            if case.ours
        ),
    ]
    models: list[tuple[str, float | None]] = [(case.ours, ratio) for ratio in case.ratios] if case.ours else []
    models += [(method, None) for method in case.methods if case.records(method, None)]
    rows = []
    for method, ratio in models:
        if case.summary(method, ratio) is None:
            continue
        size = case.summary(method, ratio, lambda r: None if r.n_prototypes is None else float(r.n_prototypes))
        share = case.summary(method, ratio, _size)
        kept = f"{size.mean:,.0f} ({words.percent(share.mean)} %)" if size and share else words.MISSING
        train = case.summary(method, ratio, lambda r: r.train_seconds)
        query = case.summary(method, ratio, lambda r: r.query_seconds)
        differences = [
            _empty(len(parts))
            if method == case.ours
            else _versus(case.compare((case.ours, r), (method, ratio)), len(parts))
            for r in case.ratios
            if case.ours
        ]
        title = title_of(method) + (f" at {words.ratio_of(ratio)}" if ratio is not None else "")
        rows.append(
            [
                Cell(title, mark="ours" if method == case.ours else ""),
                _summary_cell(case.summary(method, ratio)),
                Cell(kept, (size.mean if size else None, _percent(share.mean if share else None))),
                Cell(words.duration(train.mean if train else None), (*_mean_std(train, 1),)),
                Cell(f"{words.microseconds(query.mean)} µs" if query else words.MISSING, (_scaled(query, 1e6),)),
                *differences,
            ]
        )
    return Table(
        f"{case.data.name}-models",
        "Beside it: other models, their sizes and times",
        columns,
        [("", rows)],
        note="Points of error; ▼ ours errs significantly less, ▲ significantly more, ≈ neither. A query goes through "
        "predict.",
    )


def other_distances(case: Case) -> Table:
    """Full sets under other distances, against the usual one on the same queries."""
    usual = {"jbld": "JBLD", "sinkhorn": "Sinkhorn"}.get(case.data.geometry, "the usual one")
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
            slower = _ratio_of("query_seconds", "full_query_seconds")(record)
            rows.append(
                [
                    Cell(method.removeprefix("full ")),
                    Cell(words.percent(error), (100 * error,)),
                    Cell(words.percent(reference), (100 * reference,)),
                    Cell(words.points(error - reference), (100 * (error - reference),)),
                    Cell(f"{record.n_test:,}", (record.n_test,)),
                    Cell(f"{words.microseconds(record.query_seconds)} µs", (_scale(record.query_seconds, 1e6),)),
                    Cell(f"{slower:.3g} ×" if slower else words.MISSING, (slower,)),
                ]
            )
    return Table(
        f"{case.data.name}-distances",
        "Other distances on the full training set",
        columns,
        [("", rows)],
        note="1-NN on the first split. Slow distances were tried on some of the queries only.",
    )


def speed_ups(cases: dict[str, list[Case]]) -> Table:
    """Time of a query against the full set, compressed."""
    columns = [
        Column("asked for"),
        Column("prototypes", ("prototypes", "share of training set %")),
        Column("1/δ", ("1/share",)),
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
            share = case.summary(case.ours, ratio, _size)
            distances = case.summary(case.ours, ratio, _ratio_of("full_distance_seconds", "distance_seconds"))
            end = case.summary(case.ours, ratio, _ratio_of("full_query_seconds", "query_seconds"))
            if share is None:
                continue
            full = case.summary(case.ours, ratio, lambda r: r.full_query_seconds)
            query = case.summary(case.ours, ratio, lambda r: r.query_seconds)
            size = case.summary(case.ours, ratio, lambda r: r.n_prototypes)
            printed = PAPER.get(name, {}).get(ratio)
            rows.append(
                [
                    Cell(words.ratio_of(ratio)),
                    Cell(
                        f"{size.mean:,.0f} ({words.percent(share.mean)} %)" if size else words.MISSING,
                        (size.mean if size else None, 100 * share.mean),
                    ),
                    Cell(f"{1 / share.mean:.1f}", (1 / share.mean,)),
                    _factor(distances, share.mean),
                    _factor(end, share.mean),
                    Cell(f"{words.microseconds(full.mean)} µs" if full else words.MISSING, (_scaled(full, 1e6),)),
                    Cell(f"{words.microseconds(query.mean)} µs" if query else words.MISSING, (_scaled(query, 1e6),)),
                    _as_good(against.get(ratio)),
                    Cell(
                        f"{printed.speed_up:g} ± {printed.speed_up_std:g}{' ✓' if printed.matches_full else ''}"
                        if printed
                        else words.MISSING,
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
        "to back; in brackets as a share of 1/δ, δ being the share of the training set that is kept. “Distances alone” "
        "is without pruning on either side; “end to end” is through predict, the full set by all its distances. ✓: not "
        "significantly worse than the full set (the same test)."
        f"{' The figures of the paper come from another machine.' if known else ''}",
    )


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
                    Cell(words.ratio_of(ratio)),
                    Cell(_seconds(train), _mean_std(train, 1)),
                    Cell(words.duration(cpu.mean if cpu else None), (cpu.mean if cpu else None,)),
                    Cell(_seconds(old), _mean_std(old, 1)),
                    Cell(
                        words.duration(printed.train_seconds if printed else None),
                        (printed.train_seconds if printed else None,),
                    ),
                    Cell(
                        f"{ratio_to:.0f} ×"
                        if ratio_to and ratio_to >= 10
                        else f"{ratio_to:.1f} ×"
                        if ratio_to
                        else words.MISSING,
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
                            *(Cell(_mean_text(s), _mean_std(s, 1)) for s in found),
                        ]
                    )
    return Table("all", "Everything", columns, [("", rows)])


def _mean_text(summary: Summary | None) -> str:
    return words.MISSING if summary is None else f"{summary.mean:.4g}"


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


def _variant(case: Case) -> str:
    return case.variant or "as planned"


def _size(record: Record) -> float | None:
    return record.n_prototypes / record.n_train if record.n_prototypes and record.n_train else None


def _ratio_of(full: str, ours: str) -> Callable[[Record], float | None]:
    def figure(record: Record) -> float | None:
        above, below = getattr(record, full), getattr(record, ours)
        return above / below if above and below else None

    return figure


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _scaled(summary: Summary | None, factor: float) -> float | None:
    return None if summary is None else factor * summary.mean


def _scale(value: float | None, factor: float) -> float | None:
    return None if value is None else factor * value


def _mean_std(summary: Summary | None, factor: float = 100) -> tuple[float | None, float | None]:
    if summary is None:
        return None, None
    return factor * summary.mean, None if summary.std is None else factor * summary.std


def _summary_cell(summary: Summary | None) -> Cell:
    return Cell(words.spread(summary), _mean_std(summary))


def _empty(parts: int) -> Cell:
    return Cell(words.MISSING, (None,) * parts)


def _seconds(summary: Summary | None) -> str:
    if summary is None:
        return words.MISSING
    if summary.std is None or summary.mean >= 59.5:
        return words.duration(summary.mean) + ("" if summary.std is None else f" ± {words.duration(summary.std)}")
    digits = 0 if summary.mean >= 9.95 else 1 if summary.mean >= 0.95 else 2
    return f"{summary.mean:.{digits}f} ± {summary.std:.{digits}f} s"


def _factor(summary: Summary | None, share: float) -> Cell:
    if summary is None:
        return _empty(2)
    return Cell(f"{words.times(summary)} ({summary.mean * share:.2f}/δ)", (summary.mean, summary.std))


def _as_good(cell: Against | None) -> Cell:
    if cell is None or cell.comparison.worse is None:
        return Cell("not tested", (None,))
    return Cell("✓ yes", (True,), "good") if cell.not_worse else Cell("✗ no", (False,), "bad")


def _versus(comparison: Comparison | None, parts: int) -> Cell:
    if comparison is None:
        return _empty(parts)
    c = comparison
    sign = "" if c.worse is None else "▲" if c.worse else "▼" if c.better else "≈"
    said = {"▲": "significantly more", "▼": "significantly less", "≈": "no significant difference", "": "not tested"}[
        sign
    ]
    text = f"{sign} {words.points(c.difference)} {'' if c.low is None else words.interval(c)}".strip()
    below = "on one split" if c.low is None else words.interval(c)
    html = (
        f'<span aria-hidden="true">{sign}</span><span class="hidden">{said}</span> {words.points(c.difference)}'
        f"<br><small>{below}</small>"
    )
    values = (100 * c.difference, _percent(c.low), _percent(c.high), c.p_worse, c.p_better)
    return Cell(text, values, {"▲": "bad", "▼": "good"}.get(sign, ""), html)


def _marks(cell: Against) -> tuple[bool | None, bool]:
    return None if cell.comparison.worse is None else cell.not_worse, cell.within


def _margin(cell: Against) -> str:
    return f"{100 * margin(cell.full):g}"


def _signs(cell: Against) -> str:
    tested = "?" if cell.comparison.worse is None else "✓" if cell.not_worse else "✗"
    return f"{tested} {'≤' if cell.within else '>'} {_margin(cell)}"


def _signs_html(cell: Against) -> str:
    return f'<span aria-hidden="true" class="signs">{_signs(cell)}</span><span class="hidden">{_verdict(cell)}</span>'


def _verdict(cell: Against) -> str:
    tested = {None: "? not tested", False: "✓ not worse", True: "✗ worse"}[cell.comparison.worse]
    return f"{tested}, {'within' if cell.within else 'beyond'} {_margin(cell)}"


def _reach(cells: list[Against]) -> float:
    """How far from zero the intervals go."""
    ends = [
        end for c in cells for end in (c.comparison.difference, c.comparison.low, c.comparison.high) if end is not None
    ]
    return max(map(abs, ends), default=0.0)


def _whisker(cell: Against, reach: float) -> str:
    """A small drawing of the interval: zero in the middle, the margin shaded."""
    c, half = cell.comparison, 68
    reach = max(reach, 1.2 * margin(cell.full))

    def x(value: float) -> str:
        return f"{70 + half * value / reach:.1f}"

    edge = float(x(margin(cell.full)))
    low, high = (c.difference if end is None else end for end in (c.low, c.high))
    text = f"{words.points(c.difference)} {words.interval(c)}"
    return (
        f'<svg class="whisker" viewBox="0 0 140 20" role="img" aria-label="{text}">'
        f'<rect x="2" y="1" width="{edge - 2:.1f}" height="18" class="margin"/><path d="M70 1V19" class="zero"/>'
        f'<path d="M{x(low)} 10H{x(high)}M{x(low)} 6V14M{x(high)} 6V14" class="reach"/>'
        f'<circle cx="{x(c.difference)}" cy="10" r="4"/></svg>'
    )

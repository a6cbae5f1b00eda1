"""Errors: ours against the full training set, and against everything of the same size."""

from __future__ import annotations

from collections.abc import Callable

from markupsafe import Markup

from knnpress.report import formatting
from knnpress.report.analysis import AgainstFull, Case, cells_of, rivals_of
from knnpress.report.looks import is_full, title_of
from knnpress.report.statistics import COVERED_TEXT, LEVEL_TEXT
from knnpress.report.table import Cell, Column, Table
from knnpress.report.tables.parts import (
    TEST,
    VERSUS,
    columns_at,
    empty_cell,
    grade,
    in_percent,
    marks,
    mean_std,
    reach_of,
    signs,
    signs_html,
    summary_cell,
    variant_title,
    verdict,
    versus_cell,
    whisker,
)


def overviews(cases: dict[str, list[Case]]) -> list[Table]:
    """Ours minus full, all data sets at a glance: a table for those that have ratios in common."""
    groups: list[list[Case]] = []
    for case in (case for some in cases.values() for case in some if case.variant == "" and cells_of(case)):
        fitting = [members for members in groups if {*members[0].ratios} & {*case.ratios}]
        if fitting:
            fitting[0].append(case)
        else:
            groups.append([case])
    tables = []
    for k, members in enumerate(groups):
        ratios = sorted({ratio for case in members for ratio in case.ratios})
        parts = ("difference", "low", "high", "not worse", "within margin")
        columns = [
            Column("data set", left=True),
            Column("full 1-NN, error %", ("full mean %", "full std %")),
            *columns_at(ratios, parts),
        ]
        rows = []
        for case in members:
            cells = {cell.ratio: cell for cell in cells_of(case)}
            reach = reach_of(list(cells.values()))
            rows.append(
                [
                    Cell(case.data.title, (case.data.name,)),
                    summary_cell(case.summary("full", None)),
                    *(_overview_cell(cells[r], reach) if r in cells else empty_cell(len(parts)) for r in ratios),
                ]
            )
        note = (
            f"Points of test error more (+) or less (−) than the full training set, and the {COVERED_TEXT} interval, "
            "drawn about a tick at zero with the margin shaded. ✓ / ✗: not significantly / significantly worse at "
            f"{LEVEL_TEXT}, one-sided, by the {TEST}. ≤ / >: within / beyond the margin."
        )
        title = "Ours minus the full training set" + (
            f", {formatting.ratio_of(ratios[0])} and up" if len(groups) > 1 else ""
        )
        last = k == len(groups) - 1
        tables.append(Table(f"overview{k + 1 if k else ''}", title, columns, [("", rows)], note=note if last else ""))
    return tables


def _overview_cell(cell: AgainstFull, reach: float) -> Cell:
    comparison = cell.comparison
    values = (100 * comparison.difference, in_percent(comparison.low), in_percent(comparison.high), *marks(cell))
    text = f"{formatting.points(comparison.difference)} {formatting.interval(comparison)} {signs(cell)}"
    html = Markup("<b>{}</b> {}<br><small>{}</small>{}").format(
        formatting.points(comparison.difference),
        signs_html(cell),
        formatting.interval(comparison),
        whisker(cell, reach),
    )
    return Cell(text, values, grade(cell), html)


def minus_full(cases: list[Case]) -> Table:
    """Ours minus full, with intervals and p-values."""
    columns = [
        Column("prototypes"),
        Column("full 1-NN, %", ("full mean %", "full std %")),
        Column("ours, %", ("ours mean %", "ours std %")),
        Column("difference, points", ("difference",)),
        Column(f"{COVERED_TEXT} interval", ("low", "high")),
        Column("interval, drawn", ("splits",)),
        Column("p (worse)", ("p worse",)),
        Column("verdict", ("not worse", "within margin"), left=True),
    ]
    k = max((cell.comparison.n for case in cases for cell in cells_of(case)), default=0)
    note = (
        f"By the {TEST} over {formatting.count(k, 'split')}; p one-sided for “worse”. The drawing shows the interval, "
        "a tick at zero, and the margin shaded."
    )
    return _by_variant(cases, "minus-full", "Ours minus the full training set", columns, _minus_full_rows, note)


def _minus_full_rows(case: Case) -> list[list[Cell]]:
    cells = cells_of(case)
    reach = reach_of(cells)
    return [
        [
            Cell(formatting.ratio_of(cell.ratio)),
            summary_cell(cell.full),
            summary_cell(cell.ours),
            Cell(formatting.points(cell.comparison.difference), (100 * cell.comparison.difference,)),
            Cell(
                formatting.interval(cell.comparison),
                (in_percent(cell.comparison.low), in_percent(cell.comparison.high)),
            ),
            Cell(formatting.count(cell.comparison.n, "split"), (cell.comparison.n,), html=whisker(cell, reach)),
            Cell(formatting.p_value(cell.comparison.p_worse), (cell.comparison.p_worse,)),
            Cell(verdict(cell), marks(cell), grade(cell)),
        ]
        for cell in cells
    ]


def errors(cases: list[Case]) -> Table:
    """Test errors of all methods at all sizes."""
    ratios = sorted({ratio for case in cases for ratio in case.ratios})
    columns = [
        Column("method", left=True),
        *(
            Column(formatting.ratio_of(r), (f"{formatting.ratio_of(r)} mean", f"{formatting.ratio_of(r)} std"))
            for r in ratios
        ),
        Column("own or only size", ("own mean", "own std", "own size % of training set")),
    ]

    def rows(case: Case) -> list[list[Cell]]:
        failed = {record.method for record in case.failures}
        found = []
        for method in [*case.methods, *sorted(failed - set(case.methods))]:
            own = case.summary(method, None)
            size = case.share(method, None)
            text = formatting.spread(own)
            if own and size and not is_full(method):
                text += f" (at {formatting.percent(size)} %)"
            if own is None and method in failed:
                text = "failed"
            own_cell = Cell(text, (*mean_std(own), in_percent(size)))
            row = [_error_cell(case, method, r) for r in ratios]
            found.append([Cell(title_of(method), mark="ours" if method == case.ours else ""), *row, own_cell])
        return found

    note = "Sizes are shares of the training set. A figure without ± comes from a single split."
    return _by_variant(cases, "errors", "Test error in %, mean ± standard deviation", columns, rows, note)


def _error_cell(case: Case, method: str, ratio: float) -> Cell:
    """An error, and the size of the model where it is clearly smaller than asked for."""
    cell, share = summary_cell(case.summary(method, ratio)), case.smaller(method, ratio)
    return cell if share is None else Cell(f"{cell.text} (at {formatting.percent(share)} %)", cell.values)


def same_size(cases: list[Case]) -> Table:
    """Ours minus every other method of the same size."""
    ratios = sorted({ratio for case in cases for ratio in case.ratios})
    columns = [Column("ours minus", left=True), *columns_at(ratios, VERSUS)]

    def rows(case: Case) -> list[list[Cell]]:
        return [
            [Cell(title_of(method)), *(versus_cell(case.compare((str(case.ours), r), (method, r))) for r in ratios)]
            for method in (rivals_of(case) if case.ours else ())
        ]

    note = (
        f"▼ ours errs significantly less, ▲ significantly more, ≈ neither, one-sided at {LEVEL_TEXT} by the same test; "
        f"with the {COVERED_TEXT} interval."
    )
    return _by_variant(cases, "same-size", "Ours minus others of the same size, points", columns, rows, note)


def _by_variant(
    cases: list[Case],
    name: str,
    title: str,
    columns: list[Column],
    rows_of: Callable[[Case], list[list[Cell]]],
    note: str,
) -> Table:
    """A table of one data set, with a group of rows for each variant that has any; headings if there are several."""
    several = len(cases) > 1
    groups = [(variant_title(case) if several else "", rows) for case in cases if (rows := rows_of(case))]
    return Table(f"{cases[0].data.name}-{name}", title, columns, groups, "variant" if several else "", note)

"""All data sets together: where others win, and how methods rank."""

from __future__ import annotations

from knnpress.report import formatting
from knnpress.report.fronts import Win
from knnpress.report.looks import common_name, title_of
from knnpress.report.pooled import ROPE, Ranks, signed_rank
from knnpress.report.statistics import COVERED_TEXT, LEVEL_TEXT, summarize
from knnpress.report.table import Cell, Column, Table
from knnpress.report.tables.parts import TEST, in_percent, kept_text


def others_win(wins: list[Win]) -> Table:
    """Every cell in which another method errs significantly less than ours, the greatest difference first."""
    rows = []
    for win in sorted(wins, key=lambda win: -win.comparison.difference):
        case, c = win.case, win.comparison
        ours, theirs = (str(case.ours), win.ratio), (win.method, win.its_ratio)
        keeps = [case.share(*one) for one in (ours, theirs)]
        queries = [case.summary(*one, lambda record: record.query_seconds) for one in (ours, theirs)]
        slower = queries[1].mean / queries[0].mean if queries[0] and queries[1] and queries[0].mean else None
        rows.append(
            [
                Cell(case.data.title, (case.data.name,)),
                Cell(formatting.ratio_of(win.ratio), (100 * win.ratio, in_percent(keeps[0]))),
                Cell(title_of(win.method), (win.method,)),
                Cell(formatting.points(-c.difference), (-100 * c.difference,)),
                Cell(
                    f"[{formatting.points(-(c.high or 0.0))}, {formatting.points(-(c.low or 0.0))}]",
                    (None if c.high is None else -100 * c.high, None if c.low is None else -100 * c.low),
                ),
                Cell(kept_text(case, *theirs), (in_percent(keeps[1]),)),
                Cell(f"{slower:.3g} ×" if slower else formatting.MISSING, (slower,)),
            ]
        )
    columns = [
        Column("data set", left=True),
        Column("size of ours", ("asked for, %", "kept, %")),
        Column("who", left=True),
        Column("points of error against ours", ("points",)),
        Column(f"{COVERED_TEXT} interval", ("low", "high")),
        Column("what it keeps", ("keeps, %",)),
        Column("its query ÷ ours", ("time of a query / ours",)),
    ]
    note = (
        "All cells in which another method, of the same size or of a size of its own, errs significantly less than "
        f"ours: one-sided at {LEVEL_TEXT} by the {TEST}."
    )
    return Table("others-win", "Where others win", columns, [("", rows)], note=note)


def ranks_table(ranks: Ranks) -> Table:
    """Mean ranks, and ours against each by signed ranks."""
    ours = common_name("SCC")
    columns = [
        Column("method", left=True),
        Column("mean rank", ("mean rank",)),
        Column("mean error, %", ("mean error %",)),
        Column("ours errs less", ("P(ours less)",)),
        Column("no matter", ("P(no matter)",)),
        Column("ours errs more", ("P(ours more)",)),
    ]
    rows = []
    for name, rank in ranks.ranks.items():
        found = signed_rank(ranks.scores[ours], ranks.scores[name]) if name != ours else None
        chances = (found.less, found.same, found.more) if found else (None, None, None)
        mean = summarize(ranks.scores[name]).mean
        rows.append(
            [
                Cell(name, mark="ours" if name == ours else ""),
                Cell(f"{rank:.2f}", (rank,)),
                Cell(formatting.percent(mean), (100 * mean,)),
                *(Cell(formatting.MISSING if p is None else f"{p:.2f}", (p,)) for p in chances),
            ]
        )
    note = (
        "For a method with sizes, the mean error over the plan's sizes. The last three columns: the probability that, "
        f"on a data set like these, ours errs less by more than {100 * ROPE:g} points, is at most so much apart, or "
        "errs more by more than that (Bayesian signed-rank test; Benavoli, Corani, Demšar and Zaffalon 2017)."
    )
    return Table("ranks", "Ours against each, pooled over data sets", columns, [("", rows)], note=note)

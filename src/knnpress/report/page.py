"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict
from html import escape
from importlib.resources import files
from statistics import median

from knnpress.report import tables, words
from knnpress.report.analysis import Case, Verdict, cases_of, judge
from knnpress.report.curves import alt_text, curves_of
from knnpress.report.looks import is_full, palette_css, title_of
from knnpress.report.paper import CITATION, PAPER, PARTIAL
from knnpress.report.records import DataSet, Exhibit, Results
from knnpress.report.showcase import show, show_montage
from knnpress.report.table import as_html

__all__ = ["make_page"]


def make_page(results: Results, images: bool = True) -> str:
    """The report as HTML.

    Parameters
    ----------
    results : Results
    images : bool
        Whether to show images of the data.
    """
    cases = cases_of(results)
    verdict = judge(cases, results.planned)
    script = files("knnpress.report").joinpath("page.js").read_text(encoding="utf-8")
    style = palette_css() + files("knnpress.report").joinpath("page.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    body = "\n".join(
        [
            _head(results, cases, verdict),
            "<main>",
            _summary(cases, verdict),
            *(_data_section(some, results.exhibits[name], images) for name, some in cases.items()),
            _notes(results, cases),
            "</main>",
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="knnpress report">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(results.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def _head(results: Results, cases: dict[str, list[Case]], verdict: Verdict) -> str:
    links = "".join(f'<li><a href="#{_anchor(k)}">{escape(some[0].data.title)}</a></li>' for k, some in cases.items())
    return (
        f'<header><p class="kicker">knnpress</p><h1>{escape(results.title)}</h1>'
        f'<p class="verdict">{escape(verdict.sentence())}</p>{_tiles(cases, verdict)}'
        f'<nav aria-label="Data sets"><ul>{links}</ul></nav><p class="made">{escape(_made(results))}</p></header>'
    )


def _anchor(name: str) -> str:
    return "data-" + "".join(
        letter if letter.isascii() and letter.isalnum() else f"-{ord(letter):x}-" for letter in name
    )


def _tiles(cases: dict[str, list[Case]], verdict: Verdict) -> str:
    n = len(verdict.cells)
    facts: list[tuple[str, str, str]] = []
    if n:
        facts.append(
            (
                str(verdict.both),
                f" / {n}",
                "cells as good as the full set: not significantly worse, and within the margin",
            )
        )
    if verdict.rivals:
        won = verdict.rivals - len(verdict.lost)
        facts.append((str(won), f" / {verdict.rivals}", "comparisons with a method of the same size not lost"))
    smallest = [cell for cell in verdict.cells if cell.ratio == min(cell.case.ratios)]
    speeds = []
    for cell in smallest:
        speed = cell.case.summary(
            str(cell.case.ours), cell.ratio, lambda r: _divide(r.full_query_seconds, r.query_seconds)
        )
        speeds += [speed.mean] if speed else []
    if speeds:
        facts.append(
            (
                f"{median(speeds):.0f}",
                " ×",
                "faster queries through predict at the smallest size, median of the data sets",
            )
        )
    gains = []
    for cell in verdict.cells:
        printed = PAPER.get(cell.case.data.name, {}).get(cell.ratio)
        train = cell.case.summary(str(cell.case.ours), cell.ratio, lambda r: r.train_seconds)
        if printed and train and train.mean > 0 and cell.case.data.name not in PARTIAL:
            gains.append(printed.train_seconds / train.mean)
    if gains:
        facts.append(
            (f"{median(gains):.0f}", " ×", "below the paper's training times (another machine), median of the cells")
        )
    elif smallest:
        sizes = [cell.case.summary(str(cell.case.ours), cell.ratio, lambda r: r.train_seconds) for cell in smallest]
        known = [size.mean for size in sizes if size]
        if known:
            facts.append((words.duration(median(known)), "", "to learn the smallest set, median of the data sets"))
    tiles = "".join(
        f"<div><dt>{escape(what)}</dt><dd>{escape(value)}<small>{escape(unit)}</small></dd></div>"
        for value, unit, what in facts
    )
    return f'<dl class="tiles">{tiles}</dl>' if tiles else ""


def _divide(above: float | None, below: float | None) -> float | None:
    return above / below if above and below else None


def _made(results: Results) -> str:
    """On what machine, with what, when."""
    machines = list(dict.fromkeys(_machine(record.machine) for record in results.records if record.machine))
    versions: dict[str, list[str]] = {}
    for record in results.records:
        for name, version in record.versions.items():
            if str(version) not in versions.setdefault(str(name), []):
                versions[str(name)].append(str(version))
    parts = [words.count(len(results.records), "run")]
    last = max((record.finished for record in results.records), default="")
    if last:
        parts[0] += f", the last finished {last[:16].replace('T', ' ')}"
    if machines:
        parts.append("Machine: " + "; ".join(machines))
    if versions:
        parts.append(", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items()))
    return ". ".join(parts) + "."


def _machine(machine: dict[str, object]) -> str:
    known = [str(machine["cpu"])] if machine.get("cpu") else []
    known += [words.count(machine["cores"], "core")] if isinstance(machine.get("cores"), int) else []  # type: ignore[arg-type]
    known += [f"{key} {value}" for key, value in sorted(machine.items()) if key not in ("cpu", "cores")]
    return ", ".join(known)


def _summary(cases: dict[str, list[Case]], verdict: Verdict) -> str:
    parts = [as_html(table) for table in tables.overviews(cases)]
    parts += [f"<p>{escape(_rivals(verdict))}</p>"] if verdict.rivals else []
    parts += [as_html(table) for table in (tables.speed_ups(cases), tables.training_times(cases)) if table]
    return f'<section id="summary"><h2>All data sets</h2>{"".join(parts)}</section>' if parts else ""


def _rivals(verdict: Verdict) -> str:
    if not verdict.lost:
        n = words.count(verdict.rivals, "comparison")
        return f"Against the other methods of the same size, ours is significantly worse in none of {n}."
    named = [
        f"{title_of(method)} on {case.data.title} at {words.ratio_of(ratio)} ({words.points(comparison.difference)})"
        for case, method, ratio, comparison in verdict.lost
    ]
    return (
        f"Against the other methods of the same size, ours is significantly worse in {len(named)} of "
        f"{words.count(verdict.rivals, 'comparison')}: {'; '.join(named)}."
    )


def _data_section(cases: list[Case], exhibit: Exhibit, images: bool) -> str:
    case, data = cases[0], cases[0].data
    parts = [f"<h2>{escape(data.title)}</h2>", _facts(data, case), show_montage(data, exhibit, images), _chart(cases)]
    parts.append(as_html(tables.errors(cases)))
    parts += [as_html(table) for table in (tables.minus_full(cases), tables.same_size(cases)) if table]
    if case.ours:
        parts.append(as_html(tables.other_models(case)))
        parts.append(f"<p>{escape(_winners(case))}</p>")
    distances = tables.other_distances(case)
    parts += [as_html(distances)] if distances else []
    parts.append(show(data, exhibit, images))
    return f'<section id="{_anchor(data.name)}">{"".join(parts)}</section>'


def _facts(data: DataSet, case: Case) -> str:
    sizes = [
        record.n_train
        for method in case.methods
        for ratio in (*case.ratios, None)
        for record in case.records(method, ratio)
    ]
    kind = {"covariance": "{0} × {0} covariance matrices", "histogram": "histograms of {0} bins"}.get(data.kind, "")
    facts = {
        "points": f"{data.n:,}" if data.n else "",
        "to train": f"{max(sizes):,}" if sizes else "",
        "classes": str(data.n_classes) if data.n_classes else "",
        "each point": kind.format(data.dims) if data.dims else "",
        "distance": {"jbld": "JBLD", "sinkhorn": "Sinkhorn"}.get(data.geometry, data.geometry),
    }
    listed = "".join(f"<div><dt>{k}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items() if v)
    about = {"Features": data.features, "Splits": data.protocol}
    text = " ".join(f"{name}: {words.stop(said)}" for name, said in about.items() if said)
    cited = f'<p class="note">{escape(data.citation)}</p>' if data.citation else ""
    return f'<dl class="facts">{listed}</dl>' + (f"<p>{escape(text)}</p>" if text else "") + cited


def _winners(case: Case) -> str:
    """Say plainly which models without a ratio beat ours, and where."""
    beaten = []
    for method in case.methods:
        if not case.records(method, None) or method == case.ours:
            continue
        where = [
            f"{words.ratio_of(ratio)} ({words.points(-comparison.difference)})"
            for ratio in case.ratios
            if (comparison := case.compare((str(case.ours), ratio), (method, None))) is not None and comparison.worse
        ]
        if where:
            beaten.append(f"{title_of(method)} errs significantly less than ours at {', '.join(where)}")
    return (
        words.stop("; ".join(beaten))
        if beaten
        else "No model in this table errs significantly less than ours at any size."
    )


def _chart(cases: list[Case]) -> str:
    content = [
        {
            "label": case.variant or "as planned",
            "alt": alt_text(case),
            "ratios": [float(f"{100 * ratio:.6g}") for ratio in case.ratios],
            "series": [asdict(series) for series in curves_of(case)],
        }
        for case in cases
        if case.methods
    ]
    if not content:
        return ""
    packed = json.dumps(content, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure class="chart"><div class="controls"></div><div class="plot"></div>'
        '<noscript><p class="note">The curves are drawn by JavaScript; the table below has all their figures.</p>'
        "</noscript><figcaption>Mean test error over splits; bands and bars are one standard deviation. Hollow "
        "markers: the size at which a condensing method stops by itself. Lines across: methods without sizes to "
        "choose from. Point, tap or use the arrow keys to read values; press a name to hide or show it.</figcaption>"
        f'<script type="application/json">{packed}</script></figure>'
    )


def _notes(results: Results, cases: dict[str, list[Case]]) -> str:
    settings, failures = tables.settings(cases), tables.failures(cases)
    names = {name for name in cases if name in PAPER}
    paper = (
        f"<p>Figures of the paper: {escape(CITATION)}. It prints speed-ups and training times; its errors are only "
        "drawn, and so are not repeated here. Its machine, descriptors and splits were others.</p>"
        if names
        else ""
    )
    extra = any(
        is_full(method) and method != "full" for some in cases.values() for case in some for method in case.methods
    )
    once = (
        "<p>Other distances on the full set are hidden in the charts at first; they were run on one split.</p>"
        if extra
        else ""
    )
    notices = "".join(f"<li>{escape(text)}</li>" for text in results.notices)
    return (
        '<section id="notes"><h2>How to read this</h2>'
        "<p>A cell is one data set at one size; variants do not count. Significance is by the "
        f"{escape(tables.TEST)}, one-sided for “ours errs more” at 5 %; intervals are two-sided, 95 %. Standard "
        "deviations are over splits. The report computed nothing but means, deviations and tests.</p>"
        f"{paper}{once}"
        f"{as_html(settings) if settings else ''}{as_html(failures) if failures else ''}"
        + (f'<h3>Left out</h3><ul class="notices">{notices}</ul>' if notices else "")
        + "</section>"
    )

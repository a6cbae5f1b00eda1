"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

import numpy as np
from markupsafe import Markup

from knnpress.html import render
from knnpress.pictures import heat, image_tag
from knnpress.report import charts, formatting, headline, tables
from knnpress.report.analysis import Case
from knnpress.report.curves import curves_of
from knnpress.report.exhibits import confusion_of, gallery_of, map_of, montage_of, suspects_of
from knnpress.report.findings import Findings
from knnpress.report.fronts import wins_said
from knnpress.report.looks import LONG_NAMES, method_words, metric_title, palette_css, title_of
from knnpress.report.message import Message
from knnpress.report.paper import CITATION, PAPER
from knnpress.report.pooled import Ranks
from knnpress.report.read import DataSet, Exhibit, Results
from knnpress.report.statistics import COVERED_TEXT, LEVEL_TEXT, MIN_SPLITS, WIDEST
from knnpress.report.svg import element, swatch
from knnpress.report.table import Table, as_html
from knnpress.typing import Array

_MAX_CLASSES = 20  # beyond which a confusion matrix is a picture
_MAX_ROWS = 12  # beyond which a table is folded


def make_page(found: Findings, images: bool = True) -> str:
    """The report as HTML.

    Parameters
    ----------
    found : Findings
    images : bool
        Whether to show images of the data.
    """
    results, cases = found.results, found.cases
    drawn = next((name for name in cases if results.exhibits[name].script), None)  # one page, one drawing box
    sections = [
        _section(some, found.messages.get(name), results.exhibits[name], images, name == drawn)
        for name, some in cases.items()
    ]
    scripts = [("", _file("page.js"))]
    if drawn is not None:
        scripts.append((Markup(' type="module"'), results.exhibits[drawn].script + _file("drawing.js")))
    hashes = " ".join(f"'sha256-{_digest(script)}'" for _, script in scripts)
    overall = _overall(found)
    short = formatting.brief([some[0].data.title for some in cases.values()])
    titles = list(zip(map(_anchor, cases), short, strict=True))
    summary = [("summary", "All data sets")]
    return render(
        "knnpress.report",
        "page.html",
        results=results,
        policy=Markup(f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}"),
        style=Markup(palette_css() + _file("page.css")),
        scripts=[(kind, Markup(script)) for kind, script in scripts],
        contents=[*(summary + titles if overall["first"] else titles + summary), ("notes", "How to read this")],
        overall=overall,
        sections=sections,
        notes=_notes(results, cases),
        image_tag=lambda *args: Markup(image_tag(*args)),
        heat_scale=heat(np.linspace(-1, 1, 64)[None]),
        bars=_bars,
        swatch=swatch,
    )


def _file(name: str) -> str:
    return files("knnpress.report").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _anchor(name: str) -> str:
    return "data-" + "".join(
        letter if letter.isascii() and letter.isalnum() else f"-{ord(letter):x}-" for letter in name
    )


def _overall(findings: Findings) -> dict[str, Any]:
    """All data sets together; `first` where there are so many that the page begins with them."""
    cases, plain, first, ranks = findings.cases, findings.plain, findings.begins_with_all, findings.ranks
    wins = tables.others_win(findings.wins)
    folded = [tables.speed_ups(cases), tables.training_times(cases)]
    shown = [as_html(table) for table in tables.overviews(cases)]
    shown += [as_html(table, fold=True) for table in folded if table]
    found: dict[str, Any] = {
        "first": first,
        "verdict": findings.verdict.sentence(),
        "wins_said": wins_said(findings.wins, findings.verdict.cells),
        "wins": as_html(wins, fold=len(wins.groups[0][1]) > _MAX_ROWS) if wins else "",
        "tables": shown,
        "ranks": None,
    }
    if first:
        names = [name for name in LONG_NAMES if any(case.ours == name for case in plain)]
        learned = " and ".join(f"{name}{LONG_NAMES[name]}" for name in names)
        found["ours"] = f"Ours is {learned}: {method_words(names[0])}." if names else ""
        found["sentences"] = findings.sentences
        found["fronts"] = {name: headline.fronts(plain, width) for name, width in (("wide", 1040), ("narrow", 346))}
    if ranks is not None:
        found["ranks"] = {
            "wide": headline.ranks_figure(ranks, 1000),
            "narrow": headline.ranks_figure(ranks, 346),
            "told": ranks_said(ranks),
            "table": as_html(tables.ranks_table(ranks), fold=True),
        }
    return found


def ranks_said(ranks: Ranks) -> str:
    """What the figure of mean ranks shows."""
    absent = f" Left out, as not tried on all: {', '.join(ranks.absent)}." if ranks.absent else ""
    return (
        f"Rank 1: fewest errors, of {len(ranks.ranks)} methods on each of {len(ranks.data)} data sets, sizes averaged. "
        f"Friedman's test that all are as good: p {_p(ranks.p)}. Methods that a bar joins are nearer than Nemenyi's "
        f"critical difference at {LEVEL_TEXT}, {ranks.critical:.2f}, and cannot be told apart.{absent}"
    )


def _p(p: float) -> str:
    text = formatting.p_value(p)
    return text if text.startswith("<") else f"= {text}"


def _section(
    cases: list[Case], message: Message | None, exhibit: Exhibit, images: bool, drawing: bool
) -> dict[str, Any]:
    """All of one data set."""
    case, data = cases[0], cases[0].data
    what = (title_of(exhibit.method) if exhibit.method else "ours") + (
        f" at {formatting.ratio_of(exhibit.ratio)}" if exhibit.ratio is not None else ""
    )
    folded = [tables.errors(cases), tables.minus_full(cases), tables.same_size(cases)]
    folded += [tables.other_models(case)] if case.ours else []
    folded += [tables.other_distances(case)]
    known = {method: method_words(method) for one in cases for method in one.methods}
    matrix, suspects = confusion_of(exhibit), suspects_of(exhibit, images)
    return {
        "anchor": _anchor(data.name),
        "data": data,
        "message": message,
        "learned": f"Learned by {case.ours}{LONG_NAMES.get(str(case.ours), '')}.",
        "charts": [_chart(one) for one in cases if one.methods],
        "glossary": [(title_of(method), said) for method, said in known.items() if said],
        "drawing": render("knnpress.report", "drawing.html") if drawing else "",
        "montage": [(picture, data.class_name(label)) for picture, label in montage_of(exhibit, images)],
        "gallery": gallery_of(exhibit, images),
        "what": what,
        "winners": _winners(case) if case.ours else "",
        "tables": [as_html(table, fold=True) for table in folded if table],
        "confusion": None if matrix is None else _confusion(data, matrix, what),
        "map": map_of(exhibit),
        "map_said": formatting.stop(exhibit.map[0].upper() + exhibit.map[1:]) if exhibit.map else "",
        "suspects": as_html(tables.suspects_table(data, suspects, what), fold=True) if suspects else "",
        "facts": _facts(data, case),
        "about": " ".join(
            f"{name}: {formatting.stop(said)}"
            for name, said in (("Features", data.features), ("Splits", data.protocol))
            if said
        ),
    }


def _chart(case: Case) -> dict[str, Any]:
    wide, narrow = (charts.curves(case, width) for width in charts.WIDTHS)
    return {"label": case.variant or "as planned", "series": curves_of(case), "wide": wide, "narrow": narrow}


def _facts(data: DataSet, case: Case) -> list[tuple[str, str]]:
    runs = [
        record for method in case.methods for ratio in (*case.ratios, None) for record in case.records(method, ratio)
    ]
    sizes = [record.n_train for record in runs]
    kind = {"covariance": "{0} × {0} covariance matrices", "histogram": "histograms of {0} bins"}.get(data.kind, "")
    facts = {
        "points": f"{data.n:,}" if data.n else "",
        "to train": f"{max(sizes):,}" if sizes else "",
        "classes": str(data.n_classes) if data.n_classes else "",
        "each point": kind.format(data.dims) if data.dims else "",
        "distance": metric_title(data.geometry),
    }
    return [(name, said) for name, said in facts.items() if said]


def _winners(case: Case) -> str:
    """Say plainly which models without a ratio beat ours, and where; nothing where there are too few splits."""
    beaten, judged = [], False
    for method in case.methods:
        if not case.records(method, None) or method == case.ours:
            continue
        against = {ratio: case.compare((str(case.ours), ratio), (method, None)) for ratio in case.ratios}
        judged |= any(one is not None and one.judged for one in against.values())
        where = [
            f"{formatting.ratio_of(ratio)} ({formatting.points(-one.difference)})"
            for ratio, one in against.items()
            if one and one.worse
        ]
        if where:
            beaten.append(f"{title_of(method)} errs significantly less than ours at {', '.join(where)}")
    if beaten:
        said = formatting.stop("; ".join(beaten))
        return said[0].upper() + said[1:]
    return "None of the other models errs significantly less than ours at any size." if judged else ""


def _confusion(data: DataSet, matrix: Array, what: str) -> tuple[list[list[int]], Array | None, str]:
    """Counts, or a picture of them where there are many classes, and which confusions are the most frequent."""
    n, total, right = len(matrix), int(matrix.sum()), int(np.trace(matrix))
    counts: list[list[int]] = matrix.tolist()
    wrong = sorted(
        ((counts[i][j], i, j) for i in range(n) for j in range(n) if i != j and counts[i][j]),
        key=lambda found: (-found[0], found[1:]),
    )
    most = "; ".join(f"{data.class_name(i)} taken for {data.class_name(j)} ({count} ×)" for count, i, j in wrong[:6])
    told = f"{what}, {total - right} errors in {total} test points of the first split. " + (
        f"Most often: {most}." if most else ""
    )
    if n <= _MAX_CLASSES:
        return counts, None, told
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    signed = np.where(np.eye(n, dtype=bool), -share, np.sqrt(share))
    return counts, heat(np.kron(signed, np.ones((4, 4)))), told


def _bars(heights: Array, alt: str) -> Markup:
    """A histogram as an SVG."""
    top = float(heights.max()) or 1.0
    steps = "".join(f"V{40 - 38 * max(0.0, float(h)) / top:.1f}h1" for h in heights)
    return element(
        "svg",
        element("path", fill="currentColor", d=f"M0 40{steps}V40Z"),
        class_="bars",
        viewBox=f"0 0 {len(heights)} 40",
        preserveAspectRatio="none",
        role="img",
        aria_label=alt,
    )


def _notes(results: Results, cases: dict[str, list[Case]]) -> dict[str, Any]:
    """How to read the page, settings and failures, and how the runs were made."""
    said = [
        f"Counts are of the plain experiments; variants do not count. Significance is by the {tables.TEST}, one-sided "
        f"for “ours errs more” at {LEVEL_TEXT}; intervals are two-sided, {COVERED_TEXT}. Fewer than {MIN_SPLITS} "
        f"splits are not judged, nor are differences that are neither clear nor known to {100 * WIDEST:g} points. "
        "Whether a difference could be luck is said by the sign test over test points, each counted once for the "
        "method that was right on it more often, where the records name the points. Standard deviations are over "
        "splits. The report computed nothing but means, deviations, ranks and tests."
    ]
    if any(name in PAPER for name in cases):
        said.append(
            f"Figures of the paper: {CITATION}. It prints speed-ups and training times; its errors are only drawn, and "
            "so are not repeated here. Its machine, descriptors and splits were others."
        )
    if any(one.hidden for some in cases.values() for case in some for one in curves_of(case)):
        said.append("Other distances on the full set are hidden in the charts at first.")
    found: list[Table] = [table for table in (tables.settings(cases), tables.failures(cases)) if table]
    return {
        "paragraphs": said,
        "tables": [as_html(table, fold=table.name == "settings") for table in found],
        "made": _made(results),
    }


def _made(results: Results) -> str:
    """On what machine, with what, when."""
    machines = list(dict.fromkeys(_machine(record.machine) for record in results.records if record.machine))
    versions: dict[str, list[str]] = {}
    for record in results.records:
        for name, version in record.versions.items():
            if str(version) not in versions.setdefault(str(name), []):
                versions[str(name)].append(str(version))
    parts = [formatting.count(len(results.records), "run")]
    last = max((record.finished for record in results.records), default="")
    if last:
        parts[0] += f", the last finished {last[:16].replace('T', ' ')}"
    if machines:
        parts.append("Machine: " + "; ".join(machines))
    if versions:
        parts.append(", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items()))
    return ". ".join(parts) + "."


def _machine(machine: dict[str, Any]) -> str:
    known = [str(machine["cpu"])] if machine.get("cpu") else []
    known += [formatting.count(machine["cores"], "core")] if isinstance(machine.get("cores"), int) else []
    known += [f"{key} {value}" for key, value in sorted(machine.items()) if key not in ("cpu", "cores")]
    return ", ".join(known)

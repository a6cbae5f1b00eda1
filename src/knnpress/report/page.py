"""The page: one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import asdict
from html import escape
from importlib.resources import files

from knnpress.report import tables, words
from knnpress.report.analysis import Case, Verdict, cases_of, judge
from knnpress.report.curves import alt_text, curves_of
from knnpress.report.drawing import drawing_box, drawing_script
from knnpress.report.looks import LONG_NAMES, METHOD_WORDS, is_full, palette_css, title_of
from knnpress.report.message import message_of
from knnpress.report.paper import CITATION, PAPER
from knnpress.report.records import DataSet, Exhibit, Results
from knnpress.report.showcase import show_montage, show_prototypes, show_rest
from knnpress.report.statistics import LEAST_SPLITS, WIDEST
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
    program = files("knnpress.report").joinpath("page.js").read_text(encoding="utf-8")
    style = palette_css() + files("knnpress.report").joinpath("page.css").read_text(encoding="utf-8")
    drawn = next((name for name in cases if results.exhibits[name].script), None)  # one page, one drawing box
    sections = [
        _data_section(some, results.exhibits[name], images, drawing_box() if name == drawn else "")
        for name, some in cases.items()
    ]
    scripts = {"": program}
    if drawn is not None:
        scripts[' type="module"'] = drawing_script(results.exhibits[drawn].script)
    hashes = " ".join(f"'sha256-{_digest(script)}'" for script in scripts.values())
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {hashes}"
    body = "\n".join(
        [
            _head(results, cases),
            _contents(cases),
            "<main>",
            *sections,
            _summary(cases, judge(cases, results.planned)),
            _notes(results, cases),
            "</main>",
            *(f"<script{kind}>{script}</script>" for kind, script in scripts.items()),
        ]
    )
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="generator" content="knnpress report">\n<link rel="icon" href="data:,">\n'
        f"<title>{escape(results.title)}</title>\n<style>{style}</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _head(results: Results, cases: dict[str, list[Case]]) -> str:
    """The title, and what came out on each data set, a line each."""
    lines = []
    for name, some in cases.items():
        message = message_of(some[0])
        if message is not None:
            link = f'<a href="#{_anchor(name)}">{escape(some[0].data.title)}</a>'
            lines.append(f"<li>{link}<span>{escape(message.headline)}</span></li>")
    return (
        f'<header><p class="kicker">knnpress</p><h1>{escape(results.title)}</h1>'
        f'<ul class="messages">{"".join(lines)}</ul></header>'
    )


def _contents(cases: dict[str, list[Case]]) -> str:
    places = {_anchor(name): some[0].data.title for name, some in cases.items()}
    places |= {"summary": "All data sets", "notes": "How to read this"}
    links = "".join(f'<li><a href="#{anchor}">{escape(title)}</a></li>' for anchor, title in places.items())
    return f'<nav aria-label="Contents"><ul>{links}</ul></nav>'


def _anchor(name: str) -> str:
    return "data-" + "".join(
        letter if letter.isascii() and letter.isalnum() else f"-{ord(letter):x}-" for letter in name
    )


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
    parts = [f"<p>{escape(verdict.sentence())}</p>", *(as_html(table) for table in tables.overviews(cases))]
    parts += [f"<p>{escape(_rivals(verdict))}</p>"] if verdict.rivals else []
    parts += [as_html(table, fold=True) for table in (tables.speed_ups(cases), tables.training_times(cases)) if table]
    return f'<section id="summary"><h2>All data sets</h2>{"".join(parts)}</section>'


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


def _data_section(cases: list[Case], exhibit: Exhibit, images: bool, drawing: str) -> str:
    case, data = cases[0], cases[0].data
    folded = [tables.errors(cases), tables.minus_full(cases), tables.same_size(cases)]
    folded += [tables.other_models(case)] if case.ours else []
    folded += [tables.other_distances(case)]
    parts = [
        f"<h2>{escape(data.title)}</h2>",
        _lead(case),
        _chart(cases),
        drawing,
        show_montage(data, exhibit, images),
        show_prototypes(data, exhibit, images),
        f"<p>{escape(won)}</p>" if case.ours and (won := _winners(case)) else "",
        *(as_html(table, fold=True) for table in folded if table),
        show_rest(data, exhibit, images),
        _about(data, case),
    ]
    return f'<section id="{_anchor(data.name)}">{"".join(parts)}</section>'


def _lead(case: Case) -> str:
    """The message, whether to believe it, and what the learned points are."""
    message = message_of(case)
    if message is None:
        return ""
    learned = f"Learned by {case.ours}{LONG_NAMES.get(str(case.ours), '')}."
    return (
        f'<p class="message">{escape(message.headline)}</p><p>{escape(f"{message.judgement} {learned}")}</p>'
        f'<p class="note">{escape(message.speed)}</p>'
    )


def _about(data: DataSet, case: Case) -> str:
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
    return (
        f'<details><summary><h3>The data</h3></summary><dl class="facts">{listed}</dl>'
        + (f"<p>{escape(text)}</p>" if text else "")
        + f"{cited}</details>"
    )


def _winners(case: Case) -> str:
    """Say plainly which models without a ratio beat ours, and where; nothing where there are too few splits."""
    beaten, judged = [], False
    for method in case.methods:
        if not case.records(method, None) or method == case.ours:
            continue
        against = {ratio: case.compare((str(case.ours), ratio), (method, None)) for ratio in case.ratios}
        judged |= any(one is not None and one.judged for one in against.values())
        where = [
            f"{words.ratio_of(ratio)} ({words.points(-one.difference)})"
            for ratio, one in against.items()
            if one and one.worse
        ]
        if where:
            beaten.append(f"{title_of(method)} errs significantly less than ours at {', '.join(where)}")
    if beaten:
        said = words.stop("; ".join(beaten))
        return said[0].upper() + said[1:]
    return "None of the other models errs significantly less than ours at any size." if judged else ""


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
        '<noscript><p class="note">The curves are drawn by JavaScript; the tables below have all their figures.</p>'
        "</noscript><figcaption>Mean test error over splits; bands and bars are one standard deviation. Hollow "
        "markers: the size at which a condensing method stops by itself. Lines across: methods without sizes to "
        "choose from. Point, tap or use the arrow keys to read values; press a name to hide or show it.</figcaption>"
        f'<script type="application/json">{packed}</script>{_glossary(cases)}</figure>'
    )


def _glossary(cases: list[Case]) -> str:
    """What the methods of a chart are."""
    known = {method: METHOD_WORDS.get(method, "") for case in cases for method in case.methods}
    terms = "".join(
        f"<dt>{escape(title_of(method))}</dt><dd>{escape(said)}</dd>" for method, said in known.items() if said
    )
    return (
        f'<details class="glossary"><summary>What these methods are</summary><dl>{terms}</dl></details>'
        if terms
        else ""
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
        "<p>Counts are of the plain experiments; variants do not count. Significance is by the "
        f"{escape(tables.TEST)}, one-sided for “ours errs more” at 5 %; intervals are two-sided, 95 %. Fewer than "
        f"{LEAST_SPLITS} splits are not judged, nor are differences that are neither clear nor known to "
        f"{100 * WIDEST:g} points. Whether a difference could be luck is said by the sign test over test "
        "points, each counted once for the method that was right on it more often, where the records name the points. "
        "Standard deviations are over splits. The report computed nothing but means, deviations and tests.</p>"
        f"{paper}{once}"
        f"{as_html(settings, fold=True) if settings else ''}{as_html(failures) if failures else ''}"
        + (f'<h3>Left out</h3><ul class="notices">{notices}</ul>' if notices else "")
        + f'<p class="made">{escape(_made(results))}</p></section>'
    )

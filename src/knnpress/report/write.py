"""Write a report: the page, and its figures and tables as files of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from knnpress.files import check_folder, check_output, replacing
from knnpress.report import charts, headline, tables
from knnpress.report.exhibits import confusion_of, suspects_of
from knnpress.report.findings import Findings, findings_of
from knnpress.report.fronts import wins_said
from knnpress.report.message import Message
from knnpress.report.page import make_page, ranks_said
from knnpress.report.read import Results, read_results
from knnpress.report.svg import as_file
from knnpress.report.table import Table, as_csv, as_markdown, markdown_text


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes
    ----------
    page : path
    files : path
        The folder of figures and tables.
    verdict : str
        A sentence.
    messages : dict of str to Message
        What came out on each data set, by its title.
    notices : list of str
        What was left out, and why.
    """

    page: Path
    files: Path
    verdict: str
    messages: dict[str, Message]
    notices: list[str]


def write_report(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    files: str | os.PathLike[str] | None = None,
    images: bool = True,
) -> Written:
    """Make a page of a results folder, and files of its figures (SVG) and tables (CSV, Markdown).

    Parameters
    ----------
    folder : path
        What ``knnpress experiment`` wrote.
    output : path
        The HTML file.
    files : path, optional
        Folder of the other files; beside the page by default, named after it.
    images : bool
        Whether to show images of the data. Without them a report can be published where the data cannot.

    Raises
    ------
    ValueError
        Where the folder holds no results.
    """
    page = Path(output)
    check_output(page)
    beside = page.with_name(f"{page.stem}_files") if files is None else Path(files)
    check_folder(beside)
    results = read_results(Path(folder))
    found = findings_of(results)
    _write(page, make_page(found, images))
    beside.mkdir(parents=True, exist_ok=True)
    names = _file_names(results)
    all_tables = _tables(found, names)
    for name, table in all_tables.items():
        _write(beside / f"{name}.csv", as_csv(table))
        _write(beside / f"{name}.md", as_markdown(table))
    _write(beside / "all.csv", as_csv(tables.everything(found.cases)))
    drawn = _figures(found, names)
    for name, drawing in drawn.items():
        _write(beside / f"{name}.svg", drawing)
    _remove_older(beside, names, drawn)
    _write(beside / "summary.md", _markdown(found, all_tables, drawn, names))
    messages = {results.data[name].title: message for name, message in found.messages.items()}
    return Written(page, beside, found.verdict.sentence(), messages, results.notices)


def _write(path: Path, content: str) -> None:
    with replacing(path) as file:
        file.write(content.encode())


def _file_names(results: Results) -> dict[str, str]:
    """A name for the files of each data set, in plain letters."""
    names: dict[str, str] = {}
    for name in results.data:
        plain = (
            "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in name.lower()).strip("-")
            or "data"
        )
        taken = set(names.values())
        names[name] = (
            plain if plain not in taken else next(f"{plain}-{k}" for k in range(2, 999) if f"{plain}-{k}" not in taken)
        )
    return names


def _tables(findings: Findings, names: dict[str, str]) -> dict[str, Table]:
    """Every table by the name of its files."""
    cases, results = findings.cases, findings.results
    overall = [tables.ranks_table(findings.ranks)] if findings.ranks else []
    overall += [tables.others_win(findings.wins), *tables.overviews(cases)]
    overall += [tables.speed_ups(cases), tables.training_times(cases)]
    found = {table.name: table for table in overall if table}
    for name, some in cases.items():
        exhibit = results.exhibits[name]
        mine = {
            "errors": tables.errors(some),
            "minus-full": tables.minus_full(some),
            "same-size": tables.same_size(some),
            "models": tables.other_models(some[0]),
            "distances": tables.other_distances(some[0]),
        }
        matrix, suspects = confusion_of(exhibit), suspects_of(exhibit, False)
        if matrix is not None:
            mine["confusion"] = tables.confusion_table(results.data[name], matrix)
        if suspects is not None:
            mine["suspects"] = tables.suspects_table(results.data[name], suspects, "")
        found |= {f"{names[name]}-{kind}": table for kind, table in mine.items() if table}
    return found | {table.name: table for table in (tables.settings(cases), tables.failures(cases)) if table}


def _figures(findings: Findings, names: dict[str, str]) -> dict[str, str]:
    """Every figure by the name of its file."""
    found: dict[str, Markup] = {}
    if findings.begins_with_all:
        found["headline"] = headline.fronts(findings.plain, 860)
    if findings.ranks is not None:
        found["ranks"] = headline.ranks_figure(findings.ranks, 860)
    if findings.verdict.cells:
        found["overview"] = charts.differences(findings.verdict.cells)
    for name, some in findings.cases.items():
        for k, case in enumerate(case for case in some if case.methods):
            found[f"{names[name]}-curves{f'-{k}' if k else ''}"] = charts.curves(case, 560, key=True)
    return {name: as_file(drawing) for name, drawing in found.items()}


def _remove_older(folder: Path, names: dict[str, str], drawn: dict[str, str]) -> None:
    """Remove figures of an earlier report that this one does not have: they may show data that must not be shown."""
    kinds = ("curves", "prototypes", "map", "confusion", "suspects", "montage")
    known = {"headline", "ranks", "overview", *(f"{stem}-{kind}" for stem in names.values() for kind in kinds)}
    known |= {f"{stem}-curves-{k}" for stem in names.values() for k in range(1, 20)}
    for name in known:
        for suffix in (".png", ".svg"):
            if suffix != ".svg" or name not in drawn:
                (folder / f"{name}{suffix}").unlink(missing_ok=True)


_CAPTIONS = {
    "headline": "Error against size and against time of a query, all data sets",
    "ranks": "Mean ranks over data sets, and the critical difference",
    "overview": "Ours minus the full training set",
}


def _markdown(findings: Findings, found: dict[str, Table], drawn: dict[str, str], names: dict[str, str]) -> str:
    """All tables and figures on one page of Markdown, in the order of the page."""

    def picture(name: str, title: str) -> list[str]:
        return [f"![{title}]({name}.svg)\n"] if name in drawn else []

    results, ranks = findings.results, findings.ranks
    parts = [f"# {markdown_text(results.title)}\n", *picture("headline", _CAPTIONS["headline"])]
    parts += [f"{markdown_text(said)}\n" for said in (*findings.sentences, findings.verdict.sentence())]
    parts += [*picture("ranks", _CAPTIONS["ranks"]), f"{markdown_text(ranks_said(ranks))}\n"] if ranks else []
    of_data = {name: f"{stem}-" for name, stem in names.items()}
    overall = [name for name in found if not name.startswith(tuple(of_data.values()))]
    last = {"settings", "failures"}
    for name in overall:
        if name == "others-win":
            parts.append(f"{markdown_text(wins_said(findings.wins, findings.verdict.cells))}\n")
        parts += picture(name, _CAPTIONS[name]) if name == "overview" else []
        parts += [] if name in last else [as_markdown(found[name])]
    for name, prefix in of_data.items():
        title = markdown_text(results.data[name].title)
        parts.append(f"## {title}\n")
        message = findings.messages.get(name)
        parts += [f"{markdown_text(message.headline)}\n"] if message else []
        for one in drawn:
            if one.startswith(prefix):
                parts += picture(one, f"{title}: {one.removeprefix(prefix)}")
        parts += [as_markdown(table) for one, table in found.items() if one.startswith(prefix)]
    parts += [as_markdown(found[name]) for name in overall if name in last]
    return "\n".join(parts)

"""Write a report: the page, and its figures and tables as files of their own."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from knnpress.files import check_folder, check_output, replacing
from knnpress.report import figures, tables
from knnpress.report.analysis import Case, cases_of, cells_of, judge
from knnpress.report.exhibits import Suspects, confusion_of, gallery_of, map_of, montage_of, suspects_of
from knnpress.report.message import Message, message_of
from knnpress.report.page import make_page
from knnpress.report.records import Exhibit, Results, read_results
from knnpress.report.showcase import confusion_table, suspects_table
from knnpress.report.table import Table, as_csv, as_markdown, markdown_text

__all__ = ["Written", "write_report"]

Drawing = Callable[[], dict[str, bytes]]


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
    overview : list of Table
        Ours minus the full set, data set by data set.
    notices : list of str
        What was left out, and why.
    """

    page: Path
    files: Path
    verdict: str
    messages: dict[str, Message]
    overview: list[Table]
    notices: list[str]


def write_report(
    folder: str | os.PathLike[str],
    output: str | os.PathLike[str],
    files: str | os.PathLike[str] | None = None,
    images: bool = True,
) -> Written:
    """Make a page of a results folder, and files of its figures (PNG, SVG) and tables (CSV, Markdown).

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
    cases = cases_of(results)
    verdict = judge(cases, results.planned).sentence()
    notices = list(results.notices)
    _write(page, make_page(results, images).encode())
    beside.mkdir(parents=True, exist_ok=True)
    names = _file_names(results)
    all_tables = _tables(results, cases, names)
    for name, table in all_tables.items():
        _write(beside / f"{name}.csv", as_csv(table).encode())
        _write(beside / f"{name}.md", as_markdown(table).encode())
    _write(beside / "all.csv", as_csv(tables.everything(cases)).encode())
    drawn = _write_figures(beside, _figures(results, cases, names, images), notices)
    _write(beside / "summary.md", _markdown(results, verdict, all_tables, drawn, names).encode())
    found = {some[0].data.title: message_of(some[0]) for some in cases.values()}
    messages = {title: message for title, message in found.items() if message is not None}
    return Written(page, beside, verdict, messages, tables.overviews(cases), notices)


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as file:
        file.write(content)


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


def _tables(results: Results, cases: dict[str, list[Case]], names: dict[str, str]) -> dict[str, Table]:
    """Every table by the name of its files."""
    found = {table.name: table for table in tables.overviews(cases)}
    found |= {table.name: table for table in (tables.speed_ups(cases), tables.training_times(cases)) if table}
    for name, some in cases.items():
        exhibit = results.exhibits[name]
        mine = {
            "errors": tables.errors(some),
            "minus-full": tables.minus_full(some),
            "same-size": tables.same_size(some),
        }
        mine |= {"models": tables.other_models(some[0]), "distances": tables.other_distances(some[0])}
        matrix, suspects = confusion_of(exhibit), suspects_of(exhibit, False)
        if matrix is not None:
            mine["confusion"] = confusion_table(results.data[name], matrix)
        if suspects is not None:
            mine["suspects"] = suspects_table(results.data[name], suspects, "")
        found |= {f"{names[name]}-{kind}": table for kind, table in mine.items() if table}
    return found | {table.name: table for table in (tables.settings(cases), tables.failures(cases)) if table}


def _figures(
    results: Results, cases: dict[str, list[Case]], names: dict[str, str], images: bool
) -> dict[str, Drawing | None]:
    """How to draw each figure, by the name of its files; None for one that there could be but is not."""
    plain = [some[0] for some in cases.values() if cells_of(some[0])]
    found: dict[str, Drawing | None] = {"overview": partial(figures.differences, plain) if plain else None}
    for name, some in cases.items():
        data, exhibit, stem = results.data[name], results.exhibits[name], names[name]
        for k, case in enumerate(some):
            found[f"{stem}-curves{f'-{k}' if k else ''}"] = partial(figures.curves, case) if case.methods else None
        shown: dict[str, tuple[Callable[..., dict[str, bytes]], object]] = {
            "prototypes": (figures.gallery, gallery_of(exhibit, images)),
            "map": (figures.the_map, map_of(exhibit)),
            "confusion": (figures.confusion, confusion_of(exhibit)),
            "suspects": (figures.suspects, _with_images(exhibit, images)),
            "montage": (figures.montage, montage_of(exhibit, images)),
        }
        for kind, (draw, content) in shown.items():
            found[f"{stem}-{kind}"] = None if content is None else partial(draw, data, content)
    return found


def _with_images(exhibit: Exhibit, images: bool) -> Suspects | None:
    suspects = suspects_of(exhibit, images)
    return suspects if suspects and any(picture is not None for picture in suspects.images) else None


def _write_figures(folder: Path, drawings: dict[str, Drawing | None], notices: list[str]) -> list[str]:
    """Write what can be drawn, and remove what an earlier report drew and this one does not."""
    drawn = []
    for name, draw in drawings.items():
        content: dict[str, bytes] = {}
        if draw is not None:
            try:
                content = draw()
            except ImportError as error:  # no matplotlib: the page needs none
                if str(error) not in notices:
                    notices.append(str(error))
        for kind in figures.FORMATS:
            if kind in content:
                _write(folder / f"{name}.{kind}", content[kind])
            else:
                (folder / f"{name}.{kind}").unlink(missing_ok=True)
        drawn += [name] if content else []
    return drawn


def _markdown(results: Results, verdict: str, found: dict[str, Table], drawn: list[str], names: dict[str, str]) -> str:
    """All tables and figures on one page of Markdown."""
    parts = [f"# {markdown_text(results.title)}\n", f"{markdown_text(verdict)}\n"]
    of_data = {name: f"{stem}-" for name, stem in names.items()}

    def mine(name: str) -> bool:
        return any(name.startswith(prefix) for prefix in of_data.values())

    parts += [f"![Ours minus the full training set]({name}.svg)\n" for name in drawn if not mine(name)]
    parts += [as_markdown(table) for name, table in found.items() if not mine(name)]
    for name, prefix in of_data.items():
        title = markdown_text(results.data[name].title)
        parts.append(f"## {title}\n")
        parts += [f"![{title}: {one.removeprefix(prefix)}]({one}.svg)\n" for one in drawn if one.startswith(prefix)]
        parts += [as_markdown(table) for one, table in found.items() if one.startswith(prefix)]
    return "\n".join(parts)

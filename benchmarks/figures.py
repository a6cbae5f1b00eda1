"""Every measured number of README.md and of the pages in docs/, written there from the records.

    python benchmarks/figures.py    # after any change of benchmarks/*.jsonl, export.md, RESULTS.md or docs/results

A page marks where a block of figures goes, by the name of a function below:

    <!-- --8<-- [start:errors] -->
    <!-- --8<-- [end:errors] -->

tests/project/test_docs.py fails where a page and the records disagree.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from knnpress.report.analysis import cells_of
from knnpress.report.findings import findings_of
from knnpress.report.formatting import ratio_of
from knnpress.report.fronts import wins_said
from knnpress.report.read import read_results

ROOT = Path(__file__).parent.parent
BENCHMARKS, PAPER = ROOT / "benchmarks", ROOT / "docs" / "results"
BLOCK = re.compile(r"(<!-- --8<-- \[start:([\w-]+)\] -->\n).*?(<!-- --8<-- \[end:\2\] -->)", re.DOTALL)
DATA = {
    "eth80": "ETH-80",
    "kth": "KTH-TIPS2-b",
    "scene15": "Scene-15",
    "fpha": "hand actions",
    "coil20": "COIL-20",
    "mpeg7": "MPEG-7",
    "kylberg": "Kylberg",
}


def records(path: Path) -> list[dict[str, Any]]:
    """Lines of a file of records."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def table(titles: list[str], rows: list[list[str]], left: int = 1) -> str:
    """Markdown, all columns but the first few aligned to the right."""
    lines = [titles, ["---"] * left + ["---:"] * (len(titles) - left), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def spread(errors: list[float]) -> str:
    """Mean and standard deviation."""
    return f"{np.mean(errors):.1f} ± {np.std(errors):.1f}"


def errors() -> str:
    """Learned prototypes beside what people run today."""
    from errors import table as of_errors

    return of_errors()


def never_worse() -> str:
    """Small and noisy sets."""
    from never_worse import table as of_small_sets

    return of_small_sets()


def paper_runs(variant: str = "") -> dict[tuple[str, str, float | None], list[dict[str, Any]]]:
    """Runs of docs/results by data, method and size, on the usual splits or on those of a variant."""
    found: dict[tuple[str, str, float | None], list[dict[str, Any]]] = {}
    for run in records(PAPER / "records.jsonl"):
        if "test_error" in run and run.get("variant", "") == variant:
            found.setdefault((run["data"], run["method"], run.get("ratio")), []).append(run)
    return found


def paper_errors(runs: list[dict[str, Any]]) -> str:
    """Test error in %, of all splits."""
    return spread([100 * run["test_error"] for run in runs]) if len(runs) > 1 else ""


def all_sets() -> str:
    """What the runs of docs/results say of all data sets together, in sentences."""
    found = findings_of(read_results(PAPER))
    wins = wins_said(found.wins, [cell for case in found.plain for cell in cells_of(case)])
    return "\n".join(f"- {sentence}" for sentence in (*found.sentences, found.verdict.sentence(), wins) if sentence)


def first_screen() -> str:
    """What README begins with, of the same runs: three sentences."""
    found = findings_of(read_results(PAPER))
    judged = [cell for cell in found.verdict.cells if cell.comparison.worse is not None]
    as_good = (
        f"With default settings, the learned prototypes are as good as nearest neighbours among all training points in "
        f"{found.verdict.held} of the {len(judged)} cases (data set and size of the model) that can be judged."
    )
    median = found.sentences[1].replace("The median cell", "The median model")
    lost = dict.fromkeys(f"{win.case.data.title.partition(',')[0]} at {ratio_of(win.ratio)}" for win in found.wins)
    wins = f"Another method makes significantly fewer errors in {len(lost)} of these: {', '.join(lost)}."
    return "\n".join(f"- {said}" for said in (as_good, median, wins if lost else "") if said)


def auto() -> str:
    """What `metric="auto"` chose and what it cost, at the smallest size of each data set."""
    plan, plain = json.loads((PAPER / "plan.json").read_text())["data"], paper_runs()
    studies = [(about["title"], plain, data) for data, about in plan.items()]
    studies.append(("Scene-15, all 128 numbers of SIFT", paper_runs("128 dimensions"), "scene15"))
    studies.append(("ETH-80, objects never seen", paper_runs("by object"), "eth80"))
    rows = []
    for title, runs, data in studies:
        size = min(plan[data]["ratios"])
        own = [run for key in ("SCC", "SHC") for run in runs.get((data, key, size), [])]
        if len(own) < 2:
            continue
        linear = [run for key in ("tangent space + LR", "roots + LR") for run in runs.get((data, key, None), [])]
        cpu = f"{np.mean([run['train_cpu_seconds'] for run in own]):.0f}"
        chosen = what_was_chosen([run["chosen"]["metric"] for run in own], [run["n_prototypes"] for run in own])
        errors = (own, linear, runs.get((data, "full", None), []))
        rows.append([title, *chosen, cpu, *map(paper_errors, errors)])
    titles = ["data", "chosen", "prototypes", "CPU s", "ours", "logistic regression", "full 1-NN"]
    return table(titles, [*rows, *auto_of_eeg()], 2)


def auto_of_eeg() -> list[list[str]]:
    """The same of signals.jsonl; its errors are means over subjects, and processor time was not measured."""
    from signals import by_subject

    rows = []
    for part, title in (("within", "PhysioNet EEG, the same subject"), ("across", "PhysioNet EEG, new subjects")):
        runs = [run for run in records(BENCHMARKS / "signals.jsonl") if run["part"] == part]
        own = [run for run in runs if run["method"] == "SCC"]
        of_methods = [[run for run in runs if run["method"] == method] for method in ("SCC", "TS+LR", "1-NN")]
        errors = [f"{100 - 100 * np.mean(list(by_subject(lines).values())):.1f}" for lines in of_methods]
        chosen = what_was_chosen([run["metric"] for run in own], [run["n_prototypes"] for run in own])
        rows.append([title, *chosen, "", *errors])
    return rows


def what_was_chosen(metrics: list[str], sizes: list[int]) -> tuple[str, str]:
    """How often each metric was chosen, and the range of sizes."""
    counts = ", ".join(f"{name} {count} of {len(metrics)}" for name, count in Counter(metrics).most_common())
    return counts, f"{min(sizes)}" if min(sizes) == max(sizes) else f"{min(sizes)} to {max(sizes)}"


def same_size() -> str:
    """As many prototypes by other methods, at the smallest size of each data set."""
    plan, runs = json.loads((PAPER / "plan.json").read_text())["data"], paper_runs()
    smallest = {data: min(plan[data]["ratios"]) for data in DATA}
    methods = {
        "learned": ("SCC", "SHC"),
        "learned, paper's settings": ("SCC paper", "SHC paper"),
        "`RandomMutation`": ("RandomMutation",),
        "`Condensed`": ("Condensed",),
        "`Reduced`": ("Reduced",),
        "`FastCondensed`": ("FastCondensed",),
        "`Subsample`": ("Subsample",),
    }
    whole = {"all points, 1-NN": ("full",), "tangent space, regression": ("tangent space + LR",)}
    rows = []
    for names, size in ((methods, smallest), ({**whole, "class means (MDM)": ("MDM",)}, {})):
        for title, keys in names.items():
            found = [[run for key in keys for run in runs.get((data, key, size.get(data)), [])] for data in DATA]
            rows.append([title, *map(paper_errors, found)])
    titles = [f"{name}<br>{smallest[data]:.0%}".replace("%", " %") for data, name in DATA.items()]
    return table(["method", *titles], rows)


def own_size() -> str:
    """Condensing methods at the size that they stop at."""
    runs, rows = paper_runs(), []
    for method in ("Condensed", "Reduced", "FastCondensed"):
        cells = []
        for data in DATA:
            found = runs.get((data, method, None), [])
            kept = [100 * run["n_prototypes"] / run["n_train"] for run in found]
            cells.append(f"{paper_errors(found)}, {np.mean(kept):.0f} % kept" if found else "")
        rows.append([f"`{method}`", *cells])
    return table(["method", *DATA.values()], rows)


def descriptors() -> str:
    """Full nearest neighbours on image sets and hand actions, by descriptor."""
    plan, runs = json.loads((PAPER / "plan.json").read_text())["data"], paper_runs()
    rows = []
    for data in DATA:
        about, protocol = plan[data], plan[data]["protocol"].split(";")[0]
        shape = f"{about['dims']} x {about['dims']}" if about["kind"] == "covariance" else f"{about['dims']} bins"
        error = paper_errors(runs.get((data, "full", None), []))
        rows.append([about["title"], about["features"], shape, protocol, error])
    return table(["data", "features", "points", "test error of", "full 1-NN, %"], rows, 4)


def eeg(part: str) -> str:
    """Accuracy and calibration of one part of signals.jsonl."""
    from signals import rows

    titles = [{"within": "the same subject", "across": "new subjects"}[part], "accuracy", "SCC less it"]
    return table([*titles, "log loss", "calibration error"], rows(records(BENCHMARKS / "signals.jsonl"), part))


def eeg_online() -> str:
    """How many unlabelled trials of a new subject are needed."""
    from signals import ONLINE

    lines = records(BENCHMARKS / "signals.jsonl")
    rows = []
    for method in ("SCC", "MDM"):
        curves = [r["online"]["0"] for r in lines if "online" in r and r["method"] == method]
        rows.append([method, *(f"{100 * share:.1f} %" for share in np.mean(curves, axis=0))])
    return table(["unlabelled trials of the new subject", *map(str, ONLINE)], rows)


def exported() -> str:
    """Times and sizes of exported models: the columns of export.md that most people want."""
    text = (BENCHMARKS / "export.md").read_text(encoding="utf-8")
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    column = {title: k for k, title in enumerate(lines[0])}

    def cell(row: list[str], title: str) -> str:
        return row[column[title]].split(" / ")[0]

    rows = []
    for row in lines[2:]:
        board = row[column["Cortex-M4, float32, kB: flash / RAM / stack"]].split(" / ")
        rows.append(
            [
                row[0],
                f"`{row[1]}`",
                row[2].replace("x", " x "),
                row[3],
                cell(row, "predict"),
                cell(row, "C, µs: float64, gcc"),
                cell(row, "C, µs: float32, gcc"),
                cell(row, "object, kB: float64"),
                *(board[k] for k in (0, 2)),
            ]
        )
    titles = ["data", "geometry", "point", "prototypes", "Python, µs", "C, µs", "C float32, µs", "C, kB"]
    return table([*titles, "Cortex-M4 flash, kB", "Cortex-M4 stack, kB"], rows, 3)


def measured() -> dict[str, list[tuple[str, str]]]:
    """What `make bench` wrote: by section, what was measured and the figure."""
    found: dict[str, list[tuple[str, str]]] = {}
    for section in (BENCHMARKS / "RESULTS.md").read_text().split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in text.splitlines() if line.startswith("| ")]
        found[title] = [(what, figure) for what, figure in rows if what not in {"what", "---"}]
    return found


def speed() -> str:
    """The rows of RESULTS.md that say how long one has to wait, and what the peers take."""
    wanted = {
        "JBLD": r"d = 19: (share|times.*pyRiemann)",
        "AIRM": r"d = 19: times.*pyRiemann",
        "Sinkhorn": r"100 iterations|times as fast as a loop",
        "Clouds": r"times as fast as (a loop|PyTorch)|full 1-NN.*(times|solved)",
        "Full 1-NN": r"times as fast",
        "Queries of SCC": r"JBLD|Tangent: a|pyRiemann|TS\+LR",
        "Queries of SHC": r".*a point among|.*a single point",
        "Fits of real": r".*a default fit",
    }
    rows = []
    for title, lines in measured().items():
        pattern = next((p for start, p in wanted.items() if title.startswith(start)), None)
        kept = [line for line in lines if pattern is not None and re.match(pattern, line[0])]
        rows += [[title if k == 0 else "", what, figure] for k, (what, figure) in enumerate(kept)]
    return table(["", "what", "measured"], rows, 2)


def clouds(part: str) -> str:
    """Clouds beside their rivals: a table of documents or of images, or a sentence."""
    import clouds as records_of

    said: str = getattr(records_of, part)()
    return said


BLOCKS: dict[str, Callable[[], str]] = {
    "all-sets": all_sets,
    "first-screen": first_screen,
    "auto": auto,
    "errors": errors,
    "never-worse": never_worse,
    "same-size": same_size,
    "own-size": own_size,
    "descriptors": descriptors,
    "eeg-within": lambda: eeg("within"),
    "eeg-across": lambda: eeg("across"),
    "eeg-online": eeg_online,
    "clouds-documents": lambda: clouds("documents_table"),
    "clouds-images": lambda: clouds("images_table"),
    "clouds-sentence": lambda: clouds("sentence"),
    "exported": exported,
    "speed": speed,
}


def pages() -> Iterator[Path]:
    """Where figures stand."""
    yield ROOT / "README.md"
    yield from (page for page in sorted((ROOT / "docs").rglob("*.md")) if PAPER not in page.parents)


def written(text: str) -> str:
    """A page with the figures of the records in it."""
    return BLOCK.sub(lambda found: f"{found[1]}{BLOCKS[found[2]]()}\n{found[3]}", text)


def main() -> None:
    """Write all pages."""
    for page in pages():
        before = page.read_text(encoding="utf-8")
        after = written(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()

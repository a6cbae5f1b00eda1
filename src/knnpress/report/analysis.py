"""From records to figures: means over splits, differences on the same splits, and the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from knnpress.experiments.records import Record
from knnpress.report.looks import OURS, is_full, method_order
from knnpress.report.read import DataSet, Results
from knnpress.report.statistics import Comparison, Pooled, Summary, compare, pool, summarize

#: A method and the size that was asked for; None: a size of its own, or none
Sized = tuple[str, float | None]


class Case:
    """All runs on one data set in one variant.

    Parameters
    ----------
    data : DataSet
    variant : str
        Empty for the protocol as the plan has it.
    records : list of Record
    """

    def __init__(self, data: DataSet, variant: str, records: list[Record]) -> None:
        self.data, self.variant = data, variant
        self.failures = [record for record in records if record.failure is not None]
        self._runs: dict[tuple[str, float | None], list[Record]] = {}
        for record in records:
            if record.failure is None:
                self._runs.setdefault((record.method, record.ratio), []).append(record)
        self.methods = method_order(method for method, _ in self._runs)
        self.ratios = sorted({ratio for _, ratio in self._runs if ratio is not None})
        runs = self._runs.values()
        self._most_splits = max((len({record.split for record in found}) for found in runs), default=0)
        self._most_queries = max((record.n_test for found in runs for record in found), default=0)
        self._comparisons: dict[tuple[Sized, Sized], Comparison | None] = {}
        self.ours = next((method for method in OURS if method in self.methods), None)

    def records(self, method: str, ratio: float | None) -> list[Record]:
        """The runs of a method at a size."""
        return self._runs.get((method, ratio), [])

    def sized(self, method: str) -> bool:
        """Whether a method has sizes to choose from."""
        return any(self.records(method, ratio) for ratio in self.ratios)

    def comparable(self, method: str, ratio: float | None) -> bool:
        """Whether a method was tried on as many splits and test points as any other."""
        mine = self.records(method, ratio)
        splits = {record.split for record in mine}
        return bool(mine) and len(splits) == self._most_splits and max(r.n_test for r in mine) == self._most_queries

    def per_split(self, method: str, ratio: float | None, figure: Callable[[Record], float | None]) -> dict[int, float]:
        """A figure by split, averaged over seeds first."""
        found: dict[int, list[float]] = {}
        for record in self.records(method, ratio):
            value = figure(record)
            if value is not None:
                found.setdefault(record.split, []).append(value)
        return {split: summarize(found[split]).mean for split in sorted(found)}

    def summary(
        self,
        method: str,
        ratio: float | None,
        figure: Callable[[Record], float | None] = lambda record: record.test_error,
    ) -> Summary | None:
        """Mean and deviation of a figure (by default the test error) over splits."""
        values = list(self.per_split(method, ratio, figure).values())
        return summarize(values) if values else None

    def share(self, method: str, ratio: float | None) -> float | None:
        """The share of the training set that is really kept, mean over splits; None where it is unknown."""
        kept = self.summary(
            method, ratio, lambda r: r.n_prototypes / r.n_train if r.n_prototypes and r.n_train else None
        )
        return (1.0 if is_full(method) else None) if kept is None else kept.mean

    def smaller(self, method: str, ratio: float) -> float | None:
        """The share that is kept, where it is clearly smaller than asked for."""
        share = self.share(method, ratio)
        return share if share is not None and share < 0.9 * ratio else None

    def compare(self, first: Sized, second: Sized) -> Comparison | None:
        """The error of one (method, ratio) minus that of another, on the splits that both have."""
        if (first, second) not in self._comparisons:
            self._comparisons[first, second] = self._compare(first, second)
        return self._comparisons[first, second]

    def _compare(self, first: Sized, second: Sized) -> Comparison | None:
        errors = [self.per_split(*one, lambda record: record.test_error) for one in (first, second)]
        splits = [split for split in errors[0] if split in errors[1]]
        if not splits:
            return None
        shares = [r.n_test / r.n_train for r in self.records(*first) if r.split in splits and r.n_train]
        share = summarize(shares).mean if shares else 1.0
        return compare([errors[0][s] for s in splits], [errors[1][s] for s in splits], share)

    def pooled(self, first: Sized, second: Sized) -> Pooled | None:
        """One (method, ratio) against another on each test point; None where the records do not name the points."""
        wrong = [
            {r.split: {*r.wrong_rows} for r in self.records(*one) if r.wrong_rows is not None}
            for one in (first, second)
        ]
        splits = sorted(wrong[0].keys() & wrong[1].keys())
        if not splits or len(splits) < len({record.split for record in self.records(*first)}):
            return None
        return pool([wrong[0][split] for split in splits], [wrong[1][split] for split in splits])


@dataclass(frozen=True)
class AgainstFull:
    """Ours at one ratio against the full training set."""

    case: Case
    ratio: float
    full: Summary
    ours: Summary
    comparison: Comparison

    @property
    def not_worse(self) -> bool:
        """Whether the test was made, and did not find ours significantly worse."""
        return self.comparison.worse is False

    @property
    def within(self) -> bool:
        """Whether ours loses no more than the margin."""
        return self.comparison.difference <= margin(self.full) + 1e-12

    @property
    def held(self) -> bool:
        """Whether ours is neither significantly worse nor beyond the margin."""
        return self.not_worse and self.within


@dataclass(frozen=True)
class Verdict:
    """How ours fares against the full set.

    Attributes
    ----------
    cells : list of AgainstFull
    planned : int
        Cells that the plan has.
    """

    cells: list[AgainstFull]
    planned: int

    @property
    def not_worse(self) -> int:
        """Cells that are not significantly worse."""
        return sum(cell.not_worse for cell in self.cells)

    @property
    def within(self) -> int:
        """Cells that lose no more than the margin."""
        return sum(cell.within for cell in self.cells)

    @property
    def held(self) -> int:
        """Cells that are neither significantly worse nor beyond the margin."""
        return sum(cell.held for cell in self.cells)

    def sentence(self) -> str:
        """The verdict in a line."""
        if not self.cells:
            return "There is no cell yet that holds both ours and the full training set."
        n = len(self.cells)
        names = [name for name in OURS if any(cell.case.ours == name for cell in self.cells)]
        judged = sum(cell.comparison.worse is not None for cell in self.cells)
        cell = "A cell is one data set at one size of the model"
        if judged == 0:
            said = f"Too few splits, or splits that differ too much, to judge any of {n} cell{'s' * (n > 1)}. {cell}."
        else:
            said = (
                f"As good as the full training set in {self.held} of {'the ' * (judged < n)}{judged} "
                f"cell{'s' * (judged > 1)}{' that can be judged' * (judged < n)}. {cell}. As good means that "
                f"{' or '.join(names)} is not significantly worse than the full training set ({self.not_worse} of "
                f"{judged}), and within 0.5 points of its error, or 1 point where that is above 10 % ({self.within} "
                f"of {n})."
            )
            if judged < n:
                verb = "has" if n - judged == 1 else "have"
                said += f" The other {n - judged} {verb} too few splits, or splits that differ too much."
        run = f"{n} {'have' if n > 1 else 'has'} been run"
        return f"{said} The plan has {self.planned} cells, of which {run}." if n < self.planned else said


def margin(full: Summary) -> float:
    """How much more error than the full set's is accepted: half a point, or one point above 10 % of errors."""
    return 0.01 if full.mean > 0.1 else 0.005


def cases_of(results: Results) -> dict[str, list[Case]]:
    """The cases of each data set, the plain one first."""
    found: dict[str, list[Case]] = {}
    for name, data in results.data.items():
        mine = [record for record in results.records if record.data == name]
        variants = dict.fromkeys(record.variant for record in mine)
        order = sorted(variants, key=lambda variant: variant != "")
        found[name] = [Case(data, variant, [r for r in mine if r.variant == variant]) for variant in order]
    return found


def cells_of(case: Case) -> list[AgainstFull]:
    """Ours against the full set, at every ratio that has both."""
    found = []
    for ratio in case.ratios if case.ours else ():
        full, ours = case.summary("full", None), case.summary(str(case.ours), ratio)
        comparison = case.compare((str(case.ours), ratio), ("full", None))
        if full is not None and ours is not None and comparison is not None:
            found.append(AgainstFull(case, ratio, full, ours, comparison))
    return found


def rivals_of(case: Case) -> list[str]:
    """Other methods that have sizes to choose from."""
    return [method for method in case.methods if method != case.ours and not is_full(method) and case.sized(method)]


def judge(plain: list[Case], planned: int = 0) -> Verdict:
    """Count the cells of all data sets, each as the plan has it."""
    return Verdict([cell for case in plain for cell in cells_of(case)], planned)

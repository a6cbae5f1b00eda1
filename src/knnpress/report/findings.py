"""What a report says, worked out once for the page and for its files."""

from __future__ import annotations

from dataclasses import dataclass

from knnpress.report.analysis import Case, Verdict, cases_of, judge
from knnpress.report.fronts import Win, sentences, wins_of
from knnpress.report.message import Message, message_of
from knnpress.report.pooled import Ranks, rank_methods
from knnpress.report.read import Results

#: From this many data sets on, a report begins with all of them together
MANY = 3


@dataclass(frozen=True)
class Findings:
    """Results and what follows from them.

    Attributes
    ----------
    results : Results
    cases : dict of str to list of Case
    plain : list of Case
        Of each data set the experiment without a variant, where there is one.
    verdict : Verdict
    wins : list of Win
        Where others win.
    messages : dict of str to Message
        By the name of the data set.
    sentences : list of str
        What the fronts of all data sets say; empty where there are fewer than `MANY`.
    ranks : Ranks or None
        None where there are fewer than `MANY` data sets, or too few methods on all of them.
    """

    results: Results
    cases: dict[str, list[Case]]
    plain: list[Case]
    verdict: Verdict
    wins: list[Win]
    messages: dict[str, Message]
    sentences: list[str]
    ranks: Ranks | None

    @property
    def begins_with_all(self) -> bool:
        """Whether there are so many data sets that they are shown together first."""
        return len(self.plain) >= MANY


def findings_of(results: Results) -> Findings:
    """Work out all that a report says."""
    cases = cases_of(results)
    plain = [some[0] for some in cases.values() if not some[0].variant and some[0].methods]
    many = len(plain) >= MANY
    messages = {name: message for name, some in cases.items() if (message := message_of(some[0])) is not None}
    return Findings(
        results,
        cases,
        plain,
        judge(plain, results.planned),
        [win for case in plain for win in wins_of(case)],
        messages,
        sentences(plain) if many else [],
        rank_methods(plain) if many else None,
    )

"""Numbers as people read them."""

from __future__ import annotations

from knnpress.report.statistics import Comparison, Summary

MISSING = "–"


def ratio_of(ratio: float) -> str:
    """0.02 is 2 %."""
    return f"{100 * ratio:g}\N{NO-BREAK SPACE}%"


def percent(share: float) -> str:
    """A share in per cent: two digits after the point below ten, else one."""
    value = 100 * share
    return f"{value:.2f}" if abs(value) < 9.995 else f"{value:.1f}"


def spread(summary: Summary | None) -> str:
    """Mean ± standard deviation, in per cent."""
    if summary is None:
        return MISSING
    return percent(summary.mean) + ("" if summary.std is None else f" ± {percent(summary.std)}")


def times(summary: Summary | None) -> str:
    """A factor, ± its standard deviation."""
    if summary is None:
        return MISSING
    digits = 0 if summary.mean >= 100 else 1
    return f"{summary.mean:.{digits}f}" + ("" if summary.std is None else f" ± {summary.std:.{digits}f}")


def points(difference: float) -> str:
    """A difference of shares, in points, with its sign."""
    text = f"{100 * difference:+.2f}"
    return "0.00" if text[1:] == "0.00" else text.replace("-", "−")


def interval(comparison: Comparison) -> str:
    """The interval, where there are splits enough for one that says something."""
    if comparison.low is None or comparison.high is None or not comparison.judged:
        return MISSING
    return f"[{points(comparison.low)}, {points(comparison.high)}]"


def p_value(p: float | None) -> str:
    """To three digits, or that it is below."""
    if p is None:
        return MISSING
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def duration(seconds: float | None) -> str:
    """Seconds, minutes or hours, to about two digits.

    Examples
    --------
    >>> [duration(s) for s in (0.00021, 0.034, 1.2, 159, 7860)]
    ['0.21 ms', '34 ms', '1.2 s', '2 min 39 s', '2 h 11 min']
    """
    if seconds is None:
        return MISSING
    if seconds < 0.9995:
        return f"{1000 * seconds:.2g} ms" if seconds < 0.0995 else f"{seconds:.2f} s"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def microseconds(seconds: float | None) -> str:
    """Microseconds, to three digits."""
    if seconds is None:
        return MISSING
    value = 1e6 * seconds
    return f"{value:,.0f}" if value >= 99.5 else f"{value:.3g}"


def count(n: int, noun: str) -> str:
    """1 cell, 2 cells."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def brief(titles: list[str]) -> list[str]:
    """Titles up to their comma, where they can still be told apart.

    Examples
    --------
    >>> brief(["ETH-80, 8 kinds of objects", "Scene-15"])
    ['ETH-80', 'Scene-15']
    """
    short = [title.partition(",")[0] for title in titles]
    return short if len(set(short)) == len(short) else list(titles)


def stop(sentence: str) -> str:
    """The sentence with a full stop, if it has none."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."

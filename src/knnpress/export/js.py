"""Tables and numbers as a JavaScript module."""

from __future__ import annotations

import json
import textwrap
from importlib.metadata import version
from importlib.resources import files

import numpy as np

from knnpress.export.c import c_string
from knnpress.export.geometry_tables import LANES
from knnpress.export.tables import DOUBLES, Exported
from knnpress.typing import Array

_TOP = """\
// A classifier under the geometry "{geometry}", exported by knnpress {version}: {m} prototypes of {n_classes} classes.
//
// predict(x, probabilities): x holds pointSize numbers ({point}). Returns the index of a class, whose name is in
// classes, or -1 where x is not a valid point. probabilities: an array that is filled, or left out.
{more}"""
_PREDICT = """\
export function predict(x, probabilities = null) {
  if (x.length !== pointSize) throw new RangeError(`x holds ${x.length} numbers; give ${pointSize}`);
  const point = prepare(x);
  if (!point) return -1;
  const answer = (certain) => {
    const votes = new Votes(certain);
    compare(point, votes);
    return votes.close(probabilities);
  };
  const winner = answer(probabilities !== null);
  return winner === UNSURE ? answer(true) : winner;
}
"""
_FLAGS = ("ASYMMETRIC", "CENTERED", "DEBIASED", "REJECT", "SOFT", "TRANSPORT", "WHITENED")
#: The files of `js/` that a kind is made of, after the vote
_PARTS = {
    "vector": ("vector", "distance"),
    "roots": ("histogram", "roots", "distance"),
    "sinkhorn": ("histogram", "sinkhorn"),
    "logarithm": ("spd", "logarithm", "distance"),
    "jbld": ("spd", "jbld"),
}


def js_source(facts: Exported) -> str:
    """The text of a module."""
    vote = "neighbours" if facts.votes else "scores"
    code = [files("knnpress.export").joinpath("js", f"{name}.js") for name in (vote, *_PARTS[facts.kind])]
    point = "a matrix, whole, row by row" if facts.point_size > facts.d else "a vector or histogram"
    top = _TOP.format(
        geometry=facts.geometry,
        version=version("knnpress"),
        m=len(facts.labels),
        n_classes=len(facts.classes),
        point=point,
        more="".join(f"// {line}\n" for line in _more(facts)),
    )
    parts = [top, _settings(facts), _tables(facts), *(part.read_text(encoding="ascii") for part in code), _PREDICT]
    if facts.window:
        parts.append(files("knnpress.export").joinpath("js", "window.js").read_text(encoding="ascii"))
    return "\n".join(parts)


def _more(facts: Exported) -> list[str]:
    """What else a reader of the file should know."""
    lines = [c_string(note)[1:-1] for note in facts.notes]
    if facts.window:
        lines.append(
            "predictWindow(samples, n, probabilities) takes the covariance of a window of n samples as "
            f'SignalCovariance("{facts.window}") does.'
        )
    return lines


def js_string(text: str) -> str:
    """A string literal of ASCII alone, which no page takes for the end of a script."""
    return json.dumps(text).replace("<", "\\u003c")


def _settings(facts: Exported) -> str:
    lines = [
        f"export const version = {js_string(version('knnpress'))};",
        f"export const pointSize = {facts.point_size};",
        f"export const classes = [{', '.join(map(js_string, facts.classes))}];",
        f"const LANES = {LANES};",
        *(f"const {name} = {value!r};" for name, value in facts.numbers.items()),
        *(f"const {flag} = {'true' if flag in facts.flags else 'false'};" for flag in _FLAGS),
        *([f"const WINDOW = {js_string(facts.window)};"] if facts.window else []),
    ]
    return "\n".join(lines) + "\n"


def _tables(facts: Exported) -> str:
    labels = ", ".join(map(str, facts.labels.tolist()))
    lines = [f"const labels = [\n{_wrapped(labels)}\n];", "const tables = {"]
    for name, table in facts.tables.items():
        lines.append(f"  {name}: {_array(table, facts.dtype == 'float32' and name not in DOUBLES)},")
    return "\n".join([*lines, "};"]) + "\n"


def _array(table: Array, single: bool) -> str:
    flat = table.reshape(-1)
    if single:
        with np.errstate(under="ignore"):
            items = [str(value) for value in flat.astype(np.float32)]
    else:
        items = [repr(value) for value in flat.tolist()]
    return f"new Float{32 if single else 64}Array([\n{_wrapped(', '.join(items))}\n  ])"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 116, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)

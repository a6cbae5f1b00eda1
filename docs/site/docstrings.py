"""Docstrings for mkdocstrings: shared parameters filled in, and reStructuredText's formulas as Markdown's."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

_INLINE = re.compile(r":math:`([^`]+)`")
_BLOCK = re.compile(r"^( *)\.\. math:: *(.*(?:\n(?:\1 +\S.*| *(?=\n\1 +\S)))*)", re.MULTILINE)
_TOGETHER = re.compile(r"^( *)(\w+(?:, \w+)+)( : .*(?:\n\1 +\S.*)*)", re.MULTILINE)


def _markdown(text: str) -> str:
    """Formulas between dollars, and parameters that are described together one by one, each with its own default."""

    def block(found: re.Match[str]) -> str:
        formula = " ".join(textwrap.dedent(found[2]).split())
        return f"{found[1]}$$\n{found[1]}{formula}\n{found[1]}$$"

    def apart(found: re.Match[str]) -> str:
        return "\n".join(f"{found[1]}{name}{found[3]}" for name in found[2].split(", "))

    text = _TOGETHER.sub(apart, text)
    return _INLINE.sub(lambda found: f"${' '.join(found[1].split())}$", _BLOCK.sub(block, text))


class Docstrings(griffe.Extension):
    """Changes docstrings as they are read from the source."""

    def on_instance(self, *, node: Any, obj: griffe.Object, agent: Any, **_: Any) -> None:
        """Rewrite one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = _markdown(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Fill in what `knnpress.estimators.documentation` writes into docstrings when it is imported."""
        if cls.docstring is None or "<parameters>" not in cls.docstring.value:
            return
        import knnpress

        cls.docstring.value = _markdown(getattr(knnpress, cls.name).__doc__)

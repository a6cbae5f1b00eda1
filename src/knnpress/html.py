"""HTML from templates, in which data are always text and never markup."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup


def render(package: str, template: str, **values: Any) -> Markup:
    """Fill in a template of the folder ``templates`` of a package."""
    return Markup(_environment(package).get_template(template).render(values))


@cache
def _environment(package: str) -> Environment:
    folder = files(package).joinpath("templates")
    loader = FunctionLoader(lambda name: folder.joinpath(name).read_text(encoding="utf-8"))
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)

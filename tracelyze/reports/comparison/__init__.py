"""Reports of a comparison: a page, a comment for a ticket, data, or lines in a terminal, as for a diagnosis."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from tracelyze.errors import Cause, InputError
from tracelyze.reports import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.comparison import Comparison

FORMATS: Final = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".txt": "text",
}
"""The format that a file gets by its suffix."""


def render(comparison: Comparison, format_name: str) -> str:
    """The comparison in one of the formats `html`, `markdown`, `json`, `text`."""
    renderer = importlib.import_module(f"tracelyze.reports.comparison.{format_name}")
    return cast("Callable[[Comparison], str]", renderer.render)(comparison)


def format_of(path: str | Path) -> str:
    """The format that the name of a report file asks for; raises InputError for a suffix that is not known."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise InputError(Cause.UNKNOWN_FORMAT, f"cannot tell the format of {path}: use one of {', '.join(FORMATS)}")
    return FORMATS[suffix]


def write(comparison: Comparison, path: str | Path) -> Path:
    """Write the report that the suffix of `path` asks for; the file appears complete or not at all.

    Raises InputError, one line, for an unknown suffix and for a place that cannot be written.
    """
    return store(render(comparison, format_of(path)), Path(path))

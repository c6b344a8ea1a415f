"""Reports: a diagnosis as a page, a comment for a ticket, data, code-scanning results, or lines in a terminal.

Every renderer is a pure function of the :class:`~tracelyze.diagnosis.Diagnosis`: no rules, no tables, no clock.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.diagnosis import Diagnosis

FORMATS: Final = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".sarif": "sarif",
    ".xml": "junit",
    ".txt": "text",
}
"""The format that a file gets by its suffix."""


def render(diagnosis: Diagnosis, format_name: str, full: bool = False) -> str:
    """The diagnosis in one of the formats `html`, `markdown`, `json`, `sarif`, `junit`, `text`.

    `full`: Markdown without a fold; the other formats are whole in any case.
    """
    if format_name not in FORMATS.values():
        raise InputError(
            Cause.UNKNOWN_FORMAT,
            f"unknown report format {format_name!r}: use one of {', '.join(dict.fromkeys(FORMATS.values()))}",
        )
    if format_name == "markdown":
        from tracelyze.reports import markdown

        return markdown.render(diagnosis, full)
    renderer = importlib.import_module(f"tracelyze.reports.{format_name}")
    return cast("Callable[[Diagnosis], str]", renderer.render)(diagnosis)


def format_of(path: str | Path) -> str:
    """The format that the name of a report file asks for; raises InputError for a suffix that is not known."""
    name = Path(path).name.lower()
    if name.endswith(".sarif.json"):
        return "sarif"
    suffix = Path(name).suffix
    if suffix not in FORMATS:
        said = f"the suffix {suffix!r}" if suffix else "a name without a suffix"
        raise InputError(
            Cause.UNKNOWN_FORMAT, f"cannot tell the format of {path} from {said}: use one of {', '.join(FORMATS)}"
        )
    return FORMATS[suffix]


def write(diagnosis: Diagnosis, path: str | Path, full: bool = False) -> Path:
    """Write the report that the suffix of `path` asks for; the file appears complete or not at all.

    Raises InputError, one line, for an unknown suffix and for a place that cannot be written.
    """
    return store(render(diagnosis, format_of(path), full), Path(path))


def store(text: str, target: Path) -> Path:
    """Write a report; the file appears complete or not at all. InputError, one line, if it cannot be written."""
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:80]}.", suffix=".part", dir=target.parent)
    except OSError as error:
        raise _unwritable(target, error) from None
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        Path(name).chmod(_permissions())
        Path(name).replace(target)
    except BaseException as error:
        with suppress(OSError):
            Path(name).unlink()
        if isinstance(error, OSError):
            raise _unwritable(target, error) from None
        raise
    return target


def _permissions() -> int:
    """What a file made by `open` would get: a temporary file is for its owner alone, a report is for the team."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _unwritable(target: Path, error: OSError) -> InputError:
    if not target.parent.exists():
        return InputError(
            Cause.UNWRITABLE, f"cannot write {target}: the folder {target.parent} does not exist, make it first"
        )
    if target.is_dir():
        return InputError(Cause.UNWRITABLE, f"cannot write {target}: it is a folder, name a file in it")
    return InputError(
        Cause.UNWRITABLE, f"cannot write {target}: {error.strerror or error}, choose another place with -o"
    )

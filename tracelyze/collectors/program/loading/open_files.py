"""Files that a dataset holds open: processes that are forked with it share their position in them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from types import CodeType
from typing import Any

from tracelyze.collectors.program.call_sites import Sites, is_library
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.program.lines.instructions import by_line

MAX_ATTRIBUTES, MAX_ENTRIES = 64, 4
KINDS = {
    ("numpy", "NpzFile"),
    ("zipfile", "ZipFile"),
    ("tarfile", "TarFile"),
    ("h5py", "File"),
    ("h5py", "Dataset"),
    ("h5py", "Group"),
    ("tables", "File"),
    ("lmdb", "Environment"),
    ("sqlite3", "Connection"),
}
"""First part of the module, and name, of classes whose objects read from a file as they are asked; of their subclasses,
too. What lies in memory or is mapped into it has no position that could be shared."""


def of(dataset: Any, sites: Sites) -> tuple[str, str, int | None] | None:
    """The attribute, the class of what it holds, and the number of the line of the script that fills it."""
    for one in definitions.wrapped_in(dataset):
        held = getattr(one, "__dict__", None)
        if type(held) is not dict:
            return None
        for name, value in list(held.items())[:MAX_ATTRIBUTES]:
            kind = next((kind for part in _entries(value) if (kind := _kind(part))), "")
            if kind:
                return name, kind, _filled_at(type(one), name, sites)
    return None


def _entries(value: Any) -> Iterator[Any]:
    yield value
    if type(value) in (list, tuple):
        yield from value[:MAX_ENTRIES]
    elif type(value) is dict:
        yield from list(value.values())[:MAX_ENTRIES]


def _kind(value: Any) -> str:
    """The class of an open file; empty for anything else."""
    kind = type(value)  # not by isinstance, which asks an object for its class
    if issubclass(kind, io.IOBase):
        return "" if issubclass(kind, io.BytesIO | io.StringIO) or value.closed else kind.__name__
    names = {(one.__module__.partition(".")[0], one.__name__) for one in kind.__mro__}
    return kind.__name__ if names & KINDS else ""


def _filled_at(kind: type, attribute: str, sites: Sites) -> int | None:
    """The only line of the class's own `__init__` that sets the attribute."""
    code = getattr(getattr(kind, "__init__", None), "__code__", None)
    if not isinstance(code, CodeType) or is_library(code.co_filename):
        return None
    lines = {line for line, one in by_line(code) if one.opname == "STORE_ATTR" and one.argval == attribute}
    return sites.at("opens", code, lines.pop()) if len(lines) == 1 else None

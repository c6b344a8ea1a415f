"""Datasets that hold a file open: forked workers would share its position, and read what another one asked for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

_ARCHIVE: Final = "NpzFile"


def held(loader: Mapping[str, Any]) -> str:
    """The attribute of the dataset that holds the file; empty where none does."""
    return str(loader.get("open_file") or "")


def reads_all(loader: Mapping[str, Any]) -> bool:
    """Whether each access reads and unpacks a whole array, of which a sample is a small part."""
    return bool(held(loader)) and loader.get("open_kind") == _ARCHIVE


def fix(loader: Mapping[str, Any], processes: str) -> str:
    """What to do before the samples are loaded by worker `processes`."""
    name = held(loader)
    if reads_all(loader):
        return (
            f"Read the arrays of the archive once: `{name}` is an open NpzFile, which reads and unpacks a whole array "
            "at each access. As it is, workers would share its position in the file, and read broken data."
        )
    return (
        f"Let each process open the file for itself: the dataset holds it open in `{name}` "
        f"({loader.get('open_kind')}), and worker processes that are forked share its position, so that they read "
        f"broken or other samples. Then load in {processes}."
    )


def code(process: Process, loader: Mapping[str, Any]) -> str:
    """An example of what to change, made of the line of the script that opens the file."""
    name, place = held(loader), process.site(loader.get("opened_at"))
    opens = re.fullmatch(r"(?P<to>[\w.]+) = (?P<value>.+\))", place.source) if place else None
    if reads_all(loader):
        value = opens["value"] if opens else "np.load(path)"
        return f"{opens['to'] if opens else f'self.{name}'} = dict({value})  # the arrays themselves, read once"
    line = f"{opens['to']} = {opens['value']}" if opens else f"self.{name} = ...  # the line of __init__"
    return (
        f"self.{name} = None  # in __init__; what opening needs, as a path, is kept in self\n\n"
        f"# first in __getitem__, so that each process opens it for itself:\nif self.{name} is None:\n    {line}"
    )

"""Signals of other packages: imported in the program's process, and held to what a signal of this package keeps to."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from typing import Any

from tracelyze import schema
from tracelyze.collectors.signals.signal import Signal


class Refused(Exception):  # noqa: N818  # no error of ours
    """Why a signal of another package is not recorded, as a clause."""


def load(name: str, place: str, taken: Collection[str]) -> type[Signal]:
    """The class at `place` (`package.module:Class`); Refused if it cannot be imported or is no signal that fits.

    `taken` are the names of the signals that there are already.
    """
    module, _, attribute = place.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # whatever the other package does when it is imported
        raise Refused(f"{place} could not be imported: {type(error).__name__}: {error}") from error
    if not (isinstance(found, type) and issubclass(found, Signal)):
        raise Refused(f"{place} is not a subclass of tracelyze.collectors.signals.signal.Signal")
    if getattr(found, "name", None) != name:
        raise Refused(f"{place} is not called {name!r}: its `name` has to be that of the entry point")
    if name in taken:
        raise Refused(f"{name} is the name of another signal")
    known = {f"{table.name}.{column.name}" for table in schema.TABLES for column in table.columns}
    unknown = [column for column in found.columns if column not in known]
    if unknown:
        raise Refused(f"{unknown[0]} is no column of the run directory: what is new goes into the table scalars")
    return found

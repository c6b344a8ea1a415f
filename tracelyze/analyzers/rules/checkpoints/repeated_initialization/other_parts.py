"""The parts of a model that a constructor makes beside the one whose weights were loaded: what may be initialised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.script import recorded_text

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location


def of(process: Process, filled: Location, load: Location) -> tuple[str, list[str]] | None:
    """The part of `self` that holds what a line loads, and the other ones, as the constructor that fills all of them
    makes them. None where that is not known: then the load stands in no constructor of a part, or in that of two."""
    makers = {row["module"] or "": process.site(row["made_at"]) for row in process.tables["modules"].shared_records()}
    here, there = recorded_text.of_function(process, filled), recorded_text.of_function(process, load)
    if filled.function != "__init__" or load.function != "__init__" or load.line in here or load.file != filled.file:
        return None
    own = [path for path, made in makers.items() if made and _within(made, filled, here) and path and "." not in path]
    inside = {path.partition(".")[0] for path, made in makers.items() if made and _within(made, load, there)}
    if len(inside) != 1 or not inside < set(own):
        return None
    (loaded,) = inside
    return loaded, [path for path in own if path != loaded]


def _within(made: Location, place: Location, lines: dict[int, str]) -> bool:
    return made.file == place.file and made.line in lines

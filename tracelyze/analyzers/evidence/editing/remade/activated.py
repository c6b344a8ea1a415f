"""An Identity between two layers, and the statement that makes it with an activation in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def idle_between(process: Process, later: str, first: str) -> str:
    """The only Identity that the module of both layers holds beside them; in a row of numbered ones between them."""
    holder = first.rpartition(".")[0]
    modules = process.tables["modules"].records() if later.rpartition(".")[0] == holder else []
    idle = [str(one["module"]) for one in modules if one["kind"] == "Identity"]
    beside = sorted({name for name in idle if name.rpartition(".")[0] == holder})
    if len(beside) != 1:
        return ""
    places = [name.rpartition(".")[2] for name in (first, beside[0], later)]
    numbers = [int(one) for one in places if one.isdigit()]
    return "" if len(numbers) == len(places) and numbers != sorted(numbers) else beside[0]


def in_place_of(process: Process, idle: str) -> str:
    """The script's statement that makes the Identity, with an activation in its place."""
    own = own_statement.at(process, process.module_location(idle)) if idle else None
    call = own.only_call("Identity") if own is not None and own.is_whole else None
    if own is None or call is None:
        return ""
    return own.dedented(own.parsed.with_parts({call: own.parsed.text_of(call).replace("Identity", "GELU")}))

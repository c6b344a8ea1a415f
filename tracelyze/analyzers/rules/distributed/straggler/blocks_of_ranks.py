"""The line that gives each rank a block of the samples in their order, where one of the ranks gets all large ones."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.recorded.run import location_of
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

FIX: Final = (
    "Deal the samples out in turn: line {line} gives each rank a block of them in their order, and if they are sorted, "
    "one rank gets the largest."
)
_BLOCK: Final = re.compile(
    r"\[[^\[\]]*\b\w*rank\b[^\[\]:]*\*[^\[\]:]*:(?!:)[^\[\]]*\]"
)  # order[rank * n : (rank + 1) * n]
_EVALUATES: Final = re.compile(r"val|test|eval|held", re.IGNORECASE)


def line(process: Process) -> Location | None:
    """The only such line, none of validation data."""
    found = {
        (row["file"], row["line"]): location_of(row)
        for row in process.sites.records()
        if row["line"] and row["source"] and _BLOCK.search(row["source"]) and not _EVALUATES.search(row["source"])
    }
    return script_lines.only_of(list(found.values()))


def in_turn(process: Process, place: Location) -> str:
    """The line with every so many-th sample in place of a block, as many for each rank; empty where it says more."""
    own = own_statement.at(process, place)
    slices = (
        [
            one
            for one in ast.walk(own.parsed.tree)
            if isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice) and one.slice.lower is not None
        ]
        if own is not None
        else []
    )
    ranks = {
        own.parsed.text_of(node)
        for one in slices
        for node in ast.walk(one.slice)
        if own is not None and isinstance(node, ast.Name | ast.Attribute) and own.parsed.text_of(node).endswith("rank")
    }
    if own is None or len(slices) != 1 or len(ranks) != 1:
        return ""
    rank, held = ranks.pop(), own.parsed.text_of(slices[0].value)
    turn = f"{held}[{rank} : len({held}) // ranks * ranks : ranks]"
    return f"ranks = torch.distributed.get_world_size()\n{own.dedented(own.parsed.with_parts({slices[0]: turn}))}"

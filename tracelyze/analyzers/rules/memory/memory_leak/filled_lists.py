"""The lines that put tensors with their graphs into what another line stores, as into the lists of an episode."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_WHOLE = (ast.Call, ast.Name, ast.Attribute, ast.Subscript)


class FilledLists(NamedTuple):
    """`kept`: the line that stores what the `lines` put tensors into; `code`: the only one, without the graph."""

    kept: Location
    lines: list[Location]
    code: str

    @property
    def place(self) -> Location:
        """The line to change: the only one that puts tensors there, else the one that stores it all."""
        return self.lines[0] if len(self.lines) == 1 else self.kept

    @property
    def told(self) -> str:
        """What keeps the graphs, in a sentence."""
        if len(self.lines) == 1:
            return (
                f"`{self.lines[0].source}` puts a tensor into what line {self.kept.line} keeps beyond its step, and "
                "with it the graph that computed it."
            )
        numbers = listed(sorted(one.line for one in self.lines), most=8)
        return (
            f"`{self.kept.source}` keeps what the lines {numbers} put tensors into, beyond its step, and with them the "
            "graphs that computed them."
        )


def of(process: Process, kept: Location | None) -> FilledLists | None:
    """What was seen to fill the lists that this line stores; None where nothing was, or several lines store such."""
    parts = process.locations("keeps-parts")
    lines = list({one.file_line: one for one in process.locations("keeps-inside")}.values())
    if kept is None or not lines or [one.file_line for one in parts] != [kept.file_line]:
        return None
    if kept.file_line in {one.file_line for one in lines}:
        return None
    return FilledLists(kept, lines, _detached(process, kept, lines))


def _detached(process: Process, kept: Location, lines: list[Location]) -> str:
    """The only append of a tensor, without its graph; empty where there are several, or it is not known."""
    own = own_statement.at(process, lines[0]) if len(lines) == 1 else None
    append = own.only_call("append") if own is not None else None
    given = append.args[0] if append is not None and len(append.args) == 1 else None
    if own is None or not isinstance(given, _WHOLE):
        return ""
    edited = own.dedented(own.parsed.with_parts({given: f"{own.parsed.text_of(given)}.detach()"}))
    return f"# where a loss is computed through it, have line {kept.line} keep detached copies instead\n{edited}"

"""The embedding that was asked for a row that it does not have: the call that the traceback marks, or the only one."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.recorded import deaths
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_EMBEDDINGS: Final = re.compile(r"emb|word|token|wte|wpe|pos|place|lookup", re.IGNORECASE)
_POSITIONS: Final = re.compile(r"(?:^|_)(?:pos|position|positions|positional|wpe)(?:_|$)|posit|pos_?emb", re.IGNORECASE)
_CLASS: Final = re.compile(r"\s*class \w")
_PARTS: Final = (ast.Name, ast.Attribute, ast.Subscript)
OF_POSITIONS: Final = (
    "If the ids are positions, some sequence is longer than the table has rows: cut sequences to that length, or make "
    "the table longer."
)


@dataclass(frozen=True)
class LookedUp:
    """The text of the table and of the ids, the line that looks up, and the one that makes the table, where known."""

    table: str
    ids: str
    where: Location
    made: Location | None

    @property
    def example(self) -> str:
        """The ids against the rows of the table; with the place, where another is shown: that of the table."""
        above = f"# above line {self.where.line}\n" if self.of_positions and self.made is not None else ""
        return (
            f"{above}assert 0 <= {self.ids}.min() and {self.ids}.max() < {self.table}.num_embeddings, {self.ids}.max()"
        )

    @property
    def of_positions(self) -> bool:
        """Whether its rows stand for the positions of a sequence, by its name."""
        return _POSITIONS.search(self.table.rpartition(".")[2]) is not None


def at(process: Process, where: Location | None) -> LookedUp | None:
    """The only embedding of the line that is given ids, of several the one that the traceback marks."""
    own = own_statement.at(process, where)
    if own is None or where is None:
        return None
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if _EMBEDDINGS.search(name_of(call.func)) and len(call.args) == 1]
    marked = _marked(process, where)
    calls = [call for call in calls if own.parsed.text_of(call) == marked] or calls
    if len(calls) != 1 or not isinstance(calls[0].args[0], _PARTS):
        return None
    table = own.parsed.text_of(calls[0].func)
    return LookedUp(table, own.parsed.text_of(calls[0].args[0]), where, _made(process, name_of(calls[0].func), where))


def _marked(process: Process, where: Location) -> str:
    """What the traceback marks of the line, as Python does from 3.11 on where that is a part of it."""
    event = deaths.last_exception(process)
    lines = str(event["text"] or "").split("\n") if event is not None else []
    for at, line in enumerate(lines[:-2]):
        frame = re.match(r'  File "(?P<file>[^"]+)", line (?P<line>\d+), in ', line)
        if frame and frame["file"].endswith(where.file) and int(frame["line"]) == where.line:
            marks = re.fullmatch(r"(\s*)([~^]+)\s*", lines[at + 2])
            return lines[at + 1][len(marks[1]) : len(marks[1]) + len(marks[2])] if marks else ""
    return ""


def _made(process: Process, name: str, where: Location) -> Location | None:
    """The line that makes the only embedding of this name; of several classes that make one, that of the class in which
    it is looked up: the last above that line."""
    rows = [row for row in process.tables["modules"].records() if row["kind"] == "Embedding"]
    sites = {row["made_at"] for row in rows if str(row["module"]).rpartition(".")[2] == name}
    made = [one for one in map(process.site, sites) if one is not None]
    if len(sites) == 1:
        return made[0] if made else None
    own = [one for one in made if one.file == where.file and one.function == "__init__" and one.line < where.line]
    last = max(own, key=lambda one: one.line, default=None)
    text = recorded_text.of_file(process, where.file)
    heads = [at for at, line in text.items() if _CLASS.match(line) and last is not None and last.line < at < where.line]
    return last if not heads else None

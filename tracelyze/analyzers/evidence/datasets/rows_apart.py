"""What puts inputs beside targets of other samples: a line that takes one tensor of a batch by position, where others
are taken through a shuffled order; or two loaders that shuffle apart."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.evidence.editing.own_statement import OwnStatement
    from tracelyze.analyzers.recorded.run import Process

_NEAR: Final = 6  # lines
_LOOP: Final = re.compile(r"^\s*(?:async\s+)?(?:for|while)\b")
_DRAWN: Final = re.compile(r"^\s*(\w+)\s*=[^=].*\b(?:randperm|permutation)\s*\(|\bshuffle\s*\(\s*(\w+)\s*\)")


@dataclass(frozen=True)
class Apart:
    """`named`: what is taken by position; `through`: by what the others are."""

    place: Location
    named: str
    through: str
    diff: Diff | None
    fix: str = ""
    example: str = ""

    def said(self) -> str:
        """What the script's text shows, and what of it is not known."""
        return (
            f" Line {self.place.line} takes {self.named} by position, and what else is in a batch through "
            f"{self.through}: unless it was put into that order before, it belongs to other samples."
        )


@dataclass(frozen=True)
class LoadedApart:
    """Two loaders that each draw an order of their own. `place`: what makes that of the targets."""

    place: Location
    inputs: Location
    example: str
    diff: Diff | None = None
    fix: str = "Take inputs and targets from one dataset, through one loader."

    def said(self) -> str:
        """Which lines make them."""
        return (
            f" Inputs come from the loader of line {self.inputs.line}, targets from that of line {self.place.line}, "
            "and each shuffles in an order of its own: targets belong to other samples."
        )


def of(process: Process) -> Apart | LoadedApart | None:
    """What takes inputs and targets of other samples: a line that takes some by position, or two loaders."""
    return _by_position(process) or _by_loaders(process)


def _by_loaders(process: Process) -> LoadedApart | None:
    """The only two shuffled loaders of a loop, one of numbers and one of classes, which it asks in turn."""
    rows = [row for row in process.tables["loaders"].records() if row["sampler"] == "RandomSampler"]
    fields: dict[int, set[tuple[str, str]]] = {row["loader"]: set() for row in rows}
    for row in process.tables["batches"].records():
        if row["loader"] in fields:
            fields[row["loader"]].add((str(row["field"]), "classes" if row["classes"] else str(row["dtype"])))
    kinds = {next(iter(found))[1]: loader for loader, found in fields.items() if len(found) == 1}
    one, other = (kinds.get(kind) for kind in ("float32", "classes")) if len(fields) == 2 else (None, None)
    pair = [row for loader in (one, other) for row in rows if row["loader"] == loader]
    if len(pair) != 2 or any(pair[0][name] != pair[1][name] for name in ("site", "length", "batch_size")):
        return None
    inputs, targets = (process.site(row["made_at"]) for row in pair)
    if inputs is None or targets is None or inputs.file_line == targets.file_line:
        return None
    text = [line for place in (inputs, targets) for line in recorded_text.of_function(process, place).values()]
    if not text or any("generator" in line for line in text):  # two of one seed draw the same order
        return None
    return LoadedApart(targets, inputs, _as_one(process, inputs, targets))


def _as_one(process: Process, inputs: Location, targets: Location) -> str:
    """The loader of the inputs with both datasets in it; empty where their lines do not say what they load."""
    own = [own_statement.at(process, place) for place in (inputs, targets)]
    calls = [(one, one.only_call("DataLoader")) for one in own if one is not None]
    given = [(one, call.args[0]) for one, call in calls if call is not None and call.args]
    if len(given) != 2:
        return ""
    (loads, first), (also, second) = given
    both = f"torch.utils.data.StackDataset({loads.parsed.text_of(first)}, {also.parsed.text_of(second)})"
    line = loads.dedented(loads.parsed.with_parts({first: both}))
    return f"{line}\n# hands out pairs: iterate it alone, without the loader of line {targets.line}"


def _by_position(process: Process) -> Apart | None:
    """The only such line of a function that hands out batches, or calls the model on them. That it is wrong is known
    only beside evidence that nothing is learned."""
    functions: dict[tuple[str, str], Location] = {}
    for one in [*process.locations("yields"), *process.locations("training-call")]:
        functions.setdefault(one.file_function, one)
    found = [apart for one in functions.values() for apart in _in_function(process, one)]
    return found[0] if len(found) == 1 else None


@dataclass(frozen=True)
class _Taken:
    """A slice that a statement takes of something. `index`: by what it stands, where that is a shuffled order."""

    own: OwnStatement
    node: ast.Subscript
    index: str = ""

    @property
    def key(self) -> str:
        return ast.unparse(self.node.slice)


def _in_function(process: Process, inside: Location) -> list[Apart]:
    lines = recorded_text.of_function(process, inside)
    orders = {match[1] or match[2] for line in lines.values() if (match := _DRAWN.search(line))}
    loops = [number for number, line in lines.items() if _LOOP.match(line)]
    taken = [one for number in sorted(lines) for one in _taken(process, inside, number, lines[number], orders)]
    ordered = [one for one in taken if one.index]
    found = []
    for one in (one for one in taken if not one.index):
        beside = [other for other in ordered if other.key == one.key and _together(one, other, loops)]
        if len({other.index for other in beside}) == 1:
            found.append((one, beside[0].index))
    if len(found) != 1:
        return []
    (one, index), own = found[0], found[0][0].own
    named = ast.unparse(one.node.value)
    changed = own.changed(own.parsed.with_parts({one.node: f"{named}[{index}]"}))
    place = Location(inside.file, own.line, inside.function, own.text.split("\n")[0])
    return [Apart(place, f"{named}[{one.key}]", index, changed)]


def _taken(process: Process, inside: Location, number: int, line: str, orders: set[str]) -> list[_Taken]:
    own = own_statement.at(process, Location(inside.file, number, inside.function, line.strip()))
    if own is None or own.line != number:
        return []
    found = []
    for node in (one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Subscript)):
        if isinstance(node.slice, ast.Slice) and isinstance(node.value, ast.Name | ast.Attribute):
            text = own.parsed.text_of(node)
            found.append(_Taken(own, node, (_assigned(own, node) or text) if ast.unparse(node.value) in orders else ""))
    return found


def _together(one: _Taken, other: _Taken, loops: list[int]) -> bool:
    """Whether two statements stand in the same loop, as near as those that make a batch do."""
    first, last = sorted((one.own.line, other.own.line))
    return last - first <= _NEAR and not any(first < number <= last for number in loops)


def _assigned(own: OwnStatement, node: ast.Subscript) -> str:
    """The name that is given to this part of an order, where the statement does nothing else."""
    statement = own.parsed.statement
    if isinstance(statement, ast.Assign) and statement.value is node and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id
    return ""

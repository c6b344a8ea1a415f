"""The assignment that computes a loss which the script writes out: the recording knows where its backward began."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

BEGINS: Final = (
    re.compile(r"\(?(?P<loss>[A-Za-z_][\w.]*?)(?: [*/] [\w.]+\))?\.backward\((?:\)|\w+=)"),
    re.compile(r"[A-Za-z_][\w.]*\.scale\((?P<loss>[A-Za-z_][\w.]*)(?: [*/] [\w.]+)?\)\.backward\("),
    re.compile(r"[A-Za-z_][\w.]*\.(?:backward|manual_backward)\((?P<loss>[A-Za-z_][\w.]*)(?: [*/] [\w.]+)?\)"),
)
"""`loss.backward()`, `(loss / 4).backward()`, `scaler.scale(loss).backward()`, `accelerator.backward(loss)`."""
ASSIGNED: Final = re.compile(r"(?P<names>[A-Za-z_][\w.]*(?:\s*,\s*[A-Za-z_][\w.]*)*)\s*\+?=(?!=)\s*(?P<value>.+)")
NAME: Final = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*")


def of(process: Process, backward: Location | None) -> Location | None:
    """The nearest assignment above a backward to what it is called on; None where the recorded lines show none, or
    where it is one branch of several.

    One that only scales the loss, as `loss = loss / 4`, hands on to the one before it.
    """
    loss = name_of(backward)
    if backward is None or not loss:
        return None
    text = recorded_text.around(process, backward)
    numbers = _assignments(text, backward.line, loss)
    if not numbers:
        return None
    depth = recorded_text.indent_of(text[backward.line]) if backward.line in text else 0
    if len(numbers) > 1 and all(recorded_text.indent_of(text[number]) > depth for number in numbers[:2]):
        return None
    return backward.at(numbers[0], text[numbers[0]])


def of_last(process: Process) -> tuple[Location | None, Location | None]:
    """The assignment of the loss in the training that began last, and its backward: a policy is trained after its
    pretraining."""
    backward = process.optimizations[-1].backward_location if process.optimizations else None
    return of(process, backward), backward


def name_of(backward: Location | None) -> str:
    """What a backward is called on; empty where its line does not name it."""
    found = [match for pattern in BEGINS if backward is not None and (match := pattern.match(backward.source))]
    return found[0]["loss"] if found else ""


def _assignments(text: dict[int, str], below: int, loss: str) -> list[int]:
    """Numbers of the lines above a line, in its function, which compute the loss, the nearest first."""
    numbers = []
    number = below - 1
    while (line := text.get(number)) is not None:
        statement = code_of(line).strip()
        if statement.startswith(("def ", "class ", "async def ")):
            break
        assigned = ASSIGNED.fullmatch(statement)
        names = [name.strip() for name in assigned["names"].split(",")] if assigned else []
        if assigned and loss in names and set(NAME.findall(assigned["value"])) != {loss}:
            numbers.append(number)
        number -= 1
    return numbers

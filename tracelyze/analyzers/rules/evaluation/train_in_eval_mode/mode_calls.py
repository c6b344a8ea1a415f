"""Where a script calls train() on its model: once, before the loop over epochs, within which a validation undoes it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_TRAIN: Final = re.compile(
    r"(?P<indent>\s*)(?P<model>[A-Za-z_][\w.]*)\.train\(\s*(?:(?:mode\s*=\s*)?True\s*)?\)\s*(?:#|$)"
)


class Once(NamedTuple):
    """A call of train() that is made once, and the loop over epochs below it."""

    place: Location
    loop: Location
    model: str
    diff: Diff | None

    @property
    def fix(self) -> str:
        """What to change."""
        return f"Call {self.model}.train() inside the epoch loop, not before it."

    @property
    def code(self) -> str:
        """The loop with the call in it."""
        return f"{self.loop.source}\n    {self.model}.train()"


def once_before_epochs(process: Process, forward: Location | None) -> Once | None:
    """The call in front of the loop over epochs that holds the place where the model is called in training, or the
    call of the function in which it is."""
    epochs = process.locations("epochs")
    loops = [one for one in epochs if forward is not None and _holds(one, forward)]
    if forward is None or len(loops) != 1:
        return _in_the_caller(process, forward, epochs) if forward is not None and not loops else None
    (loop,) = loops
    lines = recorded_text.of_function(process, forward)
    depth = recorded_text.indent_of(lines.get(loop.line, ""))
    called = {at: one for at, text in lines.items() if at < forward.line and (one := _TRAIN.match(text))}
    called = {at: one for at, one in called.items() if re.search(rf"(?<![\w.]){one['model']}\(", forward.source)}
    if len(called) != 1:
        return None
    ((at, match),) = called.items()
    if at > loop.line or len(match["indent"]) > depth:
        return None
    place = loop.at(at, lines[at])
    return Once(place, loop, match["model"], _moved(loop, lines, at, match) if at == loop.line - 1 else None)


def _in_the_caller(process: Process, forward: Location, epochs: list[Location]) -> Once | None:
    """The only line of the script that switches to train mode, in front of the loop over epochs, in another function,
    that calls the one which trains."""
    switches = process.locations("train-mode")
    if len(epochs) != 1 or len(switches) != 1 or epochs[0].file_function == forward.file_function:
        return None
    loop, place = epochs[0], switches[0]
    if place.file_function != loop.file_function or place.line > loop.line:
        return None
    lines = recorded_text.of_function(process, loop)
    depth = recorded_text.indent_of(lines.get(loop.line, ""))
    match = _TRAIN.match(lines.get(place.line, ""))
    body = [text for at, text in lines.items() if at > loop.line and recorded_text.indent_of(text) > depth]
    calls = re.compile(rf"(?<!\w){re.escape(forward.function)}\(")
    if match is None or len(match["indent"]) > depth or not any(calls.search(text) for text in body):
        return None
    moved = _moved(loop, lines, place.line, match) if place.line == loop.line - 1 else None
    return Once(place, loop, match["model"], moved)


def _holds(loop: Location, place: Location) -> bool:
    return loop.file_function == place.file_function and loop.line < place.line


def _moved(loop: Location, lines: dict[int, str], at: int, match: re.Match[str]) -> Diff | None:
    """The call moved to the other side of the line that begins the loop."""
    head, below = lines.get(loop.line, ""), lines.get(loop.line + 1, "")
    if (
        not code_of(head).endswith(":")
        or recorded_text.indent_of(below) <= recorded_text.indent_of(head)
        or len(match["indent"]) != recorded_text.indent_of(head)
    ):
        return None
    return Diff(loop.file, at, [lines[at], head], [head, f"{' ' * recorded_text.indent_of(below)}{lines[at].strip()}"])

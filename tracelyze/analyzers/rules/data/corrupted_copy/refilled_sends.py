"""A buffer that a loop fills and sends in each pass, with no wait in it: what is still being sent is filled anew.

As in `early_reads`, the order is read off the recorded text, and that it ran, off where the training was seen.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.data.corrupted_copy import early_reads
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Evidence, Finding, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_BUFFER: Final = re.compile(r"[A-Za-z_][\w.]*")
_MAY_WAIT: Final = re.compile(
    r"wait|drain|flush|sync|barrier|recv|receive|finish|join|result|complet|ready|poll|ack|all_reduce|broadcast|gather"
)
"""Whatever a line of the loop is called that may hold it up until the send is over."""


class RefilledSend(NamedTuple):
    """The statement that sends, and the lines that fill the buffer and begin the loop."""

    place: Location
    sends: OwnStatement
    given: ast.expr
    buffer: str
    fills: int
    loop: int


def find(process: Process) -> RefilledSend | None:
    """The first such send of a function that was seen to run, in a job of several ranks."""
    if process.world_size < 2:
        return None
    for place in process.locations("sends"):
        lines = recorded_text.of_function(process, place)
        own = own_statement.at(process, place)
        call = own.only_call("isend") if own is not None and own.is_whole and own.stands else None
        if own is None or call is None or not early_reads.seen_lines(process, place.file_function) & lines.keys():
            continue
        given = call.args[0] if call.args else next((one.value for one in call.keywords if one.arg == "tensor"), None)
        buffer = own.parsed.text_of(given) if given is not None else ""
        at = _refilled(lines, own, buffer) if _BUFFER.fullmatch(buffer) else None
        if given is not None and at is not None:
            return RefilledSend(place, own, given, buffer, *at)
    return None


def _refilled(lines: dict[int, str], own: OwnStatement, buffer: str) -> tuple[int, int] | None:
    """The line that fills the buffer before the send, and the head of the loop around both."""
    above = [number for number in lines if number < own.line and lines[number].strip()]
    outer = [number for number in above if recorded_text.indent_of(lines[number]) < len(own.indent)]
    loop = max(outer, default=0)
    if not outer or not re.match(r"\s*(?:for|while)\b", lines[loop]):
        return None
    body, number, depth = list[int](), loop + 1, recorded_text.indent_of(lines[loop])
    while number in lines and (not lines[number].strip() or recorded_text.indent_of(lines[number]) > depth):
        body.append(number)
        number += 1
    if number not in lines or own.line not in body:  # all of the loop is to be known
        return None
    texts = {at: code_of(lines[at]).strip() for at in body}
    name = re.escape(buffer)
    makes = re.compile(rf"(?<![\w.])(?:{name}|{re.escape(buffer.partition('.')[0])})\s*(?:=(?!=)|,.*=(?!=))")
    if any(_MAY_WAIT.search(text) or makes.match(text) for text in texts.values()):
        return None
    writes = rf"{name}\.(?:copy|fill|normal|uniform|zero|random)_\(|{name}\[.*\]\s*=(?!=)"
    fills = re.compile(rf"(?:{writes}|.*\bout={name}(?![\w.\[]))")
    found = [at for at, text in texts.items() if at < own.line and fills.match(text)]
    same = [at for at in found if recorded_text.indent_of(lines[at]) == len(own.indent)]
    return (same[0], loop) if len(found) == len(same) == 1 else None


def finding(process: Process, rule: str, found: RefilledSend) -> Finding:
    """What is said of it, with a copy that is sent in place of the buffer."""
    copied = found.sends.parsed.with_parts({found.given: f"{found.buffer}.clone()"})
    optimization = process.longest if process.optimizations else None
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"A buffer is filled again while it is still being sent, in {found.place.function}()",
        summary=(
            f"In each pass of the loop in line {found.loop}, line {found.fills} fills `{found.buffer}` and line "
            f"{found.place.line} begins to send it. Nothing in the loop waits for the send, so that the next pass may "
            "fill it before all was sent: the other rank then gets a later pass's values, or a part of them, in "
            "place of those that were meant for it."
        ),
        fix=f"Send a tensor of its own each time, or wait for the send before line {found.fills} fills the buffer.",
        fix_code=found.sends.dedented(copied),
        diff=found.sends.changed(copied),
        evidence=[
            Evidence("line that fills", found.fills, role="setting"),
            Evidence("line that sends", found.place.line, role="setting"),
        ],
        location=found.place,
        charts=pictures.loss(optimization) if optimization is not None else [],
        false_alarm="A loop that makes one pass only.",
        verify="Record the run again: each send has memory of its own, or is waited for.",
    )

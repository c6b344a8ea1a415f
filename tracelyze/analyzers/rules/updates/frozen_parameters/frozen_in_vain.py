"""An attribute that was set to freeze something, and does not."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Diff, Evidence, Finding, Location
from tracelyze.formatting import end_of_name, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def finding(process: Process, event: Row, rule: str) -> Finding:
    """From the event that the collector made of it, in the first step of a training."""
    optimization, _ = timing.training_from(process, max(int(event.get("step") or 0) - 1, 0))
    training = timing.training_of(optimization) if optimization is not None else ""
    place = _place(process, event)
    word, number = event["text"], int(event["value"])
    require, them = ("requires", "it") if number == 1 else ("require", "them")
    whole, name = word == "requires_grad", end_of_name(event["name"], 40)
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"{name} is not frozen: `.{word} = False`{' on a module' if whole else ''} does nothing",
        summary=(
            f"{plural(number, 'tensor')} that should be frozen still {require} a gradient: backward computes it, and "
            f"an optimizer that holds {them} changes {them}. "
            + (
                "On a module, requires_grad is an attribute like any other: its parameters do not see it."
                if whole
                else f"A tensor has no {word}: Python makes a new attribute of that name, which nothing reads."
            )
        ),
        fix="Freeze the parameters: requires_grad_(False) of a module does so for all of them.",
        fix_code=_frozen(event),
        diff=_edit(process, event, place),
        first_step=1,
        trainings=[training] if training else [],
        evidence=[Evidence("tensors that still require a gradient", number, "tensors")],
        location=place,
        verify="Record the run again: no backward reaches the tensors that are to be frozen.",
    )


def _frozen(event: Row) -> str:
    """The script's own line, with the attribute that torch reads or its call on a module."""
    source, word = str(event["source"] or ""), event["text"]
    found = re.fullmatch(rf"(?P<holder>[\w.]+)\.{re.escape(word)}\s*=\s*False\s*(?:#.*)?", source)
    if found is None:
        return "backbone.requires_grad_(False)  # or: for p in backbone.parameters(): p.requires_grad = False"
    return f"{found['holder']}.requires_grad_(False)"


def _place(process: Process, event: Row) -> Location | None:
    """The line that sets it, under the name of its file that other lines go by, and in its function where lines around
    it were recorded."""
    file, line, source = str(event["file"] or ""), int(event["line"] or 0), str(event["source"] or "")
    for one in recorded_text.lines(process):
        same = file == one.file or file.endswith(f"/{one.file}")
        if same and one.line == line and one.source.strip() == source:
            return one.at(line, source)
    return Location(file, line, "", source) if file else None


def _edit(process: Process, event: Row, place: Location | None) -> Diff | None:
    """The line with what freezes, where it is known as it stands in the file."""
    known = recorded_text.line_at(process, place) if place is not None else None
    if place is None or known is None or not str(event["source"]).startswith(_frozen(event).partition(".requires")[0]):
        return None
    return Diff(place.file, place.line, [known[0] + known[1]], [known[0] + _frozen(event)])

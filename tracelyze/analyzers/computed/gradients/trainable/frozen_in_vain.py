"""An attribute that was set to freeze something, and does not."""

from __future__ import annotations

import re
from typing import Any

from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import end_of_name, plural

Row = dict[str, Any]


def finding(event: Row, rule: str) -> Finding:
    """From the event that the collector made of it."""
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
        first_step=1,
        evidence=[Evidence("tensors that still require a gradient", number, "tensors")],
        location=Location(event["file"], int(event["line"]), "", event["source"] or "") if event["file"] else None,
        verify="Record the run again: no backward reaches the tensors that are to be frozen.",
    )


def _frozen(event: Row) -> str:
    """The script's own line, with the attribute that torch reads or its call on a module."""
    source, word = str(event["source"] or ""), event["text"]
    found = re.fullmatch(rf"(?P<holder>[\w.]+)\.{re.escape(word)}\s*=\s*False\s*(?:#.*)?", source)
    if found is None:
        return "backbone.requires_grad_(False)  # or: for p in backbone.parameters(): p.requires_grad = False"
    return f"{found['holder']}.requires_grad_(False)"

"""A vector quantizer that hands on its codes as it looked them up: the choice of a code has no derivative, so that no
error of what is made of them reaches the encoder, unless a straight-through estimator passes it on."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

_SQUARED: Final = "mse_loss"
_LOOKED_UP: Final = ("Embedding", "Index", "IndexSelect", "Gather")
_LOOKS_UP: Final = re.compile(r"\[\w+\]|code|embed|gather|index_select|look_?up", re.IGNORECASE)
_PASSED_ON: Final = re.compile(
    r"-\s*[\w.]+\s*\)\s*\.(?:detach\(\)|data\b)|\.detach\(\)\s*\)?\s*[-+](?!=)|[-+]\s*[\w.]+\.detach\(\)\s*(?:$|[-+,)]\s*$)|"
    r"autograd\.Function|\.apply\(|register_hook\(|straight_?through|gumbel_softmax"
)
"""Text that may pass gradients on, or replace them."""


def of(process: Process) -> Remedy | None:
    """What to add where one function compares codes with what they stand for, each in turn without its graph, and no
    recorded line passes a gradient on from one to the other."""
    lines = [one for one in loss_calls.lines(process, (_SQUARED,)) if one.training and one.location is not None]
    compared: dict[tuple[str, str], OwnStatement] = {}
    for line in lines:
        own = own_statement.at(process, line.location)
        for pair in _pairs(own) if own is not None else ():
            compared[pair] = own if own is not None else compared[pair]
    both = [pair for pair in compared if pair[::-1] in compared]
    looked_up = any(row["made_by"] in _LOOKED_UP for line in lines for row in line.rows)
    if len(both) != 2 or not looked_up:
        return None
    last = max((compared[pair] for pair in both), key=lambda own: own.line)
    place = next(one.location for one in lines if one.location and one.location.line in (last.line, *_span(last)))
    text = {at: code_of(line) for at, line in recorded_text.of_function(process, place).items()}
    codes = [pair for pair in both if _is_looked_up(text, *pair)]
    everything = {code_of(line) for one in recorded_text.everything(process) for line in one.split("\n")}
    if len(codes) != 1 or not last.stands or any(_PASSED_ON.search(_without_losses(line)) for line in everything):
        return None
    (code, given), end = codes[0], _span(last)[-1]
    if not any(at > end and re.search(rf"\b{code}\b", line) for at, line in text.items()):
        return None  # something else is handed on
    added = f"{code} = {given} + ({code} - {given}).detach()"
    return Remedy(
        fix=f"Below line {end}, pass the gradient on (straight-through): forward hands on the codes, and backward "
        f"takes what reaches them for the gradient of {given}.",
        code=f"{added}  # right below line {end}, in front of what hands on {code}",
        place=place,
        diff=last.changed(f"{last.text}\n{last.indent}{added}"),
        why=f" Line {place.line} compares the codes {code} with {given}, which they stand for: a "
        f"vector quantizer. The choice of a code has no gradient, and no recorded line passes one on from {code} to "
        f"{given}: what computes {given} learns to be near its code, and nothing of what is to be predicted.",
    )


def _pairs(own: OwnStatement) -> list[tuple[str, str]]:
    """Names that a statement compares, of which the second one is detached."""
    found = []
    for call in own.parsed.calls(_SQUARED):
        given = call.args[:2]
        if len(given) == 2 and isinstance(given[0], ast.Name) and (name := _detached(given[1])):
            found.append((given[0].id, name))
        elif len(given) == 2 and isinstance(given[1], ast.Name) and (name := _detached(given[0])):
            found.append((given[1].id, name))
    return found


def _detached(value: ast.expr) -> str:
    """The name of which this is without its graph; empty for anything else."""
    called = value.func if isinstance(value, ast.Call) and parsed_line.name_of(value.func) == "detach" else None
    holder = called.value if isinstance(called, ast.Attribute) else None
    return holder.id if isinstance(holder, ast.Name) else ""


def _span(own: OwnStatement) -> range:
    return range(own.line, own.line + own.text.count("\n") + 1)


def _is_looked_up(text: dict[int, str], code: str, given: str) -> bool:
    """Whether the first of two names is looked up in this function, below all that the second one is assigned."""

    def assigned(name: str) -> list[tuple[int, str]]:
        made = re.compile(rf"\s*{name}\s*=(?!=)(.*)")
        return [(at, found[1]) for at, line in sorted(text.items()) if (found := made.match(line))]

    codes, others = assigned(code), assigned(given)
    return bool(codes) and bool(_LOOKS_UP.search(codes[0][1])) and all(at < codes[0][0] for at, _ in others)


def _without_losses(line: str) -> str:
    """A line without the calls that compare codes, whose terms are detached rightly."""
    return re.sub(rf"{_SQUARED}\([^()]*(?:\(\)[^()]*)*\)", "", line)

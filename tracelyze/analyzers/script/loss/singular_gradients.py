"""What to change where the gradient of an operation is not finite at the edge of what it takes: sqrt at 0, log at 0."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script import edits, line_edits, script_lines
from tracelyze.analyzers.script.candidates import attended_rows
from tracelyze.analyzers.script.remedy import example_of
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

HIDDEN: Final = " in a branch that where() hides"
"""What recordings say of an operation whose result a where() may choose, or not."""
_FIX: Final = "Keep what goes into such an operation away from its edge, by a small constant or a clamp."
_BRANCH: Final = (
    " Do so inside of where(): it chooses among values, and the gradient of the branch that it leaves out is still "
    "computed, where 0 times infinity is NaN."
)
_UNKNOWN: Final = (
    "Find the operation first: with anomaly detection PyTorch stops at the first one whose backward returns NaN, and "
    "names the line that called it. Then keep what goes into it away from its edge, by a small constant or a clamp. If "
    "it is NaN already, look for what makes it in the forward, such as a softmax of a row that is masked throughout."
)
_DETECTED: Final = "torch.autograd.set_detect_anomaly(True)  # before the training begins; slow: take it out again"
_CODE: Final = {
    "sqrt": "root = torch.sqrt(square + 1e-8)",
    "rsqrt": "inverse = torch.rsqrt(variance + 1e-8)",
    "norm": "length = (vector.square().sum(-1) + 1e-8).sqrt()  # in place of vector.norm(dim=-1)",
    "cdist": "distances = ((a[:, None] - b[None]).square().sum(-1) + 1e-8).sqrt()  # in place of torch.cdist(a, b)",
    "std": "spread = (values.var(-1) + 1e-8).sqrt()  # in place of values.std(-1)",
    "a power": "power = base.clamp(min=1e-6) ** exponent",
    "log": "logarithm = torch.log(p.clamp(min=1e-6))",
    "log1p": "logarithm = torch.log1p(p.clamp(min=-1 + 1e-6))",
    "division": "ratio = a / b.clamp(min=1e-6)  # of a divisor that is never negative",
    "reciprocal": "inverse = 1 / b.clamp(min=1e-6)  # of what is never negative",
    "acos": "angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))",
    "asin": "angle = torch.asin(sine.clamp(-1 + 1e-6, 1 - 1e-6))",
    "atanh": "raw = torch.atanh(squashed.clamp(-1 + 1e-6, 1 - 1e-6))",
    "acosh": "distance = torch.acosh(argument.clamp(min=1 + 1e-6))",
    "logit": "score = torch.logit(p, eps=1e-6)",
    "erfinv": "deviate = torch.erfinv(u.clamp(-1 + 1e-6, 1 - 1e-6))",
}
_FINITE: Final = ("sqrt at ", "a power ", "acos at ", "asin at ", "acosh at ")
_LOGARITHMS: Final = ("log", "log2", "log10")
_EDITS: Final = {
    **dict.fromkeys(_LOGARITHMS, line_edits.logarithm_above_zero),
    "a power": line_edits.power_above_zero,
    "sqrt": line_edits.kept_from_zero,
}


def advice(process: Process, operations: str, place: Location | None) -> tuple[str, str, Diff | None]:
    """What to do about the operations that the collector named, an example, and the edit of the line of one of them."""
    named = [one for one in operations.split(", ") if one]
    if not named:
        return _UNKNOWN, _DETECTED, None
    if attended_rows.MASKED in named:
        return *attended_rows.advice(process), None
    own = [one for one in named if place is not None and script_lines.singular_of(process, [one]) == place]
    operation = (own or named)[0]
    name = re.split(r" (?:at|of|by|below)\b", operation)[0]
    diff, lines = None, script_lines.singular_together(process, operation) if own else []
    if lines and (edit := _EDITS.get(name)) is not None:
        diff = edits.of_several(process, lines, edit)
    example = _CODE["log" if name in _LOGARITHMS else name if name in _CODE else "sqrt"]
    code = example_of(diff) if diff else example
    others = f" {_also([one.line for one in lines[1:]])}" if lines[1:] and diff is None else ""
    return _FIX + _BRANCH * (HIDDEN in operation) + others, code, diff


def _also(lines: list[int]) -> str:
    """A sentence on the other lines that hold the operation."""
    named = listed(list(map(str, lines)), len(lines))
    return f"The same operation stands in line{'s' * (len(lines) > 1)} {named}, too."


def beside_a_finite_loss(operations: str) -> str:
    """Of these operations those whose values are finite where their derivatives are not, if there are any: of the
    others, as a division by 0, the loss would hardly have stayed a number."""
    named = [one for one in operations.split(", ") if one]
    finite = [one for one in named if one.startswith(_FINITE) or HIDDEN in one or one == attended_rows.MASKED]
    return ", ".join(finite or named)


def named(events: Sequence[Mapping[str, Any]]) -> str:
    """The operations that the first of these events names. Where it names none, those in a branch of where() that the
    next step names: behind them ReLU and dropout turn NaN into 0, so that some gradients are finite at first."""
    if not events or events[0]["text"]:
        return str(events[0]["text"]) if events else ""
    later = str(events[1]["text"] or "") if len(events) > 1 and events[1]["step"] == events[0]["step"] + 1 else ""
    return ", ".join(one for one in later.split(", ") if HIDDEN in one)


@dataclass(frozen=True)
class Spoiled:
    """What can have broken the weights a step before a loss was no number: a sentence, what to do, and where."""

    told: str
    fix: str
    code: str
    diff: Diff | None
    place: Location | None


def spoiled(process: Process, step: int) -> Spoiled | None:
    """What may have made the weights NaN or Inf that this step began with (the first is 1), by the operations behind
    its loss; None where these do not tell anything."""
    rows = [row for row in process.events_of("spoiled-weights") if row["step"] == step - 1]
    if not rows or not rows[0]["text"]:
        return None
    operations = str(rows[0]["text"])
    if operations == attended_rows.MASKED:
        return Spoiled(attended_rows.SPOILED, *advice(process, operations, None), attended_rows.place(process))
    place = script_lines.singular_of(process, operations.split(", "))
    first = re.split(r",| in a branch", operations)[0]
    name, _, edge = first.partition(" at ") if " at " in first else (first, "", "")
    what = f"The derivative of {name} at {edge} is not finite" if edge else f"The derivative of a {name} is not finite"
    stands = f"line {place.line} takes one" if place is not None else "this loss is made with it"
    return Spoiled(f"{what}, and {stands}.", *advice(process, operations, place), place)


def told(operations: str) -> str:
    """The operations in words: that a where() leaves a branch out at the place in question is not known. One that also
    stands outside of such a branch is named once."""
    named = [one for one in operations.split(", ") if one]
    both = [one for one in named if one + HIDDEN in named]
    shown = [one for one in named if one not in both]
    also = {one + HIDDEN for one in both}
    return ", ".join(
        one.replace(HIDDEN, " in a branch of where()") + " and outside of it" * (one in also) for one in shown
    )

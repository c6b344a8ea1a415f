"""The backwards that one of several optimizers steps on, and its clearing in front of the first of them.

Right behind the step is too early in a GAN: the generator's backward fills the discriminator's gradients again. Right
before the last backward is too late: it would clear what those before it computed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.script import edits
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement


class Clearing(NamedTuple):
    """The optimizer's zero_grad in front of the first backward that its step uses."""

    place: Location  # that backward
    fix: str
    code: str
    diff: Diff


def cleared_before(optimization: Optimization) -> Clearing | None:
    """None where the backwards and the step do not stand one after the other at one depth of a function, or where they
    are not as many as ran before a step."""
    process, step = optimization.process, optimization.step_location
    stepped = edits.STEP.fullmatch(step.source) or edits.SCALER_STEP.fullmatch(step.source) if step else None
    stepping = own_statement.at(process, step)
    if step is None or stepped is None or stepping is None:
        return None
    here = [one for one in process.locations("step") if one.file_function == step.file_function]
    since = max((one.line for one in here if one.line < step.line), default=0)
    lines = [one for one in process.locations("backward") if one.file_function == step.file_function]
    own = sorted((one for one in lines if since < one.line < step.line), key=lambda one: one.line)
    found = [own_statement.at(process, one) for one in own]
    known = optimization.steps["backwards"][np.isfinite(optimization.steps["backwards"])]
    if not own or not len(known) or np.median(known) != len(own) or not all(_beside(one, stepping) for one in found):
        return None
    first = found[0]
    if first is None:
        return None
    call, which = f"{stepped['optimizer']}.zero_grad()", "the first backward" if len(own) > 1 else "the backward"
    return Clearing(
        own[0],
        f"Call {call} right before line {own[0].line}, {which} of its step. Right behind its step is too early: the "
        "backward of another loss may fill its gradients again.",
        f"{call}  # right before line {own[0].line}\n{first.dedented(first.text)}",
        Diff(first.file, first.line, [], [f"{first.indent}{call}"]),
    )


def _beside(backward: OwnStatement | None, step: OwnStatement) -> bool:
    """Whether a backward is known as it stands in the file, at the depth of the step."""
    return backward is not None and backward.stands and step.stands and backward.indent == step.indent

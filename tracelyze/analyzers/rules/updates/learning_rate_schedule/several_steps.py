"""A scheduler that takes several steps with each step of the optimizer, whose steps its length counts."""

from __future__ import annotations

import ast
import re
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization

LENGTHS: Final = ("num_training_steps", "T_max", "total_steps", "total_iters", "num_warmup_steps")
ABOUT: Final = 0.1  # of the whole number: a scheduler rests where a scaler skips a step, and is told of it late
SHARE: Final = 0.25  # of where its length ends: a rate may be practically zero a little before, a horizon ends later
_ACCELERATOR: Final = re.compile(r"(?<![\w.])(?P<name>(?:self\.)?\w*[Aa]ccelerator)\.(?:prepare\w*|backward)\(")


@dataclass(frozen=True)
class Several:
    """The words of the finding about such a scheduler."""

    cause: str
    fix: str
    code: str
    at_step: bool
    """Whether the call of the scheduler's step is to change, not its construction."""
    place: Location | None = None
    """Another line to change."""


def of(optimization: Optimization, scheduler: Row | None, ended: int) -> Several | None:
    """What is to say of a scheduler that is through with its length at row `ended` of the steps, because it takes
    several steps with each of the optimizer; None where it does not, or ends elsewhere."""
    if scheduler is None or not scheduler["optimizer_steps"]:
        return None
    ratio = scheduler["steps"] / scheduler["optimizer_steps"]
    times = round(ratio)
    length = len(optimization.steps) / max(times, 1)
    if times < 2 or abs(ratio - times) > ABOUT or abs(ended - length) > SHARE * length:
        return None
    name = scheduler["name"]
    cause = (
        f" {name} takes {times} steps with each step of the optimizer: {plural(scheduler['steps'], 'step')} in "
        f"{scheduler['optimizer_steps']:,}, while its length counts those of the optimizer."
    )
    holder = _accelerator(optimization)
    if holder and times == optimization.process.world_size:
        return Several(
            f"{cause} Accelerate has a scheduler that it prepared take a step for each of the {times} processes.",
            f"Multiply the length of the schedule, and its warm-up, by {holder}.num_processes; or do not hand the "
            "scheduler to prepare(), which leaves it at one step.",
            _multiplied(optimization, scheduler, f"{holder}.num_processes"),
            at_step=False,
        )
    step = _own_step(optimization, scheduler, holder) if holder else ""
    prepares = _prepares(optimization, scheduler, holder) if step else None
    skips = (
        " While gradients accumulate, Accelerate skips the optimizer's steps, but a scheduler's only if it prepared "
        "that one."
    )
    if prepares is not None:
        fix = f"Prepare the scheduler as well, in line {prepares[0].line}."
        return Several(cause + skips, fix, prepares[1], at_step=True, place=prepares[0])
    if step:
        return Several(
            cause + skips,
            f"Step the scheduler only when gradients are synchronised, or make its length {times} times as long.",
            f"if {holder}.sync_gradients:\n{textwrap.indent(step, '    ')}",
            at_step=True,
        )
    return Several(
        cause,
        f"Step the scheduler once with each step of the optimizer, or make its length {times} times as long.",
        "optimizer.step()\nscheduler.step()  # only here",
        at_step=True,
    )


def _accelerator(optimization: Optimization) -> str:
    """What the script calls the accelerator by which it makes backwards or schedulers; empty without one."""
    process = optimization.process
    places = [one for role in ("scheduler", "backward", "optimizer") for one in process.locations(role)]
    found = [match["name"] for one in places if (match := _ACCELERATOR.search(one.source))]
    return found[0] if found else ""


def _own_step(optimization: Optimization, scheduler: Row, holder: str) -> str:
    """The script's own line that steps the scheduler, where the accelerator accumulates gradients around it."""
    place = optimization.process.site(scheduler["site"])
    own = own_statement.at(optimization.process, place)
    if own is None or place is None:
        return ""
    lines = recorded_text.of_function(optimization.process, place).values()
    accumulates = any(f"{holder}.accumulate(" in one or f"{holder}.sync_gradients" in one for one in lines)
    return own.dedented(own.text) if accumulates else ""


def _prepares(optimization: Optimization, scheduler: Row, holder: str) -> tuple[Location, str] | None:
    """The only line behind the scheduler's that prepares the optimizer and leaves it out, and that line with it. Of a
    single process: of several, Accelerate takes a step for each, and the length may count otherwise."""
    process = optimization.process
    made = process.site(scheduler["made_at"])
    own = own_statement.at(process, made)
    statement = own.parsed.statement if own is not None else None
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if made is None or not isinstance(target, ast.Name) or process.world_size > 1:
        return None
    lines = recorded_text.of_function(process, made)
    at = [number for number, text in lines.items() if number > made.line and f"{holder}.prepare(" in text]
    place = made.at(at[0], lines[at[0]]) if len(at) == 1 else None
    prepared = own_statement.at(process, place)
    call = prepared.only_call("prepare") if prepared is not None else None
    given = [one.id for one in call.args if isinstance(one, ast.Name)] if call is not None else []
    if place is None or prepared is None or call is None or target.id in given or len(given) != len(call.args):
        return None
    kept = prepared.parsed.statement.targets[0] if isinstance(prepared.parsed.statement, ast.Assign) else None
    if not isinstance(kept, ast.Tuple) or len(kept.elts) != len(given) or call.keywords or not given:
        return None
    parts = {one: f"{prepared.parsed.text_of(one)}, {target.id}" for one in (kept.elts[-1], call.args[-1])}
    return place, prepared.dedented(prepared.parsed.with_parts(parts))


def _multiplied(optimization: Optimization, scheduler: Row, times: str) -> str:
    """The script's own line that makes the scheduler, with its lengths so many times as long."""
    own = own_statement.at(optimization.process, optimization.process.site(scheduler["made_at"]))
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)] if own is not None else []
    given = [one.value for call in calls for one in call.keywords if one.arg in LENGTHS]
    if own is None or not given:
        return f"num_training_steps=total_steps * {times}  # or what your schedule calls its length"
    return own.dedented(own.parsed.with_parts({one: f"{own.parsed.operand(one)} * {times}" for one in given}))

"""A learning rate that is zero for a large part of the training, and the scheduler that made it so."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rules.updates.learning_rate_schedule import findings, mismatches, several_steps
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Evidence, Finding, Setting
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location, Severity

_LENGTHS: Final = ("num_training_steps", "T_max", "total_steps", "total_iters")
_PLACES: Final = {
    "CosineAnnealingLR": 1,
    "PolynomialLR": 1,
    "OneCycleLR": 2,
    "LinearLR": 3,
    "get_linear_schedule_with_warmup": 2,
    "get_cosine_schedule_with_warmup": 2,
}
"""Where calls are given the length, if by its place."""
_BY_LIGHTNING: Final = "self.trainer.estimated_stepping_batches"
USUAL: Final = 1e-3  # a rate to begin with
NOISE: Final = 1e-3  # derived: above the rounding of a mean in float32, below what other samples change
FLOOR: Final = 1000  # derived: a thousandth of the first rate; three cuts to a tenth are more than most trainings use
_CUT: Final = "ReduceLROnPlateau has cut it again and again"
_DECAYING: Final = ("ExponentialLR", "StepLR")  # multiply the rate again and again, without an end


@dataclass(frozen=True)
class _Advice:
    cause: str
    fix: str
    code: str
    at_step: bool = False
    length: Setting | None = None
    place: Location | None = None
    severity: Severity = "warning"
    cut: bool = False
    """Whether ReduceLROnPlateau did it, because what it watches stood."""


def finding(optimization: Optimization, scheduler: Row | None, rule: str, limits: Limits) -> Finding | None:
    """The finding about a rate that ends at zero; None where it does not, or not for long."""
    steps = optimization.steps
    rows = np.flatnonzero(np.isfinite(steps["lr"]))
    rate = steps["lr"][rows]
    idle = rate <= limits["nothing"] * rate.max()
    tail = len(idle) - int(np.argmin(idle[::-1])) if not idle.all() else 0
    one_group = (optimization.facts.get("groups") or 1) == 1  # of several, the first may rest while others learn
    if not one_group or len(idle) - tail < max(limits["steps"], limits["share"] * len(idle)):
        return None
    begin, always = int(rows[tail]), bool(idle.all())
    share = (len(steps) - begin) / len(steps)
    when = "in the whole run" if always else f"from step {timing.step_at(optimization, begin):,} on"
    largest = float(rate[tail:].max())
    zero = f"practically zero ({largest:.1g})" if largest > 0 else "zero"
    advice = _advice(optimization, scheduler, begin)
    fault = findings.RateFault(
        title=f"The learning rate is {zero} {when}: nothing is learned",
        what=f"The rate{timing.name_of(optimization)} is {zero} for {plural(len(steps) - begin, 'step')}, "
        f"{percent(share)} of the run. These steps cost time and change nothing.{advice.cause}",
        fix=advice.fix,
        code=advice.code,
        first=begin,
        at_step=advice.at_step,
        setting=advice.length,
        verify="Record the run again: the learning rate stays above zero until the end of the training.",
    )
    evidence = [
        Evidence("steps at rate zero", share, "share", *limits.against("share")),
        *([Evidence("what made it zero", _CUT, role="message")] if advice.cut else []),
    ]
    found = findings.about_rate(
        optimization, scheduler, fault, rule, evidence, "critical" if always else advice.severity
    )
    if advice.cut:
        found = replace(found, traits=frozenset({"cut-at-a-plateau"}))
    if advice.place is None:
        return found
    return replace(found, location=advice.place, seen_at=found.seen_at or found.location)


def _advice(optimization: Optimization, scheduler: Row | None, begin: int) -> _Advice:
    """What made the rate zero from row `begin` of the steps on, as far as that is known, and what to change."""
    process = optimization.process
    if not len(process.tables["schedules"]) and not process.facts.get("source"):  # a log says nothing of schedulers
        return _without_schedule(optimization, always=begin == 0)
    if scheduler is not None and _decays_per_batch(optimization, scheduler):
        return _Advice(
            f" {scheduler['name']} multiplies the rate again and again, and is stepped with every batch.",
            "Take the scheduler's step out of the loop over batches, and make it once per epoch, behind that loop.",
            "scheduler.step()  # behind the loop over batches, at its depth",
            at_step=True,
        )
    if _factor_of_zero(optimization, scheduler):
        return _Advice(
            " It is multiplied by gamma=0 at the first turn of the schedule.",
            "Give gamma the factor by which the rate is to change, such as 0.1; 1 leaves the rate as it is.",
            _factor_of_zero(optimization, scheduler),
        )
    several = several_steps.of(optimization, scheduler, begin)
    if several is not None:
        return _Advice(several.cause, several.fix, several.code, at_step=several.at_step, place=several.place)
    if scheduler is not None and scheduler["mode"]:  # no other scheduler has one
        return _cut_at_a_plateau(optimization, scheduler, begin)
    times = _times(scheduler)
    if scheduler is not None and times:
        return _Advice(
            _length(scheduler),
            f"The schedule is stepped {times} times for each step that it counts: multiply its length by {times}, or "
            "step it once for each.",
            _of_full_length(optimization, scheduler, times),
            place=_line_of_length(optimization, scheduler),
        )
    return _Advice(
        _length(scheduler) if scheduler is not None and scheduler["horizon"] else "",
        "Give the schedule the actual number of steps, in the unit in which it is stepped.",
        _of_full_length(optimization, scheduler),
        length=_as_setting(optimization, scheduler),
        place=_line_of_length(optimization, scheduler),
    )


def _cut_at_a_plateau(optimization: Optimization, scheduler: Row, begin: int) -> _Advice:
    """Where ReduceLROnPlateau cut the rate again and again: what it watches did not improve by its measure."""
    watched = ""
    if scheduler["watched_first"] is not None and scheduler["watched_last"] is not None:
        watched = f" went from {number(scheduler['watched_first'])} to {number(scheduler['watched_last'])}, and"
    cause = f" {_CUT}: what it watches{watched} did not improve for longer than its patience."
    if scheduler["steps"] >= mismatches.PER_STEP * len(optimization.steps) and _batches_differ(optimization, begin):
        return _Advice(
            f"{cause} It is stepped with every batch, whose losses differ more than a training improves between two.",
            "Step it once per epoch, with the loss of a validation pass.",
            "scheduler.step(validation_loss)  # behind the loop over batches, at its depth",
            at_step=True,
            cut=True,
        )
    return _Advice(
        cause,
        "If the value is good enough, end the training there. If it is not, find out what keeps it from improving: a "
        "higher rate alone rarely helps. A floor (min_lr) keeps the rate from vanishing.",
        _with_floor(optimization, scheduler),
        severity="info",
        cut=True,
    )


def _batches_differ(optimization: Optimization, begin: int) -> bool:
    """Whether the losses differ from step to step although the weights stand still: other samples make them up."""
    losses = optimization.steps["loss"][begin:]
    losses = losses[np.isfinite(losses)]
    return len(losses) > 1 and bool(losses.std() > NOISE * abs(losses.mean()))


def _with_floor(optimization: Optimization, scheduler: Row) -> str:
    """The script's own line that makes the scheduler, with a lowest rate; a general one where it is another form."""
    own = own_statement.at(optimization.process, optimization.process.site(scheduler["made_at"]))
    call = own.only_call(str(scheduler["name"])) if own is not None else None
    floor = f"{scheduler['highest_lr'] / FLOOR:.0e}".replace("e-0", "e-") if scheduler["highest_lr"] else "1e-5"
    line = own.parsed.with_argument(call, "min_lr", floor) if own is not None and call is not None else None
    if own is None or line is None:
        return f"{scheduler['name']}(optimizer, min_lr={floor})  # beside what your line hands over"
    return own.dedented(line)


def _without_schedule(optimization: Optimization, *, always: bool) -> _Advice:
    """Where no scheduler was made, the script itself gives the optimizer its rate."""
    if always:
        return _Advice(
            "", "Give the optimizer a rate above zero: where it is made, or where the script sets it.",
            schedulers.with_rate(optimization, USUAL),
        )  # fmt: skip
    why = " No scheduler of torch was made: something else sets the rate."
    return _Advice(why, "Look at the line that sets the rate of a step.", "")


def _decays_per_batch(optimization: Optimization, scheduler: Row) -> bool:
    """Whether the script, and not a framework, steps a scheduler without an end with every batch."""
    by_script = optimization.process.site(scheduler["site"]) is not None
    per_step = scheduler["steps"] >= mismatches.PER_STEP * len(optimization.steps)
    return by_script and scheduler["name"] in _DECAYING and per_step


def _factor_of_zero(optimization: Optimization, scheduler: Row | None) -> str:
    """The script's own line that makes the scheduler, with another factor, where it gives zero; else empty."""
    made = optimization.process.site(scheduler["made_at"]) if scheduler is not None else None
    own = own_statement.at(optimization.process, made)
    call = own.only_call(str(scheduler["name"])) if own is not None and scheduler is not None else None
    named = [one.value for one in call.keywords if one.arg == "gamma"] if call is not None else []
    if own is None or not named or not isinstance(named[0], ast.Constant) or named[0].value != 0:
        return ""
    return own.dedented(own.parsed.with_parts({named[0]: "0.1"}))


def _length(scheduler: Row) -> str:
    return f" {scheduler['name']} lasts {scheduler['horizon']:,} steps, and was stepped {scheduler['steps']:,} times."


def _as_setting(optimization: Optimization, scheduler: Row | None) -> Setting | None:
    """The length of the schedule as a setting of the script; None where that is a number of epochs, which is right."""
    made = optimization.process.site(scheduler["made_at"]) if scheduler is not None else None
    if scheduler is None or made is None or not scheduler["horizon"] or "epoch" in made.source:
        return None
    return Setting(_LENGTHS, (scheduler["horizon"],))


def _times(scheduler: Row | None) -> int:
    """How often a schedule is stepped for each step that it lasts, where that is a whole number: its length is right
    then, in another unit. Else 0."""
    horizon = int(scheduler["horizon"] or 0) if scheduler is not None else 0
    times, rest = divmod(int(scheduler["steps"]), horizon) if scheduler is not None and horizon > 1 else (0, 0)
    return times if times > 1 and not rest else 0


def _of_full_length(optimization: Optimization, scheduler: Row | None, times: int = 0) -> str:
    """The script's own line with another length, where it is one statement that says the length by name or by its
    place; empty where it says it otherwise, and how many times as long it has to be is known."""
    made = optimization.process.site(scheduler["made_at"]) if scheduler is not None else None
    own = own_statement.at(optimization.process, made)
    call = own.only_call(*_PLACES, str(scheduler["name"])) if own is not None and scheduler is not None else None
    length = _given_length(call) if call is not None else None
    if own is not None and length is not None:
        planned = _BY_LIGHTNING if "self.trainer." in own.text else "epochs * len(loader)"
        longer = f"{own.parsed.operand(length)} * {times}" if times else planned
        line = own.dedented(own.parsed.with_parts({length: longer}))
        return line if times else f"# stepped after every batch:\n{line}"
    return "" if times else "# stepped after every batch:\nT_max=epochs * len(loader)  # or what your schedule calls it"


def _line_of_length(optimization: Optimization, scheduler: Row | None) -> Location | None:
    """The line of the statement that makes the scheduler on which its length stands, where that is a later one."""
    made = optimization.process.site(scheduler["made_at"]) if scheduler is not None else None
    own = own_statement.at(optimization.process, made)
    call = own.only_call(*_PLACES, str(scheduler["name"])) if own is not None and scheduler is not None else None
    length = _given_length(call) if call is not None else None
    if own is None or made is None or length is None or length.lineno == 1:
        return None
    source = own.text.split("\n")[length.lineno - 1].strip()
    return replace(made, line=own.line + length.lineno - 1, source=source)


def _given_length(call: ast.Call) -> ast.expr | None:
    """The argument that says how many steps a schedule lasts."""
    named = [one.value for one in call.keywords if one.arg in _LENGTHS]
    place = _PLACES.get(name_of(call.func), len(call.args))
    before = call.args[: place + 1]
    if named or any(isinstance(one, ast.Starred) for one in before):
        return named[0] if len(named) == 1 else None
    return before[place] if place < len(call.args) else None

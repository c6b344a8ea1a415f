"""Findings about the learning rate and the scheduler that sets it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rules.updates.learning_rate_schedule import units
from tracelyze.analyzers.script.editing.optimizers import returned
from tracelyze.diagnosis import Confidence, Evidence, Finding, Mark, Severity

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location, Setting

FALSE_ALARM: Final = "A planned pause, or part of a longer schedule."


@dataclass(frozen=True, kw_only=True)
class RateFault:
    """What is wrong with the learning rate, with the words of the finding about it."""

    title: str
    what: str
    """What happened."""
    fix: str
    code: str = units.EITHER
    diff: Diff | None = None
    at_step: bool = False
    """Whether the call of the scheduler's step is to change, not its construction."""
    place: Location | None = None
    """The line to change, if it is neither of them."""
    setting: Setting | None = None
    """What the script has to be given another value."""
    first: int = 0
    """The row of the steps from which on the rate does harm."""
    false_alarm: str = FALSE_ALARM
    verify: str = ""
    confidence: Confidence | None = None
    """None: certain where the harm has a first step."""


@dataclass(frozen=True, kw_only=True)
class Mismatch(RateFault):
    """A scheduler that does not fit the training that steps it."""

    scheduler: Row


def of_mismatch(optimization: Optimization, mismatch: Mismatch, rule: str) -> Finding:
    """The finding about a scheduler that does not fit the training."""
    scheduler = mismatch.scheduler
    evidence = [
        Evidence("steps of the scheduler", scheduler["steps"], "steps"),
        Evidence("steps of the optimizer", len(optimization.steps), "steps"),
        *([Evidence("length of the schedule", scheduler["horizon"], "steps")] if scheduler["horizon"] else []),
    ]
    return about_rate(optimization, scheduler, mismatch, rule, evidence, confidence=mismatch.confidence)


def about_rate(
    optimization: Optimization,
    scheduler: Row | None,
    fault: RateFault,
    rule: str,
    evidence: list[Evidence],
    severity: Severity = "warning",
    confidence: Confidence | None = None,
) -> Finding:
    """The finding about the rate as this scheduler, or the script itself, sets it."""
    first, begin = fault.first, timing.step_at(optimization, fault.first)
    affected = np.arange(len(optimization.steps)) >= first
    stepped = (optimization.process.site(scheduler["site"]) if scheduler else None) or optimization.step_location
    made = optimization.process.site(scheduler["made_at"]) if scheduler and not fault.at_step else None
    code, in_lightning = fault.code, made is not None and made.function == returned.CONFIGURE
    # Steps of optimizer and scheduler in one line: the framework makes both. Otherwise the script does so itself.
    together = scheduler is not None and scheduler["steps"] and stepped == optimization.step_location
    about_units = in_lightning and together and units.in_lightning(code) != code
    given = returned.with_interval(optimization.process, made, units.interval(code)) if about_units else None
    code = units.in_lightning(code) if in_lightning else code
    marks = [Mark(float(begin), "from here on")] if first else []
    rates = pictures.over_steps(optimization, "Learning rate", "rate", {"learning rate": "lr"}, marks)
    return Finding(
        rule=rule,
        severity=severity,
        confidence=confidence or ("certain" if severity == "critical" or first else "likely"),
        title=fault.title,
        summary=fault.what,
        fix=f"{fault.fix} {units.BY_LIGHTNING}" if given else fault.fix,
        fix_code=given.code or code if given else code,
        diff=given.diff if given and fault.diff is None else fault.diff,
        setting=fault.setting,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=evidence,
        cost=timing.cost_of(optimization, affected) if first or severity == "critical" else None,
        location=given.line if given else fault.place or made or stepped,
        seen_at=stepped,
        charts=rates + pictures.loss(optimization),
        false_alarm=fault.false_alarm,
        verify=fault.verify,
    )

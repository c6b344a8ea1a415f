"""Findings about the learning rate and the scheduler that sets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules import units
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Confidence, Evidence, Finding, Mark, Severity

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.schedules.mismatches import Mismatch
    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Setting

FALSE_ALARM: Final = "A planned pause, or part of a longer schedule."


def of_mismatch(optimization: Optimization, mismatch: Mismatch, rule: str) -> Finding:
    """The finding about a scheduler that does not fit the training."""
    scheduler = mismatch.scheduler
    return about_rate(
        optimization,
        scheduler,
        rule,
        title=mismatch.title,
        what=mismatch.what,
        fix=mismatch.fix,
        code=mismatch.code,
        evidence=[
            Evidence("steps of the scheduler", scheduler["steps"], "steps"),
            Evidence("steps of the optimizer", len(optimization.steps), "steps"),
            *([Evidence("length of the schedule", scheduler["horizon"], "steps")] if scheduler["horizon"] else []),
        ],
        at_step=mismatch.at_step,
        diff=mismatch.diff,
        false_alarm=mismatch.false_alarm or FALSE_ALARM,
        verify=mismatch.verify,
        first=mismatch.first,
        setting=mismatch.setting,
    )


def about_rate(
    optimization: Optimization,
    scheduler: Row | None,
    rule: str,
    *,
    title: str,
    what: str,
    fix: str,
    code: str,
    evidence: list[Evidence],
    first: int = 0,
    severity: Severity = "warning",
    confidence: Confidence | None = None,
    at_step: bool = False,
    diff: Diff | None = None,
    false_alarm: str = FALSE_ALARM,
    verify: str = "",
    setting: Setting | None = None,
) -> Finding:
    """A finding about the rate from row `first` of the steps on, as this scheduler sets it.

    `at_step`: the call of the scheduler's step is to change, not its construction.
    """
    begin = timing.step_at(optimization, first)
    affected = np.arange(len(optimization.steps)) >= first
    stepped = (optimization.process.site(scheduler["site"]) if scheduler else None) or optimization.step_location
    made = optimization.process.site(scheduler["made_at"]) if scheduler and not at_step else None
    marks = [Mark(float(begin), "from here on")] if first else []
    rates = pictures.over_steps(optimization, "Learning rate", "rate", {"learning rate": "lr"}, marks)
    return Finding(
        rule=rule,
        severity=severity,
        confidence=confidence or ("certain" if severity == "critical" or first else "likely"),
        title=title,
        summary=what,
        fix=fix,
        fix_code=units.in_lightning(code) if made and made.function == "configure_optimizers" else code,
        diff=diff,
        setting=setting,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=evidence,
        cost=timing.cost_of(optimization, affected) if first or severity == "critical" else None,
        location=made or stepped,
        seen_at=stepped,
        charts=rates + pictures.loss(optimization),
        false_alarm=false_alarm,
        verify=verify,
    )

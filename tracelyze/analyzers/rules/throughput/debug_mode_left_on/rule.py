"""debug-mode-left-on: anomaly detection, or a profiler, runs through the whole training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.rules.throughput.debug_mode_left_on import anomaly_detection, profiler_cycles
from tracelyze.analyzers.rules.throughput.debug_mode_left_on.anomaly_detection import SwitchedOn
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.throughput.debug_mode_left_on.profiler_cycles import Cycles

WORDS = {
    "anomaly_mode": (
        "Anomaly detection",
        "It keeps a Python stack for every operation of the forward and checks every gradient for NaN.",
    ),
    "profiled": ("A profiler", "It records every operation, which takes time, and memory until it is stopped."),
}


def check(process: Process, limits: Limits) -> Outcome:
    """Whether either was on at nearly all backwards of a run; how severe that is depends on its length."""
    optimization = process.longest
    steps = optimization.steps
    seconds = float(np.nan_to_num(steps["seconds"]).sum())
    for column, (name, effect) in WORDS.items():
        share = float((steps[column] == 1).sum() / max(1, steps.known(column).sum()))
        if share < limits["share"]:
            continue
        severe = seconds >= limits["seconds"], len(steps) >= limits["many"]
        if len(steps) < limits["steps"]:
            return Passed(f"{name.lower()} is on, in the {plural(len(steps), 'step')} of a debugging session")
        on = anomaly_detection.of(process) if column == "anomaly_mode" else _by_profiler(process)
        return [
            Finding(
                rule=RULE.id,
                severity="warning" if any(severe) else "info",
                confidence="certain",
                title=f"{name} is on in {share_of(share, plural(len(steps), 'step'))}",
                summary=f"{name} was on at the backward of {share_of(share, f'{len(steps):,} steps')}. {effect}"
                + on.said,
                fix=on.fix,
                fix_code=on.code,
                first_step=timing.step_at(optimization, int(np.argmax(steps[column] == 1))),
                last_step=timing.last_step(optimization),
                evidence=[
                    Evidence("steps with it on", share, "share", *limits.against("share")),
                    Evidence("steps of the run", len(steps), "steps", *limits.against("many"))
                    if severe == (False, True)
                    else Evidence("length of the run", seconds, "s", *limits.against("seconds")),
                ],
                location=on.place or optimization.backward_location,
                diff=on.diff,
                setting=on.setting,
                seen_at=optimization.backward_location,
                charts=pictures.time_split(optimization),
                false_alarm="A long run meant only for debugging.",
            )
        ]
    found = profiler_cycles.cycles(optimization) if steps.has("profiled") else None
    again = found is not None and found.count >= limits["windows"]
    if found is not None and again and (found.share >= limits["mostly"] or found.lost >= limits["lost"]):
        return [_cycling(process, found, seconds, limits)]
    return Passed("neither anomaly detection nor a profiler was on throughout")


def _by_profiler(process: Process) -> SwitchedOn:
    return SwitchedOn(profiler_cycles.line(process), code=profiler_cycles.SCHEDULED, setting=None)


def _cycling(process: Process, found: Cycles, seconds: float, limits: Limits) -> Finding:
    optimization = process.longest
    count, place = len(optimization.steps), profiler_cycles.line(process)
    fix, code = profiler_cycles.advice(place)
    costly = found.lost >= limits["lost"] or seconds >= limits["seconds"] or count >= limits["many"]
    return Finding(
        rule=RULE.id,
        severity="warning" if costly else "info",
        confidence="certain",
        title=f"A profiler records {found.count} windows, until the end of the run",
        summary=profiler_cycles.told(optimization, found),
        fix=fix,
        fix_code=code,
        first_step=timing.step_at(optimization, found.first),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("windows", found.count, "windows", *limits.against("windows")),
            Evidence("steps with it on", found.share, "share", *limits.against("mostly")),
            Evidence("time of the steps behind a window", found.lost, "share", *limits.against("lost")),
        ],
        cost=Cost(found.seconds, found.lost),
        location=place or optimization.backward_location,
        seen_at=optimization.backward_location,
    )


RULE = Rule(
    id="debug-mode-left-on",
    family="throughput",
    severity="warning",
    title="A debugging aid is on all the time",
    about="Anomaly detection and profilers are meant for a few steps. Over a whole run they cost time and memory.",
    check=check,
    settings=("detect_anomaly",),
    verify="Record the run again: it is off in most steps, and steps are shorter.",
    excluded=(
        "A debugging session: the run is longer than 100 steps.",
        "A profiler that records one window, or anomaly detection under a condition: most steps would be without.",
    ),
    needs=(("steps.anomaly_mode",),),
    thresholds=(
        Threshold("share", 0.95, "share", "on throughout; a schedule or a condition leaves most steps alone"),
        Threshold("steps", 100, "steps", "a debugging session is shorter"),
        Threshold("many", 300, "steps", "who makes so many steps trains; each pays the price, however short it is"),
        Threshold("windows", 5, "windows", "who looks for what takes long reads one or two; these were never to end"),
        Threshold("mostly", 0.5, "share", "a profiler that looks in now and then leaves most steps alone"),
        Threshold("lost", 0.2, "share", "derived: a fifth of the time is worth a change"),
        Threshold("seconds", 60, "s", "a shorter run of fewer steps loses little by it, and gets a hint (info)"),
    ),
    not_when="Short runs, profilers that look in now and then at little cost, anomaly detection under a condition.",
    references=("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",),
)

"""debug-mode-left-on: anomaly detection, or a profiler, runs through the whole training."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import line_edits, pictures, script_lines, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.diagnosis import Evidence, Finding, Setting
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

CODE = {
    "anomaly_mode": "torch.autograd.set_detect_anomaly(debug)  # debug: True only while you look for a NaN",
    "profiled": "schedule = torch.profiler.schedule(wait=50, warmup=2, active=5, repeat=1)\n"
    "with torch.profiler.profile(schedule=schedule) as profiler:\n"
    "    for batch in loader:\n        train_step(batch)\n        profiler.step()",
}
BLOCK = """with torch.autograd.set_detect_anomaly(debug):  # debug: True only while you look for a NaN
    ...  # the block, as it is"""
FRAMEWORK = "detect_anomaly=False  # what the Trainer is given"
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
        return [
            Finding(
                rule=RULE.id,
                severity="warning" if any(severe) else "info",
                confidence="certain",
                title=f"{name} is on in {share_of(share, plural(len(steps), 'step'))}",
                summary=f"{name} was on at the backward of {share_of(share, f'{len(steps):,} steps')}. {effect}",
                fix="Turn it on for a few steps, or under a condition, and leave it off otherwise.",
                fix_code=_example(process, column),
                first_step=timing.step_at(optimization, int(np.argmax(steps[column] == 1))),
                last_step=timing.last_step(optimization),
                evidence=[
                    Evidence("steps with it on", share, "share", *limits.against("share")),
                    Evidence("steps of the run", len(steps), "steps", *limits.against("many"))
                    if severe == (False, True)
                    else Evidence("length of the run", seconds, "s", *limits.against("seconds")),
                ],
                location=_switched_on(process, column) or optimization.backward_location,
                diff=line_edits.anomalies_unseen(process, _switched_on(process, column)),
                setting=Setting(("mode", "check_nan", "enabled"), (True,), "False")
                if column == "anomaly_mode"
                else None,
                seen_at=optimization.backward_location,
                charts=pictures.time_split(optimization),
                false_alarm="A long run meant only for debugging.",
            )
        ]
    return Passed("neither anomaly detection nor a profiler was on throughout")


def _example(process: Process, column: str) -> str:
    if column == "anomaly_mode" and _by_framework(process):
        return FRAMEWORK
    place = _switched_on(process, column)
    return BLOCK if place is not None and place.source.startswith(("with ", "async with ")) else CODE[column]


def _by_framework(process: Process) -> bool:
    """Whether the script asks a framework for it, and does not call torch's function itself."""
    own = process.locations("anomaly")
    return not own and script_lines.only(process, "setting", r"\bdetect_anomaly\s*=") is not None


def _switched_on(process: Process, column: str) -> Location | None:
    return script_lines.only(process, "anomaly") if column == "anomaly_mode" else None


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
        "A profiler with a schedule, or anomaly detection under a condition: most steps would be without.",
    ),
    needs=(("steps.anomaly_mode",),),
    thresholds=(
        Threshold("share", 0.95, "share", "on throughout; a schedule or a condition leaves most steps alone"),
        Threshold("steps", 100, "steps", "a debugging session is shorter"),
        Threshold("many", 300, "steps", "who makes so many steps trains; each pays the price, however short it is"),
        Threshold(
            "seconds", 60, "s", "of a run of fewer steps: a shorter one loses little by it, and gets a hint (info)"
        ),
    ),
    not_when="Short runs, profiler schedules, anomaly detection under a condition.",
    references=("https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",),
)

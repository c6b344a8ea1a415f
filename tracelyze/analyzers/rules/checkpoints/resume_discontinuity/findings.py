"""The finding about a training that goes on from a file without all of its state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.checkpoints.resume_discontinuity import first_steps, restoring
from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.lost_states import RATES
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.lost_states import Lost

Row = dict[str, Any]


TITLES: Final = {
    "average": "Training resumes from a checkpoint without the average of its weights",
    "epoch counter": "Training resumes from a checkpoint but counts from zero again",
}
STARTS_OVER: Final = "Training resumes from a checkpoint, but its learning rate starts over"


def finding(process: Process, row: Row, lost: Lost, facts: Row, rule: str, limits: Limits) -> Finding:
    """`row`: the file; `facts`: what the first step after it showed."""
    step = int(row["step"] or 0)
    training = _begun_after(process, row["time"])
    evidence = [Evidence("states that were not restored", lost.shown)]
    jump = _jump(process, step, int(limits["window"]))
    if jump is not None:
        evidence.append(Evidence("loss after resuming over loss before", jump, "times"))
    words = _words(row, lost, facts)
    remedy = restoring.remedy(process, row, lost, facts, lost.how.fix.format(**words))
    effects = [*_effects(process, lost), *([f"This is {training}."] if training else [])]
    if jump is not None and jump > limits["jump"]:
        effects.append(f"The loss became {number(jump)} times as large.")
    return Finding(
        rule=rule,
        severity=lost.severity,
        confidence="likely",
        title=STARTS_OVER if lost.how is RATES else TITLES.get(lost.names[0], _title(lost)),
        summary=" ".join([lost.how.said.format(**words), *effects]),
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=1 if training else step + 1,
        first_second=row["time"],
        trainings=[training] if training else [],
        evidence=evidence,
        location=remedy.change,
        seen_at=remedy.seen,
        charts=pictures.loss(process.longest, [Mark(float(step), "restored")]) if process.optimizations else [],
        false_alarm="A second phase that is meant to start from these weights with a fresh optimizer or schedule.",
    )


def _title(lost: Lost) -> str:
    """Short enough for the number of a training behind it."""
    file = "from a checkpoint " * (len(lost.names) == 1)
    return f"Training resumes {file}without its {lost.shown} state"


def _words(row: Row, lost: Lost, facts: Row) -> dict[str, Any]:
    """What may stand in the sentences of a `How`."""
    rates = {name: facts.get(f"{name}_lr") for name in ("restored", "initial")}
    return {
        "file": row["file"] or "The file",
        "names": lost.shown,
        "anew": facts.get("anew"),
        "unread": " and ".join(first_steps.never_read(facts)),
        **{name: "unknown" if rate is None else number(rate) for name, rate in rates.items()},
    }


def _effects(process: Process, lost: Lost) -> list[str]:
    """What the training lacks without these states, in sentences."""
    effect = {
        "optimizer": "The optimizer starts with empty state: its first steps are as large as those of a fresh training."
        if first_steps.has_state(process)
        else "The learning rate is back at its initial value.",
        "scheduler": "The learning-rate schedule starts over.",
        "average": "The average of the weights starts over.",
        "epoch counter": "Epochs, or steps, are counted from zero again.",
        "scaler": "The loss scale starts at its default, and the first steps overflow.",
    }
    return [effect[name] for name in lost.names if name in effect]


def _jump(process: Process, step: int, steps: int) -> float | None:
    """The loss after the step over the loss before it; None where there are too few."""
    losses = process.longest.steps["loss"] if process.optimizations else np.empty(0)
    before, after = losses[max(0, step - steps) : step], losses[step : step + steps]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    half = steps // 2  # of the window: some losses may be missing, or not finite
    if min(len(before), len(after)) < half or float(np.median(before)) <= 0:
        return None
    return float(np.median(after) / np.median(before))


def _begun_after(process: Process, time: float | None) -> str | None:
    """The name of the training that was the first to begin after this time, if the process made several."""
    named = [(one.steps["time"], one.training) for one in process.trainings]
    begun = [(times[0], name) for times, name in named if name and len(times) and time is not None and times[0] > time]
    return min(begun)[1] if begun else None

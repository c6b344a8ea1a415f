"""resume-discontinuity: a training goes on from a checkpoint without the state of its optimizer or scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
STATELESS = ("SGD",)  # without momentum


def check(process: Process, limits: Limits) -> Outcome:
    """Files that a model was restored from before it trained on, and which of their other states were taken in."""
    rows = list(process.tables["checkpoints"].records())
    loads = [row for row in rows if row["action"] == "load" and row["model_restored"]]
    if not loads:
        return Skipped("no training went on from a file of weights", "not-applicable")
    saves = [row for row in rows if row["action"] == "save"]
    own = [row for row in loads if _is_own(row, saves)]
    if not own:
        return Passed(f"{plural(len(loads), 'file')} of weights came from another program: fine-tuning")
    schedules = len(process.tables["schedules"]) > 0
    for row in own:
        lost = [name for name in ("optimizer", "scheduler", "scaler") if row[name] and not row[f"{name}_restored"]]
        lost = [name for name in lost if name != "scheduler" or schedules]
        lost = [name for name in lost if name != "optimizer" or _has_state(process)]
        if lost:
            return [_finding(process, row, lost, in_file=True, limits=limits)]
        if row["progress"] and not row["optimizer"] and _has_state(process):
            return [_finding(process, row, ["optimizer"], in_file=False, limits=limits)]
    if _has_state(process) and not any(row["optimizer"] for row in own):
        return Skipped(
            "what went on from a checkpoint took in its weights, and it holds no more: whether the training was to go "
            "on, for which it needs the state of its optimizer too, is not known"
        )
    return Passed("what went on from a checkpoint took in all that it holds")


def _is_own(row: Row, saves: list[Row]) -> bool:
    """Whether the file is of the kind that this program writes, by its name or by the keys of what it holds."""
    named = bool(row["file"]) and any(row["file"] == save["file"] for save in saves)
    return named or (bool(row["keys"]) and any(row["keys"] == save["keys"] for save in saves))


def _has_state(process: Process) -> bool:
    """Whether an optimizer keeps more than its parameters: moments, momentum."""
    for row in process.optimizers.records():
        text = str(row["options"] or "")
        if str(row["name"]) not in STATELESS or ("momentum" in text and '"momentum": 0' not in text):
            return True
    return False


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


def _finding(process: Process, row: Row, lost: list[str], in_file: bool, limits: Limits) -> Finding:
    step = int(row["step"] or 0)
    training = _begun_after(process, row["time"])
    names = " and ".join(lost)
    jump = _jump(process, step, int(limits["window"]))
    evidence = [Evidence("states that were not restored", names)]
    if jump is not None:
        evidence.append(Evidence("loss after it over loss before", jump, "times"))
    where = (
        f"{row['file'] or 'The file'} holds the state of the {names}, and it was not taken in before the next step."
        if in_file
        else f"{row['file'] or 'The file'} says how far the training is, and holds no state of the optimizer."
    )
    effect = {
        "optimizer": "Its moments begin at zero: the first steps are as large as at the start of a training.",
        "scheduler": "The learning rate begins its schedule anew.",
        "scaler": "The loss scale begins at its default, and the first steps overflow.",
    }
    grown = f" The loss became {number(jump)} times as large." if jump is not None and jump > limits["jump"] else ""
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"The training goes on from a checkpoint without the state of its {names}",
        summary=f"{where} {' '.join(effect[name] for name in lost)}{grown}",
        fix=f"Restore the state of the {names} as well, right where the weights are restored."
        if in_file
        else "Save the state of the optimizer beside the weights, and restore both.",
        fix_code=_code(lost, in_file),
        first_step=1 if training else step + 1,
        first_second=row["time"],
        trainings=[training] if training else [],
        evidence=evidence,
        location=process.site(row["site"]),
        charts=pictures.loss(process.longest, [Mark(float(step), "restored")]) if process.optimizations else [],
        false_alarm="A second phase that is to begin with a fresh optimizer, from the weights of the first.",
    )


def _code(lost: list[str], in_file: bool) -> str:
    """What restores the lost states, and saves them where the file holds none."""
    states = ", ".join(f'"{name}": {name}.state_dict()' for name in ["model", *lost])
    loads = [f'{name}.load_state_dict(checkpoint["{name}"])' for name in ["model", *lost]]
    saving = [] if in_file else [f"torch.save({{{states}}}, path)  # where the file is written"]
    return "\n".join([*saving, "checkpoint = torch.load(path)", *loads])


RULE = Rule(
    id="resume-discontinuity",
    family="checkpoints",
    severity="warning",
    title="A resumed training lacks part of its state",
    about="A training that goes on needs more than its weights: the optimizer's moments, the place in its schedule.",
    check=check,
    verify="Record the run again: the states are restored, and the loss goes on at its level.",
    absent="The run restores no model from a file before it trains on.",
    needs=(("checkpoints.action",),),
    whole_process=True,
    thresholds=(
        Threshold("window", 10, "steps", "derived: single losses are noise"),
        Threshold("jump", 1.2, "times", "derived: less is within the noise of most trainings"),
    ),
    not_when="Weights of another program, optimizers without state, evaluation only, bare weights without an epoch.",
    references=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
)

"""resume-discontinuity: a training goes on from a checkpoint without the state of its optimizer or scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.checkpoints.resume_discontinuity import (
    findings,
    first_steps,
    lightning_files,
    lost_states,
)
from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.lost_states import Lost
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
STATES = ("optimizer", "scheduler", "scaler")


def check(process: Process, limits: Limits) -> Outcome:
    """Files that a model was restored from before it trained on, and which of their other states were taken in."""
    rows = list(process.tables["checkpoints"].records())
    loads = [row for row in rows if row["action"] == "load" and row["model_restored"]]
    loads = [row for row in loads if not first_steps.nothing_fitted(process, row)]
    if not loads:
        return Skipped("no training resumed from a weights file", "not-applicable")
    saves = [row for row in rows if row["action"] == "save"]
    own = [row for row in loads if _is_own(row, saves)]
    if not own:
        return Passed(f"{plural(len(loads), 'file')} of weights came from another program: fine-tuning")
    schedules = len(process.tables["schedules"]) > 0
    seen = first_steps.after_files(process)
    for row in own:
        facts = seen.get((row["file"] or "", int(row["step"] or 0)), {})
        lost = _lost(process, row, facts, schedules, limits)
        if lost is not None:
            lost = lost._replace(severity="info") if lightning_files.may_be_foreign(row, saves) else lost
            return [findings.finding(process, row, lost, facts, RULE.id, limits)]
    if first_steps.has_state(process) and not any(row["optimizer"] for row in own):
        for row in own:
            facts = seen.get((row["file"] or "", int(row["step"] or 0)), {})
            if first_steps.goes_on_from_weights(process, row, saves, facts):
                lost = Lost(["optimizer"], lost_states.BARE, "info")
                return [findings.finding(process, row, lost, facts, RULE.id, limits)]
        return Skipped(
            "the checkpoint holds only weights, and they were loaded: whether this was meant to resume training, "
            "which also needs the optimizer state, is not known"
        )
    left = [name for name in STATES if any(row[name] and not row[f"{name}_restored"] for row in own)]
    if left:
        return Passed(
            f"the {left[0]} state in the checkpoint was not loaded, and the training that followed does not need it"
        )
    return Passed("the resumed training loaded everything the checkpoint holds")


def _lost(process: Process, row: Row, facts: Row, schedules: bool, limits: Limits) -> Lost | None:
    """Which states the training that goes on lacks; None where it has what it needs, or is another training."""
    unread = _left_in_file(process, row, schedules)
    if _is_another_training(process, row, facts, unread):
        return None
    if unread[:1] == ["scheduler"] and not row["optimizer"] and not row["optimizer_restored"]:
        return Lost(["optimizer", *unread], lost_states.HALF_IN_FILE)
    if unread:
        return Lost(unread, lost_states.IN_FILE)
    return _without_optimizer(process, row, facts, schedules) or _without_position(process, row, facts, limits)


def _is_another_training(process: Process, row: Row, facts: Row, unread: list[str]) -> bool:
    """Whether what follows trains another model, another task, or a second phase, which needs no old state."""
    if facts.get("same_model") is False:  # it was evaluated, and another model trained after that
        return True
    if first_steps.has_new_part(facts) and not row["optimizer_restored"]:
        return True
    renewed = "optimizer" in unread or facts.get("renewed")
    if not row["optimizer"] or not renewed:
        return False
    return first_steps.on_other_data(process, int(row["step"] or 0)) or first_steps.is_second_phase(process, facts)


def _left_in_file(process: Process, row: Row, schedules: bool) -> list[str]:
    """The states that the file holds, the training needs, and nothing took in."""
    unread = [name for name in STATES if row[name] and not row[f"{name}_restored"]]
    unread = [name for name in unread if name != "scheduler" or schedules]
    # A scheduler that takes in its state sets no rate: that of an optimizer without moments is lost as well.
    needed = "scheduler" in unread or first_steps.has_state(process)
    return [name for name in unread if name != "optimizer" or needed]


def _without_optimizer(process: Process, row: Row, facts: Row, schedules: bool) -> Lost | None:
    """The optimizer's state is in no file, or another optimizer steps than the one that took it in."""
    if not first_steps.has_state(process):
        return None
    if row["progress"] and not row["optimizer"] and not row["optimizer_restored"]:
        known = row["scheduler"] or row["scheduler_restored"] or not schedules
        if facts and not known and first_steps.starts_over(process, facts):
            return Lost(["optimizer", "scheduler"], lost_states.NEITHER_IN_FILE)
        return Lost(["optimizer"], lost_states.NOT_IN_FILE)
    if facts.get("renewed"):
        over = row["scheduler"] and schedules and first_steps.starts_over(process, facts)
        return Lost(["optimizer", *["scheduler"] * bool(over)], lost_states.RENEWED)
    return None


def _without_position(process: Process, row: Row, facts: Row, limits: Limits) -> Lost | None:
    """The optimizer has its state, but a schedule, a count of epochs or an average of the weights begins anew."""
    if row["progress"] and facts.get("anew") and not row["scheduler_restored"]:
        return Lost(["scheduler"], lost_states.ANEW)
    if row["progress"] and first_steps.rates_repeat(process, facts, int(limits["rates"])):
        return Lost(["epoch counter"], lost_states.RATES)
    if row["optimizer_restored"] and first_steps.never_read(facts):
        average = first_steps.has_average(facts)
        return Lost(["average" if average else "epoch counter"], lost_states.UNREAD, "warning" if average else "info")
    return None


def _is_own(row: Row, saves: list[Row]) -> bool:
    """Whether the file is of the kind that this program writes, by its name or by the keys of what it holds."""
    named = bool(row["file"]) and any(row["file"] == save["file"] for save in saves)
    return named or (bool(row["keys"]) and any(row["keys"] == save["keys"] for save in saves))


RULE = Rule(
    id="resume-discontinuity",
    family="checkpoints",
    severity="warning",
    title="Training resumed without part of its state",
    about="Resuming takes more than weights: the optimizer state and the position in the schedule, too.",
    check=check,
    verify="Record the run again: the states are restored, and the loss continues at its old level.",
    absent="The run does not resume training from a file.",
    needs=(("checkpoints.action",),),
    whole_process=True,
    thresholds=(
        Threshold("window", 10, "steps", "derived: single losses are noise"),
        Threshold("rates", 3, "rates", "derived: a schedule that goes up and down may repeat one or two"),
        Threshold("jump", 1.2, "times", "derived: less is within the noise of most trainings"),
    ),
    not_when="Weights from another program, optimizers without state, evaluation only, weights saved without an "
    "epoch, a fresh optimizer with a lower learning rate or other parameters, a new head, other data, a finished "
    "schedule, a learning rate set by hand.",
    references=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
)

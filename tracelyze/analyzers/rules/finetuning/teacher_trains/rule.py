"""teacher-trains: the model whose outputs are the targets of another one is trained by the same loss."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.rules.finetuning.teacher_trains import thawed
from tracelyze.analyzers.script import called
from tracelyze.analyzers.script.modes import teachers
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import end_of_name, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Optimization, Process

DISTRIBUTIONS = ("kl_div", "cross_entropy")
HOLDER = re.compile(r"([A-Za-z_][\w.]*)\.parameters\(\)")
WRITTEN_OUT = "the written-out difference"  # which side is the target is told from the mode of the models
OTHERS = ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cosine_embedding_loss", "binary_cross_entropy",
          "binary_cross_entropy_with_logits", WRITTEN_OUT)  # fmt: skip

FIX = (
    "Turn off the teacher's gradients before the optimizer is created, or compute its output without autograd: an "
    "optimizer skips tensors without a gradient."
)


def check(process: Process, limits: Limits) -> Outcome:
    """Losses whose target depends on trained tensors of a model of its own."""
    lines = [line for line in loss_calls.lines(process, (*DISTRIBUTIONS, *OTHERS)) if line.training]
    pairs = {(row["input_model"], row["target_model"]) for line in lines for row in line.rows if row["target_trained"]}
    found: list[Finding] = []
    reason = ""
    for line in lines:
        taught = [row for row in line.rows if row["target_trained"] and _of_a_teacher(line, row)]
        begins = thawed.first_step(process, taught)
        looked = [row for row in line.rows if row["step"] > begins]
        rows = [row for row in taught if row["step"] > begins]
        behind = (teachers.is_behind(process, row, _optimization(process, int(row["step"]))) for row in rows)
        named = bool(rows) and all(behind)
        since = [row for row in looked if row["step"] >= rows[0]["step"]] if named else looked
        if len(rows) < limits["calls"] or len(rows) < limits["share"] * len(since):
            continue
        if any((row["target_model"], row["input_model"]) in pairs for row in rows if row["target_model"] is not None):
            reason = "two models learn from each other: each one's output is the target of the other one"
        elif line.function in OTHERS and any(row["target_in_train"] for row in rows) and not named:
            reason = "two models are trained to agree, both in train mode: neither is a teacher"
        else:
            seen = replace(line, rows=looked)
            seen = thawed.at_the_call(lines, seen, rows[0], begins) if line.function == WRITTEN_OUT else seen
            found.append(_finding(process, seen, rows, limits))
    if found:  # a difference beside a function that was called may be the one within that function
        return [one for one in found if WRITTEN_OUT not in one.summary] or found
    if not lines:
        return Skipped("no loss was seen whose target may come from a model", "not-applicable")
    return Passed(reason or "no target of a loss depends on trained tensors of another model")


def _of_a_teacher(line: Line, row: Row) -> bool:
    """Whether the target comes from another model; or from a part of the same one that is in eval mode, or a teacher
    by its name."""
    if row["target_model"] is not None:
        return True
    part = str(row.get("target_part") or "")
    return part != "" and line.function != WRITTEN_OUT and (not row["target_in_train"] or teachers.is_named(part))


def _optimization(process: Process, step: int) -> Optimization | None:
    """The steps of the optimizer of the step in which the loss was seen."""
    stepped = process.steps["optimizer"][step : step + 1]
    return next((one for one in process.optimizations if one.optimizer in stepped), None)


def _finding(process: Process, line: Line, rows: list[Row], limits: Limits) -> Finding:
    part, optimization = rows[0].get("target_part"), _optimization(process, int(rows[0]["step"]))
    turned = teachers.is_turned(process, rows[0], optimization)
    side, model = ("input" if turned else "target"), rows[0]["input_model" if turned else "target_model"]
    part = part if model is None else None
    tensors = plural(int(rows[0]["target_trained"]), "tensor") if not turned else "tensors"
    teacher = part or called.model(process, model, optimization) or "the teacher"
    made_at = optimization.made_at if optimization is not None else None
    evaluating = not turned and not any(row["target_in_train"] for row in rows)
    whose = made_at is not None and HOLDER.search(made_at.source) is None
    at = teachers.computed_by(process, line.location) if evaluating and whose else None
    example = _example(process, model, part, optimization)
    late = thawed.of(process, line, rows, example.partition(".requires_grad_")[0])
    remedy = Remedy(
        fix=late.fix if late and late.place else FIX,
        code=late.code if late and late.place else at.code if at else example,
        place=(late.place if late else None) or (at.place if at else made_at),
    )
    fault = LossFault(
        severity="warning",
        confidence="certain" if evaluating and rows[0]["function"] != WRITTEN_OUT else "likely",
        title=f"The teacher is trained as well: gradients of {line.function} reach {end_of_name(teacher, 36)}",
        summary=(
            f"The {side} of {line.function} is the output of another {'part of the ' * bool(part)}model ({teacher}), "
            f"computed with autograd on, and {tensors} of it, which an optimizer holds, get gradients from this loss. "
            "The teacher moves towards the student instead of staying a fixed target."
            + (" It is in eval mode, so it is probably not meant to train." if evaluating else "")
            + (late.said if late else "")
        ),
        remedy=remedy,
        evidence=[Evidence("trained tensors behind the target alone", int(rows[0]["target_trained"]), "tensors")],
        false_alarm="Two models meant to converge to a common answer.",
    )
    return loss_calls.finding(process, line, rows, limits, RULE.id, fault)


def _example(process: Process, teacher: float | None, part: str | None, optimization: Optimization | None) -> str:
    """The teacher switched off, as the line that makes the optimizer can name it: in another method or function it is
    an attribute of the model whose parameters that line takes."""
    name = str(called.name_in(process, teacher, optimization) or part or "teacher")
    line = optimization.made_at.source if optimization is not None and optimization.made_at is not None else ""
    holders = set(HOLDER.findall(line))
    part = part or called.within(process, teacher, optimization)
    if part is not None and len(holders) == 1:
        name = f"{holders.pop()}.{part}"
    elif holders == {"self"} and any(f"self.{name}" in str(one["excerpt"] or "") for one in process.sites.records()):
        name = f"self.{name}"
    elif name.startswith("self.") and len(holders) == 1 and not line.strip().startswith("self."):
        name = f"{holders.pop()}.{name.removeprefix('self.')}"
    above = "above this line, which makes the optimizer" if line else "before the optimizer is made"
    return f"{name}.requires_grad_(False)  # {above}"


RULE = Rule(
    id="teacher-trains",
    family="fine-tuning",
    severity="warning",
    title="The teacher is trained as well",
    about="In distillation the teacher is fixed. With gradients of its own it moves towards the student.",
    check=check,
    verify="Record the run again: the target no longer depends on trained tensors.",
    absent="The run has no loss whose target may come from a model.",
    excluded=(
        "Mutual learning: the student's output is not a target of the teacher's.",
        "An average of the weights: no optimizer holds it, and its output has no gradient.",
    ),
    needs=(("loss_calls.target_trained",),),
    thresholds=(loss_calls.SHARE, loss_calls.CALLS),
    not_when="Mutual learning, averages of the weights, targets that are detached, models that are trained to agree.",
)

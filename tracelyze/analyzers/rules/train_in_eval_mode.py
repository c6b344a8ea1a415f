"""train-in-eval-mode: training steps ran with the model in eval mode, usually from the first validation on."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import moments, pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.words import percent
from tracelyze.diagnosis import Evidence, Finding, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.run import Process, Training

FIX = "Call model.train() at the start of every epoch, so that it follows every validation."
FIX_CODE = (
    "for epoch in range(epochs):\n    model.train()\n    ...  # training\n    model.eval()\n    ...  # validation"
)


def check(process: Process, limits: Limits) -> Outcome:
    """Steps whose forward ran in eval mode with every mode-sensitive module in it switched off."""
    findings = [found for training in process.trainings if (found := _find(training, limits)) is not None]
    if findings:
        return findings
    if not (np.nan_to_num(process.steps["modules_sensitive"]) > 0).any():
        return Passed("nothing in the model depends on the mode")
    return Passed("training steps ran in train mode, or only chosen parts were frozen from the start")


def _find(training: Training, limits: Limits) -> Finding | None:
    steps = training.steps
    known = np.isfinite(steps["model_in_train"]) & (np.nan_to_num(steps["modules_sensitive"]) > 0)
    off = known & (steps["model_in_train"] == 0) & (steps["modules_in_train"] == 0)
    if int(off.sum()) < limits["steps"]:
        return None
    first = int(np.argmax(off))
    since = known.copy()
    since[:first] = False
    share = float(off.sum()) / float(since.sum())
    if share < limits["share"]:
        return None
    flipped = bool((known & (steps["model_in_train"] == 1))[:first].any())
    if not flipped and _only_batch_norm(training):
        return None
    begin = moments.step_at(training, first)
    if flipped:
        title = f"The model{moments.name_of(training)} trains in eval mode since step {begin:,}"
        told = "It was in train mode before: it was switched for a validation and never back."
    else:
        title = f"The model{moments.name_of(training)} trained in eval mode from the first step on"
        told = "It never was in train mode. Models loaded with from_pretrained start in eval mode."
    return Finding(
        rule=RULE.id,
        severity="critical" if flipped else "warning",
        confidence="certain" if flipped else "possible",
        title=title,
        summary=(
            f"{percent(share)} of the steps since step {begin} ran with the model in eval mode. {told} Dropout is "
            "off, so nothing regularises, and BatchNorm uses old statistics instead of the batch's and does not "
            "update them."
        ),
        fix=FIX,
        fix_code=FIX_CODE,
        first_step=begin,
        last_step=moments.step_at(training, int(np.flatnonzero(off)[-1])),
        first_second=moments.second_at(training, first),
        evidence=[
            Evidence("steps in eval mode since then", share, "share", limits["share"], limits.source("share")),
            Evidence("mode-sensitive modules", int(np.nan_to_num(steps["modules_sensitive"][off]).max()), "modules"),
            Evidence("of them in train mode", 0, "modules"),
        ],
        cost=moments.cost_of(training, off) if flipped else None,
        location=training.process.location("forward") or training.backward_location,
        charts=pictures.over_steps(
            training, "Modules in train mode at training steps", "modules",
            {"in train mode": "modules_in_train", "mode-sensitive": "modules_sensitive"},
            [Mark(float(begin), "eval mode")],
        ) + pictures.loss(training, [Mark(float(begin), "eval mode")]),
        false_alarm="Fine-tuning with the whole model in eval mode on purpose.",
    )  # fmt: skip


def _only_batch_norm(training: Training) -> bool:
    """Whether all mode-sensitive modules of the models are normalisations: those are often frozen on purpose."""
    rows = training.process.models.records()
    kinds = [kind for row in rows for kind in re.split(r"[,;]\s*", row["sensitive"] or "") if kind]
    return bool(kinds) and all("norm" in kind.lower() for kind in kinds)


RULE = Rule(
    id="train-in-eval-mode",
    family="evaluation",
    severity="critical",
    title="The model trains in eval mode",
    about="After a validation the model has to be switched back with model.train(); without it, dropout stays off and "
    "BatchNorm frozen for the rest of the training.",
    check=check,
    needs=(("steps.model_in_train", "steps.modules_sensitive", "steps.modules_in_train"),),
    thresholds=(
        Threshold("share", 0.9, "share", "a mode that was forgotten stays"),
        Threshold("steps", 5, "steps", "a step or two in eval mode may be a probe"),
    ),
    not_when="Only normalisations frozen from the start, models without mode-sensitive modules.",
)

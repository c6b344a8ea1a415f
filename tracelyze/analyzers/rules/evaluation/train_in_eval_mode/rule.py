"""train-in-eval-mode: training steps ran with the model in eval mode, usually from the first validation on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.policies import acting
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.evaluation.train_in_eval_mode import (
    found_by_fit,
    kept_too_late,
    mode_calls,
    pretrained_part,
    stretches,
    switched,
    unset_in_training,
)
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.editing import own_names
from tracelyze.analyzers.script.modes import teachers
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Location


def check(process: Process, limits: Limits) -> Outcome:
    """Steps whose forward ran in eval mode with every mode-sensitive module in it switched off."""
    findings = [found for optimization in process.optimizations if (found := _find(optimization, limits)) is not None]
    if findings:
        return findings
    if not (np.nan_to_num(process.steps["modules_sensitive"]) > 0).any():
        return Skipped("no module of the model depends on the mode", "not-applicable")
    return Passed("training steps ran in train mode, or only chosen parts were frozen from the start")


def _find(optimization: Optimization, limits: Limits) -> Finding | None:
    steps = optimization.steps
    known = np.isfinite(steps["model_in_train"]) & (np.nan_to_num(steps["modules_sensitive"]) > 0)
    off = known & (steps["model_in_train"] == 0) & (steps["modules_in_train"] == 0)
    if int(off.sum()) < limits["steps"]:
        return pretrained_part.find(optimization, RULE.id, limits)
    first = int(np.argmax(off))
    share = float(off.sum()) / float(known[first:].sum())
    enough = "share" if share >= limits["share"] else "part"
    if share < limits[enough] or (
        enough == "part" and not stretches.follow_evaluations(optimization, off, int(limits["steps"]))
    ):
        return None
    flipped = bool((known & (steps["modules_in_train"] > 0))[:first].any())
    rested = not flipped and bool((known & (steps["model_in_train"] == 1))[:first].any())
    if rested or (not flipped and _is_meant(optimization)):  # what is at rest from the first step on is so on purpose
        return None
    left_so = None if flipped else pretrained_part.find(optimization, RULE.id, limits)
    return left_so or _finding(optimization, off, share, flipped, enough, limits)


def _finding(
    optimization: Optimization, off: Mask, share: float, flipped: bool, enough: str, limits: Limits
) -> Finding:
    """`share`: of the steps since the first of `off`; `enough`: its limit. `flipped`: it was in train mode before."""
    steps, first = optimization.steps, int(np.argmax(off))
    begin = timing.step_at(optimization, first)
    process, forward = optimization.process, _forward(optimization)
    model = own_names.model_at(process, forward) if forward else ""
    once = mode_calls.once_before_epochs(process, forward) if flipped else found_by_fit.before(process, forward)
    line = switched.into_eval_mode(process)
    late = kept_too_late.below(process, line) if flipped else None
    if flipped:
        how = late.said if late else switched.said(optimization, first, share, line)
    else:
        how = switched.at_the_start(optimization, line)
    change, untrained = late or once, not flipped and unset_in_training.all_unset(optimization)
    diff = change.diff if change else line_edits.line_before(process, forward, f"{model}.train()") if model else None
    return Finding(
        rule=RULE.id,
        severity="critical" if flipped or untrained else "warning",
        confidence="certain" if flipped else "likely" if untrained else "possible",
        title=switched.title(optimization, share, begin, flipped),
        summary=(
            f"{share_of(share, 'steps').capitalize()} since step {begin:,} ran with the model in eval mode. {how} "
            f"{unset_in_training.without_training_mode(optimization, untrained)}"
        ),
        fix=change.fix if change else switched.FIX if flipped else switched.fix_at_the_start(optimization),
        fix_code=change.code if change else switched.FIX_CODE,
        diff=diff,
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(off)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("steps in eval mode since then", share, "share", *limits.against(enough)),
            Evidence("mode-sensitive modules", int(np.nan_to_num(steps["modules_sensitive"][off]).max()), "modules"),
            Evidence("of them in train mode", 0, "modules", role="basis"),
        ],
        location=(change.place if change else forward) or optimization.backward_location,
        seen_at=line,
        charts=pictures.over_steps(
            optimization,
            "Modules in train mode at training steps",
            "modules",
            {"in train mode": "modules_in_train", "mode-sensitive": "modules_sensitive"},
            [Mark(float(begin), "eval mode")],
        )
        + pictures.loss(optimization, [Mark(float(begin), "eval mode")]),
        false_alarm="Fine-tuning with the whole model in eval mode on purpose.",
    )


def _is_meant(optimization: Optimization) -> bool:
    """Whether a training in eval mode from its first step on is meant so, or it is a teacher beside it that is."""
    process = optimization.process
    return teachers.only_batch_norm(optimization) or acting.compare(process) or teachers.evaluates(process)


def _forward(optimization: Optimization) -> Location | None:
    """The line that calls the model in training, in front of which its mode is to be set: not that of a teacher."""
    process, backward = optimization.process, optimization.backward_location
    sites = {row["site"] for row in process.sites.records() if row["role"] == "forward"}
    forwards = [one for site in sorted(sites - set(process.evals["site"])) if (one := process.site(site))]
    calls = {one.file_line for one in process.locations("training-call")}
    own = [one for one in forwards if one.file_line in calls]
    near = [one for one in own if backward and one.file_function == backward.file_function]
    return next(iter(near or own or forwards), None)


RULE = Rule(
    id="train-in-eval-mode",
    family="evaluation",
    severity="critical",
    title="The model trains in eval mode",
    about="After validation, model.train() must switch the model back. Without it, dropout stays off and BatchNorm "
    "stays frozen for the rest of the training.",
    check=check,
    verify="Record the run again: training steps run with all modules in train mode.",
    excluded=("Parts frozen on purpose: every mode-sensitive module is in eval mode, and was in train mode before.",),
    absent="The model has no module that depends on its mode.",
    needs=(("steps.model_in_train", "steps.modules_sensitive", "steps.modules_in_train"),),
    thresholds=(
        Threshold("share", 0.9, "share", "a mode that was forgotten stays"),
        Threshold("part", 0.2, "share", "in stretches after evaluations: below a fifth of the steps little is lost"),
        Threshold("steps", 5, "steps", "a step or two in eval mode may be a probe"),
    ),
    not_when="Only normalisation frozen from the start, models without mode-sensitive modules, teachers in "
    "eval mode from the start, policies whose loss compares them with the policy that acted.",
)

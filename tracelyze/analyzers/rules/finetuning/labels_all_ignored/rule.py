"""labels-all-ignored: a loss gets batches in which no target counts, and is NaN or exactly 0 there."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.data.loss_calls import LossFault
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.finetuning.labels_all_ignored import cut_texts
from tracelyze.analyzers.script.candidates import copied_labels
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line, Row
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """The share of targets that are ignore_index, call by call, at each line that computes a training loss."""
    lines = [line for line in loss_calls.lines(process, loss_calls.OF_TOKENS) if line.training]
    findings: list[Finding] = []
    shares: list[float] = []
    for line in lines:
        known = [row["ignored"] for row in line.rows if row["ignored"] is not None]
        empty = sum(share >= 1.0 for share in known)
        shares += known
        if empty >= limits["calls"] and empty >= limits["share"] * len(known):
            findings.append(_finding(process, line, known, limits))
    if findings:
        return findings
    if not shares:
        return Skipped("no call of cross_entropy or nll_loss with class targets in training was looked at")
    if len(shares) < limits["looks"]:
        return Skipped(f"{plural(len(shares), 'call')} of a loss with class targets: too few to judge")
    return Passed(f"{percent(1.0 - float(np.mean(shares)))} of the targets count in {plural(len(shares), 'call')}")


def _finding(process: Process, line: Line, known: list[float], limits: Limits) -> Finding:
    looked = [row for row in line.rows if row["ignored"] is not None]
    bad = [row for row in looked if row["ignored"] >= 1.0]
    part = len(bad) / len(known)
    outcome = "NaN" if _is_nan(process, bad) else "0" if any(row["value"] == 0 for row in bad) else ""
    critical = outcome == "NaN" or part >= limits["critical"]
    which = "every batch that was looked at" if part == 1 else f"{percent(part)} of the batches that were looked at"
    nan = _share_of_nan(process, int(bad[0]["step"])) if outcome == "NaN" else None
    remedy = cut_texts.remedy(process, part, limits["critical"])
    remedy = replace(remedy, place=remedy.place or copied_labels.assigned(process))
    fault = LossFault(
        title=f"No target counts in {'any batch' if part == 1 else f'{percent(part)} of the batches looked at'}: "
        + (f"the loss is {outcome} there" if outcome else "nothing is learned from these"),
        summary=(
            f"In {which}, all targets of {line.where} are "
            f"ignore_index ({percent(1.0 - float(np.mean(known)))} of all targets count): there is nothing to learn "
            f"from{f', and the loss is {outcome}' * bool(outcome)}.{remedy.why}"
        ),
        remedy=remedy,
        evidence=[
            Evidence("batches without a target that counts", part, "share", *limits.against("share")),
            Evidence("targets that count, in all", 1.0 - float(np.mean(known)), "share"),
            *([Evidence("loss of such a batch", outcome)] if outcome else []),
        ],
        false_alarm="Batches padded with empty samples on purpose, with a loss that is a sum.",
        severity="critical" if critical else "warning",
        lost=part if nan is None else nan,
    )
    return loss_calls.finding(process, replace(line, rows=looked), bad, limits, RULE.id, fault)


def _is_nan(process: Process, bad: list[Row]) -> bool:
    """Whether the loss of these calls is NaN, or that of their steps: a sum of 0 may be divided by 0 targets later."""
    if any(row["value"] is not None and math.isnan(row["value"]) for row in bad):
        return True
    if not process.optimizations:
        return False
    steps = process.longest.steps
    theirs = np.isin(steps["step"], [row["step"] + 1 for row in bad]) & steps.known("loss")
    return bool(theirs.any() and np.isnan(steps["loss"][theirs]).all())


def _share_of_nan(process: Process, step: int) -> float | None:
    """Share of the steps whose loss is NaN; all where none behind this step is finite again, for NaN is in the weights
    then; None where a loss is not known, or none is NaN, as where a loop skips such batches."""
    steps = process.longest.steps if process.optimizations else None
    if steps is None or not np.isfinite(steps["loss"][steps["step"] > step + 1]).any():
        return 1.0
    return float(np.isnan(steps["loss"]).mean()) or None if steps.known("loss").all() else None


RULE = Rule(
    id="labels-all-ignored",
    family="fine-tuning",
    severity="critical",
    title="No target of a batch counts",
    about="Targets equal to ignore_index do not count. If a whole batch is ignored, its mean loss is 0/0: NaN (a sum "
    "is 0).",
    check=check,
    verify="Record the run again: targets count in every batch, and the loss is a number above 0.",
    excluded=("A few masked rows: in these batches not one target counts.",),
    needs=(("loss_calls.ignored",),),
    thresholds=(
        loss_calls.CALLS,
        Threshold("looks", 3, "calls", "one or two may be odd"),
        Threshold("share", 0.05, "share", "derived: one lost batch in twenty costs as much; fewer are stray samples"),
        Threshold("critical", 0.5, "share", "derived: most of the data teaches nothing"),
    ),
    not_when="A few masked rows, masked language models with few targets, prompts that are masked.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)

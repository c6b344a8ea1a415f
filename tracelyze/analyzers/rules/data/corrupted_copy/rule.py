"""corrupted-copy: the memory of a batch is filled anew while the model is still trained on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold, missing
from tracelyze.analyzers.rules.data.corrupted_copy import early_reads, early_takes, refilled_sends
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing.remade import lines
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
ORDINALS = ("first", "second", "third", "fourth")


def check(process: Process, limits: Limits) -> Outcome:
    """Inputs that held something else after the backward than when the model was called, and that autograd had saved.
    Those that it had not are no longer needed by then, and may be filled again. Else buffers that are read early, or
    filled while they are sent."""
    outcome = _changed(process, limits)
    if isinstance(outcome, list):
        return outcome
    early, taken = early_reads.find(process), early_takes.find(process)
    if early is not None:
        return [early_reads.finding(process, RULE.id, early)]
    if taken is not None:
        return [early_takes.finding(process, RULE.id, taken)]
    sent = refilled_sends.find(process)
    return outcome if sent is None else [refilled_sends.finding(process, RULE.id, sent)]


def _changed(process: Process, limits: Limits) -> Outcome:
    latest: dict[tuple[str, str], Row] = {}
    rows = list(process.tables["inputs_in_use"].records())
    for row in rows:
        latest[row["module"], row["argument"]] = row
    if not latest:
        return missing(process, "inputs_in_use.looks", RULE.absent)
    worst = max(latest.values(), key=lambda row: (row["saved"], row["changed"]))
    looks, changed = plural(worst["looks"], "step"), worst["changed"]
    if not changed:
        return Passed(f"no input changed before the end of the backward, in {looks}")
    if worst["saved"] < limits["saved"]:
        return Passed(
            f"an input was filled again before the backward was over in {changed} of {looks}, and autograd was seen to "
            f"need it in {worst['saved']} of them"
        )
    own = [row for row in rows if (row["module"], row["argument"]) == (worst["module"], worst["argument"])]
    return [_finding(process, worst, [row for row in own if row["share"]], limits)]


def _finding(process: Process, row: Row, changes: list[Row], limits: Limits) -> Finding:
    optimization = process.longest if process.optimizations else None
    looks, changed, seen = row["looks"], row["changed"], int(changes[0]["step"]) + 1
    share = changed / looks
    first = 1 if (changes[0]["looks"] - 1) * share < limits["unseen"] else seen
    buffer = script_lines.only(process, "buffer")
    backward = optimization.backward_location if optimization is not None else None
    name = f"the {ORDINALS[int(row['argument'])]} argument" if row["argument"] in "0123" else row["argument"]
    elements = sorted(one["share"] for one in changes)[len(changes) // 2]
    source = limits.source("saved")
    return Finding(
        rule=RULE.id,
        severity="critical" if share >= limits["often"] else "warning",
        confidence="certain" if row["saved"] >= limits["certain"] else "likely",
        title=f"Batches are overwritten while the model trains on them, in {changed} of {looks} steps",
        summary=(
            f"In {changed} of {plural(looks, 'step')} checked, {name} of {row['module']} changed between the forward "
            f"and the end of the backward ({percent(elements)} of its elements) while autograd still needed it. No "
            "torch operation wrote to it: a thread, another process or NumPy fills the same memory with a later "
            "batch. Gradients come from different inputs than the loss, and labels may belong to another batch, "
            "too." + script_lines.said(buffer, "makes tensors of memory that is shared")
        ),
        fix="Copy the batch out of the buffer before the buffer is refilled, or refill it only after the backward.",
        fix_code="inputs = shared.clone()  # while whoever fills the shared tensor waits"
        if buffer is not None and "share_memory_" in buffer.source
        else lines.copied(process, buffer)
        or "inputs = torch.from_numpy(buffer).clone()  # before the buffer goes back to whoever fills it",
        first_step=first,
        last_step=int(changes[-1]["step"]) + 1,
        evidence=[
            Evidence("steps in which the input changed", changed, "steps"),
            Evidence("of them, autograd was seen to need it", row["saved"], "steps", limits["saved"], source),
            Evidence("steps that were looked at", looks, "steps", role="basis"),
            Evidence("shape of the input", changes[0]["shape"], role="setting"),
        ],
        location=buffer or backward,
        seen_at=backward,
        charts=pictures.loss(optimization, [Mark(float(seen), "first seen")]) if optimization is not None else [],
        false_alarm="An input that is meant to change between forward and backward, through `.data`.",
    )


RULE = Rule(
    id="corrupted-copy",
    family="data",
    severity="critical",
    title="A batch is overwritten while it is in use",
    about="If a staging buffer is refilled too early, the backward sees different inputs from the forward. If it is "
    "read before what it receives has arrived, the forward sees older ones.",
    check=check,
    verify="Record the run again: no input changes before the backward is over.",
    excluded=(
        "A model that copies or converts its input: autograd itself held the memory that changed.",
        "An operation in place: those of torch count a tensor's version up, and autograd refuses such a backward.",
    ),
    absent="No input of a model was read twice in a step.",
    needs=(("inputs_in_use.looks", "inputs_in_use.changed", "inputs_in_use.saved"), ("sites.role",)),
    thresholds=(
        Threshold("saved", 2, "steps", "each is wrong by itself; one may be the start or the end of whoever fills it"),
        Threshold("certain", 3, "steps", "derived: one more than it takes, since each holds the proof by itself"),
        Threshold("unseen", 3, "steps", "derived: so many that were due and did not come are chance once in 20 runs"),
        Threshold("often", 0.02, "share", "of the steps that were looked at; what is rarer spoils few gradients"),
    ),
    not_when="Buffers refilled after the step, or before the backward once the model has copied or converted them; "
    "in-place operations of torch; counters and weights with fewer than four elements; receives read, and sent buffers "
    "filled, after their wait.",
    references=("https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html",),
)

"""Weights that were kept as they are, trained on with the model, and saved or loaded into another model at last."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rules.checkpoints.snapshot_aliased import kept_copies
from tracelyze.diagnosis import Evidence, Finding

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits


def uses(process: Process, limits: Limits) -> list[dict[str, Any]]:
    """The last use of a kept state of each line that keeps some, where steps lie between."""
    found: dict[int, dict[str, Any]] = {}
    for row in process.events_of("kept-state"):
        kept = json.loads(row["text"]) | {"step": int(row["step"]), "name": row["name"]}
        if kept["taken_at"] >= limits["steps"] and kept["step"] - kept["taken_at"] >= limits["steps"]:
            found[kept["taken_site"]] = kept
    return [kept for kept in found.values() if kept["takes"] > 1 or not kept["again"]]


def finding(process: Process, kept: dict[str, Any], rule: str, limits: Limits) -> Finding:
    """`kept`: what was recorded of one such use."""
    step, taken = kept["step"], kept["taken_at"]
    line = process.site(kept["taken_site"])
    into = f"saved in {kept['name'] or 'a file'}" if kept["use"] == "save" else f"loaded into another {kept['name']}"
    what = "saved" if kept["use"] == "save" else "loaded"
    return Finding(
        rule=rule,
        severity="critical" if kept["takes"] > 1 else "info",  # what is taken once may be meant to follow the model
        confidence="likely",
        title=f"The weights kept at step {taken:,} went on training: those of step {step:,} are {what}",
        summary=(
            f"state_dict() hands out the model's tensors themselves. What it returned after step {taken:,} was {into} "
            f"after step {step:,}: by then the optimizer had changed {kept['changed']} of the {kept['looked_at']} "
            "tensors checked. The weights that should have been kept are lost." + kept_copies.why(process, line)
        ),
        fix="Copy the tensors when you keep them, or save them to a file at once.",
        fix_code="best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}\n"
        "# or: best = copy.deepcopy(model.state_dict())",
        first_step=taken,
        last_step=step,
        evidence=[
            Evidence("steps between keeping and using", step - taken, "steps", *limits.against("steps")),
            Evidence("tensors that changed meanwhile", kept["changed"], "tensors"),
            Evidence("times that this line kept weights", kept["takes"]),
        ],
        location=line or process.site(kept["site"]),
        seen_at=process.site(kept["site"]),
        diff=kept_copies.edit(process, line),
        false_alarm="A state that is meant to follow the model and to be saved as it then is.",
    )

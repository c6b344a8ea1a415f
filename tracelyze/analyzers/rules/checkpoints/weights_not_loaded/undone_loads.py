"""Weights that the optimizer step after a load put back to what they were before it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

FIX: Final = (
    "Make the optimizer after the weights are loaded, or copy them into its own copies right after load_state_dict, "
    "before the next step (Megatron: optimizer.reload_model_params())."
)
CODE: Final = """model.load_state_dict(state)
optimizer = make_optimizer(model)  # only now: what it copies are the loaded weights
# or, of an optimizer that is there already
for copied, weight in zip(copies_of_the_optimizer, model.parameters()):
    copied.data.copy_(weight.data)"""


def of(process: Process, rule: str, limits: Limits) -> list[Finding]:
    """A finding for each load of which a step undid most."""
    rows = [(event["time"], json.loads(event["text"])) for event in process.events_of("undone-load")]
    lost = [(time, row) for time, row in rows if row["changed"] >= limits["tensors"]]
    return [
        _finding(process, time, row, rule, limits)
        for time, row in lost
        if row["undone"] >= limits["undone"] * row["changed"]
    ]


def _finding(process: Process, time: float, row: dict[str, Any], rule: str, limits: Limits) -> Finding:
    name, step = str(row["name"])[:24], int(row["step"]) + 1
    which = "all of" if row["undone"] == row["changed"] else f"{row['undone']} of"
    after = "the next optimizer step" if row["steps"] == 1 else f"the next {row['steps']} optimizer steps"
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"A step put back the weights that {name} had before load_state_dict",
        summary=(
            f"load_state_dict changed {plural(row['changed'], 'weight matrix', 'weight matrices')} of {name}, and the "
            f"model trained with what was loaded. After {after}, {which} them were again what they had been before the "
            "load: what was loaded is lost. This is what an optimizer does that keeps copies of the weights, as in "
            "float32, made them before the load, and writes them into the model."
        ),
        fix=FIX,
        fix_code=CODE,
        first_step=step,
        first_second=time,
        evidence=[
            Evidence("loaded weights that a step put back", row["undone"] / row["changed"], "share",
                     *limits.against("undone")),
            Evidence("weights that the load had changed", row["changed"], "tensors"),
        ],
        location=process.site(row["site"]),
        false_alarm="Weights from before a load that are put back on purpose, between a step and the next forward.",
    )  # fmt: skip

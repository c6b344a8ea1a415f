"""A model of which nothing but biases and normalisations can learn, and which does not learn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import loss_calls, predictions
from tracelyze.analyzers.computed.optimization import ratios
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits

SHOWN = 3  # names


def finding(process: Process, reach: dict[str, Any], rule: str, limits: Limits) -> Finding | None:
    """The finding about a model of which next to nothing is trained, and whose loss hardly falls. `reach`: the last row
    of the table reach, for the only optimizer. Weights that were loaded, or trained before, are meant to stay."""
    models = list(process.models.records())
    if len(process.optimizations) != 1 or len(models) != 1 or len(process.tables["loads"]):
        return None
    optimization, elements = process.optimizations[0], int(models[0]["elements"] or 0)
    trained = int(reach["held_elements"] - reach["missed_elements"])
    names = sorted({name for name in process.tables["parameters"].text("parameter") if name})
    if not names or not 0 < trained <= limits["few"] * elements or not _only_shifts(process, names):
        return None
    fell = ratios.fall(optimization)
    if fell is None or fell >= limits["fell"] or not _hardly_answers(process, optimization, limits):
        return None
    shown = listed(names, most=SHOWN)
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"Only {trained:,} of the model's {elements:,} weights can learn: the rest is frozen",
        summary=(
            f"Gradients reach {shown} and nothing else: {percent(trained / elements)} of the model. Everything else "
            "keeps its initial values, and no weights were loaded into it. Biases and normalisation layers can only "
            f"shift and scale the output of such layers: the loss fell by {percent(max(fell, 0.0))}, and the answers "
            "hardly differ from sample to sample."
        ),
        fix="Freeze only what should stay fixed, by name or module, after loading pretrained weights; print what is "
        "still trainable.",
        fix_code="print([name for name, p in model.named_parameters() if p.requires_grad])",
        first_step=1,
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("weights that can learn", trained / elements, "share", *limits.against("few"), role="most"),
            Evidence("their tensors", shown, role="basis"),
            Evidence("fall of the loss", fell, "share", *limits.against("fell"), role="most"),
        ],
        location=script_lines.only(process, "freeze") or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization),
        false_alarm="Weights that were not loaded with load_state_dict; random features on purpose.",
        verify="Record the run again: gradients reach whole layers, and the loss falls.",
    )


def _only_shifts(process: Process, names: list[str]) -> bool:
    """Whether all trained tensors are biases, or belong to a normalisation."""
    kinds = {row["module"]: str(row["kind"]) for row in process.tables["activations"].records()}
    return all(
        name.rpartition(".")[2].startswith("bias") or "Norm" in kinds.get(name.rpartition(".")[0], "") for name in names
    )


def _hardly_answers(process: Process, optimization: Optimization, limits: Limits) -> bool:
    """Whether predictions differ by less than half of what targets do, late in the run."""
    late = [
        row["varies"] / row["target_varies"]
        for line in loss_calls.lines(process, predictions.FUNCTIONS)
        for row in line.rows
        if line.training
        and row["varies"] is not None
        and row["target_varies"]
        and row["step"] >= len(optimization.steps) / 2
    ]
    return bool(late) and max(late) < limits["answers"]

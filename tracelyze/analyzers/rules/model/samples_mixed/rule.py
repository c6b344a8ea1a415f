"""samples-mixed: what one sample of a batch is changes what the model answers for others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold, missing
from tracelyze.analyzers.rules.model.samples_mixed import drawn_singly, taken_for_positions
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """The answers of the probe, model by model: each has to say the same; without one, what the sizes show."""
    rows = list(process.tables["mixings"].records())
    answered = [row for row in rows if not row["failed"]]
    if not answered:
        if layers := taken_for_positions.found(process, limits):
            return [taken_for_positions.finding(process, layers, RULE.id, limits)]
        if not rows:
            return missing(process, "mixings.others")
        return Skipped("; ".join(dict.fromkeys(row["failed"] for row in rows)), "not-applicable")
    reasons = []
    singly = bool(drawn_singly.sizes(process))
    for model in dict.fromkeys(row["model"] for row in answered):
        probes = [row for row in answered if row["model"] == model]
        healthy = [reason for row in probes if (reason := _healthy(row, bool(row["loader"]) or singly, limits))]
        if not healthy:
            return [_finding(process, probes, limits)]
        reasons.append(healthy[0])
    return Passed("; ".join(dict.fromkeys(reasons)))


def _healthy(row: Row, independent: bool, limits: Limits) -> str:
    """Why what one measurement shows is no fault; empty if it is one. `independent`: samples are drawn one by one."""
    if not row["others"]:
        return f"a sample changes its own output alone, in a batch of {row['samples']}"
    if not row["repeats"]:
        return "the outputs change even if nothing is changed"
    if row["squares"]:
        return "the model answers for each pair of samples, as a contrastive one does"
    if not row["same_others"]:
        return "which samples reach each other changes with the batch, as under mixup and routing"
    if not independent and not (_along_samples(row) and row.get("position_table")):
        return "samples reach each other, and no DataLoader says that they are independent"
    if not row["halves"]:
        return "the model takes the whole batch only, as one that knows a fixed graph does"
    if _along_samples(row) or 0 < row["by_position"] <= limits["reached"] * (row["samples"] - 1):
        return ""
    return "every sample reaches every other one, as attention over the batch and its statistics do on purpose"


def _along_samples(row: Row) -> bool:
    """Whether the recurrences and the attention of the model all take samples for positions."""
    return bool(row["along_samples"]) and not row["along_others"]


def _finding(process: Process, probes: list[Row], limits: Limits) -> Finding:
    row = probes[0]
    name, kind = row["module"], row["kind"]
    where = f"{name} ({kind})" if name else kind or "the model"
    others = plural(row["others"], "other sample")
    made, diff, then = None, None, "labels do not match their inputs"
    if along := _along_samples(row):
        layer = taken_for_positions.of_probe(process, row["along_samples"], row["samples"])
        why = (
            f"{layer.called}: {layer.mistake}, but there lie the {row['samples']} samples."
            + " The model's own table of positions lies along the other dimension." * bool(row.get("position_table"))
        )
        fix = layer.fix
        made, diff, code = taken_for_positions.remedy(process, layer)
        then = "positions of one sample do not see each other"
    else:
        why = (
            f"One position of a sample reaches {plural(row['by_position'] or 0, 'other sample')}, not all: memory was "
            "read in the wrong order, as when view or reshape is used where dimensions should be swapped."
        )
        fix = (
            f"Look in {where} for a view or reshape that should be a permute or transpose: they do not swap dimensions."
        )
        code = "x = x.transpose(0, 1)  # swaps; x.view(x.size(1), x.size(0), -1) does not"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Samples of a batch are mixed: one changes the output of {others}",
        summary=(
            f"In a copy of the model in eval mode, one sample of a batch of {row['samples']} was replaced by its "
            f"neighbour. The outputs of {others} changed, first in {where}. {why} The model's answer for a sample then "
            f"depends on which samples happen to share its batch, and {then}."
        ),
        fix=fix,
        fix_code=code,
        first_step=1,
        last_step=int(probes[-1]["step"]) + 1,
        evidence=[
            Evidence("other samples that changed", row["others"], "samples"),
            Evidence(
                "of them, by one position or field",
                row["by_position"],
                "samples",
                None if along else limits["reached"] * (row["samples"] - 1),
                "" if along else limits.source("reached"),
                role="basis",
            ),
            Evidence("samples of the batch", row["samples"], "samples"),
        ],
        location=made or process.site(row["site"]),
        seen_at=process.site(row["site"]),
        diff=diff,
        false_alarm="Layers that relate the samples of a batch on purpose, in a fixed pattern.",
    )


RULE = Rule(
    id="samples-mixed",
    family="model",
    severity="critical",
    title="Samples of a batch reach each other's outputs",
    about="A view or reshape in place of a transpose, or a layer that treats samples as positions, mixes data of "
    "different samples. Shapes fit, and the loss falls a little. Sizes show such a layer; for all else `tracelyze "
    "collect --probe` changes one sample in a copy of the model.",
    check=check,
    verify="Record the run again with --probe: a sample changes only its own output.",
    needs=(("mixings.others",), ("mixings.failed",), ("activations.positions",)),
    thresholds=(
        Threshold(
            "reached",
            0.75,
            "share",
            "derived: attention over the batch and batch statistics reach all others from any position; a recurrence "
            "over it half of them from its middle, rearranged memory one",
        ),
        Threshold("looks", 3, "forwards", "derived: sizes may agree by chance in one batch; in three the layout is so"),
    ),
    not_when="Attention over the batch, contrastive and mixed samples, graphs, samples that neither a DataLoader "
    "nor the script draws in a new order.",
)

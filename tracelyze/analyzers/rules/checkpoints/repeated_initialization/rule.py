"""repeated-initialization: weights are filled with random numbers again and again, or after they were loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.checkpoints.repeated_initialization import refilled_weights
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]


def check(process: Process, limits: Limits) -> Outcome:
    """What had been filled how often when each optimizer made its first step; what was left of what was loaded."""
    rows = list(process.tables["initializations"].records())
    loads = refilled_weights.loads(process)
    if not rows and not loads:
        return Skipped("no optimizer holds weights that torch.nn.init was seen to fill", "not-applicable")
    found = [
        refilled_weights.overwritten(process, row, RULE.id, limits, few=row["loaded"] < _most_of(row, limits))
        for row in rows
        if row["overwritten"] >= limits["overwritten"] * row["loaded"]
        and (row["loaded"] >= _most_of(row, limits) or refilled_weights.swept(row, loads, limits))
    ]
    if found:
        return found
    swept = refilled_weights.swept_of_no_optimizer(loads, limits)
    if swept:
        return [refilled_weights.overwritten(process, swept[0], RULE.id, limits, few=True)]
    lost = [row for row in loads if refilled_weights.gone(row, limits)]
    if lost:
        return [refilled_weights.finding(process, row, RULE.id, limits) for row in lost[:1]]
    found = [
        _repeated(process, row, limits)
        for row in rows
        if row["weights"] >= limits["weights"] and row["repeated"] >= limits["share"] * row["weights"]
    ]
    if not rows:
        return Passed(f"{plural(len(loads), 'load')} of weights still held what they set when the model was used first")
    filled, most = sum(row["weights"] for row in rows), max(row["most"] for row in rows)
    often = "once" if most == 1 else plural(int(most), "time")
    return found or Passed(
        f"functions of torch.nn.init filled {plural(filled, 'weight')} before the first step, at most {often} each"
    )


def _most_of(row: Row, limits: Limits) -> float:
    """How many weights must have been loaded: several, or most of those that a small model has."""
    few = max(limits["few"], limits["part"] * row["weights"])
    return min(limits["weights"], few) if row["weights"] >= limits["weights"] else limits["weights"]


def _repeated(process: Process, row: Row, limits: Limits) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="certain",
        title=f"Weights are initialised up to {row['most']} times before the first step",
        summary=(
            f"{row['repeated']} of {plural(row['weights'], 'weight tensor')} were filled with random numbers three "
            f"times or more, for example {row['parameter'] or 'one'}. Only the last fill counts: what earlier ones "
            "set, such as a smaller scale for some layers, is lost. Often each part of a model initialises itself and "
            "its children, and then the whole model initialises them all again."
        ),
        fix="Initialise once, after the whole model is built.",
        first_step=int(row["step"]),
        evidence=[
            Evidence(
                "weight tensors filled three times or more",
                row["repeated"] / row["weights"],
                "share",
                *limits.against("share"),
            ),
            Evidence("most fills of one tensor", row["most"], "times"),
        ],
        location=process.site(row["site"]),
        false_alarm="A search that draws several initialisations and keeps one.",
    )


RULE = Rule(
    id="repeated-initialization",
    family="checkpoints",
    severity="info",
    title="Weights are initialised several times, or after loading",
    about="The last initialisation wins: it overwrites earlier ones, and weights loaded before it.",
    check=check,
    verify="Record the run again: no weight is filled after loading, nor three times or more.",
    absent="The run neither initialises weights with torch.nn.init nor loads any.",
    needs=(("initializations.repeated",), ("loads.missing",)),
    excluded=(
        "The module's own initialisation plus one by the program: these are two.",
        "Another model that had been at the same place in memory: a weight is followed as long as it lives.",
        "Layers that are initialised a third time for a scale of their own: they are the smaller part of the weights.",
    ),
    thresholds=(
        Threshold("weights", 3, "tensors", "fewer are an experiment, or a head that is new on purpose"),
        Threshold("few", 2, "tensors", "derived: one that is loaded may be a head, or an embedding to begin anew"),
        Threshold(
            "part", 0.5, "share", "derived: where most of the weights were loaded, they are no head but the model"
        ),
        Threshold("beside", 2, "tensors", "derived: what is to begin anew is filled alone, or with one layer more"),
        Threshold("share", 0.6, "share", "of a GPT-2 a third gets a scale of its own after the initialisation of all"),
        Threshold("correlation", 0.3, "", "derived: an average of two models has 0.7 with each, of five 0.45"),
        Threshold("overwritten", 0.8, "share", "to initialise up to half of the upper layers again is a known method"),
    ),
    not_when="One initialisation by the program itself, new heads, units that are re-initialised during training.",
    references=("https://arxiv.org/abs/2006.05987",),
)

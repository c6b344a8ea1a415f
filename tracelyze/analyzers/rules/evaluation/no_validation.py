"""no-validation: a long training never looks at data that it does not train on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Evaluation passes of any kind, and how often the training went over its data."""
    count = int(validation.passes(process).sum()) or len(process.evals)
    if count:
        return Passed(f"{plural(count, 'evaluation pass')} {'was' if count == 1 else 'were'} seen")
    if any(str(row["phase"]) in ("eval", "test") for row in process.scalars.records()):
        return Passed("values of an evaluation were logged")
    seconds = float(np.nansum(process.steps["seconds"])) if len(process.steps) else 0.0
    if seconds < limits["worth"]:
        return Passed(f"no evaluation was seen in {duration(seconds)}, which is short")
    passes = _passes(process)
    if passes is None or passes < limits["passes"]:
        return Passed("no evaluation was seen, and no sample twice: a stream, as in pretraining")
    return [
        Finding(
            rule=RULE.id,
            severity="info",
            confidence="likely",
            title=f"{number(passes)} passes over the data, and no evaluation",
            summary=(
                f"In {duration(seconds)} training went over its data {number(passes)} times, and the model was never "
                "called on anything else. The training loss cannot show whether it generalises or memorises."
            ),
            fix="Hold out a tenth of the data and evaluate on it after each epoch.",
            fix_code="train, val = random_split(dataset, [0.9, 0.1], generator=torch.Generator().manual_seed(0))",
            evidence=[
                Evidence("passes over the data", passes, "passes", limits["passes"], limits.source("passes")),
                Evidence("training time", seconds, "s", limits["worth"], limits.source("worth")),
            ],
            location=process.location("loader"),
            false_alarm="Models that another program evaluates from their checkpoints.",
        )
    ]


def _passes(process: Process) -> float | None:
    """Passes over the loader that fed most steps; None where its length is not known."""
    fed = process.steps["loader"][np.isfinite(process.steps["loader"])]
    if not len(fed):
        return None
    numbers, counts = np.unique(fed, return_counts=True)
    loader = int(numbers[np.argmax(counts)])
    length = next((row["length"] for row in process.loaders.records() if row["loader"] == loader), None)
    return float(np.nansum(process.steps["loader_batches"])) / length if length else None


RULE = Rule(
    id="no-validation",
    family="evaluation",
    severity="info",
    title="Nothing is evaluated",
    about="A training that repeats its data needs held-out data to tell learning from memorising.",
    check=check,
    verify="Record the run again: evaluation passes are seen.",
    needs=(("evals.forwards", "steps.seconds"), ("steps.seconds",)),
    whole_process=True,
    thresholds=(
        Threshold("worth", 600, "s", "derived: demos and tests take less than ten minutes"),
        Threshold("passes", 2, "passes", "derived: in its first pass every batch is new, and its loss a validation"),
    ),
    not_when="Short runs, one pass over the data (pretraining), evaluation in another program.",
)

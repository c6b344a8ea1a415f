"""no-validation: a long training never looks at data that it does not train on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import trainer_examples
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

EVALUATE = "Let the Trainer evaluate: without eval_strategy it never does. Keep the best weights, not the last."
STRATEGY = """TrainingArguments(  # beside what it is given today
    output_dir, eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True,
    metric_for_best_model="eval_loss",
)"""
BESIDE = ("num_train_epochs", "learning_rate", "max_grad_norm")


def check(process: Process, limits: Limits) -> Outcome:
    """Evaluation passes of any kind, and how often the training went over its data."""
    count = int(validation.passes(process).sum()) or len(process.evals)
    if count:
        return Passed(f"{plural(count, 'evaluation pass')} {'was' if count == 1 else 'were'} seen")
    if any(str(row["phase"]) in ("eval", "test") for row in process.scalars.records()):
        return Passed("values of an evaluation were logged")
    seconds = float(np.nansum(process.steps["seconds"])) if len(process.steps) else 0.0
    unused = _unused(process)
    if seconds < limits["worth"] and unused is None:
        return Passed(f"no evaluation was seen in {duration(seconds)}, which is short")
    passes = _passes(process)
    if passes is None or passes < limits["passes"]:
        return Passed("no evaluation was seen, and no sample twice: a stream, as in pretraining")
    given = f" The data that line {unused.line} hands over for it was never looked at." if unused else ""
    return [
        Finding(
            rule=RULE.id,
            severity="info",
            confidence="likely",
            title=f"{number(passes)} passes over the data, and no evaluation",
            summary=(
                f"In {duration(seconds)} training went over its data {number(passes)} times, and the model was never "
                "called on anything else. The training loss cannot show whether it generalises or memorises." + given
            ),
            fix=EVALUATE if unused else "Hold out a tenth of the data and evaluate on it after each epoch.",
            fix_code=STRATEGY
            if unused
            else "generator = torch.Generator().manual_seed(0)\n"
            "train, val = torch.utils.data.random_split(dataset, [0.9, 0.1], generator=generator)",
            evidence=[
                Evidence("passes over the data", passes, "passes", *limits.against("passes")),
                Evidence("training time", seconds, "s", *limits.against("worth")),
            ],
            location=(unused and _arguments(process)) or unused or process.location("loader"),
            false_alarm="Models that another program evaluates from their checkpoints.",
        )
    ]


def _unused(process: Process) -> Location | None:
    """The only line that hands an eval_dataset to a trainer whose train() makes the steps, in a script that ended well:
    one that is stopped may have meant to evaluate later."""
    given = script_lines.only(process, "setting", r"\beval_dataset\s*=(?!=|\s*None\b)")
    ended = process.exit.kind == "finished"
    return given if ended and trainer_examples.trainer_of(process)[1] == "train" else None


def _arguments(process: Process) -> Location | None:
    """The line of TrainingArguments beside which the missing one belongs, by an argument that it is given."""
    places = (script_lines.only(process, "setting", rf"\b{name}\s*=(?!=)") for name in BESIDE)
    return next((one for one in places if one is not None), None)


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
    settings=("eval_dataset",),
    thresholds=(
        Threshold("worth", 600, "s", "derived: demos and tests take less than ten minutes"),
        Threshold("passes", 2, "passes", "derived: in its first pass every batch is new, and its loss a validation"),
    ),
    not_when="Short runs without an eval_dataset, one pass over the data (pretraining), evaluation in another program.",
)

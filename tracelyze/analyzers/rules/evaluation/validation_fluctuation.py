"""validation-fluctuation: the validation loss jumps from pass to pass far more than training explains."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.signatures import restless_validation
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Noise of the validation curve without its trend, against its level and against training's noise."""
    seen = restless_validation.measure(process)
    if isinstance(seen, Skipped):
        return seen
    if not (seen.ratio > limits["ratio"] and seen.relative > limits["relative"]):
        return Passed(f"validation losses vary by {percent(seen.relative)} from pass to pass")
    if seen.samples is not None and seen.samples < limits["samples"]:
        return Passed(
            f"validation losses fluctuate, but over {number(seen.samples)} samples per pass that is sampling noise"
        )
    optimization = process.longest
    begin = int(seen.steps[0])
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="possible",
            title=f"The validation loss fluctuates by {percent(seen.relative)} from pass to pass",
            summary=(
                f"From one validation to the next the loss moves by {percent(seen.relative)} of its level, while the "
                f"training loss around it hardly moves ({number(min(seen.ratio, 1e6))} times less). A choice of the "
                "best checkpoint on such a curve is a matter of luck."
            ),
            fix=(
                "Check that validation runs in eval mode, on the same samples every time, and that it averages over "
                "all of them; then enlarge the validation set, or average weights or metrics over several passes."
            ),
            first_step=begin,
            last_step=int(seen.steps[-1]),
            evidence=[
                Evidence(
                    "fluctuation from pass to pass",
                    seen.relative,
                    "share of level",
                    limits["relative"],
                    limits.source("relative"),
                ),
                Evidence(
                    "fluctuation over training's own noise",
                    min(seen.ratio, 1e6),
                    "",
                    limits["ratio"],
                    limits.source("ratio"),
                ),
                Evidence(
                    "samples per validation pass", seen.samples, "samples", limits["samples"], limits.source("samples")
                ),
            ],
            charts=pictures.loss(optimization, [Mark(float(begin), "first validation")]),
            false_alarm="A small validation set, or the first epochs of a training that still learns in leaps.",
        )
    ]


RULE = Rule(
    id="validation-fluctuation",
    family="evaluation",
    severity="warning",
    title="Validation losses fluctuate",
    about="A validation curve that moves far more than training does measures something besides the model.",
    check=check,
    verify="Record the run again: the validation loss moves about as much as the training loss.",
    absent="The run has no validation loss.",
    needs=(("evals.loss", "steps.loss"),),
    thresholds=(
        Threshold("relative", 0.05, "share", "simulation: noise of 1% never and of 3% in 2 of 100 runs exceeds it"),
        Threshold("ratio", 6, "", "simulation: training noise of 10% per step, averaged between validations"),
        Threshold("samples", 200, "samples", "the mean over 200 samples varies by 7% of one sample's spread"),
    ),
    not_when="Tiny validation sets, fewer than ten passes, several optimizers.",
)

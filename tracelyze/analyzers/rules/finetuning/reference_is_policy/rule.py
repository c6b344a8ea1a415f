"""reference-is-policy: the model that a preference loss compares with is the trained model itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.finetuning.reference_is_policy import reference_levels, references
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


def check(process: Process, limits: Limits) -> Outcome:
    """Models called on the same input without autograd that are the trained one, while its loss stays where it was."""
    measured = list(process.tables["references"].records())
    first = min((row["step"] for row in measured), default=0)
    rows = [row for row in measured if row["step"] > first]
    if not rows:
        return Skipped("no model was called without autograd on the input of the trained one", "not-applicable")
    alike = [row for row in rows if not row["adapters_off"] and (row["same"] or 1 in (row["shared"], row["equal"]))]
    if 0 < len(alike) == len(rows) < limits["looks"]:
        return Skipped(f"the two are the same in {plural(len(rows), 'measurement')}: {limits['looks']:.0f} are needed")
    if len(alike) < limits["looks"] or len(alike) < limits["share"] * len(rows):
        return Passed(f"in {plural(len(rows), 'measurement')}, what the model is compared with had weights of its own")
    if not process.optimizations:
        return Skipped("no step was seen")
    optimization = process.longest
    begin = int(np.searchsorted(timing.numbers(optimization), first, side="right"))
    level = reference_levels.level(process, optimization, begin, limits)
    if level is None:
        return Passed("the model is called twice on one input, and its loss changes: the first call is no reference")
    begin = reference_levels.begin(optimization, level, begin, limits)
    return [_finding(optimization, alike, begin, level, limits)]


def _finding(
    optimization: Optimization, alike: list[dict[str, Any]], begin: int, level: float, limits: Limits
) -> Finding:
    process = optimization.process
    compared = next((process.site(row["site"]) for row in alike if row["site"] is not None), None)
    how = references.how_alike(alike)
    remedy = references.remedy(process, how, compared, limits["looks"])
    preference = abs(level - reference_levels.LN_2) <= limits["about"] * reference_levels.LN_2
    exact = level == 0 or reference_levels.is_constant(optimization.steps["loss"][begin:], level, limits)
    said = f"stays {'at' if exact else 'about'} {number(level)}" + (", which is ln 2" if preference else "")
    is_model = "equals the trained model" if how == references.EQUAL else "is the model that is trained"
    agree = "They always agree" if exact else "Dropout alone tells them apart"
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain" if exact and (preference or level == 0) else "likely",
        title=f"The reference {is_model}: its loss {said}",
        summary=(
            f"In {len(alike)} steps that were looked at, the trained model and the one that is called without autograd "
            f"on the same input {how}. {agree}, so the {'divergence' if level == 0 else 'loss'} "
            f"{said}{',' * preference} from step {timing.step_at(optimization, begin):,} to the last, whatever is "
            f"learned: nothing keeps the model near its start{', and its rewards are 0' * preference}." + remedy.why
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        first_step=timing.step_at(optimization, begin),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("with both the same", len(alike), "measurements", *limits.against("looks")),
            Evidence("value at which it stays", level),
        ],
        location=remedy.place or optimization.loss_location,
        diff=remedy.diff,
        seen_at=compared or optimization.loss_location,
        charts=pictures.loss(optimization),
        false_alarm="A loss that is constant for another reason, next to a first call that only inspects the outputs.",
    )


RULE = Rule(
    id="reference-is-policy",
    family="fine-tuning",
    severity="critical",
    title="The reference model is the trained model",
    about="Preference losses and KL penalties compare with a frozen copy. If the reference is the policy itself, they "
    "see no difference.",
    check=check,
    verify="Record the run again: the preference loss leaves ln 2 after the first steps.",
    absent="The run calls no second model on the input of the trained one.",
    excluded=(
        "A reference by disabled adapters: such calls are not counted.",
        "Old log-probabilities that the model computes itself: the loss would change.",
        "A model that does not learn: its gradients are not zero.",
    ),
    needs=(("references.same",),),
    thresholds=(
        Threshold(
            "looks", 3, "measurements", "after the first step; before it, policy and reference are equal rightly"
        ),
        Threshold("share", 0.3, "share", "beside the reference there may be a teacher or a reward model"),
        Threshold("steps", 10, "steps", "fewer say little about where a loss stays"),
        Threshold("constant", 2e-3, "share", "bfloat16 rounds to 2^-8; a preference that learns leaves ln 2 by more"),
        Threshold("about", 0.03, "share", "medians of dozens of losses that dropout moves by 2% each"),
        Threshold("zero", 1e-6, "", "rounding in float32: the divergence of equal distributions"),
    ),
    not_when="The first step, a reference by disabled adapters, log-probabilities of sampling (PPO, GRPO).",
    references=("https://arxiv.org/abs/2305.18290",),
)

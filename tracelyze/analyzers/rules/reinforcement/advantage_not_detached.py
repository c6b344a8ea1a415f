"""advantage-not-detached: the policy's gradient runs through its advantages into the value function."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.policies import losses
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Losses whose log-probabilities are weighed by what the same loss trains with a squared error."""
    seen = losses.looks(process)
    if seen is None:
        return Skipped("no loss of a policy was seen", "not-applicable")
    count, share = len(seen.steps), float(seen.undetached.mean())
    if count < limits["looks"]:
        return Skipped(f"{plural(count, 'loss')} of a policy seen: {limits['looks']:.0f} are needed")
    if share < limits["share"]:
        return Passed(f"gradients run through the weights of {share_of(share, 'losses')} of a policy, of {count}")
    optimization = process.longest if process.optimizations else None
    backward = optimization.backward_location if optimization is not None else None
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely",
            title="The advantages are not detached: the policy's gradient trains the value function",
            summary=f"In {share_of(share, 'losses')} checked, log-probabilities are multiplied by advantages that are "
            "still attached to the graph. The same loss trains these values with a squared error; now the policy term "
            "moves them as well, up or down depending on how likely an action was, whatever its return.",
            fix="Detach the advantage before it weights the log-probabilities; the squared error keeps its graph.",
            fix_code="advantage = (returns - values).detach()\npolicy_loss = -(log_probs * advantage).mean()\n"
            "value_loss = (returns - values).pow(2).mean()",
            first_step=int(seen.steps[0]) + 1,
            last_step=int(seen.steps[-1]) + 1,
            evidence=[
                Evidence("losses with such advantages", share, "share", *limits.against("share")),
                Evidence("losses looked at", count, "losses", *limits.against("looks"), role="basis"),
            ],
            location=script_lines.only(process, "advantage") or backward,
            seen_at=backward,
            charts=pictures.loss(optimization) if optimization is not None else [],
            false_alarm="Weights of log-probabilities that are learned on purpose, by a squared error of their own.",
        )
    ]


RULE = Rule(
    id="advantage-not-detached",
    family="reinforcement",
    severity="warning",
    title="The policy's gradient trains the value function",
    about="Advantages should be constants that weight log-probabilities: a gradient through them teaches the value "
    "function to agree with the policy.",
    check=check,
    verify="Record the run again: no gradient runs through the advantages.",
    absent="No loss of a policy was seen.",
    needs=(("events.text",),),
    thresholds=(
        Threshold("looks", 10, "losses", "a line of the script, which is the same at all steps"),
        Threshold("share", 0.9, "share", "all but losses of another kind that a loop has now and then"),
    ),
    not_when="Advantages that are detached, values without a squared error in that loss, weights that come from the "
    "policy itself (focal losses, entropies), learned weights of samples.",
    references=("https://arxiv.org/abs/1602.01783", "https://spinningup.openai.com/en/latest/algorithms/vpg.html"),
)

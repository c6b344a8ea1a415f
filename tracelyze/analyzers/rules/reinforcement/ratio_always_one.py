"""ratio-always-one: a policy is trained again on what it did, yet its ratio to the policy that acted stays 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.policies import losses
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Ratios of exactly 1, also in steps on samples that were trained on since the policy acted last."""
    seen = losses.looks(process)
    ratios = None if seen is None else losses.ratios(seen)
    if ratios is None:
        return Skipped("no loss with a ratio of probabilities was seen", "not-applicable")
    if len(ratios) < limits["looks"]:
        return Skipped(f"{plural(len(ratios), 'loss')} with a ratio seen: {limits['looks']:.0f} are needed")
    share = float(ratios.mean())
    if share < limits["share"]:
        return Passed(f"the ratio was 1 for all samples in {percent(share)} of the {len(ratios)} losses looked at")
    again = losses.trained_again(process, limits["again"])
    if again is None:
        return Skipped("the policy was not seen to act beside its training: how old the samples are is not known")
    if again < limits["steps"]:
        return Passed("the ratio is always 1, and each sample is trained on once: it is there for its gradient")
    optimization = process.longest if process.optimizations else None
    backward = optimization.backward_location if optimization is not None else None
    return [
        Finding(
            rule=RULE.id,
            severity="warning",
            confidence="likely",
            title=f"The ratio of new to old policy is 1 in {share_of(share, 'losses')}, on samples used again",
            summary=(
                f"The policy is trained on samples that it was trained on before ({plural(again, 'step')} of the first "
                "20), and changes with each step, but the ratio of its probabilities to those of the policy that "
                "acted is 1 for every sample. So the old log-probabilities come from the current policy: nothing is "
                "ever clipped, and nothing keeps the policy close to the one that acted."
            ),
            fix="Store the log-probabilities when the policy acts, detached from the graph, and use them in all "
            "passes over these samples.",
            fix_code="with torch.no_grad():            # once, when the policy acts\n"
            "    dist = policy(obs)\n    actions = dist.sample()\n    old_log_probs = dist.log_prob(actions)",
            first_step=int(seen.steps[0]) + 1 if seen is not None else None,
            last_step=int(seen.steps[-1]) + 1 if seen is not None else None,
            evidence=[
                Evidence("losses whose ratios are all 1", share, "share", *limits.against("share")),
                Evidence("steps on samples used before", again, "steps", *limits.against("steps")),
            ],
            location=script_lines.only(process, "old-policy") or backward,
            seen_at=backward,
            charts=pictures.loss(optimization) if optimization is not None else [],
            false_alarm="A policy that is not to change for most of the run.",
        )
    ]


RULE = Rule(
    id="ratio-always-one",
    family="reinforcement",
    severity="warning",
    title="The ratio of new to old policy is always 1",
    about="Clipped objectives measure how far a policy has moved since it acted. If the old log-probabilities are "
    "recomputed with the current policy, it never has.",
    check=check,
    verify="Record the run again: the ratio is 1 in the first step after the policy acted, and leaves it after that.",
    absent="No loss with a ratio of probabilities was seen.",
    needs=(("events.text",),),
    thresholds=(
        Threshold("looks", 10, "losses", "more than the first steps after one rollout"),
        Threshold("share", 0.9, "share", "a policy that begins to move later leaves 1 by then"),
        Threshold("again", 0.95, "share", "of a step's samples: all, but for samples that are alike"),
        Threshold("steps", 3, "steps", "each of them changes the policy before the next"),
    ),
    not_when="One update for each sample (the ratio is there for its gradient), samples from outside the program, "
    "policies that answer to the samples of a data set, ratios that leave 1 after the first step.",
    references=("https://arxiv.org/abs/1707.06347",),
)

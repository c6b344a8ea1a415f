"""How widely a policy of continuous actions draws, read off its losses, beside its rewards: the entropy of a normal law
may be negative, so that its standard deviation is judged instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.analyzers.signatures import measured_entropy, metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

EVENT: Final = "policy-deviation"
NAME: Final = "standard deviation"
_ENDS = 3  # looks at the start, and at the end: they get rarer, so that few lie near the end
_NARROW = 0.3  # derived: below exp(-1), as which policies begin: one that does was trained before


def collapse(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether it fell to a fraction, and no reward is above what it was before. None: no such policy was seen."""
    facts = _looks(process)
    if not facts:
        return None
    if len(process.trainings) > 1:
        return Skipped("there are several trainings: which of them drew continuous actions is not known")
    if len(facts) < limits["steps"]:
        return Skipped(
            f"{plural(len(facts), 'look')} at a policy's standard deviation: {limits['steps']:.0f} are needed"
        )
    steps = np.array([one["step"] for one in facts], dtype=float)
    seen = metrics.Metric(NAME, steps, np.array([one["deviation"] for one in facts], dtype=float))
    first, last = float(seen.values[:_ENDS].max()), float(np.median(seen.values[-_ENDS:]))
    went = f"the policy's standard deviation went from {number(first)} to {number(last)}"
    if (seen.values[-_ENDS:] >= limits["fraction"] * first).any():
        return Passed(went)
    judged = measured_entropy.beside_rewards(process, facts, seen, limits, warm=first < _NARROW)
    if judged is None:
        return Skipped(f"{went}; what the rewards were is not known")
    if isinstance(judged, str):
        return Passed(f"{went}{judged}")
    reward, begin, early, late = judged.reward, judged.begin, judged.early, judged.late
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The policy's deviation collapsed, from {number(first)} to {number(last)}, and the reward does not rise",
        summary=(
            f"The standard deviation of the actions that the policy draws was {number(first)} at first. From step "
            f"{begin + 1:,.0f} on it was below {number(limits['fraction'] * first)}, and is {number(last)} now. The "
            f"reward ({reward.name}) was {number(early)} before, and has been {number(late)} since. A policy that "
            "draws the same action again and again explores nothing: it does not find what would be better."
        ),
        fix="Look at what lowers the deviation: the sign and the weight of the entropy bonus, updates that are "
        "repeated on the same samples, the learning rate of log_std. Limit log_std from below, and log it.",
        fix_code="loss = policy_loss - 0.01 * dist.entropy().mean()\n"
        "log_std = log_std.clamp(min=-1.6)   # a deviation of 0.2 at least, where actions lie between -1 and 1",
        first_step=int(begin) + 1,
        last_step=int(seen.steps[-1]) + 1,
        evidence=[
            Evidence(
                "deviation at the end", last, "", limits["fraction"] * first, limits.source("fraction"), role="most"
            ),
            Evidence("deviation at the start", first),
            Evidence("reward since then", late),
            Evidence("reward before", early),
        ],
        seen_at=process.longest.backward_location if process.optimizations else None,
        charts=metrics.picture("Deviation and reward", [seen, reward], [Mark(begin, "deviation")]),
        false_alarm="A task that is solved as it begins; a schedule that narrows the deviation on purpose.",
    )


def _looks(process: Process) -> list[dict[str, Any]]:
    """What was seen of it, in order. Empty where no loss weighs log-probabilities by weights of both signs: those of
    samples have one."""
    rows = process.events_of(EVENT)
    facts = [{"step": row["step"], "sign": 0.0} | json.loads(row["text"]) for row in rows]
    is_policy = any(one["both_signs"] for one in facts)
    return [one for one in facts if np.isfinite(one["deviation"])] if is_policy else []

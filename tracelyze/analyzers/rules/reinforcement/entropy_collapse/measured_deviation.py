"""How widely a policy of continuous actions draws, read off its losses, beside its rewards: the entropy of a normal law
may be negative, so that its standard deviation is judged instead."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.analyzers.rules.reinforcement.entropy_collapse import measured_entropy
from tracelyze.diagnosis import Finding

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

EVENT: Final = "policy-deviation"
_NARROW = 0.3  # derived: below exp(-1), as which policies begin: one that does was trained before
DEVIATION: Final = measured_entropy.Measure(
    key="deviation",
    name="standard deviation",
    noun="deviation",
    whole="the policy's standard deviation",
    looked_at="a policy's standard deviation",
    drew="drew continuous actions",
    opening="The standard deviation of the actions that the policy draws was {first} at first.",
    moral="draws the same action again and again",
    fix="Look at what lowers the deviation: the sign and the weight of the entropy bonus, updates that are repeated on "
    "the same samples, the learning rate of log_std. Limit log_std from below, and log it.",
    fix_code="loss = policy_loss - 0.01 * dist.entropy().mean()\n"
    "log_std = log_std.clamp(min=-1.6)   # a deviation of 0.2 at least, where actions lie between -1 and 1",
    false_alarm="A task that is solved as it begins; a schedule that narrows the deviation on purpose.",
)


def collapse(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether it fell to a fraction, and no reward is above what it was before. None: no such policy was seen."""
    facts = _looks(process)
    return measured_entropy.narrowed(process, rule, limits, facts, DEVIATION, trained=_NARROW) if facts else None


def _looks(process: Process) -> list[dict[str, Any]]:
    """What was seen of it, in order. Empty where no loss weighs log-probabilities by weights of both signs: those of
    samples have one."""
    rows = process.events_of(EVENT)
    facts = [{"step": row["step"], "sign": 0.0} | json.loads(row["text"]) for row in rows]
    is_policy = any(one["both_signs"] for one in facts)
    return [one for one in facts if np.isfinite(one["deviation"])] if is_policy else []

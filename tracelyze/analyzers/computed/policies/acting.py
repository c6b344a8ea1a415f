"""How far a policy is from the one that acted, as the first losses since then show."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.policies import losses
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats

ACTED = "policy-acted"
_EARLY = 10  # looks at rollouts that follow each other: which samples were trained on before is known there
_MIXED = 1.5  # of policies that act at random in one step of three, or less often, and take that into account
_MOST = 0.5  # of a loss's samples


def compare(process: Process) -> bool:
    """Whether a loss weighs the ratio of a policy to the one that acted: dropout would make these two differ."""
    seen = losses.looks(process)
    detached = bool(process.events_of(ACTED))  # whatever weighs it
    return detached or (seen is not None and losses.ratios(seen) is not None)


@dataclass(frozen=True)
class Apart:
    """First backwards after a policy acted, in order: how far its probabilities were from those that it acted with."""

    steps: Floats
    distances: Floats  # mean distance of the ratio of both from 1, each by 1 at most
    stale: bool  # A copy of the policy acts, whose weights never changed; else the policy as it is.
    dropouts: bool  # Dropout was active, where it acted or where it is trained.
    detached: bool = False  # The loss is weighed by the ratio as by a constant.
    adapters: bool = False  # The copy holds what stands still in the policy beside its adapters.


def apart(process: Process, limits: Limits) -> list[Apart | Passed | Skipped]:
    """For each policy, how far it was from the one that acted, where that should not be far at all."""
    facts = [row | json.loads(row["text"]) for row in process.events_of(ACTED)]
    models = dict.fromkeys(one["model"] for one in facts)
    return [_apart([one for one in facts if one["model"] == model], limits) for model in models]


def _apart(looks: list[dict[str, Any]], limits: Limits) -> Apart | Passed | Skipped:
    looks = [one for one in looks if one["both_signs"] and np.isfinite(one["apart"]) and _acted(one)]
    if len(looks) < limits["looks"]:
        return Skipped(f"{plural(len(looks), 'first loss')} after a policy acted: {limits['looks']:.0f} are needed")
    again = [(one["reused"] or 0) > limits["again"] for one in looks[:_EARLY]]
    if np.mean(again) > limits["again"]:
        return Passed("the policy is trained on samples that it met before: how old they are is not known")
    met = [one["met"] for one in looks if one["met"] is not None]
    detached = any(one.get("detached") for one in looks)
    if met and not (np.median(met) if detached else any(met)):
        return Passed("the policy is not trained on what it acted upon last")
    alike = np.array([one["own"] or one["same"] for one in looks])
    copied = not any(one["own"] for one in looks)
    stale = copied and len({one["state"] for one in looks}) == 1 and not alike[len(alike) // 2 :].any()
    if not stale and alike.mean() < 1 - limits["again"]:
        return Passed("a copy of the policy acts, which takes over its weights now and then")
    judged = looks[len(looks) // 2 :] if stale else looks  # A copy that is never refreshed is close at first.
    steps, distances = (np.array([one[name] for one in judged], dtype=float) for name in ("step", "apart"))
    near = float((distances <= limits["near"]).mean())
    if float(np.median(distances)) <= limits["apart"] or near > limits["again"]:
        middle = number(float(np.median(distances)))
        return Passed(f"before the first update on them, the ratio of actions was {middle} from 1 (median)")
    if detached and max(one["largest"] for one in looks) <= _MIXED:
        return Passed("no weight is far above 1: some actions are drawn at random, which the weights correct for")
    adapters = copied and all(one.get("adapters") for one in looks)
    return Apart(steps, distances, stale, any(max(one["dropouts"]) for one in judged), detached, adapters)


def _acted(look: dict[str, Any]) -> bool:
    """Whether the call that was seen acted. One on as many other samples, beside each loss, values what follows."""
    return not look["as_trained"] or (look["met"] or 0) >= _MOST

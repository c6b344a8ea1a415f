"""Losses of a policy as their graphs showed at some steps: weights of its log-probabilities, and its entropy."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.rule import Limits, Passed, Skipped
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing.remade import signs
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats

EVENT, ROWS = "policy-loss", "policy-rows"
_MOST = 0.5  # of a loss's samples
_END = 3  # looks whose median is the entropy at the start, and at the end: they get rarer, so that few lie near the end


@dataclass(frozen=True)
class Looks:
    """Looks at the losses of a policy, in order, each array of shape [looks]; NaN where a loss holds no such thing."""

    steps: Floats
    both_signs: Floats  # 1 where the weights of the log-probabilities have both signs, as advantages have
    undetached: Floats  # 1 where gradients go through these weights
    ratio_one: Floats  # 1 where all ratios to an older policy are 1
    entropy: Floats  # in nats, of the policy's choices
    most: Floats  # in nats, the entropy of equal odds
    punished: Floats  # 1 where the loss punishes entropy, -1 where it rewards it
    length: Floats  # places of the sequences that the policy wrote and is trained on
    full: Floats  # share of them that no mask ends before the last place
    last_same: Floats  # share of these that end in their commonest last symbol
    last: Floats  # last symbol of the first one


def looks(process: Process) -> Looks | None:
    """What was seen of the policy's losses; None where there were none."""
    rows = process.events_of(EVENT)
    if not rows:
        return None
    facts = [json.loads(row["text"]) for row in rows]
    names = [one.name for one in fields(Looks)][1:]
    columns = [np.array([float(one.get(name, np.nan)) for one in facts]) for name in names]
    return Looks(np.array([row["step"] for row in rows], dtype=float), *columns)


def ratios(seen: Looks) -> Floats | None:
    """For each loss that holds ratios of probabilities, whether all of them are 1. None where no loss holds any."""
    known = seen.ratio_one[np.isfinite(seen.ratio_one)]
    return known if len(known) else None


def cut_off(seen: Looks) -> tuple[Floats, Floats] | None:
    """For each loss with a mask, its step, and the share of its sequences that run up to the longest length at which
    one was seen. None where no loss has such sequences, or where they all end in one symbol there."""
    known = np.isfinite(seen.full)
    if not known.any():
        return None
    whole = known & (seen.length == seen.length[known].max())
    _, counts = np.unique(seen.last[whole], return_counts=True)
    if float(np.median(seen.last_same[whole])) > _MOST and counts.max(initial=0) > _MOST * len(seen.last[whole]):
        return None
    return seen.steps[known], np.where(whole, seen.full, 0.0)[known]


def trained_again(process: Process, share: float) -> int | None:
    """Early steps on samples of which that share was trained on before, since the policy acted last; of those whose
    samples differ, since small worlds repeat themselves. None where the policy was not seen to act."""
    facts = [json.loads(row["text"]) for row in process.events_of(ROWS)]
    if not any(one["acted"] for one in facts):
        return None
    again = [not one["acted"] and min(one["reused"], one["distinct"]) >= share for one in facts]
    return int(np.sum(again))


def punished_entropy(process: Process, rule: str, limits: Limits) -> Finding | Passed | Skipped | None:
    """Whether the loss falls as the policy's entropy falls, and whether that came about. None: no entropy was seen."""
    seen = looks(process)
    if seen is None or not np.isfinite(seen.entropy).any():
        return None
    known = np.isfinite(seen.entropy)
    if known.sum() < limits["looks"]:
        return Skipped(f"{plural(int(known.sum()), 'loss')} with an entropy seen: {limits['looks']:.0f} are needed")
    steps, entropy = seen.steps[known], seen.entropy[known]
    first, last = float(np.median(entropy[:_END])), float(np.median(entropy[-_END:]))
    went = f"the entropy in the loss went from {number(first)} to {number(last)}"
    share = float((seen.punished[known] > 0).mean())
    if share < limits["punished"]:
        return None if share == 0 else Passed(f"{went}; the loss rewards it at times")
    if last > limits["left"] * first:
        return Passed(f"{went}, although the loss is lower where it is")
    if not (seen.both_signs > 0).any():
        return Passed(f"{went}; nothing else says that this is a policy and no classifier that is to be sure")
    optimization = process.longest if process.optimizations else None
    backward = optimization.backward_location if optimization is not None else None
    line = script_lines.only(process, "entropy", r"^(?!.*\bprint\()")
    added = signs.entropy_subtracted(process, backward)
    late = [f"{int(step) + 1:,}" for step in steps[-_END:]]
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"The loss punishes the policy's entropy: it fell from {number(first)} to {number(last)}",
        summary=(
            "The entropy of the policy is added to the loss, where an entropy bonus is subtracted: each step makes "
            f"the policy more deterministic, whatever it is rewarded for. Its entropy fell from {number(first)} to "
            f"{number(last)} (median of the last {_END} looks, at steps {listed(late, len(late))}); a uniform policy "
            f"has {number(float(seen.most[known][0]))}. A policy that always does the same thing does not explore."
        ),
        fix="Subtract the entropy: the loss is minimised, and the entropy should stay large.",
        fix_code=""
        if added
        else "# in the line that adds the entropy to the loss; its other terms, and its weight, stay as they are:\n"
        "loss = loss - entropy_weight * dist.entropy().mean()",
        diff=added[1] if added else None,
        first_step=int(steps[0]) + 1,
        last_step=int(steps[-1]) + 1,
        evidence=[
            Evidence("losses that entropy makes larger", share, "share", *limits.against("punished")),
            Evidence(
                f"entropy in the last {_END} looks",
                last,
                "",
                limits["left"] * first,
                limits.source("left"),
                role="most",
            ),
            Evidence("entropy at the start", first),
        ],
        location=(added[0] if added else line) or backward,
        seen_at=backward,
        charts=[chart("Entropy of the policy", "step", "nats", steps, {"entropy": entropy})],
        false_alarm="Entropy that is minimised on purpose, late in a training.",
    )

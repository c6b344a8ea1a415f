"""completions-truncated: nearly all completions end at the length limit, none by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.policies import losses
from tracelyze.analyzers.evidence.charts import chart
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.reinforcement.completions_truncated import lost_ends, short_limits
from tracelyze.analyzers.signatures import metrics
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_ABSENT = "The run logged no completions, and no loss was seen of sequences that end symbols mask"


def check(process: Process, limits: Limits) -> Outcome:
    """The share in the later half: a hint where the reward rises all the same, as answers of a fixed length may."""
    seen = metrics.metric(process, "cut_off")
    if seen is None:
        return _by_masks(process, limits)
    steps = metrics.steps_logged_about(process, seen)
    if len(seen) < limits["values"] or steps < limits["steps"]:
        return Skipped(
            f"{plural(len(seen), 'logged share')} of cut-off completions over {plural(steps, 'step')}: "
            f"{limits['values']:.0f} over {limits['steps']:.0f} are needed"
        )
    later = float(np.median(seen.values[len(seen) // 2 :]))
    if later < limits["share"]:
        return Passed(f"{percent(later)} of the completions are cut off at the length limit")
    reward = metrics.metric(process, "reward")
    few = reward is not None and len(reward) < limits["steps"] and reward.ends()[1] > reward.ends()[0]
    rises = few or metrics.rises(reward)
    never = metrics.never_earned(process, limits["values"]) if rises else []
    over = seen.values >= limits["share"]
    begin = int(seen.steps[int(np.argmax(over))])
    if lost_ends.lost(seen, limits):
        summary, fix, code, place = lost_ends.said(seen, begin, rises), lost_ends.FIX, "", lost_ends.place(process)
    else:
        summary, fix, place = short_limits.said(rises, never), short_limits.FIX, None
        code = short_limits.example(process, seen)
    return [
        Finding(
            rule=RULE.id,
            severity="info" if rises and not never else "warning",
            confidence="possible" if rises else "likely",
            title=f"{percent(later)} of the completions are cut off at the length limit",
            summary=summary,
            fix=fix,
            fix_code=code,
            first_step=begin,
            last_step=int(seen.steps[-1]),
            evidence=[
                Evidence("cut off, in the later half", later, "share", *limits.against("share")),
                Evidence("column", seen.name),
            ],
            location=place,
            charts=metrics.picture("Completions", [seen], [Mark(float(begin), "cut off")]),
            false_alarm="A task whose answers all have the full length.",
        )
    ]


def _by_masks(process: Process, limits: Limits) -> Outcome:
    """Whether completions are cut off in a loop of the script's own, which compares symbols with an end symbol: read
    from the masks in its losses."""
    line, seen = process.location("ends"), losses.looks(process)
    found = None if seen is None else losses.cut_off(seen)
    if line is None or found is None:
        return Skipped(_ABSENT, "not-applicable")
    steps, shares = found
    if len(steps) < limits["losses"]:
        return Skipped(f"{plural(len(steps), 'loss')} of completions seen: {limits['losses']:.0f} are needed")
    later = float(np.median(shares[len(shares) // 2 :]))
    early = float(np.median(shares[: max(1, len(shares) // 3)]))
    if min(early, later) < limits["share"]:
        return Passed(
            f"{percent(early)} of the completions are not masked at their end at first, {percent(later)} later"
        )
    begin = int(steps[int(np.argmax(shares >= limits["share"]))])
    return [
        Finding(
            rule=RULE.id,
            severity="info",
            confidence="likely",
            title=f"{percent(later)} of the completions reach the length limit without an end symbol",
            summary=(
                "The script looks for an end symbol, and masks what comes after it, but almost no completion has one: "
                "they are cut off. The reward then never sees an answer that comes at the end."
            ),
            fix="Print a few completions. Raise the length limit, reward the end of an answer, or train on answers "
            "with their end symbol first.",
            first_step=begin + 1,
            last_step=int(steps[-1]) + 1,
            evidence=[
                Evidence("not masked at the end, in the later half", later, "share", *limits.against("share")),
                Evidence("losses", len(steps), "losses", *limits.against("losses"), role="basis"),
            ],
            location=line,
            charts=[chart("Completions cut off", "step", "share", steps, {"cut off": shares})],
            false_alarm="A task whose answers all have the full length.",
        )
    ]


RULE = Rule(
    id="completions-truncated",
    family="reinforcement",
    severity="warning",
    title="Completions are cut off",
    about="A completion that is cut off has no answer, so its reward says nothing about the policy.",
    check=check,
    settings=("max_completion_length", "response_length"),
    verify="Record the run again: most completions end by themselves.",
    absent=f"{_ABSENT}.",
    needs=(("scalars.value",), ("events.text",)),
    thresholds=(
        Threshold("share", 0.9, "share", "nearly all; long answers that are cut off now and then stay below a half"),
        Threshold("steps", 10, "steps", "fewer are the start of a run"),
        Threshold("ended", 0.5, "share", "cut off at first, at most: the others had an end, and room for it"),
        Threshold("losses", 10, "losses", "derived: more than the first steps, where a model knows no end yet"),
        Threshold("values", 5, "values", "derived: the median of the later three is not moved by one"),
    ),
    not_when="Loops of the script's own that look for no end symbol, or mask nothing by it. A hint only where the "
    "reward rises all the same, as with tasks of fixed length.",
    references=("https://arxiv.org/abs/2503.14476",),
)

"""slow-steps: single steps that take far longer than the others, and what coincides with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.computed.throughput import contention, outliers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding, Mark
from tracelyze.formatting import duration, listed, number, percent, plural, share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats, Mask
LATE: Final = " Others held the processors for {} of the time: a worker without one is late with its batch."


def check(process: Process, limits: Limits) -> Outcome:
    """The training with the most steps, beyond its warm-up, without evaluations and first batches of epochs."""
    optimization = process.longest
    seconds, judged = outliers.net_seconds(optimization, int(limits["warm_up"]))
    if judged.sum() < limits["fewest"]:
        return Skipped(f"{plural(int(judged.sum()), 'step')} after the warm-up; {limits['fewest']:.0f} are needed")
    found = outliers.slow(seconds, judged, limits["ratio"], limits["spreads"], limits["least"])
    share = len(found.rows) / int(judged.sum())
    short = float(found.excess.sum()) < limits["worth"]
    regular = outliers.rhythm([timing.step_at(optimization, int(row)) for row in found.rows])
    often = regular and (found.lost >= limits["most"] or len(found.rows) >= limits["regular"])
    single = len(found.rows) > 0 and found.lost >= limits["lost"] and (not short or often)
    recurring = _recurring(optimization, seconds, judged, limits)
    if recurring is not None:
        return [_finding(optimization, recurring, seconds, limits)]
    if single and outliers.beside_evaluations(optimization, found) and _acts(process):
        return Passed("the model acts in the slow steps (reinforcement learning): what they take is its environment's")
    if single and share <= limits["rare"]:
        others = 0.0 if regular else outliers.held_by_others(optimization, found)
        if others >= outliers.EXPLAINED and outliers.coincidence(optimization, found).sentence == outliers.NOTHING:
            slow = plural(len(found.rows), "slow step")
            return Passed(f"others held the processors for {percent(others)} of the time of {slow}")
        return [_finding(optimization, found, seconds, limits)]
    if single:
        return Passed(f"{share_of(share, 'steps')} are slow: two kinds of steps, not single ones that stand out")
    slowest = float(seconds[judged].max()) / max(found.typical, 1e-9)
    return Passed(f"the slowest of {plural(int(judged.sum()), 'step')} took {number(slowest)} times the median")


def _acts(process: Process) -> bool:
    return style.acts(process) or style.values_a_policy(process)


def _recurring(optimization: Optimization, seconds: Floats, judged: Mask, limits: Limits) -> outliers.Slow | None:
    """Every n-th step, where these take so much longer than the others that even a short run loses by it."""
    slow = outliers.slow(seconds, judged, limits["contrast"], limits["spreads"], limits["regular_least"])
    found = outliers.regular(optimization, slow)
    if found.lost < limits["grave"] or len(found.rows) > limits["regular_share"] * int(judged.sum()):
        return None
    other_rule_reports = outliers.coincidence(optimization, found).name in (outliers.WAITING, outliers.RECORDING)
    return None if other_rule_reports else found


def _finding(optimization: Optimization, found: outliers.Slow, seconds: Floats, limits: Limits) -> Finding:
    steps = [timing.step_at(optimization, int(row)) for row in found.rows]
    reason = outliers.coincidence(optimization, found)
    rhythm = outliers.rhythm(steps)
    crowd = contention.shares(optimization)
    crowded = max(crowd.own, crowd.workers) if reason.name == outliers.WAITING else 0.0
    curable = reason.name != outliers.CROWDED and (rhythm or reason.name != outliers.UNKNOWN)
    curable = curable and crowded < limits["crowded"]
    slowest = float(seconds[found.rows].max())
    excess = float(found.excess.sum())
    worth = excess >= limits["worth"] or found.lost >= limits["most"]
    costly = worth and found.lost >= limits["grave"] and excess >= limits["second"]
    return Finding(
        rule=RULE.id,
        severity="warning" if curable and costly else "info",
        confidence="likely" if reason.share >= outliers.EXPLAINED else "possible",
        title=f"{plural(len(steps), 'slow step')} of up to {duration(slowest)} cost {percent(found.lost)} of the time",
        summary=(
            f"The median step takes {duration(found.typical)}; "
            f"{'step' if len(steps) == 1 else 'steps'} {listed(steps, most=5)} took up to"
            f" {duration(slowest)}{rhythm}, {duration(excess)} more in all. {reason.sentence}"
            + (LATE.format(percent(crowded)) if crowded >= limits["crowded"] else "")
        ),
        fix=reason.fix,
        first_step=steps[0],
        last_step=steps[-1],
        first_second=timing.second_at(optimization, int(found.rows[0])),
        evidence=[
            Evidence("time lost", found.lost, "share", *limits.against("lost")),
            Evidence("slowest step over the median", slowest / found.typical, "times", *limits.against("ratio")),
            Evidence("share of slow steps", len(steps) / len(seconds), "share", *limits.against("rare"), role="most"),
            Evidence("what coincides", reason.name),
            Evidence("part of the excess", reason.share, "share", outliers.EXPLAINED, outliers.EXPLAINED_SOURCE),
        ],
        cost=Cost(excess, found.lost),
        location=reason.location,
        charts=pictures.time_split(optimization, [Mark(float(step), "slow") for step in steps[:6]]),
        false_alarm="Checkpoints and logging that are expected to take that long; a machine that others use too.",
    )


RULE = Rule(
    id="slow-steps",
    family="throughput",
    severity="warning",
    title="Single steps are far slower than the others",
    about="Compares each step with the median by a robust spread, and names what the slow ones have in common.",
    check=check,
    verify="Record the run again: no step is far above the median, or they cost less of the time.",
    needs=(("steps.seconds", "steps.time"),),
    thresholds=(
        Threshold("warm_up", 10, "steps", "derived: compilation, autotuning and caches take the first steps"),
        Threshold("fewest", 50, "steps", "derived: of fewer, one hiccup is already a tenth of the time"),
        Threshold("ratio", 3, "times the median", "derived: batches of varying length stay below"),
        Threshold("spreads", 10, "robust standard deviations", "derived: heavy tails of shared machines reach six"),
        Threshold("least", 0.05, "s", "derived: scheduling and garbage collection cost any step up to 50 ms"),
        Threshold("rare", 0.1, "share", "derived: more often is a second kind of step, such as longer sequences"),
        Threshold("lost", 0.1, "share", "derived: a tenth of the time is worth a look"),
        Threshold("worth", 5, "s", "measured: hiccups of a busy machine cost 150 short runs up to 1.5 s each"),
        Threshold("most", 0.5, "share", "derived: more than all else, at an even distance, as no hiccup comes"),
        Threshold("regular", 6, "slow steps", "derived: 6 hiccups lie that evenly by chance once in 100,000 runs"),
        Threshold(
            "contrast",
            5,
            "times the median",
            "derived: twice and three times as long are long sequences, lazy penalties, a second optimizer",
        ),
        Threshold("regular_least", 0.01, "s", "derived: at an even distance, as no scheduling of others comes"),
        Threshold("regular_share", 0.2, "share", "derived: more often than every fifth step is a second kind of step"),
        Threshold("second", 1, "s", "derived: below it nobody has waited"),
        Threshold("grave", 0.2, "share", "derived: a fifth of the time is worth a change"),
        Threshold("crowded", 0.25, "share", "derived: a worker then waits for a processor as often"),
    ),
    not_when="Warm-up, evaluation passes, first batches of epochs, profiled steps, two kinds of steps.",
)

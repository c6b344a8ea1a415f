"""Which finding explains which: consequences are folded under their root cause."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracelyze.analyzers import consequences
from tracelyze.analyzers.merging import gravity
from tracelyze.diagnosis import SEVERITIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tracelyze.analyzers.consequences import Consequence
    from tracelyze.analyzers.rule import Declaration
    from tracelyze.diagnosis import Finding, Verdict

NO_OTHER = "Fix the cause first: it explains this, too. Look further only if this remains once the cause is fixed."


def on_rank(finding: Finding, rank: int) -> Finding:
    """The finding with the rank of the process that it was made in, if it does not name ranks itself."""
    return finding if finding.ranks else replace(finding, ranks=[rank])


def explain(findings: Sequence[Finding], rules: Sequence[Declaration], run_steps: int = 0) -> list[Finding]:
    """Set `caused_by` of each finding (one per rule) to the nearest of its possible causes.

    The nearest has the longest chain of causes behind it, and is the latest of those.
    """
    possible, began = possible_causes(findings, rules, run_steps), _onsets(findings, rules)
    chosen: dict[str, str | None] = {}

    def depth(rule: str) -> int:
        cause = cause_of(rule)
        return 0 if cause is None else 1 + depth(cause)

    def cause_of(rule: str) -> str | None:
        if rule not in chosen:
            chosen[rule] = max(possible[rule], key=lambda cause: (depth(cause), *began[cause]), default=None)
        return chosen[rule]

    return [_follows(finding, cause_of(finding.rule)) for finding in findings]


def _follows(finding: Finding, cause: str | None) -> Finding:
    """The finding with its cause; without a rate or limit that would make up for the cause, or guesses at another."""
    if cause is not None and finding.rule in consequences.OPEN:
        return replace(finding, caused_by=cause, fix=NO_OTHER, fix_code="", diff=None)
    if cause is None or finding.rule not in consequences.SIZE_FOLLOWS:
        return replace(finding, caused_by=cause)
    fix = (
        "Fix the cause first, and choose the clip's limit and the learning rate after that: without the cause they may "
        "be right."
    )
    return replace(finding, caused_by=cause, fix=fix, fix_code="", diff=None)


def possible_causes(
    findings: Sequence[Finding], rules: Sequence[Declaration], run_steps: int
) -> dict[str, dict[str, Consequence]]:
    """The rows of the table (`consequences`) that hold between these findings: by effect, by cause.

    A cause began no later than its effect, on a rank and in a training of its, and was seen shortly before, where the
    effect follows at once. Two rules may name each other as a cause (a loss that diverges and gradients that explode):
    then the one that began first is the cause, or, at the same step, the one that comes first in the catalogue. So
    there are no cycles. Where only one of the two can be the cause, it is the cause at the same step, too.
    """
    began, by_rule = _onsets(findings, rules), {finding.rule: finding for finding in findings}
    table = {
        effect: {
            cause: row
            for cause, row in rows.items()
            if effect not in by_rule or not _is_ruled_out(row, by_rule[effect])
        }
        for effect, rows in consequences.with_declared(rules).items()
    }
    between_ranks = {rule.id for rule in rules if getattr(rule, "gather", None) is not None}

    def may_cause(cause: Finding, effect: Finding, row: Consequence) -> bool:
        earlier = began[cause.rule] < began[effect.rule]  # by step, at the same step by the catalogue's order
        # A process that was ended has lost its last rows: its step is a lower bound, and the end comes after all else.
        earlier = earlier or (effect.ending is not None and cause.ending is None)
        same_step = began[cause.rule][0] == began[effect.rule][0]
        if not earlier and not same_step:
            return False
        if not earlier:
            by_then = {name for name, (step, _) in began.items() if step <= began[cause.rule][0]}
            if effect.rule in _behind(cause.rule, table, by_then):
                return False  # each may be the cause of the other: the catalogue's order decides
        if cause.rule not in between_ranks and not _same_rank(effect, cause):
            return False  # what compares ranks concerns all of them
        return _same_training(effect, cause) and _holds(row, cause, effect, run_steps)

    return {
        effect.rule: {
            name: row
            for name, row in table.get(effect.rule, {}).items()
            if name in by_rule and may_cause(by_rule[name], effect, row)
        }
        for effect in findings
    }


def _behind(rule: str, table: Mapping[str, Mapping[str, Consequence]], found_by_then: set[str]) -> set[str]:
    """All of the rules found by then that can be a cause of this one, through others of them, too."""
    found: set[str] = set()
    waiting = [rule]
    while waiting:
        new = (found_by_then & table.get(waiting.pop(), {}).keys()) - found
        found |= new
        waiting.extend(new)
    return found


def other_names(
    findings: Sequence[Finding], rules: Sequence[Declaration], run_steps: int = 0
) -> dict[str, tuple[str, Consequence]]:
    """The findings that only rename what a certain one says, by rule: the certain rule and the row that says why.

    Beside a cause that is less than certain they may be the right name, and are kept.
    """
    certain = {finding.rule for finding in findings if finding.confidence == "certain"}
    return {
        effect: (cause, row)
        for effect, rows in possible_causes(findings, rules, run_steps).items()
        for cause, row in rows.items()
        if row.left_out and cause in certain
    }


def _onsets(findings: Sequence[Finding], rules: Sequence[Declaration]) -> dict[str, tuple[int, int]]:
    """When each finding began, to be compared: step, and place in the catalogue. Unknown comes before all."""
    place = {rule.id: index for index, rule in enumerate(rules)}

    def step(finding: Finding) -> int:
        if finding.first_step is None:
            return -1
        return finding.first_step - (1 if finding.rule in consequences.UNCLEARED else 0)

    return {finding.rule: (step(finding), place.get(finding.rule, len(place))) for finding in findings}


def _holds(row: Consequence, cause: Finding, effect: Finding, run_steps: int) -> bool:
    """Whether this effect may come from this cause by what it says of itself, and by the steps between the two."""
    if row.grave and cause.severity == "info":
        return False
    if "too-small" in cause.traits or (row.given is not None and row.given not in cause.traits):
        return False
    if effect.ending is not None and effect.ending.cause in row.ended_by:
        return False
    seen = cause.first_step if cause.last_step is None else cause.last_step
    return seen is None or effect.first_step is None or row.delay.reaches(seen, effect.first_step, run_steps)


def _is_ruled_out(row: Consequence, effect: Finding) -> bool:
    """Whether what the effect says of itself tells that it comes of something else."""
    unseen = row.seen_by is not None and row.seen_by not in effect.traits
    return unseen or not effect.traits.isdisjoint(row.unless)


def _same_rank(one: Finding, other: Finding) -> bool:
    """Whether both were seen on a rank; a finding that names none may be of any."""
    return not one.ranks or not other.ranks or not set(one.ranks).isdisjoint(other.ranks)


def _same_training(one: Finding, other: Finding) -> bool:
    """Whether one can be the cause of the other: in a sweep, one training's fault is no other's cause."""
    return not one.trainings or not other.trainings or not set(one.trainings).isdisjoint(other.trainings)


def order(findings: Sequence[Finding]) -> list[Finding]:
    """Roots first by severity, confidence, harm and cost; each is followed by all that came of it, by onset."""
    ordered: list[Finding] = []

    def following(cause: Finding) -> Iterator[Finding]:
        for effect in findings:
            if effect.caused_by == cause.rule:
                yield effect
                yield from following(effect)

    for root in sorted((finding for finding in findings if finding.caused_by is None), key=_urgency):
        ordered += [root, *sorted(following(root), key=_onset)]
    return ordered


def _urgency(finding: Finding) -> tuple[float, ...]:
    """Sort key: as `gravity`; of one severity, what names no mechanism comes after what does, and of one confidence,
    what only slows comes after what does more harm."""
    severity, confidence, *rest = gravity(finding)
    rule = finding.rule
    return severity, rule in consequences.OPEN, confidence, rule in consequences.ONLY_SLOWS, *rest


def _onset(finding: Finding) -> float:
    return float("inf") if finding.first_step is None else float(finding.first_step)


def verdict_of(findings: list[Finding], unknown: str = "") -> Verdict:
    """The highest severity among the findings, or ok.

    `unknown`, a reason why too little was checked, takes the place of everything below a warning.
    """
    grave = next((one for one in SEVERITIES if any(finding.severity == one for finding in findings)), None)
    if unknown and grave in (None, "info"):
        return "unknown"
    return grave or "ok"

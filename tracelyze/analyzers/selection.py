"""What the engines for recorded runs and for profiler traces share: which rules, with which limits, and what became."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers import context
from tracelyze.analyzers.rule import Declaration, Limits, Outcome, Passed
from tracelyze.diagnosis import Check
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence


def wanted(identifier: str, select: Collection[str], ignore: Collection[str]) -> bool:
    """Whether this rule is to be evaluated: selected, or nothing is; and not ignored."""
    return (not select or identifier in select) and identifier not in ignore


def must_be_known(
    select: Collection[str],
    ignore: Collection[str],
    thresholds: Mapping[str, Mapping[str, float]],
    rules: Sequence[Declaration],
) -> None:
    """InputError for a rule or threshold that no rule declares. A rule for runs and one for traces may share an id."""
    names: dict[str, set[str]] = {}
    for rule in rules:
        names.setdefault(rule.id, set()).update(threshold.name for threshold in rule.thresholds)
    for identifier in (*select, *ignore):
        if identifier not in names:
            raise InputError(Cause.UNKNOWN_NAME, f"{identifier}: no such rule; `tracelyze rules` lists them")
    for identifier, values in thresholds.items():
        if identifier not in names:
            raise InputError(
                Cause.UNKNOWN_NAME, f"thresholds for {identifier}: no such rule; `tracelyze rules` lists them"
            )
        for name in values:
            if name not in names[identifier]:
                known = ", ".join(sorted(names[identifier])) or "none"
                raise InputError(Cause.UNKNOWN_NAME, f"{identifier} has no threshold {name!r}; it has: {known}")


def limits_of(rules: Sequence[Declaration], thresholds: Mapping[str, Mapping[str, float]]) -> dict[str, Limits]:
    """Limits of each rule, of which it takes those thresholds that it declares itself."""
    limits = {}
    for rule in rules:
        names = {threshold.name for threshold in rule.thresholds}
        given = thresholds.get(rule.id, {})
        limits[rule.id] = Limits(rule.thresholds, {name: value for name, value in given.items() if name in names})
    return limits


_NOT_RECORDED: Final = "not recorded: "  # as `Process.lacks` words it


def check_of(rule: Declaration, outcome: Outcome, command: str = "", imported: bool = False) -> Check:
    """What became of a rule. `command`: how the program was started, for those that need more of it.

    What another program recorded lacks what any recording by `collect` has, without options.
    """
    if isinstance(outcome, list):
        return Check(rule.id, "fired", context.fitted(outcome[0].title), rule.title)
    if isinstance(outcome, Passed):
        return Check(rule.id, "passed", context.sentence(outcome.reason), rule.title)
    plain = imported and outcome.why == "needs-more" and outcome.reason.startswith(_NOT_RECORDED)
    options = f" {outcome.record}" if outcome.record else ""
    record = f"tracelyze collect{options} -- {command or 'python train.py'}" if options or plain else ""
    return Check(
        rule.id, "skipped", context.sentence(outcome.reason), rule.title, outcome.why, record, outcome.traceback
    )

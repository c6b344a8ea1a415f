"""How the reports say a change: before, after, difference, percent, and whether it means anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze import formatting

if TYPE_CHECKING:
    from tracelyze.comparison import Change, Comparison, FindingChange, Side

VERDICT: Final = {"slower": "Slower", "faster": "Faster", "same": "Same speed", "unknown": "Not known"}
SIGN: Final = {"slower": "warning", "faster": "ok", "same": "ok", "unknown": "info"}
"""The sign and colour of a verdict: those of the severity that it is like."""

FATE: Final = {
    "new": "new",
    "worse": "worse",
    "same": "the same",
    "better": "better",
    "fixed": "fixed",
    "unknown": "checked on one side only",
}
_TIMES: Final = 10
"""From how many times as much on it is said as a factor instead of a percentage."""
DIGITS: Final = 4
"""Significant digits: enough to see a difference of one percent."""
_MANY: Final = 10_000
MEANING: Final = {"more": "", "less": "", "noise": "within noise", "unknown": "noise not known"}


def severity(comparison: Comparison) -> str:
    """The sign and colour of the answer: that of the gravest fault which only B has, else that of the verdict."""
    new = {one.severity for one in new_faults(comparison)}
    return next((grave for grave in ("critical", "warning") if grave in new), speed(comparison))


def speed(comparison: Comparison) -> str:
    """The sign and colour of the verdict, which is no good news beside another loss."""
    sign = SIGN[comparison.verdict]
    return "info" if sign == "ok" and comparison.other_loss is not None else sign


def new_faults(comparison: Comparison) -> list[FindingChange]:
    """The findings that only B has, without hints."""
    return [one for one in comparison.findings if one.fate == "new" and one.severity != "info"]


def value(change: Change, number: float | None) -> str:
    """One side's number with its unit."""
    return "-" if number is None else formatting.quantity(number, change.unit, DIGITS)


def difference(change: Change) -> str:
    """What B has more or less, with its unit."""
    if change.before is None and change.after is None:
        return ""
    sign = "" if not change.difference else "-" if change.difference < 0 else "+"
    if change.unit == "%":
        return f"{sign}{formatting.number(abs(change.difference), DIGITS)} points"
    return f"{sign}{formatting.quantity(abs(change.difference), change.unit, DIGITS)}"


def relative(change: Change) -> str:
    """The difference in percent of what it was; new and gone where one side has nothing."""
    if not change.before:
        return "new" if change.after else ""
    if change.after is None:
        return "gone"
    share = change.difference / change.before
    if change.unit == "%" or share == 0:
        return ""
    if share >= _TIMES - 1:
        return f"x {1 + share:,.0f}" if share < _MANY else f"x {1 + share:.0e}"
    return formatting.change(share)


def of_step(change: Change) -> str:
    """The difference as a share of A's step."""
    return "" if change.share is None else formatting.change(change.share)


def meaning(change: Change) -> str:
    """Whether the difference means anything."""
    if change.before == change.after:
        return "the same"
    said = MEANING[change.significance]
    if change.significance == "noise" and change.noise is not None and abs(change.difference) > change.noise:
        return "too small to matter"
    if change.significance == "unknown" and change.unit == "%":
        return ""
    return said


def finding(change: FindingChange) -> str:
    """What a finding costs on each side, as a share of the time, where that is known."""
    before, after = change.before, change.after
    if change.fate == "new":
        return formatting.percent(after) if after is not None else ""
    if change.fate == "fixed":
        return f"was {formatting.percent(before)}" if before is not None else ""
    if before is None or after is None:
        return ""
    return f"{formatting.percent(before)} → {formatting.percent(after)}"


def side(one: Side) -> str:
    """What one side is, in a line."""
    what = "profiler trace" if one.kind == "trace" else "recorded run"
    parts = [what, formatting.plural(one.steps, "step") if one.steps else "steps not counted"]
    parts += [formatting.plural(one.ranks, "rank")] if one.ranks > 1 else []
    parts += [one.facts["device"]] if "device" in one.facts else []
    return ", ".join(parts)


def has_noise(comparison: Comparison) -> bool:
    """Whether anything could be held against the spread over the steps."""
    return any(change.noise is not None for section in comparison.sections for change in section.changes)


NOISE: Final = (
    "A difference is called noise where the spread over the steps of A and B alone makes one as large in one of "
    "twenty comparisons (Welch's t), or where it is below a percent of the step. Two recordings of one program on one "
    "machine may differ by more than their steps do."
)

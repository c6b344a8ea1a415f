"""The first line: how much slower or faster, and what made it so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracelyze.analyzers.comparing.traces import COMPUTING, USUAL
from tracelyze.comparison import Change, FindingChange, Section, Verdict
from tracelyze.formatting import number, percent

_MOST: Final = 3  # names in one sentence
_LEAST_PART: Final = 0.1
"""Parts of the difference below a tenth of it are not named."""


def verdict_of(step: Change | None) -> Verdict:
    """Whether B is slower than A, by the time of its steps."""
    if step is None or step.before is None or step.after is None or step.before <= 0:
        return "unknown"
    return {"more": "slower", "less": "faster", "noise": "same", "unknown": "unknown"}[step.significance]  # type: ignore[return-value]


def headline(step: Change | None, sections: Sequence[Section]) -> str:
    """One sentence with the step times and the parts that explain their difference."""
    if step is None or step.before is None or step.after is None or step.before <= 0:
        return "Nothing can be said about the time of a step: at least one side has none."
    times = f"({number(step.before)} -> {number(step.after)} ms)"
    ratio = step.after / step.before - 1
    if step.significance == "noise":
        band = f"less than the noise of {number(step.noise)} ms" if step.noise else "too little to matter"
        if step.noise is not None and abs(step.difference) > step.noise:
            band = "too little to matter"
        return f"B is about as fast as A per step {times}: the difference is {band}.{_usual(sections)}"
    reasons = drivers(step.difference, sections)
    because = f": {', '.join(_signed(one) for one in reasons)}" if reasons else ", for no reason that was recorded"
    caution = " With fewer than three steps on a side, this may be chance." if step.significance == "unknown" else ""
    return f"B {_how(ratio)} per step {times}{because}.{caution}"


def _how(ratio: float) -> str:
    if ratio >= 1:
        return f"takes {1 + ratio:.1f} times as long"
    return f"is {percent(abs(ratio))} {'slower' if ratio > 0 else 'faster'}"


def _usual(sections: Sequence[Section]) -> str:
    """What the steps say without the slow ones, if that is more than all of them say."""
    usual = next((one for part in sections if part.id == "step" for one in part.changes if one.name == USUAL), None)
    if usual is None or usual.significance not in ("more", "less") or not usual.before or not usual.after:
        return ""
    times = f"({number(usual.before)} -> {number(usual.after)} ms)"
    return f" Without its slow steps it {_how(usual.after / usual.before - 1)} {times}."


def new_faults(findings: Sequence[FindingChange]) -> str:
    """A sentence on the faults that only B has."""
    new = [one.rule for one in findings if one.fate == "new" and one.severity != "info"]
    more = f" and {len(new) - _MOST} more" if len(new) > _MOST else ""
    return f" Only B has: {', '.join(new[:_MOST])}{more}." if new else ""


def drivers(difference: float, sections: Sequence[Section]) -> list[Change]:
    """The parts of the step that moved the same way, largest first; computation by what its kernels do."""
    by_id = {section.id: section.changes for section in sections}
    parts = [one for one in by_id.get("causes", []) if one.difference * difference > 0]
    computing = next((one for one in parts if one.name == COMPUTING), None)
    if computing is not None:
        hidden = ("communication", "copies and fills")
        classes = [one for one in by_id.get("classes", []) if one.name not in hidden]
        same = [one for one in classes if one.difference * difference > 0]
        parts = [one for one in parts if one is not computing] + (same or [computing])
    least = _LEAST_PART * abs(difference)
    large = [one for one in parts if abs(one.difference) >= least and one.significance != "noise"]
    return sorted(large, key=lambda one: -abs(one.difference))[:_MOST]


def _signed(change: Change) -> str:
    return f"{change.name} {change.difference:+.3g} {change.unit}"

"""The first line: how much slower or faster, and what made it so."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tracelyze.comparison import Change, FindingChange, Section, SettingChange, Verdict
from tracelyze.formatting import listed, number, percent

LONGEST: Final = 90  # characters of the headline, as of the title of a finding
_GROUPS: Final = {
    "command": "the command",
    "optimizer": "the optimizer",
    "loader": "the loaders",
    "schedule": "the schedule of the learning rate",
    "versions": "versions",
    "machine": "the machine",
    "environment": "the environment",
}
_MOST: Final = 3  # names in one sentence
_LEAST_PART: Final = 0.1
"""Parts of the difference below a tenth of it are not named."""


def verdict_of(step: Change | None) -> Verdict:
    """Whether B is slower than A, by the time of its steps."""
    if step is None or step.before is None or step.after is None or step.before <= 0:
        return "unknown"
    return {"more": "slower", "less": "faster", "noise": "same", "unknown": "unknown"}[step.significance]  # type: ignore[return-value]


def headline(
    step: Change | None,
    sections: Sequence[Section],
    findings: Sequence[FindingChange],
    settings: Sequence[SettingChange] = (),
    other_loss: float | None = None,
) -> tuple[str, str]:
    """The answer in a line of at most LONGEST characters, and the sentences that belong beside it.

    A critical fault that only B has comes before the time of a step, as does a lesser one where B is not slower.
    """
    speed, beside = _speed(step, sections, settings)
    loss = "" if other_loss is None else f"its training loss is {_by(other_loss)}"
    if loss and len(f"{speed}, and {loss}") <= LONGEST:
        speed = f"{speed}, and {loss}"
    elif loss:
        beside = [f"At the same step {loss}", *beside]
    new = [one for one in findings if one.fate == "new" and one.severity != "info"]
    if not new or (new[0].severity != "critical" and verdict_of(step) == "slower"):
        return speed, _sentences(*beside, _named("New in B:", new))
    title = f"New in B: {new[0].title}"
    first = title if len(title) <= LONGEST else f"B has a new fault: {new[0].rule}"
    return first, _sentences(_named("Also new:", new[1:]), speed, *beside)


def _speed(
    step: Change | None, sections: Sequence[Section], settings: Sequence[SettingChange]
) -> tuple[str, list[str]]:
    """How much slower or faster, with the parts that explain it as far as they fit, and the sentences on the rest."""
    if step is None or step.before is None or step.after is None or step.before <= 0:
        return "Nothing can be said about the time of a step: at least one side has none", []
    times = f"({number(step.before)} → {number(step.after)} ms)"
    if step.significance == "noise":
        within = step.noise and abs(step.difference) <= step.noise
        band = f"less than the noise of {number(step.noise)} ms" if within else "too little to matter"
        return f"B is about as fast as A per step {times}", [f"The difference is {band}", _usual(sections)]
    said = f"B {_how(step.after / step.before - 1)} per step {times}"
    reasons = [_signed(one) for one in drivers(step.difference, sections)]
    fitting = next((n for n in range(len(reasons), 0, -1) if len(f"{said}: {'; '.join(reasons[:n])}") <= LONGEST), 0)
    unexplained = "" if reasons else f"No part of a step that was recorded explains the difference{_apart(settings)}"
    chance = "With fewer than three steps on a side, this may be chance" if step.significance == "unknown" else ""
    further = f"{'Also' if fitting else 'It comes from'}: {'; '.join(reasons[fitting:])}" if reasons[fitting:] else ""
    return (f"{said}: {'; '.join(reasons[:fitting])}" if fitting else said), [unexplained, further, chance]


def _apart(settings: Sequence[SettingChange]) -> str:
    """Which kinds of settings differ, as the end of a sentence."""
    groups = list(dict.fromkeys(_GROUPS[one.group] for one in settings if one.group in _GROUPS))
    return f", but these differ: {listed(groups, len(groups))}" if groups else ""


def _named(words: str, faults: Sequence[FindingChange]) -> str:
    return f"{words} {listed([one.rule for one in faults], _MOST)}" if faults else ""


def _sentences(*said: str) -> str:
    return " ".join(f"{one}." for one in said if one)


def _how(ratio: float) -> str:
    if ratio >= 1:
        return f"takes {1 + ratio:.1f} times as long"
    return f"is {percent(abs(ratio))} {'slower' if ratio > 0 else 'faster'}"


def _by(share: float) -> str:
    if share >= 1:
        return f"{1 + share:.1f} times as high"
    return f"{percent(abs(share))} {'higher' if share > 0 else 'lower'}"


def _usual(sections: Sequence[Section]) -> str:
    """What the steps say without the slow ones, if that is more than all of them say."""
    usual = next(
        (one for part in sections if part.id == "step" for one in part.changes if one.key == "usual-step"), None
    )
    if usual is None or usual.significance not in ("more", "less") or not usual.before or not usual.after:
        return ""
    times = f"({number(usual.before)} → {number(usual.after)} ms)"
    return f"Without its slow steps it {_how(usual.after / usual.before - 1)} {times}"


def drivers(difference: float, sections: Sequence[Section]) -> list[Change]:
    """The parts of the step that moved the same way, largest first; computation by what its kernels do."""
    by_id = {section.id: section.changes for section in sections}
    parts = [one for one in by_id.get("causes", []) if one.difference * difference > 0]
    computing = next((one for one in parts if one.key == "computing"), None)
    if computing is not None:
        classes = [one for one in by_id.get("classes", []) if one.key not in ("communication", "copy")]
        same = [one for one in classes if one.difference * difference > 0]
        parts = [one for one in parts if one is not computing] + (same or [computing])
    least = _LEAST_PART * abs(difference)
    large = [one for one in parts if abs(one.difference) >= least and one.significance != "noise"]
    return sorted(large, key=lambda one: -abs(one.difference))[:_MOST]


def _signed(change: Change) -> str:
    return f"{change.name} {change.difference:+.3g} {change.unit}"

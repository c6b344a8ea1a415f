"""Adds to a finding what its process recorded about place and time: the lines around it, and the wall clock."""

from __future__ import annotations

import math
import textwrap
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script.candidates import dropped
from tracelyze.analyzers.script.editing import own_comments, own_names, trainer_examples, unknown_names
from tracelyze.analyzers.script.recorded_text import excerpt_of
from tracelyze.analyzers.script.settings import constants, framework_arguments, own_arguments
from tracelyze.diagnosis import Diff, Finding, Location, Setting
from tracelyze.formatting import capitalized

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Rule


LONGEST_TITLE: Final = 90
"""Characters: a title fits one line of a ticket's list. Names of the user's own may be of any length."""


def completed(finding: Finding, process: Process, rule: Rule) -> Finding:
    """The finding with what its rule says of all its findings, at the line that sets what it asks to change, with its
    excerpt, its example in the program's own names, and the wall time of its onset."""
    finding = dropped.at_its_line(finding, process)
    place = framework_arguments.in_place_of(finding.location, process, rule.settings)
    if place != finding.location:
        finding = replace(finding, location=place, seen_at=finding.seen_at or finding.location)
        finding = replace(finding, setting=finding.setting or Setting(rule.settings, ()))
    finding = framework_arguments.with_edit(finding, process, rule.settings)
    finding = constants.at_its_constant(finding, process, rule.settings)
    finding = _at_its_edit(own_arguments.at_its_argument(finding, process))
    second = finding.first_second if finding.first_second is not None else _end_of_first_step(finding, process)
    excerpt = finding.excerpt or (excerpt_of(process, finding.location) if finding.location else None)
    return replace(
        finding,
        excerpt=excerpt,
        fix=trainer_examples.above_epochs(finding.fix, process),
        fix_code=_example(finding, process),
        diff=narrowed(finding.diff),
        seen_at=_elsewhere(finding.seen_at, finding.location),
        first_second=second,
        first_at=finding.first_at or wall_time(process, second),
        verify=finding.verify or rule.verify,
        excluded=finding.excluded or (list(rule.excluded) if finding.confidence == "certain" else []),
    )


def _example(finding: Finding, process: Process) -> str:
    """The example in the program's own names; the lines that an edit leaves, where it replaces some: an example with
    other names beside it would be a second proposal."""
    if finding.diff is not None and finding.diff.removed:
        return textwrap.dedent("\n".join(finding.diff.added)).strip("\n")
    code = own_names.in_example(finding.fix_code.strip("\n"), process, finding.location)
    code = own_comments.without(code, process)
    return unknown_names.noted(code, process, finding.location, finding.seen_at)


def _at_its_edit(finding: Finding) -> Finding:
    """The finding at the first line that its edit changes, where it stands at another line of the same statement."""
    place, whole, edit = finding.location, finding.diff, narrowed(finding.diff)
    if place is None or whole is None or edit is None or place.file != edit.file:
        return finding
    if not _spans(whole, place.line) or _spans(edit, place.line):
        return finding
    return replace(finding, location=replace(place, line=edit.line, source=edit.removed[0].strip()), excerpt=None)


def _spans(edit: Diff, line: int) -> bool:
    return edit.line <= line < edit.line + len(edit.removed)


def narrowed(diff: Diff | None) -> Diff | None:
    """The edit without the lines at its ends that stay as they are, such as those of a long statement of which one
    argument changes. One of them stays where nothing else would be removed, to show where the added lines go."""
    if diff is None or len(diff.removed) < 2:
        return diff
    removed, added = diff.removed, diff.added
    before = _alike(removed, added)
    after = _alike(removed[before:][::-1], added[before:][::-1])
    if before + after == len(removed):
        before, after = (before - 1, after) if before else (before, after - 1)
    return replace(
        diff,
        line=diff.line + before,
        removed=removed[before : len(removed) - after],
        added=added[before : len(added) - after],
    )


def _alike(some: list[str], others: list[str]) -> int:
    """How many lines both begin with."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(some), len(others)))


def _end_of_first_step(finding: Finding, process: Process) -> float | None:
    """When a finding's first step ended on the run's clock; None where that was not recorded, or the number is that of
    no step. Of several trainings the number may be that of any, or count the steps of all."""
    if finding.first_step is None or not len(process.steps):
        return None
    own = [one for one in process.trainings if finding.trainings == [one.training]]
    if len(process.trainings) > 1 and not own:
        return None
    steps = (own or [process])[0].steps
    rows = np.flatnonzero(steps["step"] == finding.first_step)
    value = float(steps["time"][rows[0]]) if len(rows) else math.nan
    return value if math.isfinite(value) else None


def _elsewhere(seen: Location | None, change: Location | None) -> Location | None:
    """Where the harm was seen, if that is not the line to change."""
    same = seen is not None and change is not None and seen.file_line == change.file_line
    return None if same or change is None else seen


def fitted(title: str) -> str:
    """The title within its length: without what follows a colon where that says enough, else cut after a word."""
    return cut_to(title, LONGEST_TITLE)


def cut_to(title: str, most: int) -> str:
    """The title within so many characters."""
    if len(title) <= most:
        return title
    told = title[: most + 1].rpartition(": ")[0]
    if len(told) >= LONGEST_TITLE // 3:
        return told
    return title[: most - 1].rpartition(" ")[0].rstrip(",;: ") + " …"


def sentence(reason: str) -> str:
    """A clause as a sentence: with a capital, unless it begins with a name from code, and a full stop."""
    first = reason.partition(" ")[0]
    plain = first.isalpha() and (first.islower() or len(first) == 1)
    text = capitalized(reason) if plain else reason
    return text if text.endswith((".", "?", "!", "…")) or not text else f"{text}."


def wall_time(process: Process, seconds: float | None) -> str | None:
    """When it was `seconds` on the process's clock: ISO 8601 in UTC, to the second."""
    clock = process.facts.get("clock")
    zero = clock.get("zero") if isinstance(clock, dict) else None
    if seconds is None or not isinstance(zero, int | float):
        return None
    try:
        return datetime.fromtimestamp(zero + seconds, UTC).isoformat(timespec="seconds")
    except (OverflowError, OSError, ValueError):  # a damaged manifest may hold any number
        return None

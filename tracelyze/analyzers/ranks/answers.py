"""The reduction, rule by rule: what one rule said of all processes becomes one answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracelyze.analyzers.merging import MAX_CHARTS, gravity, lightened, merge
from tracelyze.analyzers.rule import Outcome, Passed, Skipped, together

if TYPE_CHECKING:
    from tracelyze.analyzers.ranks.summary import Found
    from tracelyze.diagnosis import Chart, Finding


@dataclass
class Answers:
    """What one rule said about the processes of a run."""

    found: list[Found] = field(default_factory=list)
    passed: int = 0
    first_passed: tuple[str, str] = ("", "")
    skipped: Skipped | None = None
    failed: Skipped | None = None

    def add(self, found: Sequence[Found], passed: Sequence[tuple[str, str]], skipped: Sequence[Skipped]) -> None:
        """What it said of one process."""
        if passed and not self.passed:
            self.first_passed = passed[0]
        self.passed += len(passed)
        self.skipped = self.skipped or next(iter(skipped), None)
        self.failed = self.failed or next((one for one in skipped if one.traceback), None)
        if not found:
            return
        together = [*self.found, *found]
        light = lightened([one.finding for one in together])
        self.found = [replace(one, finding=finding) for one, finding in zip(together, light, strict=True)]

    def outcome(self, nothing: str | None, draw: Callable[[Found], list[Chart]]) -> Outcome:
        """One answer for all processes: a finding, else that it failed for one of them, else what passed, else why not.

        `nothing`: why nobody trained. `draw`: the charts of a finding that come without them.
        """
        if self.found:
            return merge(self._drawn(draw))
        if self.failed is not None:
            return self.failed  # nothing is known of that process: to have passed on the others is not to have passed
        if self.passed:
            (where, reason), others = self.first_passed, self.passed - 1
            elsewhere = (
                f" ({where}; {'another one' if others == 1 else f'{others} others'} passed too)" if others else ""
            )
            return Passed(reason + elsewhere)
        if nothing or self.skipped is None:
            return Skipped(nothing or "the run holds no process")
        return together([self.skipped]) if self.skipped.why == "needs-more" else self.skipped

    def _drawn(self, draw: Callable[[Found], list[Chart]]) -> list[Finding]:
        """The findings, with the charts that :func:`merge` takes of them."""
        order = sorted(range(len(self.found)), key=lambda index: gravity(self.found[index].finding))
        findings = [one.finding for one in self.found]
        most, drawn = max(MAX_CHARTS, self.found[order[0]].drawn), 0
        for index in order:
            if drawn >= most:
                break
            one = self.found[index]
            if one.drawn and not one.finding.charts:
                findings[index] = replace(one.finding, charts=draw(one))
            drawn += one.drawn
        return findings

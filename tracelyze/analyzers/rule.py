"""What a diagnosis is made of: a declaration, its thresholds with their sources, and a check.

A rule's check looks at one process of the run and answers with findings, with :class:`Passed`, or with
:class:`Skipped`. It never guesses over missing data and never writes HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze.diagnosis import Finding, Severity

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


@dataclass(frozen=True)
class Threshold:
    """A number that a rule compares with. `source` says where it comes from: a paper, a derivation, a measurement."""

    name: str
    default: float
    unit: str
    source: str


class Limits(Mapping[str, float]):
    """The thresholds of one rule as numbers by name: defaults, overridden by the configuration."""

    def __init__(self, thresholds: tuple[Threshold, ...], overrides: Mapping[str, float] | None = None) -> None:
        self._declared = {threshold.name: threshold for threshold in thresholds}
        self._values = {threshold.name: threshold.default for threshold in thresholds} | dict(overrides or {})

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def source(self, name: str) -> str:
        """Where the number comes from; says so when the user's configuration set it."""
        declared = self._declared[name]
        return declared.source if self._values[name] == declared.default else "set in the configuration"


@dataclass(frozen=True)
class Passed:
    """The rule looked and found nothing. `reason` is a sentence with the numbers it looked at."""

    reason: str


@dataclass(frozen=True)
class Skipped:
    """The rule could not be evaluated. `reason` names the signal that the run lacks, and why where known."""

    reason: str


Outcome = list[Finding] | Passed | Skipped
OneOutcome = Finding | Passed | Skipped
CheckFunction = Callable[["Process", Limits], Outcome]


@dataclass(frozen=True)
class Rule:
    """One diagnosis of the catalogue.

    A process that made several trainings (a sweep, folds) is judged training by training, unless the rule looks at the
    `whole_process`. `needs`: alternatives of columns ("steps.loss"); the rule is skipped, with the reason, when the run
    holds none of the alternatives completely. `consequence_of`: rules whose finding explains this one if it began no
    later.
    """

    id: str
    family: str
    severity: Severity
    title: str
    about: str
    check: CheckFunction
    needs: tuple[tuple[str, ...], ...] = ()
    thresholds: tuple[Threshold, ...] = ()
    consequence_of: tuple[str, ...] = ()
    not_when: str = ""
    references: tuple[str, ...] = ()
    whole_process: bool = False


def combine(outcomes: Iterable[OneOutcome]) -> Outcome:
    """One answer for a process from those for its trainings: findings, else what passed, else why it was skipped."""
    answers = list(outcomes)
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    if findings:
        return findings
    passed = [answer.reason for answer in answers if isinstance(answer, Passed)]
    if passed:
        return Passed("; ".join(dict.fromkeys(passed)))
    skipped = [answer.reason for answer in answers if isinstance(answer, Skipped)]
    return Skipped("; ".join(dict.fromkeys(skipped)) or "no optimizer took a step")

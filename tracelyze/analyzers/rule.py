"""What a diagnosis is made of: a declaration, its thresholds with their sources, and a check.

A rule's check looks at one process of the run and answers with findings, with :class:`Passed`, or with
:class:`Skipped`. It never guesses over missing data and never writes HTML.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from typing import TYPE_CHECKING, Any, Final, Literal

from tracelyze.diagnosis import Finding, Severity, Why

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process


Family = Literal[
    "gradients",
    "loss",
    "model",
    "fine-tuning",
    "reinforcement",
    "evaluation",
    "precision",
    "memory",
    "data",
    "distributed",
    "checkpoints",
    "throughput",
    "end of run",
]
"""The heading under which the catalogue lists a diagnosis. Nothing is decided by it."""


ASKED_FOR: Final = {"probe": "--probe"}
"""Signals that an option of `tracelyze collect` of their own switches on."""


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
        self._declared = thresholds
        self._values = {threshold.name: threshold.default for threshold in thresholds} | dict(overrides or {})

    def __getitem__(self, name: str) -> float:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def against(self, name: str) -> tuple[float, str]:
        """What a number was held against and why that, as the last two parts of an Evidence."""
        return self[name], self.source(name)

    def source(self, name: str) -> str:
        """Where the number comes from; says so when the user's configuration set it."""
        declared = next(threshold for threshold in self._declared if threshold.name == name)
        return declared.source if self._values[name] == declared.default else "set in the configuration"


@dataclass(frozen=True)
class Passed:
    """The rule looked and found nothing. `reason` is a sentence with the numbers it looked at."""

    reason: str


@dataclass(frozen=True)
class Skipped:
    """The rule could not be evaluated. `reason` is a sentence for the user that says what is missing.

    `why`: "not-applicable" where the run does not do what the rule is about (no GradScaler, one rank), "needs-more"
    where more has to be recorded, or the run has to be longer. `record`: options of `tracelyze collect` that record it.
    `traceback`: of the rule, where it raised.
    """

    reason: str
    why: Why = "needs-more"
    record: str = ""
    traceback: str = ""


Outcome = list[Finding] | Passed | Skipped
OneOutcome = Finding | Passed | Skipped
CheckFunction = Callable[["Process", Limits], Outcome]


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """What a diagnosis of the catalogue says of itself, whether recorded runs or profiler traces show it.

    `consequence_of`: only for rules from outside, rules whose finding explains this one if it began no later; those of
    the catalogue stand in `consequences`. `verify`: how to see that the repair worked; findings take it over.
    `about_the_end`: it says how the program ended, nothing of how it trained. It is asked of attempts that a launcher
    restarted as well, and a run of which only such rules could look at anything is unknown.
    """

    id: str
    family: Family
    severity: Severity
    title: str
    about: str
    thresholds: tuple[Threshold, ...] = ()
    consequence_of: tuple[str, ...] = ()
    not_when: str = ""
    references: tuple[str, ...] = ()
    verify: str = ""
    about_the_end: bool = False


@dataclass(frozen=True, kw_only=True)
class Rule(Declaration):
    """One diagnosis, as recorded runs show it.

    A process that made several trainings (a sweep, folds) is judged training by training, unless the rule looks at the
    `whole_process`, or needs what is recorded of it alone; with `each_training` it knows how to part that by itself.
    `gather`: of a rule that compares ranks, what it needs to know of each, in some kilobytes that can
    be sent; its check then runs once, on the lowest rank that has something, with all of it in `process.peers`.
    `asks_peers`: what it says of a process that died depends on the others, which are in `process.peers` as well.
    `needs`: alternatives of columns ("steps.loss"); the rule is skipped, with the reason, when the run holds none of
    the alternatives completely. `absent`: what to say where the run does nothing of the kind that the rule is about.
    `excluded`: the healthy explanations that the check rules out; findings take them over if they are certain.
    `settings`: arguments of frameworks that hold what the fix changes, named in the collector's named_arguments.py.
    """

    check: CheckFunction
    gather: Callable[[Process], Any] | None = None
    asks_peers: bool = False
    needs: tuple[tuple[str, ...], ...] = ()
    whole_process: bool = False
    each_training: bool = False
    excluded: tuple[str, ...] = ()
    absent: str = ""
    settings: tuple[str, ...] = ()

    @cached_property
    def defaults(self) -> Limits:
        """Its thresholds where nothing is configured."""
        return Limits(self.thresholds)

    @cached_property
    def needed(self) -> tuple[tuple[tuple[str, str], ...], ...]:
        """What it needs, each column as its table and its name."""
        return tuple(
            tuple((table, column) for table, _, column in (need.partition(".") for need in alternative))
            for alternative in self.needs
        )

    @cached_property
    def judges_whole(self) -> bool:
        """Whether it judges a process as a whole: what it needs is not recorded for each training."""
        tables = {table for alternative in self.needed for table, _ in alternative}
        parted = self.each_training or (bool(tables) and tables <= {"steps", "evals", "references"})
        return self.whole_process or not parted


ALWAYS = ("loaders", "models")
"""Tables that every recording of the collector has, whatever its signals: empty ones say that there was nothing."""


UNSEEN_INSIDE = ("loss_calls.", "loss_graphs.", "activations.", "parameters.", "steps.grad")
INSIDE = "torch.func computes losses or gradients of this run, and what happens inside it is hardly looked at"


def missing(process: Process, column: str, absent: str = "") -> Skipped:
    """The answer where the run holds nothing for `column` ("steps.grad_norm").

    A signal that was on and saw nothing means that the run does not do such a thing. One that was off, or that the run
    does not know, means that a new recording is needed.
    """
    reason, signal = process.lacks(column), process.signal_of(column)
    if signal is None:
        always = bool(process.signals) and column.partition(".")[0] in ALWAYS
        return Skipped(absent or reason, "not-applicable") if always else Skipped(reason)
    name, state = signal
    return (
        Skipped(reason, record=ASKED_FOR.get(name, f"--signal {name}=on"))
        if state.get("reason")
        else Skipped(INSIDE)
        if column.startswith(UNSEEN_INSIDE) and process.uses_transforms
        else Skipped(absent or reason, "not-applicable")
    )


def failed(error: Exception) -> Skipped:
    """The answer of a rule that raised: one that fails must not hide what the others found."""
    return Skipped(
        f"the rule itself failed: {type(error).__name__}: {error}",
        traceback="".join(traceback.format_exception(error)),
    )


def combine(outcomes: Iterable[OneOutcome]) -> Outcome:
    """One answer for a process from those for its trainings: findings, else what passed, else why it was skipped."""
    answers = list(outcomes)
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    if findings:
        return findings
    passed = [answer.reason for answer in answers if isinstance(answer, Passed)]
    if passed:
        return Passed("; ".join(dict.fromkeys(passed)))
    return together([answer for answer in answers if isinstance(answer, Skipped)])


def each_optimization(check: Callable[[Optimization, Limits], OneOutcome]) -> CheckFunction:
    """The check of a process that asks `check` of each of its optimizations, and combines the answers.

    A step has its time and its training from the optimization that the answer is about: others have a step of the same
    number.
    """

    @wraps(check)
    def combined(process: Process, limits: Limits) -> Outcome:
        return combine(_placed(check(optimization, limits), optimization) for optimization in process.optimizations)

    return combined


def _placed(answer: OneOutcome, optimization: Optimization) -> OneOutcome:
    if not isinstance(answer, Finding):
        return answer
    training = optimization.process.training_of(optimization.optimizer)
    answer = replace(answer, trainings=answer.trainings or ([training] if training else []))
    if answer.first_step is None or answer.first_second is not None:
        return answer
    return replace(answer, first_second=optimization.ended(answer.first_step))


def together(skipped: Sequence[Skipped]) -> Skipped:
    """One answer for several that were skipped: what needs more counts before what does not apply."""
    needing = [one for one in skipped if one.why == "needs-more"] or list(skipped)
    if not needing:
        return Skipped("no optimizer took a step")
    reasons = "; ".join(dict.fromkeys(one.reason for one in needing))
    record = next((one.record for one in needing if one.record), "")
    return Skipped(reasons, needing[0].why, record, next((one.traceback for one in needing if one.traceback), ""))

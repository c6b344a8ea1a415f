"""The map: what the rules say of one process, small enough to be sent and kept for a thousand ranks.

Charts stay behind where there are many processes (`Plan.charts`): they are drawn again for the few findings that a
report shows, see :mod:`tracelyze.analyzers.ranks.answers`.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers import causality, context, naming, overview, several
from tracelyze.analyzers.computed.schedules import range_tests
from tracelyze.analyzers.evidence import epochs
from tracelyze.analyzers.ranks import agreement
from tracelyze.analyzers.recorded import clocks, run_directory
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, failed, missing
from tracelyze.diagnosis import Exit, Finding
from tracelyze.errors import InputError

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

LONG: Final = 300_000  # steps above which columns are read anew for every rule, to keep a long run within 500 MB


@dataclass(frozen=True)
class Plan:
    """What every process is judged by. `given`: rules in the place of the catalogue; without them it can be sent.

    `threaded`: process ids of programs in which several threads trained. `charts`: findings keep their charts.
    `strict`: what a rule raises is raised.
    """

    rules: tuple[str, ...]
    thresholds: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    threaded: frozenset[Any] = frozenset()
    charts: bool = True
    strict: bool = False
    given: tuple[Rule, ...] | None = None

    def chosen(self) -> Sequence[Rule]:
        """The rules by which to judge, in the order of the catalogue."""
        from tracelyze.analyzers import extensions

        if self.given is None:
            return extensions.rules_of(self.rules)
        return [rule for rule in self.given if rule.id in self.rules]

    def limits(self, rule: Rule) -> Limits:
        """The rule's thresholds."""
        configured = self.thresholds.get(rule.id)
        return Limits(rule.thresholds, configured) if configured else rule.defaults


@dataclass(frozen=True)
class Found:
    """A finding, and where it comes from: the process, which of its trainings, its place among the rule's findings.

    `drawn`: how many charts it has, whether or not they were kept.
    """

    finding: Finding
    process: str
    training: int = 0
    place: int = 0
    drawn: int = 0


@dataclass(kw_only=True)
class Summary:
    """What is known of one process after it was judged. `gathered`: what rules that compare ranks need of it."""

    name: str
    rank: int
    attempt: int
    thread: int
    exit: Exit
    notes: list[str]
    facts: overview.ProcessFacts
    pid: Any
    launcher: Any
    rows: int
    ends: clocks.Ends | None = None
    windows: list[dict[str, Any]] = field(default_factory=list)
    passed: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    skipped: dict[str, list[Skipped]] = field(default_factory=dict)
    found: dict[str, list[Found]] = field(default_factory=dict)
    gathered: dict[str, Any] = field(default_factory=dict)
    portrait: agreement.Portrait | None = None

    def add(self, rule: Rule, outcome: Outcome, training: Process, index: int, plan: Plan) -> None:
        """What a rule said of the process, or of its training number `index`."""
        found, passed, skipped = split_outcome(outcome, training, index, plan)
        if found:
            self.found.setdefault(rule.id, []).extend(found)
        if passed:
            self.passed.setdefault(rule.id, []).extend(passed)
        if skipped:
            self.skipped.setdefault(rule.id, []).extend(skipped)

    def packed(self) -> bytes:
        """The summary to be sent, see :func:`unpacked`."""
        packer = zlib.compressobj(9, zdict=_known_words())
        return packer.compress(pickle.dumps(self, protocol=pickle.HIGHEST_PROTOCOL)) + packer.flush()


def split_outcome(
    outcome: Outcome, training: Process, index: int, plan: Plan
) -> tuple[list[Found], list[tuple[str, str]], list[Skipped]]:
    """The findings of an answer, where and why it passed, or what it was skipped for."""
    if isinstance(outcome, Passed):
        return [], [(naming.of(training, plan.threaded) or f"rank {training.rank}", outcome.reason)], []
    if isinstance(outcome, Skipped):
        return [], [], [outcome]
    placed = enumerate(outcome)
    return [Found(finding, training.name, index, place, len(finding.charts)) for place, finding in placed], [], []


def unpacked(data: bytes) -> Summary:
    """The summary that was packed by a process of our own."""
    unpacker = zlib.decompressobj(zdict=_known_words())
    found: Summary = pickle.loads(unpacker.decompress(data))  # noqa: S301  # of our own process
    return found


@cache
def _known_words() -> bytes:
    """What summaries hold most: ids and reasons of rules. Both sides know it, so that it need not be sent."""
    from tracelyze.analyzers.rules import RULES

    return "\n".join(f"{rule.id} {rule.absent}" for rule in RULES).encode()[-32_768:]


@dataclass(frozen=True)
class Task:
    """One process folder to be judged. `ended_only`: a restarted one, of which only its end is of interest."""

    folder: str
    plan: Plan
    ended_only: bool = False


def judge_folder(task: Task) -> bytes:
    """The packed summary of one process folder: pure and picklable, for the map of any engine."""
    return judge(run_directory.process(Path(task.folder)), task.plan, task.ended_only).packed()


def judge(process: Process, plan: Plan, ended_only: bool = False) -> Summary:
    """What the rules that judge a process by itself say of it, and what the others need to know of it."""
    summary = Summary(
        name=process.name,
        rank=process.rank,
        attempt=process.attempt,
        thread=process.thread,
        exit=process.exit,
        notes=list(process.notes),
        facts=overview.facts_of(process),
        pid=process.facts.get("pid"),
        launcher=process.facts.get("launcher"),
        rows=len(process.steps),
    )
    trials = range_tests.before_others(process.trainings)
    for rule in plan.chosen():
        if ended_only and not rule.about_the_end:
            continue
        if rule.asks_peers and summary.facts.death is not None and not ended_only:
            continue
        if rule.gather is not None:
            gathered = _gathered(rule, process, plan.strict)
            if gathered is not None:
                summary.gathered[rule.id] = gathered
            continue
        if rule.judges_whole:
            summary.add(rule, outcome_of(rule, process, plan), process, 0, plan)
            continue
        for index, training in enumerate(process.trainings):
            outcome = Skipped(range_tests.SAID, "not-applicable") if trials[index] else outcome_of(rule, training, plan)
            summary.add(rule, outcome, training, index, plan)
        if len(process.steps) > LONG:
            process.forget()
    if not ended_only:
        summary.ends = clocks.ends_of(process)
        summary.windows = process.windows
        summary.portrait = agreement.portrait_of(process)
        summary.facts.trainings = several.trainings_of(process, plan.threaded)
    if not plan.charts:
        for rule_id, found in summary.found.items():
            summary.found[rule_id] = [replace(one, finding=replace(one.finding, charts=[])) for one in found]
    process.forget()
    return summary


def outcome_of(rule: Rule, training: Process, plan: Plan) -> Outcome:
    """What one rule says of a process or of one of its trainings, findings completed by what was recorded there."""
    outcome = run_check(rule, training, plan.limits(rule), plan.strict)
    if not isinstance(outcome, list):
        return outcome
    completed = (causality.on_rank(context.completed(finding, training, rule), training.rank) for finding in outcome)
    return [epochs.worded(naming.in_process(one, training, plan.threaded), training) for one in completed]


def run_check(rule: Rule, process: Process, limits: Limits, strict: bool = False) -> Outcome:
    """One rule on one process. A rule that raises is skipped and says so; InputError (a bad file) passes through.

    `strict`: whatever a rule raises passes through.
    """
    lacking = _lacking(rule, process)
    if lacking is not None:
        return lacking
    try:
        return rule.check(process, limits)
    except InputError:
        raise
    except Exception as error:
        if strict:
            raise
        return failed(error)


def _gathered(rule: Rule, process: Process, strict: bool) -> Any:
    """What a rule that compares ranks takes from this one; None where it has nothing, or fails."""
    assert rule.gather is not None
    if _lacking(rule, process) is not None:
        return None
    try:
        return rule.gather(process)
    except InputError:
        raise
    except Exception:
        if strict:
            raise
        return None  # the rule will find too little to compare, and say so


def _lacking(rule: Rule, process: Process) -> Skipped | None:
    """Why none of the alternatives that the rule needs is complete, or None if one is."""
    if rule.needed and len(process.steps) == 0 and any(table == "steps" for table, _ in rule.needed[0]):
        return Skipped("no optimizer took a step in this process")
    first: Skipped | None = None
    for alternative in rule.needed:
        absent = next((place for place in alternative if not process.tables[place[0]].has(place[1])), None)
        if absent is None:
            return None
        first = first or missing(process, ".".join(absent), rule.absent)
    return first

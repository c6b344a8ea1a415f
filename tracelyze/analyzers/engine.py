"""Judges every process of a run by itself and puts the answers together: one diagnosis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers import causality, context, extensions, overview, selection, surroundings
from tracelyze.analyzers.ranks import agreement, attempts, cores, ends
from tracelyze.analyzers.ranks.answers import Answers
from tracelyze.analyzers.ranks.source import Head, InMemory, OnDisk, Source
from tracelyze.analyzers.ranks.summary import (
    Found,
    Plan,
    Summary,
    Task,
    judge,
    judge_folder,
    outcome_of,
    run_check,
    split_outcome,
    unpacked,
)
from tracelyze.analyzers.recorded import clocks
from tracelyze.analyzers.recorded.run import Peer, Process, Run
from tracelyze.analyzers.rule import Outcome, Rule, Skipped, together
from tracelyze.diagnosis import Chart, Diagnosis, Finding
from tracelyze.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from tracelyze.analyzers.kineto.rule import TraceRule
    from tracelyze.diagnosis import Picture, Verdict
    from tracelyze.schema.outside import Beside

__all__ = ["Mapper", "diagnose", "run_check"]

COURSE: Final = frozenset(
    ("steps.grad_norm", "steps.grads_nonfinite", "parameters.grad_norm", "parameters.update_norm")
)
"""Columns that say how a training went, other than its loss: a check of one of them has followed it."""
FEW: Final = 16  # processes of which the charts are kept; of more they would take more room than all else

Mapper = Callable[[Callable[[Task], bytes], "Sequence[Task]"], Iterable[bytes]]
"""A function and what to call it with, to the answers in order: `map`, or that of a cluster."""


def diagnose(
    run: Run | Path | str,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    rules: Sequence[Rule] | None = None,
    picture: bool = False,
    beside: Sequence[Beside] = (),
    workers: int | None = None,
    mapper: Mapper | None = None,
    strict: bool = False,
) -> Diagnosis:
    """What is wrong with `run`, a loaded run or its directory.

    `select` limits the diagnosis to these rule ids, `ignore` leaves some out; `thresholds` overrides a rule's numbers
    by name; `rules` takes the catalogue's place. `picture`: with the timelines and tables of profiled steps, which only
    a page shows. `beside`: what other logs and dumps of stacks say of the job. `workers`: processes that share the
    folders of a large run, by default as many as it is worth; `mapper`: has them judged elsewhere. `strict`: what a
    rule raises is raised, as its tests want it, and the rule not skipped. Every remaining rule ends in one check, those
    that need profiler traces included. InputError for an unreadable run, an unknown rule or threshold.
    """
    from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES

    traced = TRACE_RULES if rules is None else ()
    known = extensions.all_rules() if rules is None else rules
    selection.must_be_known(select, ignore, thresholds or {}, (*known, *traced))
    chosen = [rule for rule in known if selection.wanted(rule.id, select, ignore)]
    extra = [rule for rule in traced if selection.wanted(rule.id, select, ignore)]
    source: Source = InMemory(run) if isinstance(run, Run) else OnDisk(Path(run))
    plan = Plan(
        tuple(rule.id for rule in chosen),
        {rule.id: dict((thresholds or {}).get(rule.id, {})) for rule in chosen},
        frozenset(head.pid for head in source.heads if head.thread > 1),
        charts=len(source.heads) <= FEW,
        strict=strict,
        given=None if rules is None else tuple(rules),
    )
    judged = _Reduction(source, plan)
    judged.read(_judge_all(source, plan, workers, mapper))
    outcomes = judged.outcomes(chosen)
    profiled = judged.windows.judge([rule.id for rule in extra], thresholds or {}, judged.nothing)
    if beside:
        judged.notes += surroundings.join(outcomes, judged.peers, source.manifest, beside)
    checked: list[Rule | TraceRule] = [*chosen, *(rule for rule in extra if rule.id not in judged.answers)]
    diagnosis = _put_together(judged, checked, _with_profiled(outcomes, profiled), picture=picture)
    if rules is None:
        diagnosis.run.notes.extend(extensions.problems())
    return diagnosis


def _judge_all(source: Source, plan: Plan, workers: int | None, mapper: Mapper | None) -> Iterator[Summary]:
    """The summaries of all processes, in order."""
    last, earlier = attempts.split(source.heads)
    ended = {head.name for attempt in earlier for head in attempt}
    if not isinstance(source, OnDisk) or plan.given is not None:
        return (judge(source.open(head), plan, head.name in ended) for head in source.heads)
    tasks = [Task(str(source.path / head.name), plan, head.name in ended) for head in source.heads]
    if mapper is None:
        mapper = partial(cores.shared, workers=workers, work=sum(head.bytes for head in last))
    return map(unpacked, mapper(judge_folder, tasks))


class _Reduction:
    """What the summaries of all processes say together. First `read` them, then ask for `outcomes`, then `windows`."""

    def __init__(self, source: Source, plan: Plan) -> None:
        from tracelyze.analyzers.windows import Windows

        self.source, self.plan = source, plan
        self.facts, self.windows = overview.Facts(), Windows()
        self.answers = {rule.id: Answers() for rule in plan.chosen()}
        self.ends: list[clocks.Ends] = []
        self.portraits: list[agreement.RankFacts] = []
        self.notes: list[str] = []
        self.nothing: str | None = None
        self._peers: list[tuple[Head, Peer]] = []
        self._longest: Head | None = None
        self._heads: dict[str, Head] = {}

    def read(self, summaries: Iterable[Summary]) -> None:
        """Take in all summaries, which come in the order of the heads."""
        _last, earlier = attempts.split(self.source.heads)
        attempt_of = {head.name: index for index, attempt in enumerate(earlier) for head in attempt}
        restarted: list[list[Summary]] = [[] for _ in earlier]
        notes: list[str] = []
        for head, summary in zip(self.source.heads, summaries, strict=True):
            self._heads[head.name] = head
            summary.found = {
                rule: [replace(one, process=head.name) for one in found] for rule, found in summary.found.items()
            }
            if head.name in attempt_of:
                restarted[attempt_of[head.name]].append(summary)
                continue
            notes += summary.notes
            self._add(head, summary)
        for attempt in restarted:
            for rule, found in attempts.deaths(attempt).items():
                if not self.answers[rule].found:  # what ended the last attempt matters more
                    self.answers[rule].add(found, (), ())
        self.notes = [*self.source.notes(notes, bool(earlier)), *map(attempts.note, restarted)]
        self.nothing = self.facts.why_nothing(self.notes)
        if self._longest is not None:
            self.facts.drawn = overview.pictures_of(self.source.open(self._longest))

    def _add(self, head: Head, summary: Summary) -> None:
        for rule, answers in self.answers.items():
            answers.add(summary.found.get(rule, ()), summary.passed.get(rule, ()), summary.skipped.get(rule, ()))
        if self.facts.add(summary.facts):
            self._longest = head
        self.windows.add(summary, self.source.path)
        if summary.ends is not None:
            self.ends.append(summary.ends)
        opened = partial(self.source.open, head)
        peer = Peer(
            name=summary.name,
            rank=summary.rank,
            attempt=summary.attempt,
            thread=summary.thread,
            pid=summary.pid,
            launcher=summary.launcher,
            steps=summary.facts.steps,
            death=summary.facts.death,
            gathered=summary.gathered,
            open=opened,
        )
        self._peers.append((head, peer))
        if summary.portrait is not None:
            known = agreement.RankFacts(summary.rank, summary.gathered, summary.facts.environment, summary.portrait)
            self.portraits.append(known)

    @property
    def peers(self) -> list[Peer]:
        """The processes of the last attempt."""
        return [peer for _, peer in self._peers]

    def outcomes(self, rules: Sequence[Rule]) -> dict[str, Outcome]:
        """One answer of each rule. Those that compare ranks are asked now, of the lowest rank that has something."""
        gathering: dict[Head, list[Rule]] = {}
        for rule in rules:
            if rule.gather is not None and self._peers:
                has_it = (head for head, peer in self._peers if rule.id in peer.gathered and peer.thread == 1)
                gathering.setdefault(next(has_it, self._peers[0][0]), []).append(rule)
        for head, asked in gathering.items():  # a process is opened once for all of them
            self._compare(asked, head)
        asking = [rule for rule in rules if rule.asks_peers]
        for head, peer in self._peers if asking else ():
            if peer.death is not None:
                self._compare(asking, head)
        return {rule.id: self.answers[rule.id].outcome(self.nothing, partial(self._draw, rule)) for rule in rules}

    def _compare(self, rules: Sequence[Rule], head: Head) -> None:
        """What these rules say of one process, beside all others."""
        process = self._with_peers(head)
        for rule in rules:
            found, passed, skipped = split_outcome(outcome_of(rule, process, self.plan), process, 0, self.plan)
            self.answers[rule.id].add([replace(one, process=head.name) for one in found], passed, skipped)
        process.forget()

    def _with_peers(self, head: Head) -> Process:
        process = self.source.open(head)
        process.peers = self.peers
        return process

    def _draw(self, rule: Rule, found: Found) -> list[Chart]:
        """The charts of a finding that was sent without them: its process is judged by this rule again."""
        process = self._with_peers(self._heads[found.process])
        training = process if rule.judges_whole else process.trainings[found.training]
        again = outcome_of(rule, training, self.plan)
        process.forget()
        return again[found.place].charts if isinstance(again, list) and found.place < len(again) else []


def _with_profiled(outcomes: Mapping[str, Outcome], profiled: Mapping[str, Outcome]) -> dict[str, Outcome]:
    """The answers of all rules: those on recorded steps, joined by those on profiled ones."""
    from tracelyze.analyzers.windows import joined

    both = {rule: joined(outcomes[rule], seen) if rule in outcomes else seen for rule, seen in profiled.items()}
    return dict(outcomes) | both


def _put_together(
    judged: _Reduction, checked: Sequence[Rule | TraceRule], answers: Mapping[str, Outcome], *, picture: bool
) -> Diagnosis:
    """The diagnosis from the answers of the rules that were asked (`checked`)."""
    source, facts = judged.source, judged.facts
    facts_of_run = facts.run(source.path, source.manifest, judged.notes)
    findings, answers = _explained(checked, answers, facts_of_run.steps)
    command = overview.command_of(source.manifest)
    shown, charts = _pictures(judged, findings, picture)
    verdict, reason = _verdict(judged, checked, answers, findings)
    return Diagnosis(
        replace(facts_of_run, notes=[*facts_of_run.notes, *clocks.notes(judged.ends), *judged.windows.notes]),
        verdict,
        findings,
        [selection.check_of(rule, answers[rule.id], command, facts.imported) for rule in checked],
        charts,
        __version__,
        picture=shown,
        verdict_reason=reason,
        ranks=[*ends.of(facts.died), *agreement.of(judged.portraits)],
    )


def _explained(
    rules: Sequence[Rule | TraceRule], answers: Mapping[str, Outcome], steps: int
) -> tuple[list[Finding], dict[str, Outcome]]:
    """The findings with their causes, in order, and the answers; another name for a certain cause counts as skipped."""
    found = [
        replace(finding, title=context.fitted(finding.title))
        for rule in rules
        for finding in _findings(answers[rule.id])
    ]
    renamed = causality.other_names(found, rules, steps)
    skipped: dict[str, Outcome] = {
        effect: Skipped(f"{cause}, which is certain, explains what it sees: {row.why}", "not-applicable")
        for effect, (cause, row) in renamed.items()
    }
    found = [finding for finding in found if finding.rule not in renamed]
    return causality.order(causality.explain(found, rules, steps)), {**answers, **skipped}


def _verdict(
    judged: _Reduction,
    rules: Sequence[Rule | TraceRule],
    answers: Mapping[str, Outcome],
    findings: list[Finding],
) -> tuple[Verdict, str]:
    """The verdict, and why it is unknown, or why it rests on little."""
    partial = judged.facts.why_partial()
    unknown = (
        judged.facts.why_unknown(judged.notes)
        or _why_unchecked(rules, answers)
        or (partial and _unless_followed(partial, rules, answers))
    )
    verdict = causality.verdict_of(findings, unknown)
    if verdict == "unknown":
        return verdict, unknown
    said = " ".join(filter(None, (partial, judged.facts.why_little())))
    return verdict, said if verdict in ("ok", "info") else ""


def _pictures(judged: _Reduction, findings: Sequence[Finding], picture: bool) -> tuple[Picture | None, list[Chart]]:
    """What a page shows of profiled steps, and all charts that belong to no finding."""
    wanted = picture and judged.windows.found
    shown, profiled = judged.windows.picture() if wanted else (None, [])
    return shown, [*profiled, *judged.facts.charts(findings)]


def _why_unchecked(rules: Sequence[Rule | TraceRule], outcomes: Mapping[str, Outcome]) -> str:
    """Why nothing is known about the training, if only rules on the program's end could look at it; else empty."""
    about = [outcomes[rule.id] for rule in rules if not rule.about_the_end]
    skipped = [outcome for outcome in about if isinstance(outcome, Skipped)]
    if len(skipped) < len(about) or not about:
        return ""
    return f"No check could run: {together(skipped[:1]).reason}."


def _unless_followed(reason: str, rules: Sequence[Rule | TraceRule], outcomes: Mapping[str, Outcome]) -> str:
    """`reason`, if no check that reads the gradients or updates of steps passed or fired; else empty."""
    for rule in rules:
        columns = {column for alternative in getattr(rule, "needs", ()) for column in alternative}
        if columns & COURSE and not isinstance(outcomes[rule.id], Skipped):
            return ""
    return reason


def _findings(outcome: Outcome) -> list[Finding]:
    return outcome if isinstance(outcome, list) else []

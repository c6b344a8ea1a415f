"""Runs every rule on every process of a run and puts the answers together: one diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracelyze.analyzers import attempts, causality, context, naming, overview, selection, several
from tracelyze.analyzers.merging import lightened, merge
from tracelyze.analyzers.recorded import clocks, run_directory
from tracelyze.analyzers.recorded.run import Process, Run
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, missing, together
from tracelyze.analyzers.rules import RULES
from tracelyze.diagnosis import Diagnosis, Finding, verdict_of
from tracelyze.errors import InputError
from tracelyze.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from tracelyze.analyzers.kineto.rule import TraceRule


LONG = 300_000  # steps above which columns are read anew for every rule, to keep a long run within 500 MB


def diagnose(
    run: Run | Path | str,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    rules: Sequence[Rule] | None = None,
    picture: bool = False,
) -> Diagnosis:
    """What is wrong with `run`, a loaded run or its directory.

    `select` limits the diagnosis to these rule ids, `ignore` leaves some out; `thresholds` overrides a rule's numbers
    by name; `rules` takes the catalogue's place. `picture`: with the timelines and tables of profiled steps, which only
    a page shows. Every remaining rule ends in one check, those that only profiler traces can tell included. InputError
    for an unreadable run, an unknown rule or threshold.
    """
    from tracelyze.analyzers.kineto.rules import RULES as TRACE_RULES
    from tracelyze.analyzers.windows import Windows, joined

    traced = TRACE_RULES if rules is None else ()
    rules = RULES if rules is None else rules
    selection.must_be_known(select, ignore, thresholds or {}, (*rules, *traced))
    chosen = [rule for rule in rules if selection.wanted(rule.id, select, ignore)]
    extra = [rule for rule in traced if selection.wanted(rule.id, select, ignore)]
    limits = selection.limits_of(rules, thresholds or {})
    if not isinstance(run, Run):
        run = run_directory.load(run)
    run, restarted = attempts.split(run)
    facts, windows = overview.Facts(), Windows()
    answers = {rule.id: _Answers() for rule in chosen}
    for process in run.processes:
        process.peers = run.processes
        for rule in chosen:
            for part in [process] if _of_whole(rule) else process.parts:
                answers[rule.id].add(rule, part, evaluate(rule, part, limits[rule.id]), naming.of(part, run))
            if len(process.steps) > LONG:
                process.forget()
        facts.add(process)
        facts.trainings += several.trainings_of(process, run)
        windows.add(process, run.path)
        process.forget()
    for rule, process, outcome in attempts.deaths(restarted, chosen, lambda r, p: evaluate(r, p, limits[r.id])):
        if not answers[rule.id].findings:  # what ended the last attempt matters more
            answers[rule.id].add(rule, process, outcome, naming.of(process, run))
    nothing = facts.why_nothing(run)
    command = overview.command_of(run)
    outcomes = {rule.id: answers[rule.id].outcome(nothing) for rule in chosen}
    profiled = windows.judge([rule.id for rule in extra], thresholds or {}, nothing)
    outcomes |= {rule: joined(outcomes[rule], seen) if rule in outcomes else seen for rule, seen in profiled.items()}
    told: list[Rule | TraceRule] = [*chosen, *(rule for rule in extra if rule.id not in answers)]
    checks = [selection.check_of(rule, outcomes[rule.id], command) for rule in told]
    found = [
        replace(finding, title=context.fitted(finding.title))
        for rule in told
        for finding in _findings(outcomes[rule.id])
    ]
    findings = causality.order(causality.explain(found, told))
    charts = facts.charts(findings)
    shown, profiled_charts = windows.picture() if picture and windows.found else (None, [])
    facts_of_run = facts.run(run)
    facts_of_run.notes.extend([*clocks.notes(run), *windows.notes])
    charts = [*profiled_charts, *charts]
    unknown = facts.why_unknown(run) or _why_unchecked(told, outcomes)
    verdict = verdict_of(findings, unknown)
    return Diagnosis(
        facts_of_run,
        verdict,
        findings,
        checks,
        charts,
        __version__,
        picture=shown,
        verdict_reason=unknown if verdict == "unknown" else "",
    )


def _why_unchecked(rules: Sequence[Rule | TraceRule], outcomes: Mapping[str, Outcome]) -> str:
    """Why nothing is known about the training, if only rules on the program's end could look at it; else empty."""
    about = [outcomes[rule.id] for rule in rules if rule.family != "end of run"]
    skipped = [outcome for outcome in about if isinstance(outcome, Skipped)]
    if len(skipped) < len(about) or not about:
        return ""
    return f"No check could run: {together(skipped[:1]).reason}."


def _of_whole(rule: Rule) -> bool:
    """Whether the rule judges a process as a whole: what it needs is not told apart by training."""
    tables = {column.partition(".")[0] for alternative in rule.needs for column in alternative}
    return rule.whole_process or not tables or not tables <= {"steps", "evals"}


def evaluate(rule: Rule, process: Process, limits: Limits) -> Outcome:
    """One rule on one process. A rule that raises is skipped and says so; InputError (a bad file) passes through."""
    lacking = _lacking(rule, process)
    if lacking is not None:
        return lacking
    try:
        return rule.check(process, limits)
    except InputError:
        raise
    except Exception as error:
        return Skipped(f"the rule itself failed: {type(error).__name__}: {error}")


def _lacking(rule: Rule, process: Process) -> Skipped | None:
    """Why none of the alternatives that the rule needs is complete, or None if one is."""
    if rule.needs and len(process.steps) == 0 and any(need.startswith("steps.") for need in rule.needs[0]):
        return Skipped("no optimizer took a step in this process")
    first: Skipped | None = None
    for alternative in rule.needs:
        absent = [name for name in alternative if not _has(process, name)]
        if not absent:
            return None
        first = first or missing(process, absent[0], rule.absent)
    return first


def _has(process: Process, name: str) -> bool:
    table, column = name.split(".")
    return process.tables[table].has(column)


def _findings(outcome: Outcome) -> list[Finding]:
    return outcome if isinstance(outcome, list) else []


@dataclass
class _Answers:
    """What one rule said about the processes of a run."""

    findings: list[Finding] = field(default_factory=list)
    passed: list[tuple[str, str]] = field(default_factory=list)  # where, and the reason
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, rule: Rule, process: Process, outcome: Outcome, name: str) -> None:
        if isinstance(outcome, Passed):
            self.passed.append((name or f"rank {process.rank}", outcome.reason))
        elif isinstance(outcome, Skipped):
            self.skipped.append(outcome)
        else:
            told = [causality.on_rank(context.completed(finding, process, rule), process.rank) for finding in outcome]
            self.findings = lightened([*self.findings, *(naming.named(finding, name) for finding in told)])

    def outcome(self, nothing: str | None) -> Outcome:
        """One answer for all processes: a finding, else what passed, else why not. `nothing`: why nobody trained."""
        if self.findings:
            return merge(self.findings)
        if self.passed:
            where, reason = self.passed[0]
            others = len(self.passed) - 1
            told = f" ({where}; {'another one' if others == 1 else f'{others} others'} passed too)" if others else ""
            return Passed(reason + told)
        if nothing or not self.skipped:
            return Skipped(nothing or "the run holds no process")
        return together(self.skipped[:1]) if self.skipped[0].why == "needs-more" else self.skipped[0]

"""Runs every rule on every process of a run and puts the answers together: one diagnosis."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tracelyze
from tracelyze.analyzers import causality, overview, rundir
from tracelyze.analyzers.merging import merge
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.rules import RULES
from tracelyze.analyzers.run import Process, Run
from tracelyze.diagnosis import Check, Diagnosis, Finding, worst
from tracelyze.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path


def diagnose(
    run: Run | Path | str,
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    rules: Sequence[Rule] = RULES,
) -> Diagnosis:
    """What is wrong with `run`, a loaded run or its directory.

    `select` limits the diagnosis to these rule ids, `ignore` leaves some out; `thresholds` overrides a rule's numbers
    by name. Every remaining rule ends in one check. InputError for an unreadable run, an unknown rule or threshold.
    """
    chosen = _choose(rules, select, ignore)
    limits = _limits(rules, thresholds or {})
    if not isinstance(run, Run):
        run = rundir.load(run)
    facts = overview.Facts()
    answers = {rule.id: _Answers() for rule in chosen}
    for process in run.processes:
        for rule in chosen:
            answers[rule.id].add(process, evaluate(rule, process, limits[rule.id]))
        facts.add(process)
        process.forget()
    checks = [answers[rule.id].check(rule, facts.why_nothing(run)) for rule in chosen]
    found = [finding for rule in chosen for finding in merge(answers[rule.id].findings)]
    findings = causality.order(causality.explain(found, chosen))
    charts = facts.charts(findings)
    return Diagnosis(facts.run(run), worst(findings), findings, checks, charts, tracelyze.__version__)


def evaluate(rule: Rule, process: Process, limits: Limits) -> Outcome:
    """One rule on one process. A rule that raises is skipped and says so; InputError (a bad file) passes through."""
    missing = _missing(rule, process)
    if missing is not None:
        return Skipped(missing)
    try:
        return rule.check(process, limits)
    except InputError:
        raise
    except Exception as error:
        return Skipped(f"the rule itself failed: {type(error).__name__}: {error}")


def _missing(rule: Rule, process: Process) -> str | None:
    """Why none of the alternatives that the rule needs is complete, or None if one is."""
    if rule.needs and len(process.steps) == 0 and any(need.startswith("steps.") for need in rule.needs[0]):
        return "no optimizer took a step in this process"
    first: str | None = None
    for alternative in rule.needs:
        absent = [name for name in alternative if not _has(process, name)]
        if not absent:
            return None
        first = first or process.lacks(absent[0])
    return first


def _has(process: Process, name: str) -> bool:
    table, column = name.split(".")
    return process.tables[table].has(column)


def _choose(rules: Sequence[Rule], select: Collection[str], ignore: Collection[str]) -> list[Rule]:
    known = {rule.id for rule in rules}
    for identifier in (*select, *ignore):
        if identifier not in known:
            raise InputError(f"{identifier}: no such rule; `tracelyze rules` lists them")
    return [rule for rule in rules if (not select or rule.id in select) and rule.id not in ignore]


def _limits(rules: Sequence[Rule], thresholds: Mapping[str, Mapping[str, float]]) -> dict[str, Limits]:
    by_id = {rule.id: rule for rule in rules}
    for identifier, values in thresholds.items():
        if identifier not in by_id:
            raise InputError(f"thresholds for {identifier}: no such rule; `tracelyze rules` lists them")
        names = {threshold.name for threshold in by_id[identifier].thresholds}
        for name in values:
            if name not in names:
                known = ", ".join(sorted(names)) or "none"
                raise InputError(f"{identifier} has no threshold {name!r}; it has: {known}")
    return {rule.id: Limits(rule.thresholds, thresholds.get(rule.id)) for rule in rules}


@dataclass
class _Answers:
    """What one rule said about the processes of a run."""

    findings: list[Finding] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def add(self, process: Process, outcome: Outcome) -> None:
        if isinstance(outcome, Passed):
            self.passed.append(outcome.reason)
        elif isinstance(outcome, Skipped):
            self.skipped.append(outcome.reason)
        else:
            self.findings += [causality.on_rank(finding, process.rank) for finding in outcome]

    def check(self, rule: Rule, nothing: str | None) -> Check:
        if self.findings:
            return Check(rule.id, "fired", merge(self.findings)[0].title, rule.title)
        if self.passed:
            others = f" ({len(self.passed)} processes)" if len(self.passed) > 1 else ""
            return Check(rule.id, "passed", self.passed[0] + others, rule.title)
        reason = nothing or (self.skipped[0] if self.skipped else "the run holds no process")
        return Check(rule.id, "skipped", reason, rule.title)

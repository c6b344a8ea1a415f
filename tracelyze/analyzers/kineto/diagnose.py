"""Turns traces into a diagnosis: one call from files to findings."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracelyze.analyzers import causality, consequences, context, selection
from tracelyze.analyzers.kineto.attribution import collectives
from tracelyze.analyzers.kineto.attribution.attribution import CAUSE_TEXT, CAUSES
from tracelyze.analyzers.kineto.attribution.collectives import Arrivals
from tracelyze.analyzers.kineto.attribution.kernel_names import short
from tracelyze.analyzers.kineto.attribution.summary import TraceSummary, summarise, summarise_trace
from tracelyze.analyzers.kineto.page.pictures import rank_chart, step_chart
from tracelyze.analyzers.kineto.reading.reader import read_trace
from tracelyze.analyzers.kineto.rule import ENOUGH, MICROSECONDS, Job, TraceRule, too_short
from tracelyze.analyzers.kineto.rules import FIND_LATE_RANKS, RULES
from tracelyze.analyzers.kineto.timeline.table import Floats
from tracelyze.analyzers.rule import Limits, Outcome, failed
from tracelyze.diagnosis import Chart, Check, Diagnosis, Exit, Finding, RunFacts
from tracelyze.errors import Cause, InputError
from tracelyze.formatting import capitalized, duration, percent
from tracelyze.version import __version__

if TYPE_CHECKING:
    from tracelyze.analyzers.kineto.page.picture import Painter

IDLE = 0.2  # of the time: a device that is idle for longer never comes without a sentence
MOST_CHARTS = 4
"""Traces whose steps are drawn one by one; of the others the means stand in the chart of the ranks."""


def diagnose_traces(
    paths: Path | str | Sequence[Path | str],
    *,
    select: Collection[str] = (),
    ignore: Collection[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
    picture: bool = False,
) -> Diagnosis:
    """What is wrong with a job, from the profiler's traces of it: files, or folders of them, one per rank and window.

    `select`, `ignore` and `thresholds` as in :func:`tracelyze.analyzers.diagnose`. A selected rule that needs more than
    traces is skipped, with the reason. `picture`: also with the timelines and tables that only a page shows, for which
    the steps that are shown are read a second time. Raises InputError for a path without a trace, and for unknown rules
    or thresholds.
    """
    chosen, elsewhere = _choose(select, ignore)
    named = [paths] if isinstance(paths, (str, Path)) else list(paths)
    painter = _painter() if picture else None
    summaries = summarise(named, painter.keep if painter else None)
    job = as_job(summaries)
    diagnosis = diagnose_job(named, job, chosen, elsewhere, thresholds or {})
    return painted(diagnosis, painter, job) if painter else diagnosis


def painted(diagnosis: Diagnosis, painter: Painter, job: Job) -> Diagnosis:
    """The diagnosis with the picture of the traces; where none can be made, with a note that says why."""
    picture = painter.finish(job.summaries)
    late = next((finding.ranks[0] for finding in diagnosis.findings if finding.rule in FIND_LATE_RANKS), None)
    if late is not None:
        painter.late_rank(job.arrivals, late)
    if painter.problem:
        diagnosis.run.notes.append(painter.problem)
    return replace(diagnosis, picture=picture)


def _painter() -> Painter:
    from tracelyze.analyzers.kineto.page.picture import Painter

    return Painter()


def diagnose_job(
    named: Sequence[Path | str],
    job: Job,
    chosen: Sequence[TraceRule] = RULES,
    elsewhere: Sequence[str] = (),
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
) -> Diagnosis:
    """The diagnosis of a job whose traces, read from `named`, are summed up. `elsewhere`: rules for runs only."""
    limits = selection.limits_of(RULES, thresholds or {})
    findings: list[Finding] = []
    checks: list[Check] = []
    for rule in chosen:
        outcome = run_check(rule, job, limits[rule.id])
        checks.append(selection.check_of(rule, outcome))
        if isinstance(outcome, list):
            findings += [_completed(finding, rule) for finding in outcome]
    needed = "a profiler trace does not show this; it needs a recorded run"
    checks += [Check(name, "skipped", needed, why="needs-more") for name in elsewhere]
    ordered = causality.order(_explained(findings, chosen))
    unknown = _why_unknown(job, checks)
    verdict = causality.verdict_of(ordered, unknown)
    return Diagnosis(
        _facts(named, job),
        verdict,
        ordered,
        checks,
        job_charts(job),
        __version__,
        verdict_reason=unknown if verdict == "unknown" else "",
    )


def _why_unknown(job: Job, checks: Sequence[Check]) -> str:
    """Why the traces say too little, in a sentence: each of them is too short, or no rule could look; else empty."""
    limits = Limits(ENOUGH)
    small = [reason for summary in job.summaries if (reason := too_short(summary, limits))]
    if len(small) == len(job.summaries):
        return f"{capitalized(small[0])}." if small else ""
    skipped = [check.reason for check in checks if check.status == "skipped"]
    return f"No check could run: {skipped[0]}" if checks and len(skipped) == len(checks) else ""


def job_charts(job: Job) -> list[Chart]:
    """Where the time went: the mean step of each rank, if there are several, and the single steps of each trace."""
    ranks = rank_chart(job.summaries, job.waits)
    if ranks and all(len(summary.number) < 2 for summary in job.summaries):
        return [ranks]  # their single bars stand in it
    return [*([ranks] if ranks else []), *list(job.picture.values())[:MOST_CHARTS]]


def judge(
    files: Mapping[Path, int], rules: Collection[str], thresholds: Mapping[str, Mapping[str, float]]
) -> dict[str, Outcome]:
    """The answer of each of `rules` to the traces of one window, one per rank; ids for which there is no rule for
    traces are absent.

    `files`: the rank of each trace, where the trace itself does not hold it. InputError for an unreadable trace.
    """
    summaries = [summarise_trace(read_trace(path), rank) for path, rank in files.items()]
    job = as_job(sorted(summaries, key=lambda summary: summary.rank))
    limits = selection.limits_of(RULES, thresholds)
    return {rule.id: run_check(rule, job, limits[rule.id]) for rule in RULES if rule.id in rules}


def as_job(summaries: list[TraceSummary]) -> Job:
    """The summaries of one job, and the collectives of its ranks matched, window by window."""
    windows = _windows(summaries)
    arrivals: list[Arrivals] = []
    waits: dict[str, Floats] = {}
    for window in windows:
        times = {rank: one.collectives for rank, one in window.items() if one.collectives is not None}
        matched = collectives.match(times) if len(times) > 1 else None
        if matched is None:
            continue
        arrivals.append(matched)
        for rank, one in window.items():
            waited = collectives.waits_of(matched, rank, len(one.number))
            if waited is not None:
                waits[one.path] = waited
    several = len(summaries) > 1
    drawn = ((summary.path, step_chart(summary, several, waits.get(summary.path))) for summary in summaries)
    return Job(summaries, arrivals, {path: chart for path, chart in drawn if chart is not None}, waits)


def _windows(summaries: Sequence[TraceSummary]) -> list[dict[int, TraceSummary]]:
    """The traces by rank of each window, in order of time: the k-th of every rank, or, where a rank lacks some, those
    that begin closest to the windows of the rank that has most."""
    of_rank: dict[int, list[TraceSummary]] = {}
    for summary in summaries:
        of_rank.setdefault(summary.rank, []).append(summary)
    lead = max(of_rank.values(), key=len)
    windows: list[dict[int, TraceSummary]] = [{} for _ in lead]
    for rank, own in of_rank.items():
        for index, one in enumerate(own):
            place = index
            if len(own) < len(lead):
                place = min(range(len(lead)), key=lambda candidate: abs(lead[candidate].begun - one.begun))
            windows[place].setdefault(rank, one)
    return windows


def run_check(rule: TraceRule, job: Job, limits: Limits) -> Outcome:
    """One rule on one job. A rule that raises is skipped and says so; InputError (a bad file) passes through."""
    try:
        return rule.check(job, limits)
    except InputError:
        raise
    except Exception as error:
        return failed(error)


def _completed(finding: Finding, rule: TraceRule) -> Finding:
    """The finding with a title that fits, and what its rule says about verifying the repair."""
    return replace(finding, title=context.fitted(finding.title), verify=finding.verify or rule.verify)


def _explained(findings: Sequence[Finding], rules: Sequence[TraceRule]) -> list[Finding]:
    """Findings with the first of their possible causes that was found too. A straggler may sit on another rank."""
    causes = consequences.with_declared(rules)
    fired = {finding.rule for finding in findings}
    return [
        replace(finding, caused_by=next((cause for cause in causes[finding.rule] if cause in fired), None))
        for finding in findings
    ]


def _choose(select: Collection[str], ignore: Collection[str]) -> tuple[list[TraceRule], list[str]]:
    known = {rule.id for rule in RULES}
    foreign = [name for name in (*select, *ignore) if name not in known]
    if foreign:
        from tracelyze.analyzers import extensions

        runs = {rule.id for rule in extensions.all_rules()}
        for name in foreign:
            if name not in runs:
                raise InputError(Cause.UNKNOWN_NAME, f"{name}: no such rule; `tracelyze rules` lists them")
    chosen = [rule for rule in RULES if selection.wanted(rule.id, select, ignore)]
    return chosen, [name for name in select if name not in known and name not in ignore]


def idle_in_words(summary: TraceSummary) -> str | None:
    """What the device was idle for, if that is a fifth of the steps or more, whatever the findings say."""
    device = summary.device
    whole = float(summary.duration.sum())
    if device is None or whole <= 0 or float(device.idle.sum()) < IDLE * whole:
        return None
    parts = sorted(((float(device.cause(name).sum()), CAUSE_TEXT[name]) for name in CAUSES), reverse=True)
    shares = ", ".join(f"{percent(time / whole)} {text}" for time, text in parts[:3] if time >= 0.01 * whole)
    said = f"The device is idle {percent(float(device.idle.sum()) / whole)} of the time: {shares}."
    late = float(device.cause("device").sum())
    if late >= IDLE * float(device.idle.sum()) and device.late:
        names = ", ".join(f"{short(name)} ({duration(time / MICROSECONDS)})" for name, time in device.late)
        said += f" Work had been launched and did not begin; the device was late on {names}."
    return said


def _facts(paths: Sequence[Path | str], job: Job) -> RunFacts:
    summaries = job.summaries
    longest = max(summaries, key=lambda summary: summary.window)
    names = list(dict.fromkeys(name for summary in summaries for name in summary.device_names))
    environment = {"steps found by": longest.steps_from, "events": f"{sum(s.events for s in summaries):,}"}
    if names:
        environment["device"] = ", ".join(names[:4])
    if longest.device is not None and longest.window > 0:
        environment["device busy"] = percent(float(longest.device.busy.sum()) / longest.window)
    several = len(summaries) > 1
    notes = [f"{s.file}: {note}" if several else note for s in summaries for note in s.notes]
    if (said := idle_in_words(longest)) is not None:
        notes.append(said)
    unmatched = [name for arrivals in job.arrivals for name in arrivals.unmatched]
    if unmatched:
        notes.append(f"Collectives that not all ranks made equally often: {'; '.join(unmatched[:3])}.")
    return RunFacts(
        path=str(paths[0]),
        command=[],
        started_at=None,
        duration_s=round(longest.window / MICROSECONDS, 6),
        steps=len(longest.number) if longest.counted else 0,
        ranks=len({summary.rank for summary in summaries}),
        exit=Exit("unknown"),
        environment=environment,
        notes=notes,
    )

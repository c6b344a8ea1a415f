"""memory-leak: memory at the same point of each step climbs at a steady pace and never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import leaks
from tracelyze.analyzers.computed.optimization.leaks import MIB, Graphs, MemoryClimb, Series
from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.memory.memory_leak import graph_remedy, kept_in_validation
from tracelyze.analyzers.script import kept_tensors
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, plural, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

    Grown = tuple[Series, MemoryClimb]

FIX = (
    "Look for a list, dictionary or cache that grows with every step: stored batches, outputs or logs. Keep only what "
    "you need, bound its size, or write it to disk."
)
ALIKE = "A buffer that is still filling when the run ends (replay memory, cache) looks the same."


def check(process: Process, limits: Limits) -> Outcome:
    """The training with the most steps stands for the process: its memory is one and the same."""
    optimization = process.longest
    graphs = leaks.kept_graphs(optimization, limits["graphs"], limits["sawtooth"])
    series = leaks.series(optimization)
    climb = None if series is None else leaks.climb(series, limits["relative"], limits["absolute"] * MIB)
    if graphs is None and climb is None:
        return _nothing(series)
    if graphs is None and series and not series.device:
        return Passed("no loss is kept with its graph; that host memory climbs is host-memory-leak's to judge")
    grown = (series, climb) if series and climb else None
    if graphs is not None:
        return [_of_graphs(optimization, graphs, grown, limits)]
    return [_of_memory(optimization, grown, limits)] if grown else []


def _nothing(series: Series | None) -> Passed | Skipped:
    count = 0 if series is None else len(series.values)
    if series is None or count < leaks.FEWEST:
        return Skipped(
            f"memory was recorded at {plural(count, 'step')}; {leaks.FEWEST} are needed to tell a leak from a warm-up"
        )
    change = (series.values[-1] - series.values[len(series.values) // 10]) / MIB
    return Passed(f"{series.name} memory does not climb steadily (net change {change:+.1f} MiB)")


def _of_graphs(optimization: Optimization, graphs: Graphs, grown: Grown | None, limits: Limits) -> Finding:
    """Graphs are kept alive, whether or not memory is seen to climb."""
    begin = timing.step_at(optimization, graphs.first)
    inside = kept_in_validation.of(optimization)
    remedy = graph_remedy.of(optimization, [] if inside else kept_tensors.lines(optimization))
    earlier = "passes" if inside else "steps"
    cause = f"From step {begin:,} on, autograd graphs of earlier {earlier} stay in memory {graphs.pattern}. "
    cause += inside.said if inside else remedy.cause
    held = "" if grown else leaks.until_let_go(optimization, graphs, limits["absolute"] * MIB)
    kept = Evidence("autograd graphs kept alive", graphs.kept, "graphs", limits["graphs"], limits.source("graphs"))
    found = Finding(
        rule=RULE.id,
        severity=grown[1].severity(limits["horizon"]) if grown else "warning",
        confidence="certain",
        title=f"Memory leak: {number(graphs.kept)} autograd graphs are kept alive",
        summary=_pace(optimization, grown, cause) if grown else cause + held,
        fix=remedy.fix,
        fix_code=remedy.example,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, graphs.first),
        evidence=[
            kept,
            Evidence("graphs per step", graphs.per_step, "graphs/step"),
            *_evidence(optimization, grown, limits),
        ],
        location=remedy.line or optimization.backward_location,
        seen_at=remedy.seen_at,
        diff=remedy.edit,
        charts=leaks.charts(optimization, begin, True),
        false_alarm=ALIKE,
    )
    return inside.mended(found) if inside else found


def _of_memory(optimization: Optimization, grown: Grown, limits: Limits) -> Finding:
    """Memory climbs, and no graph is kept that would explain it."""
    series, climb = grown
    begin = timing.step_at(optimization, climb.first)
    return Finding(
        rule=RULE.id,
        severity=climb.severity(limits["horizon"]),
        confidence="likely" if leaks.is_large(series, climb) else "possible",
        title=f"Memory leak: {series.name} memory grows by {size(climb.slope)} per step",
        summary=_pace(optimization, grown, "What holds it was not seen: no loss is kept with its graph."),
        fix=FIX,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, climb.first),
        evidence=_evidence(optimization, grown, limits),
        charts=leaks.charts(optimization, begin, False),
        false_alarm=ALIKE,
    )


def _pace(optimization: Optimization, grown: Grown, cause: str) -> str:
    """How fast memory climbs, why, and how long it lasts."""
    series, climb = grown
    since = timing.step_at(optimization, climb.first)  # it may warm up before
    pace = f"{series.name.capitalize()} memory grows by {size(climb.slope)} per step"
    return f"{pace}, {size(climb.growth)} since step {since:,}. {cause}{climb.time_left}"


def _evidence(optimization: Optimization, grown: Grown | None, limits: Limits) -> list[Evidence]:
    return leaks.evidence(*grown, timing.step_at(optimization, grown[1].first), limits) if grown else []


RULE = Rule(
    id="memory-leak",
    family="memory",
    severity="critical",
    title="Memory grows with every step",
    about=(
        "Memory at the same point of each step should settle after warm-up. If its floor climbs steadily to the end, "
        "something keeps what each step creates: most often the loss with its whole autograd graph."
    ),
    check=check,
    verify="Record the run again: memory at the end of a step stays level, and one or two graphs are alive.",
    excluded=(
        "Logging windows that sum up some losses: graphs pile up far beyond them.",
        "Allocator warm-up: the graphs themselves are counted.",
    ),
    whole_process=True,
    needs=(("steps.live_graphs",), ("steps.device_allocated",), ("steps.host_rss",)),
    thresholds=(
        Threshold("graphs", 20, "graphs", "a healthy loop keeps its last loss or two; ten times that is no accident"),
        Threshold("sawtooth", 50, "graphs", "logging windows sum up ten losses or so; fifty graphs cost real memory"),
        Threshold("relative", 0.005, "share", "growth below half a percent of the memory in use harms nobody"),
        Threshold("absolute", 8, "MiB", "page-sized noise of resident memory stays within a few MiB"),
        Threshold("horizon", 10, "runs", "critical if memory would end within ten times the run so far"),
    ),
    not_when="Allocator warm-up, first-epoch caches, buffers that fill and stay, sawtooth of batch shapes.",
    references=("https://docs.pytorch.org/docs/stable/notes/faq.html",),
)

"""memory-leak: memory at the same point of each step climbs at a steady pace and never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.growing import kept_in_validation
from tracelyze.analyzers.computed.optimization import leaks
from tracelyze.analyzers.computed.optimization.leaks import MIB, Graphs, MemoryClimb, Series
from tracelyze.analyzers.evidence import kept_tensors, timing
from tracelyze.analyzers.evidence.editing.storing import handed_over
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import duration, number, plural, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

FIX_GRAPHS = (
    "Leave the backward pass as it is. If the loop keeps a loss, an output or a hidden state beyond the step, detach "
    "it, and add loss.detach() to a running sum: code that reads it later works as before."
)
CODE_GRAPHS = (
    "kept.append(loss.detach())  # where a list, dictionary or attribute keeps a loss or an output\n"
    "running_loss += loss.detach()  # where the loop adds up losses"
)
FIX_LINES = (
    "Leave the backward pass as it is, and store the tensor without its graph: code that reads its value later works "
    "as before."
)
FIX_RETAINED = "Drop retain_graph=True from the backward, and detach what the loop keeps beyond the step."
FIX_OTHER = (
    "Look for a list, dictionary or cache that grows with every step: stored batches, outputs or logs. Keep only what "
    "you need, bound its size, or write it to disk."
)


def check(process: Process, limits: Limits) -> Outcome:
    """The training with the most steps stands for the process: its memory is one and the same."""
    optimization = process.longest
    graphs = leaks.kept_graphs(optimization, limits["graphs"], limits["sawtooth"])
    series = leaks.series(optimization)
    climb = None if series is None else leaks.climb(series, limits["relative"], limits["absolute"] * MIB)
    if graphs is None and climb is None:
        return _nothing(series)
    if graphs is None and series and not series.device:
        return Passed("no autograd graph is kept alive; that host memory climbs is host-memory-leak's to judge")
    return [_finding(optimization, graphs, series, climb, limits)]


def _nothing(series: Series | None) -> Passed | Skipped:
    count = 0 if series is None else len(series.values)
    if series is None or count < leaks.FEWEST:
        return Skipped(
            f"memory was recorded at {plural(count, 'step')}; {leaks.FEWEST} are needed to tell a leak from a warm-up"
        )
    change = (series.values[-1] - series.values[len(series.values) // 10]) / MIB
    return Passed(f"{series.name} memory does not climb steadily (net change {change:+.1f} MiB)")


def _finding(
    optimization: Optimization, graphs: Graphs | None, series: Series | None, climb: MemoryClimb | None, limits: Limits
) -> Finding:
    first = graphs.first if graphs else climb.first if climb else 0
    begin = timing.step_at(optimization, first)
    left = climb.seconds_left if climb else None
    inside = kept_in_validation.of(optimization) if graphs else None
    stored = kept_tensors.lines(optimization) if graphs and not inside else []
    line, diff = stored[0].location if stored else None, kept_tensors.edit(stored)
    handed = handed_over.to(optimization, line) if len(stored) == 1 else None
    urgent = bool(climb and left is not None and left < limits["horizon"] * climb.seconds_so_far)
    since = timing.step_at(optimization, climb.first) if climb else begin  # memory may warm up before it climbs
    evidence = leaks.evidence(series, climb, since, limits) if series and climb else []
    own, retained = kept_tensors.guarded(optimization, stored), kept_tensors.retains(optimization)
    by_graphs = (FIX_RETAINED, "") if retained and not stored else (FIX_LINES if stored else FIX_GRAPHS, CODE_GRAPHS)
    fix, code = (FIX_RETAINED if retained else FIX_LINES, own) if own else by_graphs if graphs else (FIX_OTHER, "")
    if graphs:
        name, source = graphs.pattern, limits.source("graphs")
        kept = Evidence("autograd graphs kept alive", graphs.kept, "graphs", limits["graphs"], source)
        evidence = [kept, Evidence("graphs per step", graphs.per_step, "graphs/step"), *evidence]
        title = f"Memory leak: {number(graphs.kept)} autograd graphs are kept alive"
        earlier = "passes" if inside else "steps"
        cause = f"From step {begin:,} on, autograd graphs of earlier {earlier} stay in memory {name}. "
        cause += inside.said if inside else kept_tensors.told(stored) + (handed.told if handed else "")
    else:
        title, cause = "", "What holds it was not seen: no autograd graph is kept."
    if climb and series:
        growth = f"{series.name.capitalize()} memory grows by {size(climb.slope)} per step"
        title = title or f"Memory leak: {series.name} memory grows by {size(climb.slope)} per step"
        cause = f"{growth}, {size(climb.growth)} since step {since:,}. {cause}"
        if left is not None:
            cause += f" At this pace memory is exhausted after {duration(left)} more."
    elif graphs:
        cause += " The memory involved is small so far; it grows with the model's activations."
    found = Finding(
        rule=RULE.id,
        severity="critical" if urgent else "warning",
        confidence="certain"
        if graphs
        else "likely"
        if series and climb and leaks.is_large(series, climb)
        else "possible",
        title=title,
        summary=cause,
        fix=(FIX_LINES + kept_tensors.others(stored, diff) if diff else fix + (handed.instead if handed else ""))
        + kept_tensors.outputs(optimization, stored),
        fix_code="\n".join(text.strip() for text in diff.added) if diff else code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=evidence,
        location=line or (optimization.backward_location if graphs else None),
        seen_at=(handed.place if handed else optimization.backward_location) if line else None,
        diff=diff,
        charts=leaks.charts(optimization, begin, bool(graphs)),
        false_alarm="A buffer that is still filling when the run ends (replay memory, cache) looks the same.",
    )
    return inside.mended(found) if inside else found


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

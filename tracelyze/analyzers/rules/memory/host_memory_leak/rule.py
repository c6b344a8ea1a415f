"""host-memory-leak: memory of the training process, or of its loader's workers, climbs and never comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.computed.optimization import leaks, style
from tracelyze.analyzers.computed.optimization.leaks import MIB, MemoryClimb, Series
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.memory.host_memory_leak import caches, entries, what_grows, worker_memory
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rules.memory.host_memory_leak.worker_memory import Growth

FIX = (
    "Look for a list, dictionary or cache that grows with every step: stored batches, outputs, logs, or something a "
    "dataset keeps for each sample. Keep only what you need, bound its size, or write it to disk."
)


def check(process: Process, limits: Limits) -> Outcome:
    """The workers first: what they keep is not the training process's. Then the process itself."""
    optimization = process.longest
    grown = worker_memory.growth(process)
    steady = [one for one in grown if limits["pace"] <= one.pace <= limits["leap"]]
    steady = [one for one in steady if one.grown >= max(limits["workers"] * MIB, limits["share"] * one.before)]
    steady = [one for one in steady if one.late >= limits["late"] * one.grown]
    if any(one.beyond for one in steady):
        return [_of_workers(process, next(one for one in steady if one.beyond), limits)]
    series = leaks.series(optimization, host=True)
    if series is None or len(series.values) < limits["fewest"]:
        return Skipped(f"host memory was recorded at fewer than {limits['fewest']:.0f} steps")
    climb = leaks.climb(series, limits["relative"], limits["absolute"] * MIB)
    if climb is None:
        change = (series.values[-1] - series.values[len(series.values) // 10]) / MIB
        workers = ", nor does that of the workers" if grown else ""
        return Passed(f"host memory does not climb steadily (net change {change:+.1f} MiB){workers}")
    filling = leaks.first_epoch(optimization)
    if filling and not caches.by_chance(process):
        return Passed("host memory climbs, but within the first pass over the data, as a cache that fills does too")
    if leaks.kept_graphs(optimization, limits["graphs"], limits["graphs"]) is not None:
        return Passed("what grows are autograd graphs that are kept alive: see memory-leak")
    if leaks.of_files(process) > limits["files"]:
        return Passed("what grows are pages of files that are mapped, which the system takes back when it needs them")
    if not leaks.is_large(series, climb) and style.acts(process):
        return Passed("host memory climbs a little, as it does while a replay buffer fills")
    fills = what_grows.filling(process)
    if fills is not None:
        return Passed(f"host memory climbs while line {fills.line} fills a deque of bounded length")
    return [_of_process(optimization, series, climb, filling, limits)]


def _of_process(
    optimization: Optimization, series: Series, climb: MemoryClimb, filling: bool, limits: Limits
) -> Finding:
    begin = timing.step_at(optimization, climb.first)
    culprit = what_grows.of(optimization.process)
    remedy = culprit.remedy or Remedy(FIX)
    return Finding(
        rule=RULE.id,
        severity=climb.severity(limits["horizon"]),
        confidence="likely" if leaks.is_large(series, climb) or culprit.seen else "possible",
        title=f"Host memory of the training process grows by {size(climb.slope)} per step",
        summary=(
            f"Resident memory has grown by {size(climb.growth)} since step {begin:,}, at an even pace, "
            f"{'in' if filling else 'beyond'} the first pass over the data.{climb.time_left} No loss is kept with its "
            f"graph: something else grows with every step.{culprit.told}"
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, climb.first),
        evidence=leaks.evidence(series, climb, begin, limits),
        location=culprit.place,
        seen_at=culprit.seen_at,
        charts=pictures.memory(optimization, []),
        false_alarm="A buffer that is still filling when the run ends (replay memory, cache) looks the same.",
    )


def _of_workers(process: Process, found: Growth, limits: Limits) -> Finding:
    loader = next(row for row in process.loaders.records() if row["loader"] == found.loader)
    kept = script_lines.only(process, "kept")
    remedy = entries.bounded(process, kept, dataset=True) or entries.IN_ARRAYS
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Memory of {plural(found.workers, 'loader worker')} grows with every batch: {size(found.grown)} so far",
        summary=(
            f"While {'each of ' if found.workers > 1 else ''}{plural(found.workers, 'worker')} of {loader['dataset']} "
            f"made {found.batches:,} batches, private memory grew from {size(found.before)} to "
            f"{size(found.before + found.grown)}{' in total' if found.workers > 1 else ''}, and kept growing after the "
            "first pass. The dataset keeps something for each sample in every worker, or holds many Python objects: "
            "reading one updates its reference count, which copies the shared memory page."
        ),
        fix=remedy.fix,
        fix_code=remedy.code,
        diff=remedy.diff,
        evidence=[
            Evidence("growth of the workers' own memory", found.grown / MIB, "MiB", *limits.against("workers")),
            Evidence("pace of the last half over the one before", found.pace, "", *limits.against("pace")),
            Evidence("workers", found.workers),
        ],
        location=kept or process.loader_location(loader),
        seen_at=process.loader_location(loader),
        charts=pictures.memory(process.longest, []) if process.optimizations else [],
        false_alarm="A bounded cache in each worker that is still filling.",
    )


RULE = Rule(
    id="host-memory-leak",
    family="memory",
    severity="warning",
    title="Host memory grows",
    about="Memory of the training process and of its workers should settle after the first pass over the data.",
    check=check,
    verify="Record the run again: memory stays level after the first epoch.",
    whole_process=True,
    needs=(("steps.host_rss",),),
    thresholds=(
        Threshold("fewest", 50, "steps", "derived: of fewer, a leak cannot be told from a warm-up"),
        Threshold("relative", 0.005, "share", "growth below half a percent of the memory in use harms nobody"),
        Threshold("absolute", 8, "MiB", "page-sized noise of resident memory stays within a few MiB"),
        Threshold("horizon", 10, "runs", "critical if memory would end within ten times the run so far"),
        Threshold("graphs", 20, "graphs", "as memory-leak counts them"),
        Threshold("files", 0.5, "share", "derived: more than all other causes together"),
        Threshold("workers", 16, "MiB", "measured: workers without a leak gain up to 1.5 MiB after four batches"),
        Threshold("share", 0.2, "share", "derived: of what they had after four batches; less is a buffer that grew"),
        Threshold("pace", 0.2, "share", "a leak keeps its pace (1); pages that come apart slow down; a cache ends (0)"),
        Threshold("late", 0.2, "share", "derived: the last doubling adds half in a straight line, nothing to a leap"),
        Threshold("leap", 3, "times", "derived: of the pace before; a garbage collection copies shared pages at once"),
    ),
    not_when="The first pass over the data, mapped files (page cache), buffers that fill and stay, kept graphs.",
    references=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)

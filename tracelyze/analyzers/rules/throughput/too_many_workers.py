"""too-many-workers: a loader has far more workers than there are processors, and the training waits all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.throughput import kept_workers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.diagnosis import Cost, Evidence, Finding, Setting
from tracelyze.formatting import duration, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Workers of the loader that feeds the training against the processors that the process may use, and its wait."""
    optimization = process.longest
    cpus = process.facts.get("cpus")
    fed = optimization.steps["loader"][np.isfinite(optimization.steps["loader"])]
    workers = max((row["num_workers"] or 0 for row in process.loaders.records() if row["loader"] in fed), default=None)
    if workers is None:
        return Skipped("no DataLoader feeds the training", "not-applicable")
    if not cpus:
        return Skipped("how many processors the process may use is not known")
    if workers <= limits["times"] * cpus:
        return Passed(f"{workers} workers on {cpus} processors")
    seconds, wait = optimization.steps["seconds"], optimization.steps["loader_wait"]
    known = np.isfinite(seconds) & np.isfinite(wait)
    total, waited = float(seconds[known].sum()), float(wait[known].sum())
    if total <= 0 or waited < limits["wait"] * total:
        return Passed(f"{workers} workers on {cpus} processors, and the training seldom waits for them")
    begins = known & (optimization.steps["loader_first"] == 1)
    return [_finding(process, int(workers), int(cpus), Cost(waited, waited / total), float(wait[begins].sum()), limits)]


def _finding(process: Process, workers: int, cpus: int, cost: Cost, starting: float, limits: Limits) -> Finding:
    optimization = process.longest
    loader, processors = optimization.loader, plural(cpus, "processor")
    wanted = kept_workers.staying(process, loader, max(1, cpus - 1))
    kept = bool(loader.get("persistent_workers"))
    stay = ", with persistent_workers=True" if len(wanted) > 1 and not kept else ""
    of_that = "for the first batches of epochs" if kept else "for workers to start"
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"{workers} loader workers share {processors}: training waits {percent(cost.share or 0)} of the time",
        summary=(
            f"The loader starts {workers} workers; the process may use {processors}. The training still waits "
            f"{duration(cost.seconds or 0.0)} for data, {duration(starting)} of that {of_that}. More "
            "workers than processors are no faster: they take turns, and each costs start-up time and memory."
        ),
        fix=f"Start with {plural(max(1, cpus - 1), 'worker')}{stay}, and make samples cheaper.",
        fix_code=loader_arguments.example(process, loader, wanted),
        diff=loader_arguments.with_arguments(process, process.site(loader.get("made_at")), wanted),
        first_step=timing.step_at(optimization, 0),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("workers over processors", workers / cpus, "times", *limits.against("times")),
            Evidence("time waited for data", cost.share, "share", *limits.against("wait")),
            Evidence(f"of that, {of_that}", starting, "s"),
        ],
        cost=cost,
        setting=Setting(("num_workers",), (workers,), wanted["num_workers"]),
        location=process.loader_location(loader),
        seen_at=process.site(loader.get("site")),
        charts=pictures.time_split(optimization),
        false_alarm="Workers that mostly wait for a network.",
    )


RULE = Rule(
    id="too-many-workers",
    family="throughput",
    severity="warning",
    title="More loader workers than processors",
    about="Workers beyond the number of processors only take turns, and each costs start-up time and memory.",
    check=check,
    settings=("dataloader_num_workers",),
    verify="Record the run again with fewer workers: the wait for data is no longer.",
    absent="The run uses no DataLoader.",
    needs=(("steps.loader", "steps.loader_wait", "steps.seconds"),),
    thresholds=(
        Threshold("times", 2, "times", "two for each processor still help where they wait for a disk"),
        Threshold("wait", 0.1, "share", "a tenth of the time is worth a look"),
    ),
    not_when="Workers that the training does not wait for, as many as there are processors or twice that.",
    references=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)

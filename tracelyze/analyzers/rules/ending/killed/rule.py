"""killed: the process vanished, or died by a signal, without a word of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import deaths
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.ending.killed import kills
from tracelyze.diagnosis import Evidence, Finding, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """How the process ended, and what its machine's memory was like in the last seconds."""
    end = process.exit
    if end.kind == "running":
        return Passed("the program is still running: this is what was recorded so far")
    if end.kind == "unknown":
        return Skipped("how the program ended was not recorded")
    if end.kind not in ("vanished", "signal"):
        return Passed(f"the program ended with a record of its own ({end.kind})")
    cause = deaths.before(process)
    if cause is not None and not (cause.follows and cause.exit.kind == "signal"):
        return Passed(f"rank {process.rank} ended after rank {cause.rank} had: {cause.what[:200]}")
    return [_finding(process, limits)]


def _finding(process: Process, limits: Limits) -> Finding:
    optimization = timing.last_to_step(process)
    known = bool(optimization and np.isfinite(optimization.steps["step"]).any())
    last = int(np.nanmax(optimization.steps["step"])) if optimization and known else len(process.steps)
    at = f"step {last:,}{timing.name_of(optimization) if optimization else ''}"
    seconds = [float(np.nanmax(t)) for t in (process.steps["time"], process.samples["time"]) if np.isfinite(t).any()]
    cause = kills.cause(process, f"after {at}" if last else "before its first step", limits)
    recorded = f" The recording ends after {at}." if last else " No step was recorded."
    stopped = next((note for note in process.notes if note.startswith("recording stopped")), None)
    before = f" Before that, {stopped}; what happened afterwards was not recorded." if stopped else ""
    seen, vanished = process.last_seen, process.exit.kind == "vanished"
    sampled = f" When its thread was last sampled, it was in line {seen.line}." if seen and vanished else ""
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="possible" if stopped else "certain",
        title=cause.title,
        summary=f"{cause.what}{recorded}{cause.why}{sampled}{before}",
        fix=cause.fix,
        first_step=last,
        last_step=last,
        first_second=max(seconds, default=None),
        evidence=[
            Evidence("how it ended", process.exit.kind),
            Evidence("last recorded step", last, "steps"),
            *cause.evidence,
        ],
        location=cause.place or seen,
        seen_at=seen if cause.by_time and cause.place else None,
        charts=pictures.memory(optimization, [Mark(float(last), "last recorded step")]) if optimization else [],
        false_alarm="A run directory copied from another machine while the program was still running there.",
        ending=cause.ending,
    )


RULE = Rule(
    id="killed",
    family="end of run",
    severity="critical",
    title="The program was killed",
    about="A program killed from outside cannot say so; what it recorded until then can.",
    check=check,
    asks_peers=True,
    about_the_end=True,
    verify="The next run ends by itself.",
    excluded=(
        "A program that is still running: its process is gone.",
        "A rank that a launcher ended after another one had failed: none had.",
    ),
    thresholds=(
        Threshold("left", 0.05, "share", "the kernel starts to kill when reclaiming yields next to nothing"),
        Threshold("unseen", 2.0, "s", "one second between two looks at memory, and up to one that was not written yet"),
    ),
    not_when="The program is still running.",
)

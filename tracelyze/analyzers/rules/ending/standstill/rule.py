"""standstill: the training thread stands in one line and waits, far longer than any step took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.recorded import exits
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.ending.standstill import kinds, stands, threads
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import duration, shortened

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.ending.standstill.kinds import Kind
    from tracelyze.analyzers.rules.ending.standstill.stands import Stand
    from tracelyze.analyzers.rules.ending.standstill.threads import Others
    from tracelyze.diagnosis import Confidence

ENDS: Final = {
    "running": "It still stands there",
    "interrupted": "It stood there when it was interrupted",
    "vanished": "It stood there when it was killed",
    "signal": "It stood there when it was asked to terminate",
}


def check(process: Process, limits: Limits) -> Outcome:
    """Where the training thread was in the last looks of once a second, and whether it waited there."""
    end = process.exit
    if end.kind not in ENDS or (end.kind == "signal" and exits.REQUESTED not in end.detail):
        return Passed(f"the program did not stand still at its end ({end.kind})")
    if any(note.startswith("recording stopped") for note in process.notes):
        return Skipped("the recording stopped before the program did")
    stand = stands.of(process)
    if stand is None:
        return Passed("steps, forwards or backwards went on to the end, as far as was seen")
    if stand.seconds < limits["seconds"] or stand.dump is None:
        return Passed(f"the training thread had stood in one line for {duration(stand.seconds)} at the end")
    if max(stand.busy, stand.device) > limits["busy"]:
        return Passed(f"no step for {duration(stand.seconds)}, in which the program, or what it had started, computed")
    dump = str(stand.dump["text"] or "")
    line = f"{stand.dump['file']}:{stand.dump['line']}" if stand.dump["file"] else ""
    kind, why = kinds.of(threads.frames(dump), line, stand.place.source if stand.place else "", stand.waits)
    if kind is None:
        return Passed(f"no step for {duration(stand.seconds)}: {why}")
    others = threads.of(dump)
    confidence, why = _confidence(process, stand, kind, others, limits)
    if confidence is None:
        return Passed(f"no step for {duration(stand.seconds)}: {why}")
    return [_finding(process, stand, kind, others, confidence, limits)]


def _confidence(
    process: Process, stand: Stand, kind: Kind, others: Others, limits: Limits
) -> tuple[Confidence | None, str]:
    """How sure it is that the wait has no end; None with the reason why it may have one."""
    nobody = not others.any and stand.below == 0 and kind.reach == "threads"
    timed, failed = stand.waits.endswith("timed"), threads.raised(process) is not None
    gone = bool(others.ended) or failed
    if timed and not kind.polls and not (nobody and gone):
        return None, "it waits with a time limit"
    if nobody and (gone or kind.lock):
        return "certain", ""
    if others.going and not failed:
        return None, f"thread {others.going[0]} may go on"
    longest = stands.gaps(process).longest
    if stand.seconds < limits["times"] * longest:
        return None, f"between two steps {duration(longest)} had passed before"
    if kind.reach == "threads" and stand.below == 0 and not others.outside:
        return ("possible" if timed or others.going else "likely"), ""
    if process.exit.kind == "running" and stand.seconds < limits["outside"]:
        return None, f"it waits for {kind.what}, which may still come"
    sure = limits["long"] if process.exit.kind == "running" else limits["outside"]
    return ("likely" if stand.seconds >= sure or process.exit.kind == "interrupted" else "possible"), ""


def _finding(
    process: Process, stand: Stand, kind: Kind, others: Others, confidence: Confidence, limits: Limits
) -> Finding:
    made = timing.last_to_step(process)
    step = timing.last_step(made) if made else None
    after = f" after step {step:,}{timing.name_of(made)}" if made and step is not None else " before the first step"
    gaps, error = stands.gaps(process), threads.raised(process)
    usual = f", where a step usually takes {duration(gaps.usual)}" if gaps.usual else ""
    line = "behind its last line" if stand.place is None else f"in line {stand.place.line}"
    where = line if stand.place is None else f"{line}, `{shortened(stand.place.source, 60)}`"
    idle = " and was not woken once" if stand.woken == 0 else ""
    alone = " Nothing is left that could end the wait." if confidence == "certain" else ""
    total = stand.since + stand.seconds - float(process.samples["time"][0])
    raised = error.place if error is not None and kind.reach == "threads" else None
    stack = "\n".join(threads.frames(str(stand.dump["text"] or ""))) if stand.dump else ""
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence=confidence,
        title=f"The training stands still {line}: it waits for {kind.what}",
        summary=(
            f"No step, forward or backward for {duration(stand.seconds)}{after}{usual}. The training thread waits "
            f"{where}, for {kind.what}; it took no processor time{idle} meanwhile.{threads.sentence(others, error)}"
            f"{alone} {ENDS[process.exit.kind]}."
        ),
        fix=kind.fix,
        fix_code=kind.code,
        first_step=step,
        last_step=step,
        first_second=stand.since,
        evidence=[
            Evidence("time without a step, forward or backward", stand.seconds, "s", *limits.against("seconds")),
            Evidence("longest time between two steps before", gaps.longest, "s"),
            Evidence("largest share of a processor used", stand.busy, "share", *limits.against("busy"), role="most"),
            Evidence("system call", stand.waits),
            Evidence("stack, innermost last", stack),
        ],
        cost=Cost(stand.seconds, stand.seconds / total if total > 0 else None),
        location=raised or stand.place,
        seen_at=stand.place if raised else None,
        false_alarm="A program that waits on purpose for work from elsewhere: for jobs, for clients, for a person.",
    )


RULE = Rule(
    id="standstill",
    family="end of run",
    severity="critical",
    title="The training stands still",
    about="The training thread waits without a time limit for what does not come: data, a lock, a process, an answer.",
    check=check,
    verify="The next run gets past this line, or fails there with an error.",
    whole_process=True,
    about_the_end=True,
    excluded=(
        "Work that takes long, such as validation or saving: nothing computed.",
        "A sleep, or a wait with a time limit: the system call has none.",
        "Another thread or process that is to go on: none was left.",
    ),
    needs=(("samples.innermost",),),
    thresholds=(
        Threshold("seconds", 25, "s", "derived: stacks are written down after 30 s; the first looks may miss a few"),
        Threshold("times", 3, "longest pauses", "derived: validation and saving vary, by less than that"),
        Threshold("busy", 0.01, "share", "measured: waits with their recording took up to 0.003 on a busy machine"),
        Threshold("outside", 60, "s", "derived: the longest time-out that web servers have by default"),
        Threshold("long", 300, "s", "derived: five of these"),
    ),
    not_when="Sleeps, waits with a time limit, servers and prompts, programs that compute or end by themselves.",
)

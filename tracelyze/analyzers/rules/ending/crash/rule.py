"""crash: the program ended in an exception; what it means in plain words, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.crashes import exceptions
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import deaths
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.rules.ending.crash import causes, inner_exceptions, lost_ranks, no_numbers, short_batches
from tracelyze.diagnosis import Chart, Evidence, Finding, Mark
from tracelyze.formatting import abridged, duration, listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Death, Process

LONGEST_MESSAGE = 120  # characters in a summary; evidence and traceback hold all of it
UNHANDLED = "An exception that the script handled: this one reached the interpreter, and ended the process."
FIRST_OF_RANKS = "A rank that only lost its peers: of all ranks that ended with an exception this one was the first."
NO_CRASH = {"finished": "the program ended by itself", "interrupted": "the program was interrupted by its user"}


def check(process: Process, _limits: Limits) -> Outcome:
    """The last exception that nobody caught. KeyboardInterrupt and memory exhaustion have rules of their own."""
    end = process.exit.kind
    if end == "running":
        return Passed("the program is still running")
    event = deaths.last_exception(process)
    if end != "exception" or event is None:
        reason = NO_CRASH.get(end)
        how = f"no exception was recorded; how the program ended: {end}"
        return Passed(reason) if reason else Skipped(how, "not-applicable")
    name, text = str(event["name"] or "exception"), str(event["text"] or "")
    if exceptions.is_interruption(name, end):
        return Passed(NO_CRASH["interrupted"])
    if exceptions.out_of_memory(name, text):
        return Passed("the program ran out of memory: see out-of-memory")
    cause = deaths.before(process)
    if cause is not None:
        return Passed(f"rank {process.rank} ended after rank {cause.rank} had: {cause.what[:200]}")
    return [_finding(process, event, name, text)]


def _finding(process: Process, event: dict[str, Any], name: str, text: str) -> Finding:
    family = exceptions.recognise(name, text)
    where = deaths.raised_at(process, event)
    inner = inner_exceptions.passed_on(text, str(process.facts.get("cwd") or ""))
    ranks, steps, raising = [process.rank], event["step"], process
    if inner is not None:
        name, where = inner.name, inner.location or where
        family = exceptions.recognise(name, inner.text) if inner.spawned is not None else family
        child = inner_exceptions.spawned(process, inner.spawned)
        if child is not None:
            ranks, steps, raising = [child.rank], child.steps, child.open()
    message = exceptions.message(name, inner.text if inner else text)
    place = f" at {where.file.rsplit('/', 1)[-1]}:{where.line}" if where else ""
    step = None if steps is None else int(steps)
    own, others = deaths.of(process), deaths.after(process)
    diff, change = exceptions.edit(family, raising, where)
    lost = own is not None and own.follows
    if inner is not None and inner.spawned is not None and child is not None:
        lost = bool(deaths.LOST_PEERS.search(f"{name}: {inner.text}"))
    title, (fix, code) = exceptions.title(name, message, place), exceptions.remedy(family, raising, where)
    meaning = exceptions.meaning(family, raising, text) if family else ""
    short = short_batches.found(process, message, event) if exceptions.of_shapes(family) and inner is None else None
    if short is not None and family is not None:
        meaning, fix, code = f"It means that {family.title}. {short.said}", short.fix, short.code or code
        diff, change = short.diff, short.place
    cause = causes.found(family, process, event, where) if inner is None else None
    if cause is not None and family is not None:
        meaning = causes.meaning(family, cause, meaning)
        fix, code, change = cause.fix, cause.code or code, cause.place
    if lost:
        title, meaning, fix = lost_ranks.words(process, ranks[0], fix)
    whole = " ".join(message.split())
    said = abridged(whole, LONGEST_MESSAGE)
    said = "" if meaning and said != whole else said.rstrip(".")  # a part of what is explained tells nothing more
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely" if lost else "certain",
        title=title,
        summary=_summary(process, ranks[0], "" if said in title else said, step, meaning, others),
        fix=fix,
        fix_code=code,
        diff=diff,
        first_step=step,
        last_step=step,
        first_second=event["time"],
        ranks=ranks,
        evidence=[
            Evidence("exception", name.rsplit(".", 1)[-1], role="message"),
            Evidence("message", message, role="message"),
            Evidence("optimizer steps done before", step, "steps"),
            *(Evidence(f"then, on rank {one.rank}", one.what[:200] + _later(own, one)) for one in others[:8]),
            *([Evidence("traceback", text)] if text.count("\n") > 0 else []),
        ],
        traits=frozenset({"no-numbers"} if no_numbers.spoken_of(name, message) else ()),
        location=change or where,
        seen_at=where,
        charts=_charts(process, step),
        excluded=[] if lost else [UNHANDLED, *([FIRST_OF_RANKS] if _several(process) else [])],
        false_alarm="" if family is None else "The message is the program's own; only its explanation is ours.",
    )


def _later(first: Death | None, other: Death) -> str:
    apart = float("nan") if first is None else other.at - first.at
    return f", {duration(apart)} later" if 0 <= apart < float("inf") else ""


def _summary(
    process: Process,
    rank: int,
    said: str,
    step: int | None,
    meaning: str,
    others: list[Death],
) -> str:
    when = "before the first optimizer step" if not step else f"after {plural(step, 'optimizer step')}"
    what = f"rank {rank}" if _several(process) else "the program"
    summary = f"An uncaught exception ended {what} {when}{f': {said}' if said else ''}."
    summary += f" {meaning}" if meaning else ""
    if others:
        who = f"Rank{'s' if len(others) > 1 else ''} {listed((one.rank for one in others), most=8)}"
        summary += f" {who} ended after it, as a consequence or on the same fault."
    return summary


def _several(process: Process) -> bool:
    return len({peer.rank for peer in process.peers}) > 1


def _charts(process: Process, step: int | None) -> list[Chart]:
    """The loss of the training that ran when the exception came, of several the last."""
    if not process.optimizations or step is None:
        return []
    last = max(process.trainings, key=lambda training: float(np.nanmax(training.steps["time"], initial=-np.inf)))
    optimization = (last if last.optimizations else process).longest
    return pictures.loss(optimization, [Mark(float(step), "exception")], name=timing.name_of(optimization))


RULE = Rule(
    id="crash",
    family="end of run",
    severity="critical",
    title="The program died with an exception",
    about="An uncaught exception ended the run. The well-known ones are explained with their usual fix.",
    check=check,
    asks_peers=True,
    about_the_end=True,
    verify="The next run gets past this step.",
    not_when="Exceptions that the script handles, and KeyboardInterrupt.",
)

"""out-of-memory: the program died because memory of the device or of the host ran out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.computed.crashes import exceptions
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.recorded.deaths import last_exception
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.analyzers.rules.memory.out_of_memory import device_memory, memory_causes
from tracelyze.analyzers.rules.memory.out_of_memory.device_memory import Holders
from tracelyze.diagnosis import Evidence, Finding, Location, Mark
from tracelyze.formatting import plural, size

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

ALIKE = "Another process on the same device or machine may have taken the memory."


def check(process: Process, _limits: Limits) -> Outcome:
    """The exception that ended the program, if it says that memory ran out."""
    event = last_exception(process)
    if process.exit.kind == "unknown" and event is None:
        return Skipped("how the program ended was not recorded", "not-applicable")
    if event is None or process.exit.kind != "exception":
        return Passed("the program did not die of an exception")
    name, text = str(event["name"] or ""), str(event["text"] or "")
    kind = exceptions.out_of_memory(name, text)
    if kind is None:
        return Passed("the exception that ended the program is not about memory")
    return [_finding(process, event, kind)]


def _finding(process: Process, event: Mapping[str, Any], kind: str) -> Finding:
    name, text = str(event["name"] or ""), str(event["text"] or "")
    step = None if event["step"] is None else int(event["step"])
    optimization = process.longest if process.optimizations else None
    where = Location(event["file"], event["line"] or 0, "", event["source"] or "") if event["file"] else None
    held = device_memory.holders(text) if kind == "device" else None
    cause = memory_causes.of(process, event, kind, held)
    source = process.facts.get("source") or {}
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="certain",
        title=f"Out of {kind} memory" + _when(process, step) + _of_others(held),
        summary=f"{device_memory.asked_and_held(held) or exceptions.message(name, text) + '.'} {cause.why}",
        fix=cause.fix,
        fix_code=cause.example,
        first_step=step,
        last_step=step,
        first_second=event["time"],
        evidence=[
            *(Evidence("held by live tensors then", str(one)) for one in source.get("live") or ()),
            Evidence("exception", name, role="message"),
            Evidence("message", exceptions.message(name, text), role="message"),
            *([] if optimization is None else _sizes({c: optimization.steps[c] for c in COLUMNS})),
            *_held(held),
        ],
        location=cause.line or where,
        seen_at=where if cause.line else None,
        charts=pictures.memory(optimization, [Mark(float(step or 0), "out of memory")]) if optimization else [],
        false_alarm="" if held is not None and held.told else ALIKE,
    )


def _when(process: Process, step: int | None) -> str:
    """When it happened, after a space; empty for a snapshot, which holds no steps."""
    if memory_causes.of_snapshot(process):
        return ""
    return f" after {plural(step, 'step')}" if step else " before its first step"


def _of_others(held: Holders | None) -> str:
    """What other programs hold, if it is that for which there was no room."""
    if held is None or not held.would_fit_alone:
        return ""
    return f": other programs hold {size(held.of_others)} of {size(held.whole or 0)}"


def _held(held: Holders | None) -> list[Evidence]:
    if held is None or not held.others:
        return []
    named = ", ".join(f"{size(much)} by process {number}" for number, much in held.others[:3])
    return [Evidence("held by other processes", named)]


COLUMNS = {
    "device_allocated": "device memory in tensors at the last step",
    "device_reserved": "device memory reserved at the last step",
    "device_peak": "largest device memory in tensors",
    "host_rss": "host memory at the last step",
}


def _sizes(columns: dict[str, np.ndarray]) -> list[Evidence]:
    found = []
    for name, values in columns.items():
        known = values[np.isfinite(values)]
        if len(known):
            found.append(Evidence(COLUMNS[name], size(float(known[-1]))))
    return found


RULE = Rule(
    id="out-of-memory",
    family="memory",
    severity="critical",
    title="Memory ran out",
    about="An allocation failed, and the exception was not caught.",
    check=check,
    verify="The next run gets past this step; its peak memory stays below the device's.",
    excluded=("An exception that the script handled: this one ended the program, and says that an allocation failed.",),
    not_when="Exceptions that the script handles.",
    references=("https://docs.pytorch.org/docs/stable/notes/faq.html",),
)

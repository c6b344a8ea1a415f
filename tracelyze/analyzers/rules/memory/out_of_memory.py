"""out-of-memory: the program died because memory of the device or of the host ran out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed import device_memory, single_allocations
from tracelyze.analyzers.computed.crashes import exceptions
from tracelyze.analyzers.computed.device_memory import Holders
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.evidence.datasets import long_batches
from tracelyze.analyzers.recorded.deaths import last_exception
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.diagnosis import Evidence, Finding, Location, Mark
from tracelyze.formatting import plural, size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


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
    step = None if event["step"] is None else int(event["step"])
    optimization = process.longest if process.optimizations else None
    sizes = [] if optimization is None else _sizes({c: optimization.steps[c] for c in COLUMNS})
    where = Location(event["file"], event["line"] or 0, "", event["source"] or "") if event["file"] else None
    when = f" after {plural(step, 'step')}" if step else " before its first step"
    held = device_memory.holders(text) if kind == "device" else None
    shared = held is not None and held.would_fit_alone
    single = single_allocations.of(process, kind, text, event["source"] or "")
    source = process.facts.get("source") or {}
    if source.get("kind") == "memory-snapshot":
        when, whole = "", "The steps done by then are not in a snapshot."
    else:
        whole = single.why if single and not shared else _why(step, held, device_memory.course(optimization))
    fix, code = single_allocations.advice("shared" if shared else kind, single)
    long = long_batches.of(process, step, text) if single is not None and not shared else None
    if long is not None:
        whole, fix, code = f"{whole} {long.why}", long.fix, long_batches.CODE
    title = f"Out of {kind} memory{when}"
    if held is not None and shared:
        title += f": other programs hold {size(held.of_others)} of {size(held.whole or 0)}"
    return [
        Finding(
            rule=RULE.id,
            severity="critical",
            confidence="certain",
            title=title,
            summary=f"{device_memory.asked_and_held(held) or exceptions.message(name, text) + '.'} {whole}",
            fix=fix,
            fix_code=code,
            first_step=step,
            last_step=step,
            first_second=event["time"],
            evidence=[
                *(Evidence("held by live tensors then", str(one)) for one in source.get("live") or ()),
                Evidence("exception", name, role="message"),
                Evidence("message", exceptions.message(name, text), role="message"),
                *sizes,
                *_held(held),
            ],
            location=(long.made_at if long else None) or where,
            seen_at=where if long and long.made_at else None,
            charts=pictures.memory(optimization, [Mark(float(step or 0), "out of memory")]) if optimization else [],
            false_alarm=""
            if held is not None and held.told
            else "Another process on the same device or machine may have taken the memory.",
        )
    ]


def _why(step: int | None, held: Holders | None, course: str) -> str:
    """What is known of why it did not fit: from when on, and who held the device."""
    if held is not None and held.would_fit_alone:
        own = "this one" if held.own is None else f"this one, with {size(held.own)},"
        return (
            f"Other processes held {size(held.of_others)} of the device's {size(held.whole or 0)}, the largest of them "
            f"process {held.others[0][0]}; {own} would have had room for what it asked for."
        )
    if step:
        return course or "It fit until then: this needed more memory than what ran before, or less was left."
    if held is None or held.told:
        return "It never fit: what the program held before its first step left no room for this."
    return "The message does not say who held the memory: `nvidia-smi` shows whether other programs do."


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
    about="An allocation failed and nothing caught the exception.",
    check=check,
    verify="The next run gets past this step; its peak memory stays below the device's.",
    excluded=("An exception that the script handled: this one ended the program, and says that an allocation failed.",),
    not_when="Exceptions that the script handles.",
    references=("https://docs.pytorch.org/docs/stable/notes/faq.html",),
)

"""crash: the program ended in an exception; what it means in plain words, and how to fix it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed import crash_families
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped
from tracelyze.diagnosis import Chart, Evidence, Finding, Location, Mark

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
from tracelyze.formatting import plural

NO_CRASH = {"finished": "the program ended by itself", "interrupted": "the program was interrupted by its user"}


def check(process: Process, _limits: Limits) -> Outcome:
    """The last exception that nobody caught. KeyboardInterrupt and memory exhaustion are not told here."""
    end = process.exit.kind
    if end == "running":
        return Passed("the program is still running")
    event = last_exception(process)
    if end != "exception" or event is None:
        reason = NO_CRASH.get(end)
        return Passed(reason) if reason else Skipped(f"no exception was recorded; how the program ended: {end}")
    name, text = str(event["name"] or "exception"), str(event["text"] or "")
    if crash_families.is_interruption(name, end):
        return Passed(NO_CRASH["interrupted"])
    if crash_families.out_of_memory(name, text):
        return Passed("the program ran out of memory: see out-of-memory")
    family = crash_families.recognise(name, text)
    message = crash_families.message(name, text)
    where = Location(event["file"], event["line"] or 0, "", event["source"] or "") if event["file"] else None
    place = f" at line {where.line} of {where.file.rsplit('/', 1)[-1]}" if where else ""
    step = None if event["step"] is None else int(event["step"])
    return [
        Finding(
            rule=RULE.id,
            severity="critical",
            confidence="certain",
            title=f"The program died{place}: {family.title if family else message}",
            summary=_summary(message, step, family),
            fix=family.fix
            if family
            else "Read the traceback from its last line upwards; the last line of your own is named.",
            fix_code=family.fix_code if family else "",
            first_step=step,
            last_step=step,
            first_second=event["time"],
            evidence=[
                Evidence("exception", name.rsplit(".", 1)[-1]),
                Evidence("message", message),
                Evidence("optimizer steps done before", step, "steps"),
                *([Evidence("traceback", text)] if text.count("\n") > 0 else []),
            ],
            location=where,
            charts=_charts(process, step),
            false_alarm="" if family is None else "The message is the program's own; only its explanation is ours.",
        )
    ]


def last_exception(process: Process) -> dict[str, Any] | None:
    """The row of the last uncaught exception of the main thread, if there is one."""
    return next((row for row in reversed(list(process.events.records())) if row["kind"] == "exception"), None)


def _summary(message: str, step: int | None, family: crash_families.Family | None) -> str:
    when = "before the first optimizer step" if not step else f"after {plural(step, 'optimizer step')}"
    told = f"The program ended {when} with an exception that nothing caught: {message.rstrip('.')}."
    return f"{told} {family.meaning}" if family else told


def _charts(process: Process, step: int | None) -> list[Chart]:
    if not process.trainings or step is None:
        return []
    training = process.longest
    return pictures.loss(training, [Mark(float(step), "exception")])


RULE = Rule(
    id="crash",
    family="end of run",
    severity="critical",
    title="The program died with an exception",
    about="An exception that nothing caught ended the run. The well-known ones are explained with their usual fix.",
    check=check,
    consequence_of=("loss-nonfinite", "missing-zero-grad", "learning-rate-too-high"),
    not_when="Exceptions that the script handles, and KeyboardInterrupt.",
)

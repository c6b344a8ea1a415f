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
        return (
            Passed(reason)
            if reason
            else Skipped(f"no exception was recorded; how the program ended: {end}", "not-applicable")
        )
    name, text = str(event["name"] or "exception"), str(event["text"] or "")
    if crash_families.is_interruption(name, end):
        return Passed(NO_CRASH["interrupted"])
    if crash_families.out_of_memory(name, text):
        return Passed("the program ran out of memory: see out-of-memory")
    family = crash_families.recognise(name, text)
    message = crash_families.message(name, text)
    where = Location(event["file"], event["line"] or 0, "", event["source"] or "") if event["file"] else None
    place = f" at {where.file.rsplit('/', 1)[-1]}:{where.line}" if where else ""
    step = None if event["step"] is None else int(event["step"])
    return [
        Finding(
            rule=RULE.id,
            severity="critical",
            confidence="certain",
            title=crash_families.title(name, message, place),
            summary=_summary(message, step, family),
            fix=family.fix if family else _fallback(where),
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


def _fallback(where: Location | None) -> str:
    """What to do about an exception that is not known."""
    place = f"at {where.file}:{where.line}" if where else "in the traceback's last frame of your own"
    return (
        f"Look at the values {place}: run the command again under `python -m pdb -c continue`, which stops there, and "
        "print the variables of that line. Then handle or prevent the case that raised it."
    )


def last_exception(process: Process) -> dict[str, Any] | None:
    """The row of the last uncaught exception of the main thread, if there is one."""
    return next((row for row in reversed(list(process.events.records())) if row["kind"] == "exception"), None)


def _summary(message: str, step: int | None, family: crash_families.Family | None) -> str:
    when = "before the first optimizer step" if not step else f"after {plural(step, 'optimizer step')}"
    told = f"The program ended {when} with an exception that nothing caught: {message.rstrip('.')}."
    return f"{told} That means: {family.title}. {family.meaning}" if family else told


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
    verify="The next run gets past this step.",
    consequence_of=("loss-nonfinite", "missing-zero-grad", "learning-rate-too-high"),
    not_when="Exceptions that the script handles, and KeyboardInterrupt.",
)

"""direct-forward-call: the script calls model.forward(x), past what model(x) does around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Threshold
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.editing import own_expressions, parsed_line
from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def check(process: Process, limits: Limits) -> Outcome:
    """Modules whose parts were called by their `forward` while they themselves were not."""
    found = process.events_of("direct-forward")
    if not found:
        return Passed("modules are called by model(x)")
    row = max(found, key=lambda one: one["value"] or 0.0)
    hooks, name = int(row["value"] or 0), row["name"]
    its = "its hook" if hooks == 1 else f"its {plural(hooks, 'hook')}"
    place = Location(row["file"], int(row["line"]), "", row["source"] or "") if row["file"] else None
    line, where = parsed_line.of(place), f"Line {place.line}" if place else "The script"
    return [
        Finding(
            rule=RULE.id,
            severity="warning" if hooks >= limits["hooks"] else "info",
            confidence="certain",
            title=f"{name}.forward() is called directly"
            + (f": {its} {'does' if hooks == 1 else 'do'} not run in these calls" if hooks else ""),
            summary=f"{where} calls forward() of {name}, not the module itself. "
            + _skipped(hooks, its, row["text"] or ""),
            fix="Call the module itself: that runs its hooks and its forward().",
            fix_code=(line and own_expressions.called_whole(line)) or "model(x)  # not model.forward(x)",
            first_step=int(row["step"] or 0) + 1,
            evidence=[Evidence("hooks on the module", hooks, "hooks")],
            location=place,
            diff=line_edits.called_whole(process, place),
            false_alarm="A forward that is called past its hooks on purpose.",
        )
    ]


def _skipped(hooks: int, its: str, own: str) -> str:
    """What such a call leaves out. `own`: the hooks by their names, if all of them are the script's."""
    run = f"{'runs' if hooks == 1 else 'run'} only where the module itself is called."
    if own:
        return f"Such a call skips {its}, {own}: {'it' if hooks == 1 else 'they'} {run}"
    always = (
        "Such a call skips every hook on it, as those of FSDP, pruning, spectral norm or profilers, and what wraps or "
        "compiles it."
    )
    return always + f" {its[0].upper()}{its[1:]} {run}" * bool(hooks)


RULE = Rule(
    id="direct-forward-call",
    family="model",
    severity="info",
    title="forward() is called directly, skipping hooks",
    about="model(x) runs hooks around forward(); model.forward(x) runs none of them.",
    check=check,
    verify="Record the run again: the model is called by model(x).",
    excluded=("A call of a part by its container: the container itself was not called.",),
    needs=(("events.kind", "steps.loss"),),
    thresholds=(Threshold("hooks", 1, "hooks", "without hooks on the module it makes no difference"),),
    not_when="Other methods, modules without submodules, compiled models.",
)

"""A module that one line gives its own weights: a target network that was to be given those of another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script.editing import own_names
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

_ITSELF: Final = re.compile(r"(?<![\w.\])])([\w.\[\]'\"]+)\.load_state_dict\(\s*\1\.state_dict\(\s*\)")


def loads(process: Process, rows: list[dict[str, Any]], limits: Limits) -> list[dict[str, Any]]:
    """The loads during training whose line hands a module the very state that it takes from it.

    The line has to say so. A state that is changed in place before it is loaded, as averages are, is another matter.
    """
    return [
        row
        for row in rows
        if row["step"] >= limits["steps"]
        and row["taken_at"] == row["step"]
        and row["own"] == row["expected"] > 0
        and not (row["missing"] or row["unexpected"] or row["from_other"])
        and _is_said_by(process.site(row["site"]))
    ]


def _is_said_by(line: Location | None) -> bool:
    return line is not None and _ITSELF.search(line.source or "") is not None


def finding(process: Process, rows: list[dict[str, Any]], rule: str, limits: Limits) -> Finding:
    """`rows`: the loads of one line."""
    row, steps = rows[-1], sorted({int(row["step"]) for row in rows})
    line = process.site(row["site"])
    said = _ITSELF.search(line.source or "") if line else None
    name = said.group(1) if said else "the module"
    trained = own_names.model_at(process, line) or "model"
    target = name if said and name != trained else "target"
    return Finding(
        rule=rule,
        severity="warning",
        confidence="certain",
        title=f"{name[:30]} loads its own weights: {plural(len(rows), 'load')} changed nothing",
        summary=(
            f"Between step {steps[0]:,} and step {steps[-1]:,} {name}.load_state_dict was given {name}.state_dict(): "
            f"each of the {row['own']} tensors was copied onto itself. If that is a target network or an old policy "
            "that should follow the trained model, these loads leave it behind."
        ),
        fix="Load the weights of the trained model.",
        fix_code=f"{target}.load_state_dict({trained}.state_dict())",
        first_step=steps[0],
        last_step=steps[-1],
        evidence=[
            Evidence("loads that changed nothing", len(steps), "loads", *limits.against("loads")),
            Evidence("tensors that were the module's own", int(row["own"]), "tensors"),
        ],
        location=line,
        false_alarm="A load that is meant to do nothing.",
    )


def assigned(process: Process, rows: list[dict[str, Any]]) -> str:
    """A clause on loads that made another model's tensors a model's own; empty where there was none."""
    places = [process.site(row["site"]) for row in rows if row["from_other"]]
    count = sum(place is not None and "assign=True" in place.source for place in places)
    return f", {count} that made another model's tensors its own (assign=True)" if count else ""

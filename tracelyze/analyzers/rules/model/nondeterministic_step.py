"""nondeterministic-step: one step, made twice from the same state, gives other bits."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Evidence, Finding, Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]

_BY_ITS_OWN: Final = re.compile(r"\bgenerator\s*=(?!=|\s*None\b)")
OF_MODULE: Final = """# once, in __init__ of the module:
self.generator = torch.Generator().manual_seed(0)  # for draws on a GPU: torch.Generator("cuda")
# and where it draws: generator=self.generator"""


def check(process: Process, limits: Limits) -> Outcome:
    """Outputs and gradients of both replays, at every measurement."""
    rows = list(process.tables["replays"].records())
    answered = [row for row in rows if not row["failed"]]
    if not answered:
        return Skipped("; ".join(dict.fromkeys(row["failed"] for row in rows)), "not-applicable")
    differ = [row for row in answered if max(row["outputs"], row["gradients"]) > 0]
    if not differ:
        return Passed(f"{plural(len(answered), 'step')} made twice: all bits of outputs and gradients agree")
    unexpected = [row for row in differ if row["deterministic"] or _difference(row) > limits["rounding"]]
    if not unexpected:
        return Passed(
            f"replays differ by {max(map(_difference, differ)):.1g} of the values: sums in another order, as atomic "
            "operations make them where nobody asked for determinism"
        )
    return [_finding(process, unexpected, answered, limits)]


def _difference(row: Row) -> float:
    return float(max(row["outputs"], row["gradients"]))


def _finding(process: Process, unexpected: list[Row], answered: list[Row], limits: Limits) -> Finding:
    row = max(unexpected, key=_difference)
    difference, asked = _difference(row), row["deterministic"]
    place = process.site(row["site"])
    drawn = _drawn(process, place) if difference > limits["rounding"] else None
    where = f"{row['module']} ({row['kind']})" if row["module"] else row["kind"] or "the backward"
    if difference > limits["rounding"]:
        why = (
            "That is more than rounding: something outside the model, the batch and the random generators of Python, "
            "numpy and torch decides, such as a private generator or the time."
        )
        fix = "Draw random numbers from torch's global generator, or keep the generator in the model and seed it."
    else:
        why = "Operations that sum in no fixed order were used although torch.use_deterministic_algorithms is on."
        fix = (
            "Replace the operation, or set torch.use_deterministic_algorithms(True) without warn_only, which names it."
        )
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="likely",
        title="A step repeated from the same state gives different bits",
        summary=(
            "Copies of the model made one forward and one backward twice: same weights, same batch, same random "
            f"state. Results differ by up to {difference:.2g} of the largest value, first in {where}. {why} A run "
            "cannot be reproduced exactly, and this noise also shows when two runs are compared."
            + (f" Line {drawn.line} of that module draws from a generator that it is given." if drawn else "")
        ),
        fix=fix,
        fix_code=OF_MODULE if drawn else "",
        first_step=int(unexpected[0]["step"]) + 1,
        last_step=int(unexpected[-1]["step"]) + 1,
        evidence=[
            Evidence("difference of the outputs", row["outputs"], "share", *limits.against("rounding")),
            Evidence("difference of the gradients", row["gradients"], "share"),
            Evidence("steps that were made twice", len(answered), "steps"),
            Evidence("deterministic algorithms were asked for", str(bool(asked))),
        ],
        location=drawn or place,
        seen_at=place if drawn else None,
        false_alarm="A model that counts its calls outside of itself, to change with time.",
    )


def _drawn(process: Process, place: Location | None) -> Location | None:
    """The only recorded line of a method that draws from a generator of its own."""
    lines = recorded_text.of_function(process, place) if place is not None else {}
    found = [at for at, text in lines.items() if place and at > place.line and _BY_ITS_OWN.search(text)]
    if place is None or len(found) != 1:
        return None
    return place.at(found[0], lines[found[0]])


RULE = Rule(
    id="nondeterministic-step",
    family="model",
    severity="info",
    title="A step does not repeat bit for bit",
    about="With the same weights, batch and random state a step should give the same bits. `tracelyze collect --probe` "
    "makes one twice, in copies of the model; the program's loss is not part of it.",
    check=check,
    verify="Record the run again with --probe: all bits agree.",
    needs=(("replays.outputs", "replays.gradients"), ("replays.failed",)),
    thresholds=(
        Threshold(
            "rounding",
            1e-2,
            "share",
            "derived: sums of 16-bit values in another order differ by some of their 8 bits, 2^-8 each",
        ),
    ),
    not_when="Differences of the size of rounding, unless torch.use_deterministic_algorithms is on.",
)

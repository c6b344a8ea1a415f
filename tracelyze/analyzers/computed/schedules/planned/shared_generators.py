"""Batches that a generator takes from the loader: it gives each of them once, however often a loop goes over it."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.diagnosis import Diff, Evidence, Finding, Location
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits


def maker(process: Process) -> Location | None:
    """The line at which a generator goes through the training loader; None where the loop itself does."""
    training = validation.training_loaders(process)
    places = [process.site(row["site"]) for row in process.loaders.records() if row["loader"] in training]
    generators = process.functions("batches")
    for place in places:
        if place is not None and (place.file_function in generators or _is_kept(place)):
            return place
    return None


def _is_kept(place: Location) -> bool:
    """Whether the line gives a name to a generator: `batches = (move(one) for one in loader)`."""
    line = parsed_line.parse(place.source)
    assigned = [node.value for node in ast.walk(line.tree) if isinstance(node, ast.Assign)] if line else []
    return any(isinstance(node, ast.GeneratorExp) for value in assigned for node in ast.walk(value))


def _validations_after(process: Process) -> int:
    """How often the same data were evaluated at the same line after the last step."""
    evals = process.evals
    late = validation.passes(process) & (evals["after_step"] >= len(process.steps))
    kinds = np.stack([np.nan_to_num(evals[name][late], nan=-1.0) for name in ("site", "loader")], axis=1)
    return int(np.unique(kinds, axis=0, return_counts=True)[1].max()) if len(kinds) else 0


def _remade(process: Process, place: Location) -> tuple[Location, Diff] | None:
    """The line of the loop's function that makes the generator, and the edit by which the loop over its batches makes
    one in each epoch; None where the recorded lines do not show exactly one of each."""
    loop = process.location("epochs")
    if loop is None:
        return None
    text = recorded_text.around(process, loop)
    call = re.compile(
        rf"\s*(?P<name>[A-Za-z_]\w*)\s*=(?!=)\s*(?P<made>(?:[\w.]+\.)?{re.escape(place.function)}\(.*\))\s*"
    )
    made = [(number, found) for number, line in sorted(text.items()) if (found := call.fullmatch(code_of(line)))]
    if len(made) != 1 or made[0][0] >= loop.line:
        return None
    (number, found), name = made[0], re.compile(rf"(?<![\w.]){made[0][1]['name']}(?!\w)")
    inner = [at for at, line in text.items() if at > loop.line and re.match(r"\s*for\b", line) and name.search(line)]
    if len(inner) != 1:
        return None
    anew = name.sub(lambda _: found["made"], text[inner[0]])
    where = loop.at(number, text[number])
    return where, Diff(loop.file, inner[0], [text[inner[0]]], [anew])


def finding(optimization: Optimization, rule: str, planned: int, place: Location, limits: Limits) -> Finding:
    """One pass over the loader, in a loop that is written for `planned`: left, or gone on with a generator that had
    nothing more to give. Validations after the last step show the latter."""
    process = optimization.process
    loop, times, remade = process.location("epochs"), _validations_after(process), _remade(process, place)
    went_on = times >= limits["asked"]
    where = f" (line {loop.line})" if loop else ""
    later = (
        f"The validation ran {plural(times, 'time')} after the last step: the later epochs had no batch, and trained "
        "nothing, without an error."
        if went_on
        else "If the loop went on, its later epochs had no batch; or a return or a break left it."
    )
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title="The epochs share a generator: after the first one they had no batch"
        if went_on
        else f"One pass over the training data, in a loop over {planned:,} epochs",
        summary=(
            f"The loop over the epochs{where} is written for {planned:,}. Its batches come from a generator (line "
            f"{place.line}), which yields each batch only once. {later}"
        ),
        fix="Create a new generator in each epoch, right where the loop iterates over it."
        if remade
        else "Iterate over the loader itself in each epoch, or create a new generator each time.",
        fix_code=""
        if remade
        else "for epoch in range(epochs):\n    for batch in loader:  # or a generator that is made here\n"
        "        train_step(batch)",
        diff=remade[1] if remade else None,
        first_step=timing.last_step(optimization),
        last_step=timing.last_step(optimization),
        evidence=[
            Evidence("epochs with batches, of those of the loop", 1 / planned, "share",
                     *limits.against("part"), role="most"),
            Evidence("validations after the last step", times, "times", *limits.against("asked")),
        ],
        location=remade[0] if remade else place,
        seen_at=loop,
        charts=pictures.loss(optimization),
        false_alarm="A trial run, or a stream that is to be gone through once.",
    )  # fmt: skip

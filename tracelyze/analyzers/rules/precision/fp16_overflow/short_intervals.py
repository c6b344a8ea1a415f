"""A loss scale that grows again after a few steps, so that GradScaler's own search skips many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Diff, Evidence, Finding, Mark, Setting
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.gradients.overflows import Overflows
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

DEFAULT: Final = 2000
_CALL: Final = "GradScaler"


def finding(optimization: Optimization, seen: Overflows, rule: str, limits: Limits) -> Finding | None:
    """What the interval costs, where the scale comes back each time; None where it is long enough, or where losses are
    no numbers: no interval helps there."""
    if seen.interval is None or seen.interval > limits["interval"] or seen.skipped_lately < limits["share"]:
        return None
    if seen.scale is None or seen.scale < limits["scale"] or seen.backoffs >= limits["backoffs"]:
        return None
    steps = optimization.steps
    loss = steps["loss"][seen.skipped]
    if steps.known("loss")[seen.skipped].any() and not np.isfinite(loss).any():
        return None
    first, count = int(np.argmax(seen.skipped)), int(seen.skipped.sum())
    begin = timing.step_at(optimization, first)
    place = script_lines.only(optimization.process, "scaler-text")
    every = "each good step" if seen.interval == 1 else f"each {seen.interval} good steps"
    marks = [Mark(float(begin), "overflows begin")]
    return Finding(
        rule=rule,
        severity="warning",
        confidence="certain",
        title=f"float16 overflows: {count:,} of {len(seen.skipped):,} steps skipped, as the loss scale grows too often",
        summary=(
            f"GradScaler doubles its loss scale after {every} (growth_interval, {DEFAULT:,} unless it is set). The "
            f"scale soon overflows, the step is skipped, and the scale halved: {plural(count, 'step')}, "
            f"{percent(seen.skipped_lately)} of the last {seen.window}, cost time and changed nothing. It comes back "
            f"each time, to {number(seen.scale)} in the end, so the gradients themselves fit in float16."
        ),
        fix=f"Leave growth_interval at {DEFAULT:,}. In short runs too: the scale is found by halving.",
        fix_code=f"scaler = torch.amp.GradScaler({_device(optimization)})  # growth_interval={DEFAULT}",
        first_step=begin,
        last_step=timing.step_at(optimization, int(np.flatnonzero(seen.skipped)[-1])),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence(
                "good steps until the scale grows", seen.interval, "steps", *limits.against("interval"), role="most"
            ),
            Evidence("recent steps skipped", seen.skipped_lately, "share", *limits.against("share")),
        ],
        cost=timing.cost_of(optimization, seen.skipped),
        location=place or optimization.step_location,
        seen_at=optimization.step_location if place is not None else None,
        diff=_with_default(optimization, place),
        setting=Setting(("growth_interval",), (float(seen.interval),), str(DEFAULT)),
        charts=pictures.loss_scale(optimization, marks) + pictures.loss(optimization, marks),
        false_alarm="A test of the scaler that is to overflow.",
    )


def _device(optimization: Optimization) -> str:
    return f'"{str(optimization.facts.get("device") or "cuda").partition(":")[0]}"'


def _with_default(optimization: Optimization, place: Location | None) -> Diff | None:
    """The call with the default, where a number stands there."""
    own = own_statement.at(optimization.process, place)
    call = own.only_call(_CALL) if own is not None else None
    given = [one.value for one in call.keywords if one.arg == "growth_interval"] if call is not None else []
    if own is None or len(given) != 1 or not own.parsed.text_of(given[0]).isdigit():
        return None
    return own.changed(own.parsed.with_parts({given[0]: str(DEFAULT)}))

"""What a layer was given was not finite, and no gradient passes through what made it: features computed of the data."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import bounds
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.remade import finite
from tracelyze.analyzers.script.loss import broken_operation
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_FIX: Final = {
    "-Inf": "Keep what the logarithm is taken of above 0: silence, black pixels and empty counts are exactly 0.",
    "": "Look at what is divided there, and of what the root or the logarithm is taken: keep it away from 0.",
}
_DIVIDES: Final = re.compile(r"[^/]/[^/]")
_OF_TORCH: Final = re.compile(
    r"(?:Lazy)?(?:Linear|Bilinear|Conv|BatchNorm|InstanceNorm|SyncBatchNorm|LayerNorm|GroupNorm|RMSNorm|LSTM|GRU|RNN"
    r"|PReLU|MultiheadAttention|Transformer(?:Encoder|Decoder))"
)
_CODE: Final = {"-Inf": "features = torch.log(power.clamp_min(1e-8))", "": "z = (x - mean) / (std + 1e-6)"}


def finding(optimization: Optimization, rule: str) -> Finding | None:
    """The finding about the first loss that is not finite; None where the graph of that loss did not show this."""
    lost = optimization.steps.known("loss") & ~np.isfinite(optimization.steps["loss"]) & ~timing.skipped(optimization)
    process, index = optimization.process, int(np.argmax(lost))
    begin = timing.step_at(optimization, index)
    told = [row for row in process.events_of("nonfinite-taken-in") if row["step"] == begin - 1]
    if not lost.any() or not told or _of_the_batch(process, begin):
        return None
    layer, what = str(told[0]["name"] or "").rpartition(".")[0], str(told[0]["text"])
    into, maker = layer or "the model's first layer", _before(process, layer)
    line = script_lines.only(process, "nonfinite") if what == "-Inf" else None
    divides = _dividing(process) if what != "-Inf" and maker is None else None
    made = f"{maker['module']} ({maker['kind']}) ran right before it, and no" if maker is not None else "No"
    own = maker is None and not _is_of_torch(process, layer)
    met = f"what {into} was given held {what}"
    met = f"{into} met {what}, which it was given or computes itself," if own else met
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"{maker['module']} ({maker['kind']}) outputs {what} at step {begin:,}, and the loss is lost"
        if maker is not None
        else f"{into} {'meets' if own else 'is given'} {what} at step {begin:,}, and the loss is lost",
        summary=(
            f"In the forward of step {begin:,} {met} while every weight was finite. {made} gradient passes through "
            "what computed it: it depends on the data alone."
            + (broken_operation.logarithms(process) if line else "")
            + (f" Line {divides.line} holds the only division of a forward that nothing bounds." if divides else "")
            + f" {plural(int(lost.sum()), 'loss')} of the run were lost."
        ),
        fix=_FIX.get(what, _FIX[""]),
        fix_code=_bounded(process, line, divides) or _CODE.get(what, _CODE[""]),
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, index),
        evidence=[
            Evidence(
                "what the layer met" if own else "what the layer was given",
                what,
                "",
                "finite",
                "NaN or Inf in, NaN out",
            ),
            Evidence("the layer", into),
        ],
        cost=timing.cost_of(optimization, np.arange(len(lost)) >= index),
        location=line or (process.module_location(maker["module"]) if maker else divides) or optimization.loss_location,
        seen_at=optimization.loss_location,
        charts=pictures.loss(optimization, [Mark(float(begin), f"{what} into {into}", "not-finite")]),
        false_alarm="Values that are not finite in a part that is left out later, if the loss broke at the same step "
        "for another reason.",
    )


def _bounded(process: Process, logarithm: Location | None, division: Location | None) -> str:
    """The script's own line with what it takes the logarithm of, or divides by, kept away from 0; empty without one."""
    own = own_statement.at(process, logarithm)
    if own is not None:
        return finite.logarithms(own)
    return finite.divided(process, division) if division is not None else ""


def _is_of_torch(process: Process, layer: str) -> bool:
    """Whether the layer is one of torch's that multiply what they are given: a module of the script's own may have
    computed it before."""
    kinds = [row["kind"] for row in process.tables["modules"].records() if layer and row["module"] == layer]
    return not kinds or any(_OF_TORCH.match(str(kind)) for kind in kinds)


def _dividing(process: Process) -> Location | None:
    """The only line of a forward that divides by what its text does not keep away from 0."""
    lines = [one for one in process.locations("singular") if one.function == "forward" and "/" in one.source]
    lines = [one for one in lines if _DIVIDES.search(one.source) and not bounds.is_bounded(process, one)]
    return lines[0] if len(lines) == 1 else None


def _of_the_batch(process: Process, step: int) -> bool:
    """Whether a batch of just then was not finite itself: nonfinite-input speaks of that."""
    return any(row["nonfinite"] and abs(row["step"] + 1 - step) <= 1 for row in process.tables["batches"].records())


def _before(process: Process, layer: str) -> dict[str, Any] | None:
    """The module that returned right before this layer in a watched forward, where none up to there has weights that
    train: else it may be one of several branches."""
    rows: list[dict[str, Any]] = []
    for row in process.tables["activations"].records():
        if rows and row["step"] != rows[0]["step"]:
            break
        rows.append(row)
    at = next((index for index, row in enumerate(rows) if row["module"] == layer), 0)
    trained = {str(row["parameter"]) for row in process.tables["parameters"].records()}
    before = rows[:at] if layer else []
    if any(name.startswith(f"{row['module']}.") for row in before for name in trained):
        return None
    return before[-1] if before and before[-1]["module"] else None

"""Calls of a model that an autocast region has to hold once its weights are float32 again: all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import loaded_short
from tracelyze.analyzers.script.editing import trainer_examples
from tracelyze.analyzers.script.editing.remade.precision import casts
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_CALLS: Final = ("training-call", "forward")
_SHOWN: Final = 4
_SHORT_WEIGHTS: Final = r"\bprecision\s*=\s*[\"'](?:bf16|16)-true[\"']"  # of Lightning
_KEEP: Final = (
    "Keep the weights in float32 and compute in 16 bits with autocast, or use an optimizer with float32 master weights "
    "or stochastic rounding."
)
_MIXED: Final = 'Have the framework keep the weights in float32 and compute in 16 bits: "{mixed}" in line {line}.'


def remedy(optimization: Optimization) -> Remedy:
    """How the weights are kept in float32, at the line that makes them 16-bit numbers or tells a framework to."""
    process = optimization.process
    asked = script_lines.only(process, "setting", _SHORT_WEIGHTS)
    if asked is None:
        short = loaded_short.place(process) or script_lines.made_short(process)
        short = casts.given_by(process, short) or short
        return Remedy(_KEEP + said(process), with_float32_weights(optimization, short), short)
    mixed = "bf16-mixed" if "bf16" in asked.source else "16-mixed"
    return Remedy(_MIXED.format(mixed=mixed, line=asked.line), f'precision="{mixed}"  # line {asked.line}', asked)


def said(process: Process) -> str:
    """A sentence that names the lines, where there are several: inputs that are cast for one call are cast for all. A
    trainer opens the region itself."""
    if trainer_examples.trainer_of(process)[0]:
        return ""
    places = {one.file_line for role in _CALLS for one in process.locations(role)}
    numbers = sorted(line for _, line in places)
    if len(numbers) < 2 or len({file for file, _ in places}) > 1:
        return ""
    if len(process.optimizations) > 1:  # some of these lines call another model, which may have float32 weights
        return " The autocast region has to hold every call of this model, in validation as well."
    told = listed(map(str, numbers), _SHOWN)
    return f" The autocast region has to hold every call of the model, in validation as well: lines {told}."


def with_float32_weights(optimization: Optimization, short: Location | None) -> str:
    """The line that makes them short (`short`) with float32 in its place, or the weights cast back; and a training step
    in bfloat16 on the device that they are on."""
    device = str(optimization.facts.get("device") or "cpu").partition(":")[0]
    kept = casts.to_float32(optimization.process, short)
    where = f"in place of line {short.line}" if kept and short else "before the optimizer is made"
    return (
        f"{kept or 'model = model.float()'}  # {where}\n"
        f'with torch.autocast("{device}", dtype=torch.bfloat16):  # and around each further call of the model\n'
        "    loss = criterion(model(x), y)"
    )

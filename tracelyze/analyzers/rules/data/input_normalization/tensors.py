"""Inputs that a line hands to a TensorDataset as they are: what to do above it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_ABOVE: Final = (
    "# above line {line}; rows: those that are trained on alone. Keep mean and std with the model\n"
    "mean, std = {inputs}[rows].mean(0), {inputs}[rows].std(0)\n"
    "{inputs} = ({inputs} - mean) / (std + 1e-8)"
)
_BYTES: Final = "{inputs} = ({inputs}.float() / 255 - 0.5) / 0.25  # above line {line}"


def above(process: Process, made: Location, pixels: bool) -> str:
    """The inputs normalised under the name that the line gives to the TensorDataset; empty where it gives no name."""
    own = own_statement.at(process, made)
    call = own.only_call("TensorDataset") if own is not None else None
    inputs = call.args[0] if call is not None and call.args else None
    text = _BYTES if pixels else _ABOVE
    return text.format(line=made.line, inputs=inputs.id) if isinstance(inputs, ast.Name) else ""

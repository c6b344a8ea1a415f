"""The script's own statement that makes batch normalisations, with group normalisations in their place."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence.editing import own_statement, parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = "Use GroupNorm or LayerNorm, freeze BatchNorm in eval mode when fine-tuning, or enlarge micro-batches"
_IMPORTED: Final = "import math  # at the top of the file\n\n"
CODE: Final = (
    _IMPORTED
    + """groups = math.gcd(channels, max(1, channels // 16))  # of about 16 channels
nn.GroupNorm(groups, channels)  # for nn.BatchNorm2d(channels)"""
)


class Made(NamedTuple):
    """The line that makes the first of them, and an example."""

    place: Location
    code: str


def in_place(process: Process, place: Location | None) -> Made | None:
    """The statement at a place with group normalisations in place of the batch normalisations; None where it names none
    with its channels."""
    own = own_statement.at(process, place)
    if own is None or place is None or not own.is_whole:
        return None
    parts: dict[ast.expr, str] = {}
    for call in (node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)):
        name = parsed_line.name_of(call.func)
        if name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d") and call.args and parsed_line.is_operand(call.args[0]):
            channels = own.parsed.text_of(call.args[0])
            holder = own.parsed.text_of(call.func).removesuffix(name)
            parts[call] = f"{holder}GroupNorm(math.gcd({channels}, max(1, {channels} // 16)), {channels})"
    if not parts:
        return None
    return Made(place, _IMPORTED + "# groups of about 16 channels\n" + own.dedented(own.parsed.with_parts(parts)))

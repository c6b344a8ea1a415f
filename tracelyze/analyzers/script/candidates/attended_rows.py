"""Rows of attention that are masked everywhere: what to do about them, and the only line of the script that attends."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

MASKED: Final = "softmax of rows that are masked everywhere"
"""What the collector calls it (signals/gradients/hidden_rows.py)."""
TOLD: Final = (
    "a mask hid a NaN of the forward from the loss: between the loss and these parameters stands attention with a "
    "mask, and above it masked_fill, where() or an index. The softmax of a row that is masked everywhere is NaN. The "
    "backward multiplies it by 0, which is NaN again."
)
SPOILED: Final = (
    "The softmax of a row of attention that is masked everywhere is NaN, which a later mask hides from the loss, but "
    "not from the backward."
)
_FIX: Final = (
    "Leave at least one position of each row unmasked, also in samples that are nothing but padding, or leave those "
    "out. To fill their output afterwards is not enough: the backward still runs through it."
)
PADDING: Final = ("key_padding_mask", "src_key_padding_mask", "memory_key_padding_mask", "tgt_key_padding_mask")
_ABOVE: Final = "# right above line {line}: rows of nothing but padding attend to all their positions\n"
_OPENED: Final = "{mask} = {mask} & ~{mask}.all(-1, keepdim=True)"
_OWN: Final = (
    "# scores: what the softmax is taken of; mask: True where nothing is attended to\n"
    "scores = scores.masked_fill(mask, torch.finfo(scores.dtype).min)  # in place of -inf"
)


def advice(process: Process) -> tuple[str, str]:
    """What to do, and an example with the script's own mask where it is known."""
    line = place(process)
    if line is not None and line in process.locations("attention"):
        return _FIX, _OWN
    own = own_statement.at(process, line)
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)] if own is not None else []
    given = [one.value for call in calls for one in call.keywords if one.arg in PADDING]
    if line is None or own is None or len(given) != 1 or not isinstance(given[0], (ast.Name, ast.Attribute)):
        return _FIX, _OPENED.format(mask="padding") + "  # True at padding, as key_padding_mask takes it"
    return _FIX, _ABOVE.format(line=own.line) + _OPENED.format(mask=ast.unparse(given[0]))


def place(process: Process) -> Location | None:
    """The only line that attends: a softmax between two products, or the call of a layer that is given a mask."""
    layers = [one for one in process.locations("attending-layer") if _is_masked(process, one)]
    return script_lines.only_of([*layers, *process.locations("attention")])


def _is_masked(process: Process, line: Location) -> bool:
    own = own_statement.at(process, line)
    return own is None or "mask" in own.text

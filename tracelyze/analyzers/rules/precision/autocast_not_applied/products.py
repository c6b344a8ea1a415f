"""Matrix products and regions of autocast, in the script's own lines: where the region acts on the product."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

SKETCH: Final = "out = F.linear(x, self.weight, self.bias)  # in place of out.addmm_(x, self.weight.t())"
REGION: Final = "with torch.autocast(x.device.type, dtype=torch.bfloat16):\n    loss = criterion(model(x), y)"
_IN_PLACE: Final = ("addmm_", "baddbmm_", "addbmm_", "addmv_", "addr_")
_REGION: Final = re.compile(r"^\s*with\b.*\bautocast\(.*:\s*(?:#.*)?$")


def anew(process: Process, place: Location | None) -> str:
    """The statement with a product that returns a new tensor; empty where it has none in place."""
    own = own_statement.at(process, place)
    call = own.only_call(*_IN_PLACE) if own is not None else None
    if own is None or call is None or not isinstance(call.func, ast.Attribute) or not own.is_whole:
        return ""
    held = own.parsed.text_of(call.func.value)
    changed = own.parsed.with_parts({call.func: f"{held}.{call.func.attr[:-1]}"})
    alone = isinstance(own.parsed.statement, ast.Expr) and own.parsed.statement.value is call
    return own.dedented(f"{held} = {changed}" if alone else changed)


def within(process: Process, loss: Location | None) -> str:
    """The region that holds the loss, with the call of the model in it as well; empty where either is not known."""
    own = own_statement.at(process, loss)
    calls = [one for one in process.locations("training-call") if loss and one.file_function == loss.file_function]
    if own is None or loss is None or len(calls) != 1 or calls[0].line >= loss.line:
        return ""
    called = own_statement.at(process, calls[0])
    lines = recorded_text.of_function(process, loss)
    heads = [
        text.strip() for at, text in sorted(lines.items()) if calls[0].line < at < loss.line and _REGION.match(text)
    ]
    if called is None or not called.is_whole or len(heads) != 1:
        return ""
    body = f"{called.dedented(called.text)}\n{own.dedented(own.text)}"
    return f"{heads[0]}\n{textwrap.indent(body, '    ')}"

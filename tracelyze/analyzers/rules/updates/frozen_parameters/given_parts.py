"""An optimizer that is given parts of a model by their names, and not all of them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.optimizers import returned
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization

_ALL: Final = ("parameters", "named_parameters")
_SHOWN: Final = 4
"""Names that a sentence can bear."""


class GivenParts(NamedTuple):
    """Why tensors are in no optimizer, and what to do about it."""

    said: str
    fix: str


def of(optimization: Optimization, names: Sequence[str]) -> GivenParts | None:
    """Where the statement that makes the optimizer names the parameters of parts of one model alone, as far as it was
    recorded, and all of these tensors are in other parts of it."""
    made = optimization.made_at
    own = own_statement.at(optimization.process, made) or own_statement.begun_at(optimization.process, made)
    if made is None or own is None or not names:
        return None
    taken = [node.value for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Attribute) and node.attr in _ALL]
    parts = [one for one in taken if isinstance(one, ast.Attribute)]
    holders = {ast.unparse(one.value) for one in parts}
    if not parts or len(parts) != len(taken) or len(holders) != 1:
        return None
    holder = holders.pop()
    in_lightning = made.function.rpartition(".")[2] == returned.CONFIGURE and holder == "self"
    calls = re.compile(rf"(?<![\w.]){re.escape(holder)}\(")
    called = any(calls.search(text) for text in recorded_text.everything(optimization.process))
    if not in_lightning and (holder == "self" or not called):
        return None  # what holds the parts may be no model
    given = list(dict.fromkeys(one.attr for one in parts))
    left = list(dict.fromkeys(name.partition(".")[0] for name in names))
    table = optimization.process.tables["parameters"]
    own_rows = table.where(table["optimizer"] == optimization.optimizer)
    held = {str(name).partition(".")[0] for name in own_rows.text("parameter")}
    if set(left) & set(given) or not held or not held <= set(given):
        return None  # the names are not those that the line gives the parts
    ofs = listed([f"{holder}.{one}" for one in given], most=_SHOWN)
    others = listed([f"{holder}.{one}" for one in left], most=_SHOWN)
    return GivenParts(
        f"Line {made.line} gives the optimizer parameters of {ofs}; these are in {others}.",
        f"Give the optimizer the parameters of {others} as well. Set requires_grad_(False) on parameters that should "
        "stay fixed, which also saves computing their gradients.",
    )

"""The statement of a policy's loss that puts a minus in front of what cross_entropy gave, which is one already."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_GIVES_MINUS: Final = ("cross_entropy", "nll_loss")
_TURNED: Final = re.compile(r"-\s*(?:\w+\.)*(?:cross_entropy|nll_loss|\w*criterion\w*|\w*loss\w*)\s*\(")


def without_minus(process: Process, line: Location | None) -> str:
    """The statement without the minus in front of all that it assigns; empty where it has none, or where the training
    called no cross_entropy that keeps the samples apart, or one with a minus in front of it."""
    calls = process.tables["loss_calls"].records()
    apart = [row for row in calls if row["training"] and row["reduction"] == "none"]
    own = own_statement.at(process, line) if apart and line is not None else None
    value = getattr(own.parsed.statement, "value", None) if own is not None and own.is_whole else None
    if own is None or not isinstance(value, ast.UnaryOp) or not isinstance(value.op, ast.USub):
        return ""
    called = [process.site(row["site"]) for row in apart]
    if any(row["function"] not in _GIVES_MINUS for row in apart) or any(
        at and _TURNED.search(at.source) for at in called
    ):
        return ""
    return own.dedented(own.parsed.with_parts({value: own.parsed.text_of(value.operand)}))

"""The line that leaves targets out by the id of their input, and how it goes by the attention mask instead.

What masks prompts stays: an example that made the labels anew, as a copy of the ids, would have the prompts count.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_IGNORED: Final = "-100"
_NOT_ATTENDED: Final = "attention_mask == 0"
_IN_WORDS: Final = 'labels = labels.masked_fill(batch["attention_mask"] == 0, -100)'


def line(process: Process) -> Location | None:
    """The only recorded line beside those that make labels which compares ids with one, and writes -100 there."""
    found: dict[tuple[str, int], Location] = {}
    for place in sorted(process.locations("labels"), key=lambda one: one.function.startswith("<"), reverse=True):
        for number, text in recorded_text.of_function(process, place).items():
            if _IGNORED in text and "==" in text and "attention_mask" not in text and _compared(text) is not None:
                found[place.file, number] = place.at(number, text)
    return next(iter(found.values())) if len(found) == 1 else None


def example(process: Process, place: Location | None, symbol: float) -> str:
    """The line with the attention mask in place of its comparison."""
    own = own_statement.at(process, place)
    if own is not None and place is not None and own.is_whole:
        compared = _only_comparison(own.parsed)
        if compared is not None:
            changed = own.dedented(own.parsed.with_parts({compared: _NOT_ATTENDED}))
            return f"{changed}  # line {place.line}: the mask of this batch, in place of the id"
    return f"{_IN_WORDS}  # in place of what masks them by id {symbol:.0f}; prompts stay masked"


def _compared(text: str) -> ast.Compare | None:
    line = parsed_line.parse(text.strip())
    return _only_comparison(line) if line is not None else None


def _only_comparison(line: parsed_line.ParsedLine) -> ast.Compare | None:
    found = [node for node in ast.walk(line.tree) if isinstance(node, ast.Compare)]
    equal = [node for node in found if len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq)]
    return equal[0] if len(found) == len(equal) == 1 else None

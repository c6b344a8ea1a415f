"""Tags that a script adds to its tokenizer as special tokens, and that its reward functions look for.

TRL decodes completions without special tokens before it hands them over, so that no reward function ever sees them.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.editing import own_statement, parsed_line
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_ADDS: Final = re.compile(r"\.add_tokens\(.*\bspecial_tokens\s*=\s*True\b")
_TRL: Final = re.compile(r"\b(?:GRPO|RLOO)Trainer\(")
_MOST: Final = 4  # tags that a sentence can bear


class Tags(NamedTuple):
    """The line that adds them, what they are, and that line without the argument."""

    place: Location
    names: list[str]
    code: str

    @property
    def fix(self) -> str:
        """What to change."""
        return (
            f"Add {listed([repr(one) for one in self.names], most=_MOST)} as ordinary tokens, without "
            f"special_tokens=True (line {self.place.line}): TRL hands completions over without special tokens, so the "
            "reward functions, which look for these, never see them."
        )


def of(process: Process) -> Tags | None:
    """The only recorded line that adds special tokens one of which a line of a reward function names, for TRL."""
    lines = recorded_text.matching(process, _ADDS) if recorded_text.matching(process, _TRL) else []
    own = own_statement.at(process, lines[0]) if len(lines) == 1 else None
    call = own.only_call("add_tokens") if own is not None else None
    if own is None or call is None or not call.args or not own.is_whole:
        return None
    looks = [*process.locations("reward-searched"), *process.locations("reward-compared")]
    names = [one for one in _texts(process, call.args[0]) if any(one in line.source for line in looks)]
    ordinary = [one.value for one in call.keywords if one.arg == "special_tokens"]
    if not names or len(ordinary) != 1:
        return None
    return Tags(lines[0], names, own.dedented(own.parsed.with_parts({ordinary[0]: "False"})))


def _texts(process: Process, given: ast.expr) -> list[str]:
    """The texts in an expression, or in the only recorded line that assigns the name that it is."""
    if isinstance(given, ast.Name):
        made = recorded_text.matching(process, re.compile(rf"^\s*{re.escape(given.id)}\s*=(?!=)"))
        parsed = parsed_line.parse(made[0].source) if len(made) == 1 else None
        statement = parsed.statement if parsed is not None else None
        if not isinstance(statement, ast.Assign):
            return []
        given = statement.value
    found = [one.value for one in ast.walk(given) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return [one for one in found if one.strip()]

"""Tags that a script adds to its tokenizer as special tokens, and that its reward functions look for.

TRL decodes completions without special tokens before it hands them over, so that no reward function ever sees them.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.signatures import metrics
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_ADDS: Final = re.compile(
    r"\.add_tokens\(.*\bspecial_tokens\s*=\s*True\b"
    r"|\b(?:additional|extra)_special_tokens[\"']?\s*[:=]\s*(?P<listed>\[[^\]]*\]|[A-Za-z_]\w*)"
)
_TRL: Final = re.compile(r"\b(?:GRPO|RLOO)Trainer\(")
_MOST: Final = 4  # tags that a sentence can bear


class Tags(NamedTuple):
    """The line that adds them, what they are, in whose place they stand there, and how to add them as ordinary ones."""

    place: Location
    names: list[str]
    instead_of: str
    code: str

    @property
    def fix(self) -> str:
        """What to change."""
        return (
            f"Add {listed(self.names, most=_MOST)} as ordinary tokens, {self.instead_of} (line {self.place.line}): TRL "
            "hands completions over without special tokens, so the reward functions, which look for these, never see "
            "them."
        )


def adds(process: Process) -> Location | None:
    """The only recorded line that adds special tokens beside those of padding and ends, for a trainer of TRL."""
    rewards = metrics.metric(process, "reward")
    of_trl = recorded_text.matching(process, _TRL) or (rewards is not None and metrics.is_of_trl(process, rewards))
    lines = recorded_text.matching(process, _ADDS) if of_trl else []
    return lines[0] if len(lines) == 1 else None


def of(process: Process) -> Tags | None:
    """What the line that adds special tokens adds, where a line of a reward function names one of these."""
    place = adds(process)
    found = _ADDS.search(place.source) if place is not None else None
    if place is None or found is None:
        return None
    tags = parsed_line.parse(found["listed"] or "")
    if tags is not None and isinstance(tags.statement, ast.Expr):
        names = _looked_for(process, tags.statement.value)
        code = f"tokenizer.add_tokens({found['listed']})  # instead of what line {place.line} adds"
        return Tags(place, names, "and not among the special ones", code) if names else None
    own = own_statement.at(process, place)
    call = own.only_call("add_tokens") if own is not None else None
    if own is None or call is None or not call.args or not own.is_whole:
        return None
    names = _looked_for(process, call.args[0])
    ordinary = [one.value for one in call.keywords if one.arg == "special_tokens"]
    if not names or len(ordinary) != 1:
        return None
    code = own.dedented(own.parsed.with_parts({ordinary[0]: "False"}))
    return Tags(place, names, "without special_tokens=True", code)


def _looked_for(process: Process, given: ast.expr) -> list[str]:
    """The tags in an expression, or in the only recorded line that assigns the name that it is, which a line of a
    reward function names: by their text, or as the variables that hold them."""
    if isinstance(given, ast.Name):
        made = recorded_text.matching(process, re.compile(rf"^\s*{re.escape(given.id)}\s*=(?!=)"))
        parsed = parsed_line.parse(made[0].source) if len(made) == 1 else None
        statement = parsed.statement if parsed is not None else None
        if not isinstance(statement, ast.Assign):
            return []
        given = statement.value
    looks = [one.source for role in ("reward-searched", "reward-compared") for one in process.locations(role)]
    texts = [one.value for one in ast.walk(given) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    names = [one.id for one in ast.walk(given) if isinstance(one, ast.Name)]
    held = [one for one in names if any(re.search(rf"(?<![\w.\"']){one}\b", line) for line in looks)]
    return [repr(one) for one in texts if one.strip() and any(one in line for line in looks)] + held

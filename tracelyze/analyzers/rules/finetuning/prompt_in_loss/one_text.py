"""The line that puts prompt and answer into one text, of which TRL's SFTTrainer then learns every token."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Location

_TRL: Final = re.compile(r"\bSFT(?:Trainer|Config)\b|\bdataset_text_field\b")
_PACKED: Final = re.compile(r"\bformatting_func\s*=|\bcompletion_only_loss\s*=")
_COLUMNS: Final = '{"prompt": prompt, "completion": answer}'
_FIX: Final = (
    "Hand SFTTrainer two columns in place of the text of line {line}: `prompt`, which ends where the answer begins, "
    "and `completion`. It then learns the completions alone."
)


def line(process: Process) -> Location | None:
    """The only line that makes the column "text" of a script that trains with SFTTrainer, and neither formats its rows
    otherwise nor says what is to count."""
    texts = list(recorded_text.everything(process))
    if not any(map(_TRL.search, texts)) or any(map(_PACKED.search, texts)):
        return None
    place = script_lines.only(process, "text-given")
    return place if place is not None and _dictionary(own_statement.at(process, place)) is not None else None


def remedy(process: Process, place: Location) -> tuple[str, str]:
    """What to do about it, and the line with two columns."""
    own = own_statement.at(process, place)
    given = _dictionary(own)
    code = own.dedented(own.parsed.with_parts({given: _COLUMNS})) if own is not None and given is not None else _COLUMNS
    return _FIX.format(line=place.line), code


def _dictionary(own: OwnStatement | None) -> ast.Dict | None:
    """The only dictionary of a statement, which holds the text and nothing else."""
    found = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Dict)] if own is not None else []
    return found[0] if len(found) == 1 and len(found[0].keys) == 1 else None

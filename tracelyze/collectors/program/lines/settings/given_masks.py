"""Lines of the script that say what is handed to a model as its attention mask, `{"attention_mask": segments}`, or as
its labels, and to a trainer of language models as its text."""

from __future__ import annotations

import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import LONGEST, by_line
from tracelyze.collectors.program.lines.settings.named_arguments import LONGEST_CALL, named_arguments

NAME: Final = "attention_mask"
LABELS: Final = "labels"
TEXT: Final = "text"  # the column that trainers of TRL take by default
_TEXT_KEY: Final = re.compile(rf"""["']{TEXT}["']\s*:""")
_GIVEN: Final = re.compile(rf"""["']{NAME}["']\s*(?::|\]\s*=(?!=))|(?<![\w.]){NAME}\s*=(?!=)""")
_KEY: Final = re.compile(rf"""["']{LABELS}["']\s*:""")
_ARGUMENT: Final = re.compile(rf"(?<![\w.]){LABELS}\s*=(?!=)")


def lines(code: CodeType) -> list[int]:
    """Lines of a function that give a mask this name: in a dictionary, by a key, or as an argument."""
    return _matching(code, NAME, _GIVEN)


def labels(code: CodeType) -> list[int]:
    """Lines of a function that give labels in a dictionary, `{"labels": ids.clone()}` or `dict(labels=ids)`: not those
    that give them to a model."""
    found = dict.fromkeys(_matching(code, LABELS, _KEY))
    for _, one in by_line(code) if _holds(code, LABELS) else ():
        place = one.positions if LABELS in named_arguments(code, one) else None
        if place is None or place.lineno is None or place.end_lineno is None:
            continue
        text = linecache.getline(code.co_filename, place.lineno).encode()[place.col_offset or 0 :]
        if text.startswith(b"dict("):
            numbers = range(place.lineno, min(place.end_lineno, place.lineno + LONGEST_CALL) + 1)
            found |= dict.fromkeys(at for at in numbers if _ARGUMENT.search(linecache.getline(code.co_filename, at)))
    return list(found)


def texts(code: CodeType) -> list[int]:
    """Lines of a function that give a text this name in a dictionary, `{"text": template.format(**row)}`."""
    return _matching(code, TEXT, _TEXT_KEY)


def _matching(code: CodeType, name: str, pattern: re.Pattern[str]) -> list[int]:
    """Lines of a function that has this name among its constants, in whose text the pattern is found."""
    if len(code.co_code) > LONGEST or not _holds(code, name):
        return []
    numbers = dict.fromkeys(line for _, _, line in code.co_lines() if line is not None)
    return [line for line in numbers if pattern.search(linecache.getline(code.co_filename, line))]


def _holds(code: CodeType, name: str) -> bool:
    return any(name in one if type(one) is tuple else name == one for one in code.co_consts)

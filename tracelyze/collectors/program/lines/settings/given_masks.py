"""Lines of the script that say what is handed to a model as its attention mask, `{"attention_mask": segments}`, or as
its labels."""

from __future__ import annotations

import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import LONGEST

NAME: Final = "attention_mask"
LABELS: Final = "labels"
_GIVEN: Final = re.compile(rf"""["']{NAME}["']\s*(?::|\]\s*=(?!=))|(?<![\w.]){NAME}\s*=(?!=)""")
_ENTRY: Final = re.compile(
    rf"""["']{LABELS}["']\s*:|\bdict\([^)]*(?<![\w.]){LABELS}\s*=(?!=)|^\s*{LABELS}\s*=(?!=).*,\s*(?:\#.*)?$"""
)


def lines(code: CodeType) -> list[int]:
    """Lines of a function that give a mask this name: in a dictionary, by a key, or as an argument."""
    return _matching(code, NAME, _GIVEN)


def labels(code: CodeType) -> list[int]:
    """Lines of a function that give labels in a dictionary: `{"labels": ids.clone()}`."""
    return _matching(code, LABELS, _ENTRY)


def _matching(code: CodeType, name: str, pattern: re.Pattern[str]) -> list[int]:
    """Lines of a function that has this name among its constants, in whose text the pattern is found."""
    constants = [part for one in code.co_consts for part in (one if type(one) is tuple else (one,))]
    if len(code.co_code) > LONGEST or name not in constants:
        return []
    numbers = dict.fromkeys(line for _, _, line in code.co_lines() if line is not None)
    return [line for line in numbers if pattern.search(linecache.getline(code.co_filename, line))]

"""Lines of the script that say what is handed to a model as its attention mask: `{"attention_mask": segments}`."""

from __future__ import annotations

import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import LONGEST

NAME: Final = "attention_mask"
_GIVEN: Final = re.compile(rf"""["']{NAME}["']\s*(?::|\]\s*=(?!=))|(?<![\w.]){NAME}\s*=(?!=)""")


def lines(code: CodeType) -> list[int]:
    """Lines of a function that give a mask this name: in a dictionary, by a key, or as an argument."""
    constants = [part for one in code.co_consts for part in (one if type(one) is tuple else (one,))]
    if len(code.co_code) > LONGEST or NAME not in constants:
        return []
    numbers = dict.fromkeys(line for _, _, line in code.co_lines() if line is not None)
    return [line for line in numbers if _GIVEN.search(linecache.getline(code.co_filename, line))]

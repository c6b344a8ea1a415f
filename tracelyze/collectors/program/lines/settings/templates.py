"""Lines of a chat template that end what counts as a target: `{% endgeneration %}`."""

from __future__ import annotations

import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import by_line

_END: Final = re.compile(r"\{%-?\s*endgeneration\s*-?%\}")


def ends(code: CodeType) -> list[int]:
    """Lines within this function, or at the top of the file, that hold such an end of a string of its own."""
    if not any(type(one) is str and _END.search(one) for one in code.co_consts):
        return []
    numbers = [line for line, _ in by_line(code)]
    last = max(numbers, default=0)
    if code.co_name == "<module>":  # a string of several lines at the end of the file
        last = max(last, len(linecache.getlines(code.co_filename)))
    within = range(min(numbers, default=1), last + 1)
    return [at for at in within if _END.search(linecache.getline(code.co_filename, at))]

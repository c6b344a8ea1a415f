"""What the script calls a model where it calls it: `teacher` of `teacher(x)`, read off the text of the call."""

from __future__ import annotations

import itertools
import linecache
import re
import sys
from types import CodeType
from typing import Final

from tracelyze.collectors.program.call_sites import script_frames

_CALLED: Final = re.compile(r"((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\s*\(")
_LONGEST: Final = 60
_STARRED: Final = (0x04, 0x08)  # CO_VARARGS and CO_VARKEYWORDS


def name_of_called() -> str | None:
    """The variable or attribute that the innermost line of the script calls now; None where that is a parameter of a
    function, which stands for any model, or where something else stands there."""
    frame = next(script_frames(sys._getframe(1)), None)
    if frame is None:
        return None
    code = frame.f_code
    position = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    line, _, column, _ = position if position is not None else (None,) * 4
    if line is None or column is None:
        return None
    text = linecache.getline(code.co_filename, line).encode()[column:].decode(errors="replace")
    found = _CALLED.match(text)
    name = found.group(1) if found is not None else None
    own = name is not None and name.split(".")[0] not in _parameters(code) - {"self", "cls"}
    return name if own and name not in ("self", "super") and name is not None and len(name) <= _LONGEST else None


def _parameters(code: CodeType) -> set[str]:
    count = code.co_argcount + code.co_kwonlyargcount
    count += sum(bool(code.co_flags & flag) for flag in _STARRED)
    return set(code.co_varnames[:count])

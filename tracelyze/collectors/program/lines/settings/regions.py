"""Lines that open a region of autocast, or decorate a function with one, read off bytecode and the text above `def`."""

from __future__ import annotations

import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines import named_calls

_NAMES: Final = ("autocast", "custom_fwd")
_DECORATES: Final = re.compile(r"\s*@.*\b(?:autocast|custom_fwd)\b")
_DEFINES: Final = re.compile(r"\s*(?:async\s+def|def|class)\b")
_MOST: Final = 20  # lines of decorators


def lines(code: CodeType) -> list[int]:
    """Lines of a function that open a region by its name, and of decorators above it."""
    found = {line for name in _NAMES for line in named_calls.functions(code, name)}
    if not code.co_name.startswith("<"):
        for line in range(code.co_firstlineno, code.co_firstlineno + _MOST):
            text = linecache.getline(code.co_filename, line)
            if not text or _DEFINES.match(text):
                break
            if _DECORATES.match(text):
                found.add(line)
    return sorted(found)

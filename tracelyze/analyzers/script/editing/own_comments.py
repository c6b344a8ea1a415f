"""An example without the comments of the program's own lines in it: they speak of what was there before."""

from __future__ import annotations

import io
import tokenize
from typing import TYPE_CHECKING

from tracelyze.analyzers.script import recorded_text

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


def without(code: str, process: Process) -> str:
    """The example without comments that the recorded lines hold word for word. As it is where it cannot be read."""
    if "#" not in code:
        return code
    own = "\n".join(line for line in recorded_text.everything(process) if "#" in line)
    lines = code.split("\n")
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(code).readline))
    except (tokenize.TokenError, SyntaxError):
        return code
    for token in reversed(tokens):
        if token.type == tokenize.COMMENT and token.string in own:
            row, column = token.start
            kept = lines[row - 1][:column].rstrip()
            lines[row - 1 : row] = [kept] if kept else []
    return "\n".join(lines)

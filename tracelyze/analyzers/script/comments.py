"""The code of lines of the script, without the comments behind it."""

from __future__ import annotations

import contextlib
import io
import tokenize


def code_of(text: str) -> str:
    """A line, or several, without comments and the blanks before them; a `#` within a string is none. Where a string
    begins that does not end there, all the rest is taken for its text."""
    if "#" not in text:
        return text.rstrip()
    lines = text.split("\n")
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # of a part of a statement
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.ERRORTOKEN and token.string in ('"', "'"):
                break
            if token.type == tokenize.COMMENT:
                row, column = token.start
                lines[row - 1] = lines[row - 1][:column].rstrip()
    return "\n".join(lines).rstrip()

"""Comments in examples, which must not look like code where a line is wrapped."""

from __future__ import annotations

import re
from typing import Final

_BEGIN: Final = re.compile(r"(?:^|(?<=\s))#")


def split(line: str) -> tuple[str, str]:
    """A line of code as what stands before its comment, and the comment; a sign inside of a text is none."""
    for match in _BEGIN.finditer(line):
        before = line[: match.start()]
        if before.count('"') % 2 == 0 and before.count("'") % 2 == 0:
            return before, line[match.start() :]
    return line, ""


def above(line: str, width: int) -> list[str]:
    """The line; one that is too wide with its comment has it on a line of its own above."""
    code, remark = split(line)
    if len(line) <= width or not code.strip() or not remark:
        return [line]
    indent = code[: len(code) - len(code.lstrip())]
    return [indent + remark, code.rstrip()]

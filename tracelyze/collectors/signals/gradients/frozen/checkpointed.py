"""Where a program checkpoints activations in the reentrant way, as its text and the stack of such a call say."""

from __future__ import annotations

import functools
import linecache
import os
import re
from types import CellType, FrameType, FunctionType, MethodType
from typing import Any, Final

from tracelyze.collectors.internals.own_frames import PACKAGE
from tracelyze.collectors.program.call_sites import Sites, is_library, script_frames

ASKED: Final = re.compile(r"[^#]*\buse_reentrant[\"']?\s*[=:]\s*True\b")
TURNED_ON: Final = re.compile(r"[^#]*\bgradient_checkpointing_enable\(\s*\)")  # as it comes, which is reentrant
_EMPTY: Final = CellType()
HEAD: Final = re.compile(r"\s*(?:async )?(?:def|class) (?P<name>\w+)")
MOST_LINES: Final = 20_000  # of a file
MOST_PARTS: Final = 32  # of a function


def may_train(torch: Any, function: Any) -> bool:
    """Whether a module that this function belongs to, or is made with, has a parameter that is to train; also where no
    module is found. What is frozen as a whole is checkpointed in vain, but to no harm."""
    parts, modules = [function], []
    for one in parts:
        if isinstance(one, torch.nn.Module):
            modules.append(one)
        elif len(parts) < MOST_PARTS:
            parts += _held(one)
    return not modules or any(one.requires_grad for module in modules for one in module.parameters())


def _held(one: Any) -> list[Any]:
    """What a function was made with."""
    if type(one) is functools.partial:
        return [one.func, *one.args, *one.keywords.values()]
    if type(one) is MethodType:
        return [one.__self__, one.__func__]
    cells = (one.__closure__ or ()) if type(one) is FunctionType else ()
    return [cell.cell_contents for cell in cells if cell != _EMPTY]


def called_at(torch: Any, frame: FrameType | None) -> FrameType | None:
    """The line of the script that called torch's checkpoint itself; None where a library did."""
    own = (PACKAGE, os.path.dirname(torch.__file__) + os.sep)
    while frame is not None and frame.f_code.co_filename.startswith(own):
        frame = frame.f_back
    return None if frame is None or is_library(frame.f_code.co_filename) else frame


def note_text(frame: FrameType | None, sites: Sites) -> None:
    """Note the lines that ask for it by name, in the files of the functions that run; without any, those that turn
    checkpointing on as it comes."""
    files = list(dict.fromkeys(one.f_code.co_filename for one in script_frames(frame)))
    texts = {file: lines for file in files if 0 < len(lines := linecache.getlines(file)) <= MOST_LINES}
    for wanted in (ASKED, TURNED_ON):
        found = [
            (file, number) for file, lines in texts.items() for number, text in enumerate(lines) if wanted.match(text)
        ]
        for file, number in found:
            sites.add("reentrant", file, number + 1, _function(texts[file], number))
        if found:
            return


def _function(lines: list[str], number: int) -> str:
    """The name of the function or class that a line stands in."""
    depth = _indent(lines[number])
    for above in reversed(lines[:number]):
        if above.strip() and _indent(above) < depth:
            depth, head = _indent(above), HEAD.match(above)
            if head is not None:
                return head["name"]
    return "<module>"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

"""Lines that hold what a model answered against what is right, read off the bytecode of the functions that called it:
`pred == y`, `accuracy(out, y)`, `(out - y) ** 2`. Nothing is wrapped, and what is found may never have run.
"""

from __future__ import annotations

import dis
import itertools
import math
import re
from types import CodeType, FrameType
from typing import Final

from tracelyze.collectors.program.call_sites import script_frames
from tracelyze.collectors.program.lines import named_calls
from tracelyze.collectors.program.lines.instructions import METHODS, TAKES, by_line
from tracelyze.collectors.program.lines.loops import extents

MEASURES: Final = re.compile(
    r"^(?:eq|ne|equal|\w*accuracy\w*|\w*_acc|acc|f1|\w*f1_score|f1_\w+|\w*auc\w*|auroc|average_precision\w*|\w*iou\w*"
    r"|\w*dice\w*|psnr|ssim|r2_score|mean_(?:squared|absolute)_error|confusion_matrix|compute_metrics?)$",
    re.IGNORECASE,
)
"""What is called to compare: methods of tensors, scikit-learn's and torchmetrics' functions, names of own ones."""
ERRORS: Final = frozenset({"abs", "square", "pow"})  # what is called on a difference that is an error
LONGEST: Final = 40_000  # bytes of bytecode, a script of some 2,000 lines: it is read once, while the training waits
FRAMES: Final = 4  # functions of the script, from the one that called the model outwards
_LOADS: Final = (*TAKES, "LOAD_FAST")
_NEITHER: Final = ("CACHE", "PRECALL", "EXTENDED_ARG", "NOP", "RESUME")


def after(frame: FrameType | None) -> tuple[CodeType, int] | None:
    """The function and line where the answer of the model that this frame calls is compared; None where none is seen.

    Looked for from the call on, and not where a backward stands behind it in its loop: there it is part of a step.
    """
    for one in itertools.islice(script_frames(frame), FRAMES):
        line = _first(one.f_code, one.f_lineno)
        if line is not None:
            return one.f_code, line
    return None


def _first(code: CodeType, begin: int) -> int | None:
    if len(code.co_code) > LONGEST:
        return None
    inner = [(first, last) for first, last in extents.loops(code) if first <= begin <= last]
    end = max(inner, default=(0, math.inf))[1]  # of the innermost loop around the call
    if any(begin <= line <= end for line in named_calls.methods(code, "backward")):
        return None
    return min((line for line in _compared(code) if line >= begin), default=None)


def _compared(code: CodeType) -> list[int]:
    """Lines that compare, also in the comprehensions of a function, but not in functions that are defined in it."""
    found: list[int] = []
    lines = [pair for pair in by_line(code) if pair[1].opname not in _NEITHER]
    here = [one for _, one in lines]
    for index, (line, one) in enumerate(lines):
        before, (following, third) = here[index - 1] if index else None, (*here[index + 1 : index + 3], None, None)[:2]
        if _compares(before, one, following) or _called_to_compare(before, one, following):
            found.append(line)
        elif one.opname == "BINARY_OP" and one.argrepr == "-" and following is not None:
            squared = third is not None and third.opname == "BINARY_OP" and third.argrepr == "**"
            if squared or (following.opname in METHODS and following.argval in ERRORS):
                found.append(line)
    for constant in code.co_consts:
        if isinstance(constant, CodeType) and constant.co_name.startswith("<") and constant.co_name != "<lambda>":
            found += _compared(constant)
    return found


def _compares(before: dis.Instruction | None, one: dis.Instruction, following: dis.Instruction | None) -> bool:
    """Whether two variables are compared for a value. Not where the program goes on by the answer, as with `if`."""
    if one.opname != "COMPARE_OP" or one.argval not in ("==", "!=") or one.argrepr.startswith("bool("):
        return False
    constant = before is not None and before.opname == "LOAD_CONST"
    decides = following is not None and ("JUMP" in following.opname or following.opname in ("TO_BOOL", "COPY"))
    return not constant and not decides


def _called_to_compare(before: dis.Instruction | None, one: dis.Instruction, following: dis.Instruction | None) -> bool:
    if one.opname not in _LOADS or type(one.argval) is not str or not MEASURES.match(one.argval):
        return False
    beside = [near.opname for near in (before, following) if near is not None]
    return one.opname == "LOAD_METHOD" or "NULL" in one.argrepr or "PUSH_NULL" in beside

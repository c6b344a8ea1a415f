"""The hook that multiplies a gradient by a mask, and so keeps rows of an embedding as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_MASK: Final = re.compile(r"register_hook\(\s*lambda (?P<g>\w+): (?P=g) \* (?P<mask>[A-Za-z_][\w.]*)\s*\)")


def remedy(process: Process, before: int, rows: int) -> Remedy | None:
    """What the only hook of a tensor does to these new rows, from number `before` on, if it masks a gradient."""
    hook = script_lines.only(process, "hook")
    found = _MASK.search(hook.source) if hook is not None else None
    if hook is None or found is None:
        return None
    mask = found["mask"]
    why = (
        f"The weight is trainable. Line {hook.line}, the only one of the script that registers a hook on a tensor, "
        f"multiplies a gradient by `{mask}`: rows in which that is 0 stay as they are."
    )
    code = f"{mask}[{before}:] = 1.0  # above line {hook.line}: new rows train"
    return Remedy(f"Let `{mask}` be 1 in rows {before:,} to {rows - 1:,}.", code, hook, why=why)

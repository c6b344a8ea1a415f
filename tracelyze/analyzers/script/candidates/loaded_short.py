"""The line that loads the trained weights, where the line that makes 16-bit numbers only writes the file of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.called import assigned

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_LOADS: Final = re.compile(r"\bfrom_pretrained\s*\(")
_SAVES: Final = r"\bsave_pretrained\s*\(|\b(?:torch\.save|save_file|save_model)\s*\("


def place(process: Process) -> Location | None:
    """None where the script keeps the type that another place gives the weights, or does not say so in its text."""
    loads, cast = process.module_location(""), script_lines.made_short(process)
    if loads is None or not _LOADS.search(loads.source) or (cast is not None and not _is_saved(process, cast)):
        return None
    return loads


def _is_saved(process: Process, cast: Location) -> bool:
    """Whether the line saves what it casts, or another one of its function does."""
    if re.search(_SAVES, cast.source):
        return True
    name = re.escape(assigned(cast) or "")
    written = rf"\b{name}\.save_pretrained\s*\(|\b(?:torch\.save|save_file|save_model)\s*\(\s*{name}\b"
    return bool(name) and any(re.search(written, line) for line in recorded_text.of_function(process, cast).values())

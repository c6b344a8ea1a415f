"""Targets that a chat template chooses, of TRL's assistant_only_loss: what stands in its generation blocks counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_SETTING: Final = r"\bassistant_only_loss\s*=\s*True\b"
_WHY: Final = (
    "With assistant_only_loss the chat template says what counts: what stands between its {% generation %} and "
    "{% endgeneration %}. The end symbol stands behind that."
)
_FIX: Final = "Move the end symbol of an answer into the generation block, before {% endgeneration %}."
_CODE: Final = "{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}"
_ALONE: Final = re.compile(r"""\s*(?P<q>["'])\{%-?\s*endgeneration\s*-?%\}(?P=q)\s*$""")
_SYMBOL: Final = re.compile(r"""\s*(?P<q>["'])\{\{-?\s*(?:'[^']*'|"[^"]*")\s*-?\}\}(?P=q)\s*$""")


def setting(process: Process) -> Location | None:
    """The only line that has the template choose."""
    return script_lines.only(process, "setting", _SETTING)


def remedy(process: Process) -> Remedy | None:
    """Where the block ends, if the script has one, with the end symbol inside of it; None without the setting."""
    asked = setting(process)
    if asked is None:
        return None
    ends = {one.file_line: one for one in process.locations("template-end")}
    place = next(iter(ends.values())) if len(ends) == 1 else None
    text = recorded_text.around(process, place) if place is not None else {}
    here, below = (text.get(place.line + more, "") for more in (0, 1)) if place is not None else ("", "")
    moved = f"{below.strip()}\n{here.strip()}" if _ALONE.match(here) and _SYMBOL.match(below) else ""
    lines = f"# in place of lines {place.line} and {place.line + 1}:\n{moved}" if place is not None and moved else ""
    return Remedy(
        _FIX, lines or f"# in the chat template; '<|im_end|>' is your end symbol:\n# {_CODE}", place or asked, why=_WHY
    )

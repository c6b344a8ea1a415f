"""A function whose results are kept without a bound: its decorator with a bound."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_BOUND: Final = "maxsize=128"  # what lru_cache itself takes where nothing is said
_NO_BOUND: Final = re.compile(r"\b(?:maxsize\s*=\s*None|(?<=lru_cache\()None)\b")


def bounded(process: Process, place: Location) -> Remedy:
    """A bound for what the decorator at this line caches. What functools computes anew is the same, so that results may
    go at any time."""
    line = _NO_BOUND.sub(_BOUND, place.source).replace("functools.cache", f"functools.lru_cache({_BOUND})")
    fix = (
        f"Line {place.line} keeps the result for every argument that is new, and new ones come until the end: give it "
        "a bound, or cache by a key that comes again."
    )
    lines = recorded_text.around(process, place)
    whole = lines.get(place.line, "")
    head = lines.get(place.line + 1, "").strip()
    if not head.startswith("def ") or not head.endswith(":"):
        head = f"def {place.function}(*arguments):"
    known = line != place.source
    code = f"{line if known else f'@functools.lru_cache({_BOUND})'}\n{head}\n    ...  # as it is"
    diff = Diff(place.file, place.line, [whole], [whole.replace(place.source, line)])
    return Remedy(fix, code, diff=diff if known and whole.strip() == place.source else None)

"""The line that makes floats of bytes before a transform that divides only bytes by 255, as ToTensor does."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_ONLY_BYTES: Final = re.compile(
    r"[!=]=\s*(?:torch|np|numpy)\.uint8\b|\bToTensor\(|\bto_tensor\(|\bconvert_image_dtype\(|\bToDtype\(.*scale\s*=\s*True"
)
_FLOATS: Final = re.compile(
    r"\.astype\(\s*(?:np\.|numpy\.)?[\"']?float(?:32|64|_)?[\"']?\s*[,)]|\bdtype\s*=\s*np\.float"
)
_SCALED: Final = re.compile(r"/=?\s*(?:255|256|127\.5)")
_TARGETS: Final = re.compile(
    r"^\s*(?:self\.)?(?:y|ys|\w*labels?|\w*targets?|mean|std|weights?)\b[^=]*=|\breturn\s+y\b|\bmeans?\b|\bstds?\b"
)

UNDIVIDED: Final = (
    "Divide the pixels by 255 before the mean is subtracted: ToTensor() does that, and ToDtype(torch.float32, "
    "scale=True), which by default only changes the type. Do the same in validation."
)
UNDIVIDED_CODE: Final = "x = x.float() / 255  # above the line that subtracts the mean"


def said(shifted: tuple[float, float]) -> str:
    """What pixels become by a mean and a deviation that are meant for other values."""
    return (
        f"as pixels from 0 to 255 do if about {shifted[0]:.2f} is subtracted and they are divided by "
        f"{shifted[1]:.2f}, mean and deviation of pixels from 0 to 1"
    )


def line(process: Process) -> Location | None:
    """The only line of the script that makes floats of an array and does not scale it, in another function than the
    transform that divides bytes; None without such a transform."""
    divides = [one for one in process.locations("byte-scaled") if _ONLY_BYTES.search(one.source)]
    apart = {one.file_function for one in divides if "uint8" in one.source}
    lines = {one.file_line: one for one in process.locations("array-cast") if _FLOATS.search(one.source)}
    found = [
        one
        for one in lines.values()
        if one.file_function not in apart
        if not _SCALED.search(one.source) and not _TARGETS.search(one.source)
    ]
    return found[0] if divides and len(found) == 1 else None


def remedy(process: Process, place: Location) -> tuple[str, str]:
    """What to do about it, and the line with the division in it."""
    fix = (
        f"Line {place.line} makes floats of the pixels, and what comes later divides only bytes (uint8) by 255. Divide "
        "in that line, or leave them bytes; then subtract the mean and divide by the standard deviation as well."
    )
    own = own_statement.at(process, place)
    calls = own.parsed.calls("astype", "asarray", "array", "ascontiguousarray") if own is not None else []
    if own is None or not own.is_whole or len(calls) != 1:
        return fix, ""
    call = calls[0]
    whole = any(isinstance(one, ast.Attribute) and one.value is call for one in ast.walk(own.parsed.tree))
    divided = f"({own.parsed.text_of(call)} / 255)" if whole else f"{own.parsed.text_of(call)} / 255"
    return fix, own.dedented(own.parsed.with_parts({call: divided})) if name_of(call.func) else ""

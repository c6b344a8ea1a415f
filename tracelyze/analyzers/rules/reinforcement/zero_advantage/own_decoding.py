"""A `generate` that the script defines itself, where all completions of a prompt are one and the same."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import parsed_line
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_DEFINES: Final = re.compile(r"\s*(?:async )?def generate\(")
_GREEDY: Final = re.compile(r"\btemperature\s*(?::\s*\w+\s*)?=\s*0(?:\.0*)?\s*[,)]")
_SAMPLE: Final = (
    "Draw the completions: {at} decodes greedily where its temperature is 0, as it is by default. Hand it a "
    "temperature above 0 where the group's completions are drawn."
)
_ANYHOW: Final = (
    "Draw the completions, with torch.multinomial over the probabilities of the next token: see what generate() "
    "(line {}) does here. If it samples already, raise the temperature, or hold the policy back (entropy, KL)."
)


def of(process: Process, computed: Location | None, writes: Location | None) -> Remedy | None:
    """What to do about it, and the line that draws for the advantages, which a line of the same function computes; None
    where the script defines no such function."""
    defined = recorded_text.matching(process, _DEFINES)
    if len(defined) != 1:
        return None
    lines = recorded_text.of_function(process, computed) if computed is not None else {}
    draws = [at for at, text in lines.items() if ".generate(" in code_of(text)]
    place = computed.at(draws[0], lines[draws[0]]) if computed is not None and len(draws) == 1 else writes
    if not _GREEDY.search(defined[0].source):
        return Remedy(_ANYHOW.format(defined[0].line), "", place)
    parsed = parsed_line.parse(place.source) if place is not None else None
    calls = parsed.calls("generate") if parsed is not None else []
    given = {one.arg for call in calls for one in call.keywords}
    if parsed is None or len(calls) != 1 or "temperature" in given:
        return Remedy(_ANYHOW.format(defined[0].line), "", place)
    return Remedy(
        _SAMPLE.format(at=f"generate() (line {defined[0].line})"),
        parsed.with_argument(calls[0], "temperature", "1.0") or "",
        place,
    )

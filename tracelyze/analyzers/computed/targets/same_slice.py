"""Input and targets of a sequence model that are cut out of one tensor in the same way: `ids[:, 1:]` both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import recorded_text
from tracelyze.analyzers.evidence.remedy import Remedy
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_CUT: Final = re.compile(r"^(\s*)([A-Za-z_]\w*)(\s*=\s*)([A-Za-z_][\w.]*)\[((?::,\s*)?)(1:|:-1)\](.*)$")
_OTHER: Final = {"1:": ":-1", ":-1": "1:"}
FIX: Final = (
    "Line {line} cuts {whole} as line {other} does: give the model all but the last token, and make its targets all "
    "but the first."
)
UNKNOWN: Final = "the targets of this next-token model were not shifted."


def remedy(process: Process, loss: Location | None) -> Remedy | None:
    """Where two lines of the function that computes a loss cut one tensor alike: what one of them makes is given to the
    model, and what the other one makes to the loss."""
    if loss is None:
        return None
    found = {at: cut for at, line in recorded_text.of_function(process, loss).items() if (cut := _CUT.match(line))}
    calls = [one.source for one in process.locations("training-call") if one.file_function == loss.file_function]
    given = {at: cut for at, cut in found.items() if any(_names(cut[2], call) for call in calls)}
    targets = {at: cut for at, cut in found.items() if _names(cut[2], loss.source)}
    if len(given) != 1 or len(targets) != 1 or given.keys() == targets.keys():
        return None
    (read, model), (told, target) = *given.items(), *targets.items()
    if model.group(4, 5, 6) != target.group(4, 5, 6):
        return None
    at, other, cut = (read, told, model) if model[6] == "1:" else (told, read, target)
    line = f"{cut[1]}{cut[2]}{cut[3]}{cut[4]}[{cut[5]}{_OTHER[cut[6]]}]{cut[7]}"
    return Remedy(
        FIX.format(line=at, other=other, whole=cut[4]),
        code=line.strip(),
        place=Location(loss.file, at, loss.function, cut[0].strip()),
        diff=Diff(loss.file, at, [cut[0]], [line]),
        why=f"lines {min(read, told)} and {max(read, told)} cut both out of {cut[4]} in the same way.",
    )


def _names(name: str, source: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)(?!\s*=(?!=))", source) is not None

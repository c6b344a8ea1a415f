"""A mode that is read to be put back later, and read when the line before has switched it: eval mode comes back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_EVAL: Final = re.compile(r"(?P<model>[A-Za-z_][\w.]*)\.eval\(\s*\)")
_KEPT: Final = re.compile(r"\s*(?P<name>[A-Za-z_][\w.]*)\s*(?::\s*bool\s*)?=\s*(?P<model>[A-Za-z_][\w.]*)\.training\b")


class TooLate(NamedTuple):
    """The line that keeps the mode, and the one that puts it back. `diff`: where it only has to move up by a line."""

    switched: Location
    place: Location
    put_back: Location
    diff: Diff | None

    @property
    def said(self) -> str:
        """How eval mode came to stay."""
        return (
            f"Line {self.switched.line} switches it to eval mode before line {self.place.line} reads the mode "
            f"that line {self.put_back.line} restores: eval mode is restored."
        )

    @property
    def fix(self) -> str:
        """What to change."""
        at, before = self.place.line, self.switched.line
        return f"Read the mode before switching it: move line {at} above line {before}."

    @property
    def code(self) -> str:
        """The two lines in their order."""
        return f"{self.place.source}\n{self.switched.source.strip()}"


def below(process: Process, switched: Location | None) -> TooLate | None:
    """The first line below the one that evaluates, in its function, that keeps the mode of the same model under a name
    with which another line calls train()."""
    model = _EVAL.search(switched.source) if switched is not None else None
    if switched is None or model is None:
        return None
    lines = recorded_text.of_function(process, switched)
    kept = {at: match for at, text in sorted(lines.items()) if (match := _KEPT.match(text))}
    kept = {at: match for at, match in kept.items() if match["model"] == model["model"]}
    if not kept or min(kept) < switched.line:
        return None
    at = min(kept)
    call = re.compile(rf"\.train\(\s*(?:mode\s*=\s*)?{re.escape(kept[at]['name'])}\s*\)")
    back = [one for one in process.locations("train-mode") if one.file == switched.file and call.search(one.source)]
    if not back:
        return None
    eval_line, kept_line = lines.get(switched.line, ""), lines[at]
    swaps = at == switched.line + 1 and eval_line.strip() == switched.source.strip() == model.group()
    diff = Diff(switched.file, switched.line, [eval_line, kept_line], [kept_line, eval_line]) if swaps else None
    return TooLate(switched, switched.at(at, kept_line), back[0], diff)

"""Activation checkpointing that gives a result without a gradient, as all that went in was frozen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_REENTRANT: Final = re.compile(r"\bcheckpoint(?:_sequential)?\s*\(.*\buse_reentrant\s*=\s*True\b")
_CALLED: Final = ("checkpoint", "checkpoint_sequential")


@dataclass(frozen=True)
class Checkpointed:
    """The only line that checkpoints in the reentrant way, in a script that freezes parameters."""

    place: Location
    code: str

    @property
    def said(self) -> str:
        """What such a line does."""
        return (
            f"Here line {self.place.line} checkpoints with use_reentrant=True: its result has a gradient only if one "
            "of the tensors that it is given needs one, whatever the parameters inside. Behind layers that are all "
            "frozen, such as the embeddings, none does."
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return (
            f"Checkpoint with use_reentrant=False in line {self.place.line}. Or have what goes into the first "
            "checkpointed layer need a gradient: hidden.requires_grad_(), or enable_input_require_grads() of a "
            "model of transformers."
        )


def found(process: Process) -> Checkpointed | None:
    """None without such a line, or with several, or where nothing is frozen."""
    lines = [one for one in process.locations("checkpointing") if _is_reentrant(process, one)]
    if len({one.file_line for one in lines}) != 1 or not process.locations("freeze"):
        return None
    own = own_statement.at(process, lines[0])
    text = own.with_argument(_CALLED, "use_reentrant", "False") if own is not None else ""
    return Checkpointed(lines[0], own.dedented(text) if own is not None and text else "")


def told(process: Process) -> tuple[str, str, str, Location] | None:
    """What the line does, words and an example, and the line, for parameters that no backward reached."""
    one = found(process)
    return (f" {one.said}", one.fix, one.code, one.place) if one is not None else None


def _is_reentrant(process: Process, line: Location) -> bool:
    own = own_statement.at(process, line)
    return _REENTRANT.search(" ".join((own.text if own is not None else line.source).split())) is not None

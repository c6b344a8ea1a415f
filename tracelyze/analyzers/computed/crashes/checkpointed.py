"""Activation checkpointing that gives a result without a gradient, as all that went in was frozen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

_REENTRANT: Final = re.compile(r"\bcheckpoint(?:_sequential)?\s*\(.*\buse_reentrant\s*=\s*True\b")
_CALLED: Final = ("checkpoint", "checkpoint_sequential")
_TRUE: Final = re.compile(r"(\buse_reentrant[\"']?\s*[=:]\s*)True\b")
_TURNED_ON: Final = ("gradient_checkpointing_enable",)
_FALSE: Final = '{"use_reentrant": False}'
_GIVEN_NONE: Final = (
    "Activations are checkpointed in the reentrant way, and what goes in needs no gradient, as behind frozen "
    "embeddings: nothing comes out with one then, whatever the parameters inside."
)
_WORKS: Final = (
    "its result has a gradient only if one of the tensors that it is given needs one, whatever the parameters inside."
)
_BEHIND: Final = "Behind layers that are all frozen, such as the embeddings, none does."
_NEED_ONE: Final = (
    "Or have what goes into the first checkpointed layer need a gradient: hidden.requires_grad_(), or "
    "enable_input_require_grads() of a model of transformers."
)


@dataclass(frozen=True)
class Checkpointed:
    """Reentrant checkpointing, and its line in the script, where one is known.

    `seen`: it was called with no tensor that needs a gradient; else the text alone says what it does, in a script that
    freezes parameters.
    """

    place: Location | None
    diff: Diff | None
    code: str
    seen: bool

    @property
    def said(self) -> str:
        """What such checkpointing does."""
        if self.seen:
            return _GIVEN_NONE
        here = f"Here line {self.place.line} checkpoints" if self.place else "Activations are checkpointed"
        return f"{here} with use_reentrant=True: {_WORKS} {_BEHIND}"

    @property
    def told(self) -> tuple[str, str, str, Location | None]:
        """For parameters that no backward reached: what it does, words and an example, and the line."""
        return f" {self.said}", self.fix, self.code, self.place

    @property
    def fix(self) -> str:
        """What to do about it."""
        number = self.place.line if self.place else None
        where = f" (line {number})" if number and self.seen else f" in line {number}" if number else ""
        return f"Checkpoint with use_reentrant=False{where}. {_NEED_ONE}"


def found(process: Process) -> Checkpointed | None:
    """None without such checkpointing; by the text alone also with several lines of it, or where nothing is frozen."""
    if process.events_of("checkpointed-in-vain"):
        asked, called = process.locations("reentrant"), process.locations("checkpointed")
        lines = asked or called
        place = lines[0] if len({one.file_line for one in lines}) == 1 else None
        return Checkpointed(place, *_corrected(own_statement.at(process, place)), True)
    lines = [one for one in process.locations("checkpointing") if _is_reentrant(process, one)]
    if len({one.file_line for one in lines}) != 1 or not process.locations("freeze"):
        return None
    return Checkpointed(lines[0], *_corrected(own_statement.at(process, lines[0])), False)


def _corrected(own: OwnStatement | None) -> tuple[Diff | None, str]:
    """The edit of the statement to checkpointing that is not reentrant, and it as an example; nothing where that is not
    known."""
    if own is None:
        return None, ""
    text = _TRUE.sub(r"\g<1>False", own.text)
    if text == own.text:
        call = own.only_call(*_CALLED)
        if call is not None and not any(one.arg is None for one in call.keywords):  # **kwargs may hold it
            text = own.with_argument(_CALLED, "use_reentrant", "False")
        else:
            text = own.with_argument(_TURNED_ON, "gradient_checkpointing_kwargs", _FALSE)
    return own.changed(text), own.dedented(text) if text and text != own.text else ""


def _is_reentrant(process: Process, line: Location) -> bool:
    own = own_statement.at(process, line)
    return _REENTRANT.search(" ".join((own.text if own is not None else line.source).split())) is not None

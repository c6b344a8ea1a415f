"""Tokens that a script adds to its tokenizer, where no line makes the embedding larger: their ids have no row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.crashes import looked_up
from tracelyze.analyzers.script import recorded_text, script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_ADDS: Final = re.compile(r"(?P<tokenizer>\w[\w.]*)\.add_(?:special_)?tokens\(")
_GROWS: Final = re.compile(r"\bresize_token_embeddings\b|\bnn\.Embedding\(\s*len\(")


@dataclass(frozen=True)
class AddedTokens:
    """The only line that adds tokens, and what it calls the tokenizer. The text alone tells of it."""

    place: Location
    tokenizer: str
    seen = False

    @property
    def said(self) -> str:
        """What the line does, and what lacks."""
        return (
            f"Line {self.place.line} adds tokens to the tokenizer, and no line that was recorded calls "
            "resize_token_embeddings: a model that was made before, or loaded, has no rows for them."
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return (
            f"Give the model's embedding a row for each token, once line {self.place.line} has added them and the "
            "model is there. If it has them: look for another id that is too large, such as a padding id."
        )

    @property
    def code(self) -> str:
        """An example of it."""
        below = f"# below line {self.place.line}, and below the line that makes the model"
        return f"{below}\nmodel.resize_token_embeddings(len({self.tokenizer}))"


def found(process: Process, where: Location | None) -> AddedTokens | None:
    """The line that adds them; None where the line that failed looks up in a table of the script's own."""
    place = script_lines.only(process, "special-tokens")
    adds = _ADDS.search(place.source) if place is not None else None
    if place is None or adds is None or looked_up.at(process, where) is not None:
        return None
    if any(_GROWS.search(text) for text in recorded_text.everything(process)):
        return None
    return AddedTokens(place, adds["tokenizer"])

"""A layer that torch's Transformer copies and never calls: the module that holds it as an attribute counts its
parameters among its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.gradients.trainable import tensor_names
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_STACKS: Final = {"TransformerEncoderLayer": "TransformerEncoder", "TransformerDecoderLayer": "TransformerDecoder"}

_TENSORS: Final = {"TransformerEncoderLayer": 12, "TransformerDecoderLayer": 18}  # of attention, linears and norms


@dataclass(frozen=True)
class CopiedPattern:
    """`name`: of the layer, as the model knows it; `stack`: the class that copies it."""

    name: str
    stack: str
    code: str

    @property
    def said(self) -> str:
        """What the layer is for."""
        return (
            f"No sampled forward ran these layers: {self.stack} calls copies of {self.name}, which itself only serves "
            "as their pattern."
        )

    @property
    def fix(self) -> str:
        """What to do about it."""
        return (
            "Training loses nothing by it. To keep this layer out of the model, give it to a variable, not to `self`."
        )


def of(process: Process, named: str, count: int, made_at: Location | None) -> CopiedPattern | None:
    """Where these tensors, so many in all, are those of one such layer, in a model with the module that copies it."""
    names = tensor_names.each(named)
    kinds = {row["module"]: row["kind"] for row in process.tables["modules"].records()}
    layers = [module for module, kind in kinds.items() if kind in _STACKS and module]
    held = [module for module in layers if names and all(name.startswith(f"{module}.") for name in names)]
    if len(held) != 1 or count != _TENSORS[kinds[held[0]]] or _STACKS[kinds[held[0]]] not in kinds.values():
        return None
    return CopiedPattern(held[0], _STACKS[kinds[held[0]]], _without_self(process, held[0], made_at))


def _without_self(process: Process, module: str, made_at: Location | None) -> str:
    """The statements that name the layer, with a variable in its place; empty where they are not known as a whole."""
    name = module.rpartition(".")[2]
    mentions = re.compile(rf"\bself\.{name}\b")
    text = recorded_text.of_function(process, made_at) if made_at is not None else {}
    found: dict[int, str] = {}
    for at, line in sorted(text.items()):
        if made_at is not None and mentions.search(line):
            own = own_statement.at(process, made_at.at(at, line))
            if own is None or not own.is_whole:
                return ""
            found[own.line] = own.dedented(mentions.sub(name, own.text))
    return "\n".join(found.values()) if len(found) > 1 else ""

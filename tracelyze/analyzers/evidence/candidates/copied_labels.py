"""The line that copies ids into labels, where a framework or the model itself computes the loss of them."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.editing import parsed_line

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_IDS, _MASK, _IGNORED = "input_ids", "attention_mask", -100
_COPIES: Final = ("list", "copy", "deepcopy")


def line(process: Process, seen: Location | None) -> Location | None:
    """The only line that makes labels, where the line at which the loss was seen computes none of its own: it runs a
    framework's loop (`trainer.train()`), or hands labels to a model."""
    if seen is None:
        return None
    loops = {one.file_line for one in process.locations("step")}
    given = seen.file_line in loops or "labels=" in seen.source.replace(" ", "")
    return script_lines.only(process, "labels") if given else None


def masked(place: Location) -> str:
    """The line that copies ids into labels, with padding ignored by the attention mask beside the ids; empty where it
    reads otherwise."""
    parsed = parsed_line.parse(place.source)
    made = parsed.statement if parsed is not None else None
    if parsed is None or not isinstance(made, ast.Assign) or len(made.targets) != 1:
        return ""
    target, value = parsed.text_of(made.targets[0]), made.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "clone":
        ids = parsed.text_of(value.func.value)
        return f"{target} = {ids}.masked_fill({_beside(ids)} == 0, {_IGNORED})" if _beside(ids) else ""
    if not isinstance(value, ast.ListComp) or len(value.generators) != 1 or value.generators[0].ifs:
        return ""
    rows, elements = (parsed.text_of(one) for one in (value.generators[0].iter, value.generators[0].target))
    copied = isinstance(value.elt, ast.Call) and parsed_line.name_of(value.elt.func) in _COPIES
    if not _beside(rows) or not (copied or parsed.text_of(value.elt) in (elements, f"{elements}[:]")):
        return ""
    return (
        f"{target} = [\n    [token if real else {_IGNORED} for token, real in zip(ids, mask)]\n"
        f"    for ids, mask in zip({rows}, {_beside(rows)})\n]"
    )


def _beside(ids: str) -> str:
    """What holds the attention mask, where `ids` is what holds the ids: `batch["input_ids"]` or `batch.input_ids`."""
    return ids.replace(_IDS, _MASK) if ids.endswith((f"['{_IDS}']", f'["{_IDS}"]', f".{_IDS}")) else ""

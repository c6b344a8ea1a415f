"""Examples that keep the samples of a packed row apart, in the words of the library that the script uses."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.remade import frameworks

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

WHOLE: Final = (
    'SFTConfig(packing=True, packing_strategy="bfd")  # TRL: whole samples, with positions that start anew\n'
    "# its attention must heed these positions, as FlashAttention's does: packing=False is safe with any"
)
FLATTENED: Final = "DataCollatorWithFlattening(return_position_ids=True)   # transformers; in TRL: padding_free=True"
ABOVE: Final = "# right above the line that calls the model with `batch`:\n"
BY_END: Final = (
    'part = torch.nn.functional.pad(batch["input_ids"] == {end}, (1, 0))[:, :-1].cumsum(1)  # {end} ends each sample\n'
)
BY_NUMBER: Final = 'part = batch["attention_mask"]  # which sample of its row each position is of\n'
MASK: Final = """seen = torch.ones(part.shape[1], part.shape[1], dtype=torch.bool, device=part.device).tril()
seen = seen & (part[:, :, None] == part[:, None, :])
hidden = torch.zeros(seen.shape, dtype=model.dtype, device=part.device)
batch["attention_mask"] = hidden.masked_fill(~seen, torch.finfo(model.dtype).min)[:, None]
batch["position_ids"] = seen.sum(2) - 1  # they start anew with each sample"""
_GIVEN: Final = '\n# and in that call: position_ids={name}["position_ids"]'
APART: Final = (
    "# part: which sample of its row each position is of, [batch, positions]; mask: where attention may look\n"
    "mask = mask & (part[:, :, None] == part[:, None, :])"
)

_CUT: Final = re.compile(r"\w\[(\w+) ?: ?\1 ?\+ ?[\w.]+\]")
_CALLING: Final = ("forward", "backward", "loss", "loader", "evaluation")


def cut_out(process: Process) -> Location | None:
    """The only line that cuts pieces of one length out of something, `ids[start : start + block]`, beside the functions
    that call a model, which cut batches out of their data in this way."""
    calling = {place.file_function for role in _CALLING for place in process.locations(role)}
    found = [place for place in recorded_text.matching(process, _CUT) if place.file_function not in calling]
    return found[0] if len(found) == 1 else None


def example(process: Process, place: Location | None, end: float | None, cut: bool, numbered: bool) -> str:
    """An example that keeps the samples of packed rows apart. `place`: where the model is called; `end`: the id in
    which all samples end, if one is known; `cut`: rows begin anywhere in a sample; `numbered`: a mask numbers the
    samples of a row."""
    library = frameworks.transformers(process)
    if library and numbered:
        return ABOVE + BY_NUMBER + MASK
    if cut or not library:
        return WHOLE if cut else APART
    call = _call(process, place)
    if call is None or end is None:
        return FLATTENED
    name, text = call
    return (ABOVE + BY_END.format(end=int(end)) + MASK).replace("batch", name) + text


def _call(process: Process, place: Location | None) -> tuple[str, str] | None:
    """What the script's own loop calls the batch that it gives the model, and what else to hand over where it gives
    the entries one by one. None where it gives something else."""
    own = own_statement.at(process, place)
    calls = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Call)] if own is not None else []
    for call in calls:
        given = {one.arg: one.value for one in call.keywords}
        whole, mask = given.get(None), given.get("attention_mask")
        if isinstance(whole, ast.Name) and len(given) == 1:
            return whole.id, ""
        ids, held = given.get("input_ids", call.args[0] if call.args else None), ""
        if isinstance(ids, ast.Subscript) and isinstance(ids.value, ast.Name):
            held = ids.value.id
        if held and mask is not None and ast.unparse(mask) == f"{held}['attention_mask']":
            return None if "position_ids" in given else (held, _GIVEN.format(name=held))
    return None

"""Embeddings that were made larger after they were made: tokens were added to a vocabulary.

transformers gives an embedding that there was another weight; in other programs a new embedding is made, and the rows
of the old one are copied into it. So it is noted how many rows each had when it was made, and a few elements of those
that were there before it, by which its first rows are recognised.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.internals.by_identity import ByIdentity

ELEMENTS = 8  # of a row
MAX_EMBEDDINGS = 64  # that are remembered
Sample = tuple[int, Any, Any]  # rows, and elements of the first and of the last of them

_rows: ByIdentity[int] = ByIdentity()  # when it was made
_before: ByIdentity[list[Sample]] = ByIdentity()  # smaller ones that lived then


def stored_weight(module: Any) -> Any:
    """The parameter `weight` of a module, None if it has none.

    A parametrized weight is computed by the program's code whenever it is read: `spectral_norm` goes a step on then.
    """
    return vars(module).get("_parameters", {}).get("weight")


def made(module: Any) -> None:
    """An embedding was constructed."""
    weight = stored_weight(module)
    if len(_rows) >= MAX_EMBEDDINGS or weight is None:
        return
    rows, width = weight.shape
    if weight.is_meta:  # what loads a model may make it without values, and give it those of the file afterwards
        _rows[module] = int(rows)
        return
    others = [other for one in list(_rows) if (other := stored_weight(one)) is not None and not other.is_meta]
    earlier = [other for other in others if other.dim() == 2 and other.shape[1] == width]
    smaller = [other for other in earlier if rows / 2 < other.shape[0] < rows]
    _rows[module] = int(rows)
    if smaller:
        _before[module] = [_sample(other.detach()) for other in smaller]


def may_have_grown() -> bool:
    """Whether an embedding was made that is larger than another one, which lived then."""
    return bool(_before)


def grown_from(module: Any, rows: int) -> int | None:
    """How many rows an embedding, which has `rows` now, had before it was made larger; None if it was not."""
    weight = stored_weight(module).detach()
    first: int | None = _rows.get(module)
    if first is not None and first < rows:
        return first
    samples: list[Sample] = _before.get(module, [])
    for number, start, end in samples:
        same = start.dtype == weight.dtype and start.device == weight.device and number < rows
        if same and bool((weight[0, :ELEMENTS] == start).all()) and bool((weight[number - 1, :ELEMENTS] == end).all()):
            return number
    return None


def is_copy(module: Any, weight: Any) -> bool:
    """Whether this weight is, as far as a few elements show, a copy of what the embedding holds."""
    held = stored_weight(module)
    if held is None or held is weight or held.shape != weight.shape or held.dtype != weight.dtype:
        return False
    same_device = held.device == weight.device
    return same_device and all(bool((held[at, :ELEMENTS] == weight[at, :ELEMENTS]).all()) for at in (0, -1))


def _sample(weight: Any) -> Sample:
    return int(weight.shape[0]), weight[0, :ELEMENTS].clone(), weight[-1, :ELEMENTS].clone()

"""Tensors on a device, told apart by where they lie: the same batch once more, or another one in memory used again?

To compare what lies in two tensors would wait for the device. So a tensor is recognised by its place in memory as long
as it lives and is not written to. Of others of one shape, copies of some elements are compared on the device, and the
answer is read steps later.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from tracelyze.collectors.tensors.safe_computing import every_nth

ELEMENTS = 64  # of a tensor, by which it is distinguished from others
MAX_KEPT = 256  # tensors of which a copy is kept at a time
SPREADING = 2654435761  # Knuth, The Art of Computer Programming 3, 6.4: neighbouring places get unlike factors
EXACT = 0xFFFFFF  # whole numbers up to this are exact as float32, in which they are read
Key = tuple[Any, ...]


class _Lying(NamedTuple):
    """What lies at a place."""

    tensor: weakref.ref[Any]
    version: int  # raised by torch whenever the tensor is written to
    key: Key


class Places:
    """Tensors since `clear`. Each has a key; two keys of one shape may stand for the same contents."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._lying: dict[Key, _Lying] = {}
        self._alike: dict[Key, list[Key]] = {}  # keys by shape and kind of number
        self._copies: dict[Key, Any] = {}
        self._copying = False
        self._count = 0

    def key(self, tensor: Any) -> Key:
        """The key of a plain tensor with elements: that of an earlier one if it surely is the same."""
        kind = (*tensor.shape, tensor.dtype)
        place = (*kind, tensor.data_ptr())
        version = 0 if tensor.is_inference() else tensor._version
        before = self._lying.get(place)
        if before is not None and before.tensor() is not None and before.version == version:
            return before.key
        self._count += 1
        key = (*kind, self._count)
        self._alike.setdefault(kind, []).append(key)
        self._lying[place] = _Lying(weakref.ref(tensor), version, key)
        if self._copying and len(self._copies) < MAX_KEPT:
            with self._torch.no_grad():
                self._copies[key] = every_nth(tensor, ELEMENTS).clone()
        return key

    @property
    def certain(self) -> bool:
        """Whether all are surely different: no two of one shape."""
        return all(len(several) == 1 for several in self._alike.values())

    def question(self) -> tuple[list[Key], Any] | None:
        """The keys that may be of the same contents, and a tensor on the device with a number for each: those of one
        shape are the same if their numbers are. None where there are none, or no copies of them were kept."""
        groups = [several for several in self._alike.values() if len(several) > 1]
        keys = [key for several in groups for key in several]
        if not keys or not all(key in self._copies for key in keys):
            return None
        with self._torch.no_grad():
            numbers = [self._digests([self._copies[key] for key in several]) for several in groups]
            return keys, self._torch.cat(numbers)

    def _digests(self, copies: Sequence[Any]) -> Any:
        """A whole number up to EXACT for each of these tensors of one length, equal for equal bytes. Shape [copies]."""
        torch = self._torch
        found = torch.stack(list(copies)).view(torch.uint8).to(torch.int64)
        factors = torch.arange(1, found.shape[1] + 1, device=found.device) * SPREADING
        return (found * factors).sum(1).bitwise_and(EXACT)

    def clear(self, copying: bool) -> None:
        """Forget all tensors. `copying`: whether to keep copies of those to come, so that they can be compared."""
        self._copying = copying
        self._lying.clear()
        self._alike.clear()
        self._copies.clear()


def different(groups: Iterable[frozenset[Key]], numbers: dict[Key, float]) -> int:
    """How many of these groups of keys have a member that none before them had. Keys that have a `number` are the same
    as others of their shape with the same one."""
    met: set[Key] = set()
    count = 0
    for group in groups:
        known = {(*key[:-1], "contents", numbers[key]) if key in numbers else key for key in group}
        count += not known <= met
        met |= known
    return count

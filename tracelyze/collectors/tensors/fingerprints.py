"""Fingerprints of samples and batches, by which the same content can be recognised elsewhere: in another batch, epoch,
split, rank or run. Nothing of the content can be read from them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain

SAMPLES = 8  # of a batch
LEADING, SPREAD = 16, 48  # elements of a sample: sequences differ at their beginning, pictures everywhere
FEWEST = 4  # elements that a sample needs to be distinguished from others
BYTES = 6  # of a fingerprint: a million samples have about one pair of equal ones in 500
BLANK = "-"  # a sample whose elements are all equal, such as padding: it is no evidence of anything
FIELDS = 6
NUMBERS = tuple(str(index) for index in range(FIELDS))
STATISTICS = 4096  # elements that mean and spread are taken of
CLASSES = 32
TARGETS = 1024  # targets counted by class


def fields(torch: Any, batch: Any) -> list[tuple[str, Any]]:
    """The first tensors of a batch with their keys: a tensor, a sequence, a mapping, or an object with attributes."""
    tensor = torch.Tensor
    pairs: Iterable[tuple[str, Any]]
    if isinstance(batch, (tuple, list)):
        if len(batch) <= FIELDS and set(map(type, batch)) == {tensor}:  # nearly always
            return list(zip(NUMBERS, batch, strict=False))
        pairs = zip(NUMBERS, batch, strict=False)
    elif isinstance(batch, tensor):
        return [("0", batch)]
    elif isinstance(batch, dict):
        pairs = list(zip(map(str, batch), batch.values(), strict=True))
        if len(batch) <= FIELDS and set(map(type, batch.values())) == {tensor}:
            return pairs
    elif isinstance(batch, Mapping):
        pairs = [(str(key), value) for key, value in batch.items()]
    elif hasattr(batch, "__dataclass_fields__"):
        pairs = [(name, getattr(batch, name)) for name in batch.__dataclass_fields__]
    else:
        return []
    found: list[tuple[str, Any]] = []
    for key, value in pairs:
        if isinstance(value, tensor):
            found.append((key, value))
        elif isinstance(value, (tuple, list, Mapping)) and len(found) < FIELDS:
            found += [(f"{key}.{inner}", one) for inner, one in fields(torch, value)]
    return found[:FIELDS]


class Fingerprints:
    """Makes fingerprints of batches in main memory; remembers which elements it reads, for a few shapes."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._places: dict[tuple[int, ...], Any] = {}

    def of(self, tensor: Any, samples: int = SAMPLES) -> tuple[str | None, str | None]:
        """Fingerprints of the first samples, separated by blanks, and one of the first SAMPLES of them together.

        The first is None where a sample has too few elements to be distinguished from others (targets). (None, None)
        for a tensor that is not plainly in main memory.
        """
        torch = self._torch
        if not is_plain(torch, tensor) or tensor.device.type != "cpu" or tensor.dtype.is_complex or not tensor.numel():
            return None, None
        first = tensor.detach()[:samples] if tensor.dim() else tensor.detach().reshape(1)
        count = first.shape[0]
        elements = first.numel() // count
        if elements <= LEADING + SPREAD:
            rows = first.reshape(count, elements).tolist()
        else:
            rows = first[(slice(None), *self._where(tuple(first.shape[1:]), elements))].tolist()
        contents = [array("d", row).tobytes() for row in rows]
        together = blake2b(b"".join(contents[:SAMPLES]), digest_size=BYTES).hexdigest()
        if elements < FEWEST:
            return None, together
        fingerprints = [
            BLANK if min(row) == max(row) else blake2b(content, digest_size=BYTES).hexdigest()
            for row, content in zip(rows, contents, strict=True)
        ]
        return " ".join(fingerprints), together

    def _where(self, shape: tuple[int, ...], elements: int) -> tuple[Any, ...]:
        """Indices into one sample, one tensor per dimension: whatever its strides are, nothing has to be copied."""
        known = self._places.get(shape)
        if known is None:
            if len(self._places) >= 64:  # sequences of ever new lengths
                self._places.clear()
            step = max(1, (elements - LEADING) // SPREAD)
            chosen = [*range(LEADING), *range(LEADING, elements, step)][: LEADING + SPREAD]
            known = []
            for size in reversed(shape):
                known.append(self._torch.tensor([index % size for index in chosen], device="cpu"))
                chosen = [index // size for index in chosen]
            known = self._places[shape] = tuple(reversed(known))
        return known


def statistics(torch: Any, tensor: Any) -> list[Any]:
    """Mean, deviation, smallest, largest, share of non-zeros of a spread of elements, sum of all: scalar tensors.

    The sum is not finite if one element is not.
    """
    values = every_nth(tensor, STATISTICS).to(torch.float32).contiguous()
    deviation, mean = torch.std_mean(values, correction=0)
    low, high = torch.aminmax(values)
    there = torch.count_nonzero(values) / values.numel()
    return [mean, deviation, low, high, there, tensor.detach().sum(dtype=torch.float32)]


def classes(tensor: Any) -> dict[str, int] | None:
    """How often each value occurs among integer targets, one per sample; None for anything else."""
    if tensor.is_floating_point() or tensor.dtype.is_complex or tensor.device.type != "cpu":
        return None
    if tensor.dim() == 0 or tensor.numel() != tensor.shape[0]:
        return None
    counts: dict[int, int] = {}
    for value in tensor.detach().reshape(-1)[:TARGETS].tolist():
        counts[int(value)] = counts.get(int(value), 0) + 1
    if len(counts) > CLASSES:
        return None
    return {str(value): count for value, count in sorted(counts.items())}

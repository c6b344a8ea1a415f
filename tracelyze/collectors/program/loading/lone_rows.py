"""Fields of a batch that hold one row for all of its samples, although the samples differ there: whose row it is.

The script's own collate_fn is looked at as it returns, in the few batches that are timed: what it was given and what it
made are in hand then, and no call of it is replaced.
"""

from __future__ import annotations

import json
import math
import sys
from types import CodeType, FrameType
from typing import Any, Final

from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.system.program_signals import own_errors_dropped
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

SPACE: Final = 256  # bytes, for what a worker hands to the training process
COUNTS: Final = ("looks", "last", "first", "extreme", "chance")
_FEWEST, _MOST = 3, 1024  # samples of a batch
_ELEMENTS: Final = 64  # of a row
_FIELDS: Final = 8
Found = dict[str, dict[str, float]]


class LoneRows:
    """Looks at what one collate_fn makes."""

    def __init__(self, code: CodeType) -> None:
        self.code = code
        self.found: Found = {}  # by field: the numbers of COUNTS

    def returns(self, frame: FrameType, made: Any) -> None:
        """The collate_fn is about to return: its variables still hold the samples that it was given."""
        torch = sys.modules["torch"]
        with own_errors_dropped:  # samples that answer with exceptions of their own
            with borrowed(frame) as variables, unseen(torch):
                given = [variables.get(name) for name in self.code.co_varnames[: self.code.co_argcount]]
                samples = next((one for one in given if type(one) in (list, tuple)), None)
                if samples is not None and _FEWEST <= len(samples) <= _MOST and may_compute(torch):
                    self._look(torch, list(samples), made)

    def _look(self, torch: Any, samples: list[Any], made: Any) -> None:
        if isinstance(made, dict):
            pairs = list(made.items())[:_FIELDS]
        elif isinstance(made, (tuple, list)):
            pairs = list(enumerate(made))[:_FIELDS]
        else:
            return
        tensors = [(key, one) for key, one in pairs if is_plain(torch, one) and one.is_cpu and one.dim()]
        if not any(one.shape[0] == len(samples) for _, one in tensors):
            return
        for key, one in tensors:
            if one.shape[0] == 1 and one.numel() <= _ELEMENTS and not one.is_complex():
                place = _place(torch, samples[0], key, one)
                values = [_numbers(torch, _part(sample, place), one.dtype) for sample in samples]
                if all(value is not None for value in values) and any(value != values[0] for value in values):
                    self._count(str(key), _numbers(torch, one, one.dtype), values)

    def _count(self, field: str, lone: Any, values: list[Any]) -> None:
        found = self.found.setdefault(field, dict.fromkeys(COUNTS, 0.0))
        same = sum(value == lone for value in values)
        found["looks"] += 1
        found["last"] += values[-1] == lone
        found["first"] += values[0] == lone
        found["extreme"] += len(lone) == 1 and lone in (min(values), max(values))
        found["chance"] += math.log10(same / len(values)) if same else 0.0

    def to_bytes(self) -> bytes:
        """At most SPACE bytes; none where it takes more."""
        content = json.dumps(self.found).encode() + b"\0"
        return content if len(content) <= SPACE else b""


def of(collate: Any) -> LoneRows | None:
    """What looks at the batches that a collate_fn of the script's own puts together; None for one of a library."""
    code = definitions.code_of(collate)
    return LoneRows(code) if code is not None else None


def of_bytes(content: bytes) -> Found:
    """What `to_bytes` made; nothing of anything else: its writer may be about to write."""
    text, end, _ = content.partition(b"\0")
    try:
        return dict(json.loads(text)) if end and text else {}
    except ValueError:
        return {}


def together(parts: list[Found]) -> Found:
    """The counts of several processes, or passes, by field."""
    whole: Found = {}
    for part in parts:
        for field, counts in part.items():
            into = whole.setdefault(field, dict.fromkeys(COUNTS, 0.0))
            for name in COUNTS:
                into[name] += counts.get(name, 0.0)
    return whole


def _place(torch: Any, sample: Any, key: Any, lone: Any) -> Any:
    """The key or place of a sample whose values this field of a batch holds: its own, or, if a collate_fn makes a
    mapping of tuples or the reverse, the only one with as many numbers, and if several have, of the same kind."""
    named = isinstance(sample, dict)
    if (named and key in sample) or not isinstance(sample, (dict, tuple, list)) or (not named and type(key) is int):
        return key
    places = list(sample.items() if isinstance(sample, dict) else enumerate(sample))[:_FIELDS]
    alike = [(at, one) for at, one in places if len(_numbers(torch, one, lone.dtype) or ()) == lone.numel()]
    if len(alike) > 1:
        whole = not lone.is_floating_point()
        alike = [(at, one) for at, one in alike if _is_whole(one) is whole]
    return alike[0][0] if len(alike) == 1 else None


def _is_whole(value: Any) -> bool:
    """Whether a number, or a few of them, are integers by type."""
    one = value[0] if type(value) in (list, tuple) else value
    dtype = getattr(one, "dtype", None)
    if dtype is not None:
        return dtype.kind in "iub" if hasattr(dtype, "kind") else not dtype.is_floating_point
    return isinstance(one, int)


def _part(sample: Any, place: Any) -> Any:
    """The field of a sample at this key or place."""
    if isinstance(sample, dict):
        return sample.get(place)
    known = isinstance(sample, (tuple, list)) and type(place) is int and place < len(sample)
    return sample[place] if known else None


def _numbers(torch: Any, value: Any, dtype: Any) -> list[float] | None:
    """The values of a number, or of a few in a tensor, an array or a list, as this dtype holds them."""
    if type(value) in (int, float, bool):
        value = (value,)
    if type(value) in (list, tuple):
        few = 0 < len(value) <= _ELEMENTS and all(type(one) in (int, float, bool) for one in value)
        found = [float(one) for one in value] if few else None
    elif type(value).__module__ == "numpy" and hasattr(value, "dtype") and value.dtype.kind in "iufb":
        found = [float(one) for one in value.ravel()] if 0 < value.size <= _ELEMENTS else None
    elif is_plain(torch, value) and value.is_cpu and not value.is_complex() and 0 < value.numel() <= _ELEMENTS:
        found = [float(one) for one in value.detach().reshape(-1).tolist()]
    else:
        found = None
    return None if found is None else [float(one) for one in torch.tensor(found, dtype=dtype).tolist()]

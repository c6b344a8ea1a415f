"""What to change where memory ran out: less at once, or, where one allocation was too large by itself, that one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.memory.out_of_memory import device_memory
from tracelyze.analyzers.script.editing import trainer_examples
from tracelyze.formatting import size

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

# What torch's CPU allocator and NumPy write; torch's device allocator: device_memory.ASKED.
HOST: Final = re.compile(r"you tried to allocate (\d+) (bytes)|Unable to allocate ([\d.]+) (bytes|KiB|MiB|GiB|TiB|PiB)")
UNITS: Final = {**device_memory.UNITS, "TiB": 2**40, "PiB": 2**50}
PAIRS: Final = re.compile(
    r"\s@\s|\b(?:matmul|mm|bmm|cdist|outer|einsum|meshgrid|cartesian_prod)\s*\(|\[(?:\.\.\.|:), None\b|\bNone, :"
)
"""What makes a value for each pair of rows, in the text of a line."""
LARGE = 0.5  # of the memory: beside it there is no room for what it is made of, its gradient and a result
FIXES: Final = {
    "device": "Halve the batch and accumulate gradients over two, use bfloat16 autocast or activation checkpointing, "
    "and run validation under no_grad. If it fits at first and fails later, look for a leak or for longer inputs.",
    "shared": "Other programs fill the device, not this one: `nvidia-smi` lists them. End those that nobody needs now "
    "(a notebook or a worker of a run that died), or choose another device with CUDA_VISIBLE_DEVICES.",
    "host": "Load less at once (memory-mapped files, fewer workers, smaller prefetch_factor), and keep no outputs of "
    "past steps. If it fits at first and fails later, look for a leak.",
}
PARTS: Final = (
    "from torch.utils.checkpoint import checkpoint\n\n"
    "def part(rows):\n    return (rows @ x.T).logsumexp(1)  # what your lines below make of it: a sum, topk, argmin\n\n"
    "result = torch.cat([checkpoint(part, rows, use_reentrant=False) for rows in x.split(1024)])\n"
    "# without gradients: part(rows) in place of checkpoint(part, rows, use_reentrant=False)"
)
FIX: Final = (
    "Make this one tensor smaller: look at what its sizes come from, such as the batch, the length of sequences, a "
    "number of classes or the width of a layer."
)
FIX_PAIRS: Final = (
    "A value for each pair of rows grows with the square of their number. Compute it in parts, of which only what is "
    "used is kept; halving the batch helps only where the rows are those of the batch."
)


@dataclass(frozen=True)
class Single:
    """What was asked for at once, in bytes, and of how much. `pairs`: the line combines rows with each other."""

    asked: float
    whole: float
    pairs: bool

    @property
    def why(self) -> str:
        """A sentence about it."""
        return f"It asked for {size(self.asked)} at once, of {size(self.whole)} that there are."


def of(process: Process, kind: str, text: str, source: str) -> Single | None:
    """The allocation that failed, if it asked for half of the memory or more. `source`: the line that made it."""
    device = process.facts.get("device") or {}
    known = process.facts.get("host_memory_bytes") if kind == "host" else device.get("memory_bytes")
    held = device_memory.holders(text)
    asked, whole = held.asked, held.whole or known
    if kind == "host":
        found, whole = HOST.search(text), known
        parts = found.groups() if found else ()
        numbers = [(value, unit) for value, unit in zip(parts[::2], parts[1::2], strict=True) if value]
        asked = float(numbers[0][0]) * UNITS[numbers[0][1]] if numbers else None
    if asked is None or not whole or asked < LARGE * whole:
        return None
    return Single(asked, float(whole), PAIRS.search(source) is not None)


def advice(kind: str, single: Single | None) -> tuple[str, str]:
    """What to change, and an example. `kind`: a key of FIXES."""
    if single is not None and kind != "shared":
        return (FIX_PAIRS, PARTS) if single.pairs else (FIX, "")
    return FIXES[kind], trainer_examples.HALVED if kind == "device" else ""

"""Samplers and data sets of the script's own that ask for the rank as they are made, before there is a process group:
each takes itself for the only one, and gives all samples to every rank."""

from __future__ import annotations

import re
from types import CodeType
from typing import Any, Final

from tracelyze.collectors.program.lines import definitions

ASKS: Final = re.compile(r"is_initialized|get_(?:\w+_)?(?:rank|world_size)")  # torch's, and a script's own around them
RANKS: Final = re.compile(r"_?(?:num_)?(?:world(?:_size)?|replicas|ranks|shards)")
MAX_ATTRIBUTES: Final = 64


def asked_by(torch: Any, loader: Any) -> str | None:
    """The class that asked; None where a process group exists, or none of the loader's parts counts one rank."""
    distributed = torch.distributed
    if not distributed.is_available() or distributed.is_initialized():
        return None
    for part in (loader.batch_sampler, loader.sampler, *definitions.wrapped_in(loader.dataset)):
        kind = type(part)
        code = getattr(kind.__init__, "__code__", None)
        if kind.__module__.startswith("torch.") or not isinstance(code, CodeType):
            continue
        held = list(getattr(part, "__dict__", {}).items())[:MAX_ATTRIBUTES]
        alone = any(type(value) is int and value == 1 and RANKS.fullmatch(name) for name, value in held)
        if alone and any(ASKS.fullmatch(name) for name in code.co_names):
            return str(kind.__name__)
    return None

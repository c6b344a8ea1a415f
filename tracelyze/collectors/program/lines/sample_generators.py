"""Generators of random numbers that a dataset makes anew for each sample, and the samples that it stores."""

from __future__ import annotations

import dis
import inspect
import re
from types import CodeType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.program.call_sites import Sites, is_library
from tracelyze.collectors.program.lines.definitions import MAX_DEPTH
from tracelyze.collectors.program.lines.named_calls import LONGEST
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler

SEEDED: Final = frozenset({"manual_seed", "RandomState", "default_rng", "Random"})
FRESH: Final = re.compile(r"epoch|initial_seed|randint|getrandbits|urandom|entropy|time|next|worker", re.IGNORECASE)
"""In the line that seeds: the seed is another one in each epoch, or may be."""
MAX_SHAPES: Final = 8


class Found(NamedTuple):
    """The number of the line that seeds such a generator, and the shapes of stored samples: "1x28x28 3x32x32"."""

    line: int
    stored: str


def of(dataset: Any, sites: Sites) -> Found | None:
    """Such a generator in `__getitem__` of a dataset of the script's own, or of the one that it wraps."""
    for _ in range(MAX_DEPTH):
        found = getattr(type(dataset), "__getitem__", None)
        code = getattr(inspect.unwrap(found) if callable(found) else None, "__code__", None)
        if isinstance(code, CodeType) and not is_library(code.co_filename):
            line = _seeds(code)
            return None if line is None else Found(sites.at("own-generator", code, line), _stored(dataset))
        dataset = getattr(dataset, "__dict__", {}).get("dataset")
    return None


def _seeds(code: CodeType) -> int | None:
    """The line that makes a generator with a seed that does not change from epoch to epoch."""
    if len(code.co_code) > LONGEST or not SEEDED.intersection(code.co_names):
        return None
    if "manual_seed" in code.co_names and "Generator" not in code.co_names:
        return None  # it seeds the global generator
    names: dict[int, set[str]] = {}
    line, seeds, given = code.co_firstlineno, 0, False
    for one in dis.get_instructions(code):
        line = (one.positions.lineno if one.positions is not None else None) or line
        if one.opname.startswith("LOAD_") and type(one.argval) is str:
            names.setdefault(line, set()).add(one.argval)
        if one.argval in SEEDED and one.opname in ("LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME"):
            seeds, given = seeds or line, False
        elif seeds == line and not given and one.opname.startswith(("LOAD_FAST", "LOAD_CONST", "LOAD_DEREF")):
            given = True  # default_rng() without a seed draws one
    fresh = any(FRESH.search(name) for name in names.get(seeds, ()))
    return seeds if seeds and given and not fresh else None


def _stored(dataset: Any) -> str:
    """Shapes of the samples that a dataset holds: of tensors, arrays and lists that are as long as it is."""
    try:
        length = len(dataset)
    except Exception as error:  # a dataset of the script's own, which may raise what it likes
        if raised_by_a_signal_handler(error):
            raise
        return ""
    shapes: dict[str, None] = {}
    for value in list(getattr(dataset, "__dict__", {}).values()):
        if type(value) in (list, tuple):
            shape = getattr(value[0], "shape", None) if len(value) == length and length else None
        else:
            whole = getattr(value, "shape", None)
            shape = whole[1:] if isinstance(whole, tuple) and len(whole) > 1 and whole[0] == length else None
        if isinstance(shape, tuple) and all(isinstance(size, int) for size in shape):
            shapes["x".join(map(str, shape))] = None
    return " ".join(list(shapes)[:MAX_SHAPES])

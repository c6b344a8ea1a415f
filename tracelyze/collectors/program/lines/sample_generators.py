"""Generators of random numbers that a dataset seeds anew for each sample, and the samples that it stores."""

from __future__ import annotations

import dis
import inspect
import re
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Final, NamedTuple

from tracelyze.collectors.program.call_sites import Sites, is_library
from tracelyze.collectors.program.lines.definitions import MAX_DEPTH, code_of_method
from tracelyze.collectors.program.lines.instructions import FUNCTIONS, by_line
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.fingerprints import Fingerprints

SEEDED: Final = frozenset({"manual_seed", "seed", "RandomState", "default_rng", "Random"})
FRESH: Final = re.compile(r"epoch|initial_seed|randint|getrandbits|urandom|entropy|time|next|worker", re.IGNORECASE)
"""In the line that seeds: the seed is another one in each epoch, or may be."""
FILES: Final = "files"  # stands for the shapes of samples that lie in files, whose names are stored
OPENS: Final = frozenset(
    {"open", "imread", "read_image", "decode_image", "decode_jpeg", "load", "read_file", "read_bytes"}
)
MAX_SHAPES: Final = 8
PRINTED: Final = 32  # samples that are looked at of each kind that is stored
MAX_FUNCTIONS: Final = 16  # of the script's own that are gone through for one dataset
_DATA: Final = (str, bytes, list, tuple, dict)


class Found(NamedTuple):
    """The number of the line that seeds such a generator, and the shapes of stored samples: "1x28x28 3x32x32"."""

    line: int
    stored: str


def of(dataset: Any, sites: Sites, copied_once: bool = False) -> Found | None:
    """The generator that is drawn from in `__getitem__` of a dataset of the script's own, in what that calls, or in one
    it wraps.

    `copied_once`: workers read from it that each keep one copy in all epochs.
    """
    whole = dataset
    for _ in range(MAX_DEPTH):
        codes = called(dataset) if code_of_method(type(dataset), "__getitem__") is not None else []
        kept = _kept_numbers(dataset, codes) if copied_once else frozenset[str]()
        for one in codes:
            line = _seeds(one, kept)
            if line is not None:
                opens = any(OPENS.intersection(each.co_names) for each in codes)
                return Found(sites.at("own-generator", one, line), _stored(whole, opens))
        dataset = next(_wrapped(dataset), None)
        if dataset is None:
            return None
    return None


def _wrapped(dataset: Any) -> Iterator[Any]:
    """The datasets that a dataset holds: what has samples by number, and is none of Python's own collections."""
    held = getattr(dataset, "__dict__", {})
    first = held.get("dataset")
    for one in [first, *list(held.values())] if first is not None else list(held.values()):
        kind = type(one)
        if (
            kind not in _DATA
            and hasattr(kind, "__getitem__")
            and hasattr(kind, "__len__")
            and not hasattr(one, "dtype")
        ):
            yield one


def called(dataset: Any) -> list[CodeType]:
    """The code that reads a sample: `__getitem__`, then what it names of the script's methods and functions."""
    found: dict[int, CodeType] = {}
    open_ends: list[tuple[Any, Any]] = [(inspect.unwrap(type(dataset).__getitem__), dataset)]
    while open_ends and len(found) < MAX_FUNCTIONS:
        function, owner = open_ends.pop(0)
        code = getattr(function, "__code__", None)
        if not isinstance(code, CodeType) or id(code) in found:
            continue
        if is_library(code.co_filename):  # a list of transforms, say
            parts: Any = getattr(owner, "__dict__", {}).get("transforms")
            open_ends += [_of_call(one) for one in parts[:MAX_FUNCTIONS]] if type(parts) in (list, tuple) else []
            continue
        found[id(code)] = code
        names, held = code.co_names, getattr(owner, "__dict__", {})
        for name in names:
            method = getattr(type(owner), name, None)
            value: Any = held.get(name, getattr(function, "__globals__", {}).get(name))
            if isinstance(method, FunctionType):
                open_ends.append((method, owner))
            for one in value if type(value) in (list, tuple) and len(value) <= MAX_FUNCTIONS else [value]:
                open_ends.append(_of_call(one))
    return list(found.values())


def _of_call(one: Any) -> tuple[Any, Any]:
    """The function that runs where something is called, and the object that it is a method of."""
    if isinstance(one, FunctionType):
        return one, None
    own = vars(type(one))
    return own.get("__call__") or (own.get("forward") if hasattr(type(one), "named_parameters") else None), one


def _kept_numbers(dataset: Any, codes: list[CodeType]) -> frozenset[str]:
    """Attributes, of the dataset and of its transforms, whose numbers stay as they are in a copy: those that the code
    which reads a sample does not set."""
    held = getattr(dataset, "__dict__", {})
    copied = [held, *(getattr(one, "__dict__", {}) for one in list(held.values()))]
    numbers = {name for one in copied for name, value in list(one.items()) if type(value) is int}
    sets = {one.argval for code in codes for _, one in by_line(code) if one.opname == "STORE_ATTR"}
    return frozenset(numbers - sets)


def _seeds(code: CodeType, kept: frozenset[str]) -> int | None:
    """The line that seeds a generator by what does not change from epoch to epoch, as what is `kept` does not."""
    if not SEEDED.intersection(code.co_names):
        return None
    names: dict[int, set[str]] = {}
    seeds, given, owner = 0, False, ""
    for line, one in by_line(code):
        if one.opname.startswith("LOAD_") and type(one.argval) is str:
            names.setdefault(line, set()).add(one.argval)
        if one.argval in SEEDED and one.opname in FUNCTIONS and not _is_number(one, owner):
            seeds, given = seeds or line, given and seeds == line
        elif seeds == line and not given and one.opname in ("LOAD_FAST", "LOAD_CONST", "LOAD_DEREF"):
            given = True  # default_rng() without a seed draws one
        owner = str(one.argval)
    fresh = any(FRESH.search(name) for name in names.get(seeds, set()) - kept)
    return seeds if seeds and given and not fresh else None


def _is_number(one: dis.Instruction, owner: str) -> bool:
    """Whether an attribute is the seed itself, and no method that seeds: `self.seed`, not `random.seed(7)`."""
    return one.opname == "LOAD_ATTR" and one.argval == "seed" and owner != "random" and "NULL" not in one.argrepr


def _stored(dataset: Any, opens: bool) -> str:
    """Shapes of the samples that a dataset holds. `opens`: whether the code that reads a sample opens files."""
    shapes: dict[str, None] = {}
    for value, length in _held(dataset):
        shape = _shape_of_a_sample(value, length, opens)
        if shape:
            shapes[shape] = None
    return " ".join(list(shapes)[:MAX_SHAPES])


def prints_of_stored(torch: Any, dataset: Any) -> str:
    """Fingerprints of some of the samples that it holds: by them those are known that it hands out unchanged."""
    made, found = Fingerprints(torch), dict[str, None]()
    for value, length in _held(dataset):
        shape = _shape_of_a_sample(value, length, False)
        in_memory = type(value) in (list, tuple, torch.Tensor) or type(value).__name__ == "ndarray"  # no file of arrays
        if shape and in_memory and len(found) < MAX_SHAPES * PRINTED:
            some = value[:: max(1, length // PRINTED)][:PRINTED]
            try:
                with torch.no_grad():
                    samples = torch.stack([torch.as_tensor(one) for one in some])
                prints, _ = made.of(samples, PRINTED)
            except (TypeError, RuntimeError, ValueError):  # arrays of what torch does not know, or of several sizes
                continue
            found.update(dict.fromkeys((prints or "").split()))
    return " ".join(found)


def _held(dataset: Any) -> Iterator[tuple[Any, int]]:
    """What a dataset, or one that it wraps, holds for each sample, and for how many."""
    for _ in range(MAX_DEPTH):
        try:
            length = len(dataset)
        except Exception as error:  # a dataset of the script's own, which may raise what it likes
            if raised_by_a_signal_handler(error):
                raise
            return
        for value in list(getattr(dataset, "__dict__", {}).values()):
            together = type(value) is tuple and all(hasattr(one, "shape") for one in value)  # TensorDataset.tensors
            yield from ((one, length) for one in (value if together else [value]))
        dataset = next(_wrapped(dataset), None)
        if dataset is None:
            return


def _shape_of_a_sample(value: Any, length: int, opens: bool) -> str:
    if type(value) in (list, tuple):
        first = value[0] if len(value) == length and length else None
        if opens and (isinstance(first, str) or hasattr(first, "__fspath__")):
            return FILES
        shape = getattr(first, "shape", None)
    else:
        whole = getattr(value, "shape", None)
        shape = whole[1:] if isinstance(whole, tuple) and len(whole) > 1 and whole[0] == length else None
    return "x".join(map(str, shape)) if isinstance(shape, tuple) and all(isinstance(n, int) for n in shape) else ""

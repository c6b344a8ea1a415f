"""How many steps of noise a program has: the length of its schedule, or a number, by the names of what its functions
hold; and the timesteps that it draws beside the model.

Only names, shapes and dictionaries of attributes are read: no property of the program runs, and nothing is kept.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any

from tracelyze.collectors.internals.local_variables import borrowed
from tracelyze.collectors.program.call_sites import script_frames
from tracelyze.collectors.tensors.safe_computing import is_plain

TIMESTEPS = re.compile(r"(?:diffusion_|noise_)?(?:t|ts|times?|time_?steps?|steps?|noise_levels?)", re.IGNORECASE)
DRAWS = frozenset(("randint", "randint_like", "random_", "integers"))  # functions that draw integers
NAMED = re.compile(r"alpha|beta|sigma|(?<![a-z])a_?bar|snr", re.IGNORECASE)
COUNTED = re.compile(r"(?:num_|n_)?(?:train_)?(?:(?:diffusion_|noise_)?time_?steps|(?:diffusion|noise)_steps)|(?:n_)?T")
SHORTEST = 20  # steps: what is shorter may be anything
FRAMES, VARIABLES = 4, 300  # functions of the program that are looked into, and variables of each
OBJECTS = 1000  # objects of objects that are looked into
Read = Callable[[Iterable[tuple[Any, Any]]], Iterator[int]]  # of names and what they stand for


def lengths(model: Any) -> set[int]:
    """Lengths of all schedules that the model, the functions that called it, and their objects hold; where there are
    none, those that objects of these objects hold."""
    found: set[int] = set()
    for module in model.modules():
        found |= set(_named(module._buffers.items()))
    found |= _of_callers(sys._getframe(1), _of, _named)
    return found or _of_callers(sys._getframe(1), _within, _named)


def numbers(model: Any) -> set[int]:
    """How many timesteps there are by whole numbers that are named so: a schedule may be a formula."""
    found = set(_counted(vars(model).items())) | _of_callers(sys._getframe(1), _of, _counted)
    return found or _of_callers(sys._getframe(1), _within, _counted)


def _of_callers(frame: FrameType | None, look: Callable[[Any, Read], set[int]], read: Read) -> set[int]:
    found: set[int] = set()
    for number, one in enumerate(itertools.islice(script_frames(frame), FRAMES)):
        if not number:
            found |= look(one.f_globals, read)
        with borrowed(one) as variables:
            found |= look(variables, read)
    return found


def drawn_beside(torch: Any, samples: int | None) -> tuple[str, Any] | None:
    """Name and values of the timesteps that a function which called the model has drawn, one for each sample, where the
    model is given something made of them: an integer vector of such a name, in a function that draws integers."""
    for frame in itertools.islice(script_frames(sys._getframe(1)), FRAMES):
        if DRAWS.intersection(frame.f_code.co_names):
            held = frame.f_globals if frame.f_code.co_name == "<module>" else None
            with borrowed(frame) as variables:
                found = _vector(torch, variables if held is None else held, samples)
            if found is not None:
                return found
    return None


def _vector(torch: Any, variables: Any, samples: int | None) -> tuple[str, Any] | None:
    """The only variable that holds a timestep for each sample."""
    found = [
        (name, value)
        for name, value in list(variables.items())[:VARIABLES]
        if isinstance(name, str) and TIMESTEPS.fullmatch(name) and is_plain(torch, value)
        if value.dtype in (torch.int64, torch.int32) and tuple(value.shape) in ((samples,), (samples, 1))
    ]
    return (found[0][0], found[0][1].reshape(-1)) if len(found) == 1 else None


def _of(variables: Any, read: Read) -> set[int]:
    held = [(name, value) for name, value in list(variables.items())[:VARIABLES] if isinstance(name, str)]
    found = set(read(held))
    for _, value in held:
        attributes = _attributes(value)
        found |= set(read(list(attributes.items())[:VARIABLES]))
        buffers = attributes.get("_buffers")
        found |= set(read(list(buffers.items()))) if isinstance(buffers, dict) else set()
    return found


def _within(variables: Any, read: Read) -> set[int]:
    """What the attributes of what is held hold, as `self.diffusion.schedule.betas`."""
    found: set[int] = set()
    seen: set[int] = set()
    for value in list(variables.values())[:VARIABLES]:
        attributes = _attributes(value)
        inner = attributes.get("_modules")
        for held in (attributes, inner if isinstance(inner, dict) else {}):
            if held and id(held) not in seen and len(seen) < OBJECTS:
                seen.add(id(held))
                found |= _of(held, read)
    return found


def _attributes(value: Any) -> dict[str, Any]:
    """The dictionary of an object's own attributes; empty for classes and modules of Python."""
    own = getattr(type(value), "__dictoffset__", 0) and not isinstance(value, type) and type(value) is not _MODULE
    attributes = object.__getattribute__(value, "__dict__") if own else None
    return attributes if isinstance(attributes, dict) else {}


_MODULE = type(sys)


def _named(pairs: Iterable[tuple[Any, Any]]) -> Iterator[int]:
    """Lengths of tensors and arrays with one dimension that have the name of a schedule."""
    for name, value in pairs:
        if isinstance(name, str) and NAMED.search(name) and type(value).__name__ in ("Tensor", "ndarray"):
            shape = value.shape
            if len(shape) == 1 and shape[0] >= SHORTEST and "float" in str(value.dtype):
                yield int(shape[0])


def _counted(pairs: Iterable[tuple[Any, Any]]) -> Iterator[int]:
    """Whole numbers that have the name of a number of timesteps."""
    for name, value in pairs:
        if isinstance(name, str) and COUNTED.fullmatch(name) and type(value) is int and value >= SHORTEST:
            yield value

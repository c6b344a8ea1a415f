"""Where a program seeds the global generators of Python and NumPy. Torch remembers its own seed."""

from __future__ import annotations

import functools
import importlib
import random
import sys
import types
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.compiler import wrappers
from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings
from tracelyze.collectors.system.program_signals import own_errors_dropped


def install(seeded: Callable[[str, bool], None]) -> None:
    """Wrap what seeds them or sets their state. `seeded("python", True)` is called after a seed. After a state it is
    `seeded("python", False)`: mostly one is put back, as by Lightning after its sanity check.

    NumPy imports its `random` when that is first asked for, mostly by the very call that seeds it: it is imported here.
    """
    if "numpy" in sys.modules:
        with own_errors_dropped:  # a module of the program's own that is called numpy
            importlib.import_module("numpy.random")
    for home, name, names in (
        (random, "python", ("seed", "setstate")),
        (sys.modules.get("numpy.random"), "numpy", ("seed", "set_state")),
    ):
        for function in names if home is not None else ():
            setattr(home, function, _seed(getattr(home, function), name, seeded))


def _seed(original: Callable[..., Any], name: str, seeded: Callable[[str, bool], None]) -> Callable[..., Any]:
    """A method of the global generator stays one: pickle takes it with its generator, so that a process that is started
    with it as its initializer seeds what it would seed."""
    is_method, is_seed = isinstance(original, types.MethodType), original.__name__ == "seed"

    @unseen_by_warnings
    @functools.wraps(original.__func__ if isinstance(original, types.MethodType) else original)
    def seed(*args: Any, **kwargs: Any) -> Any:
        given = args[1:] if is_method else args
        restores = not is_seed and name == "python" and bool(given)
        is_there = restores and given[0] == random.getstate()  # torch.compile puts it back
        try:
            result = original(*given, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if (given or kwargs) and not is_there:  # Without a seed it takes one from the operating system.
            seeded(name, is_seed)
        return result

    wrappers.append(seed)
    return types.MethodType(seed, original.__self__) if isinstance(original, types.MethodType) else seed

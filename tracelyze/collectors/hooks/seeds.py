"""Where a program seeds the global generators of Python and NumPy. Torch remembers its own seed."""

from __future__ import annotations

import contextlib
import functools
import importlib
import random
import sys
from collections.abc import Callable
from typing import Any

from tracelyze.collectors.internals.own_frames import leave_no_frame, unseen_by_warnings

wrappers: list[Any] = []  # functions of ours in the place of theirs


def install(seeded: Callable[[str], None]) -> None:
    """Wrap what seeds them or sets their state. `seeded("python")` is called after each.

    NumPy imports its `random` when that is first asked for, mostly by the very call that seeds it: it is imported here.
    """
    if "numpy" in sys.modules:
        with contextlib.suppress(Exception):  # a module of the program's own that is called numpy
            importlib.import_module("numpy.random")
    for home, name, names in (
        (random, "python", ("seed", "setstate")),
        (sys.modules.get("numpy.random"), "numpy", ("seed", "set_state")),
    ):
        for function in names if home is not None else ():
            setattr(home, function, _seed(getattr(home, function), name, seeded))


def _seed(original: Callable[..., Any], name: str, seeded: Callable[[str], None]) -> Callable[..., Any]:
    @unseen_by_warnings
    @functools.wraps(original)
    def seed(*args: Any, **kwargs: Any) -> Any:
        try:
            result = original(*args, **kwargs)
        except BaseException as error:
            leave_no_frame(error)
            raise
        if args or kwargs:  # Without a seed it takes one from the operating system.
            seeded(name)
        return result

    wrappers.append(seed)
    return seed

"""Runs a script with other random numbers: `python -m benchmarks.reseeded OFFSET SCRIPT [ARGUMENT ...]`.

Each seed that the script sets is OFFSET higher; a script that sets none gets OFFSET as its seed.
"""

from __future__ import annotations

import functools
import random
import runpy
import sys
from collections.abc import Callable
from typing import Any


def shifted(function: Callable[..., Any], offset: int) -> Callable[..., Any]:
    """`function`, whose first argument is a seed, with seeds that are `offset` higher."""

    @functools.wraps(function)
    def seed(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], int):
            args = (args[0] + offset, *args[1:])
        return function(*args, **kwargs)

    return seed


def main() -> None:
    """Patch the global generators, then run the script as `__main__`."""
    import numpy as np
    import torch

    offset, script = int(sys.argv[1]), sys.argv[2]
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(offset)
    torch.manual_seed = shifted(torch.manual_seed, offset)
    np.random.seed = shifted(np.random.seed, offset)
    random.seed = shifted(random.seed, offset)  # type: ignore[method-assign]
    sys.argv = sys.argv[2:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()

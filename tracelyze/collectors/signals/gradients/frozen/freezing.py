"""Attributes that look as if they froze a part of a model, and do nothing.

`module.requires_grad = False` sets an attribute of the module, not of its parameters; `parameter.require_grad = False`
sets one that nobody reads.
"""

from __future__ import annotations

import itertools
import linecache
import re
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

MISSPELT = ("require_grad", "required_grad", "require_grads", "requires_grads", "requires_gradient")
MOST_MODULES = 20_000
MOST_LINES = 20_000  # of a script


class InVain(NamedTuple):
    """The first module or parameter with such an attribute, the attribute, and how many tensors still train."""

    name: str
    attribute: str
    tensors: int


def in_vain(models: Iterable[Any]) -> InVain | None:
    """What was to be frozen and is not; None if nothing was."""
    parameters: list[tuple[str, str]] = []
    for model in models:
        for name, module in itertools.islice(model.named_modules(), MOST_MODULES):
            own = vars(module)
            if own.get("requires_grad") is False:
                trained = sum(one.requires_grad for one in module.parameters())
                if trained:
                    return InVain(name or type(module).__name__, "requires_grad", trained)
            for key, one in own.get("_parameters", {}).items():
                if one is not None and one.requires_grad:
                    given = [word for word in MISSPELT if one.__dict__.get(word) is False]
                    parameters += [(f"{name}.{key}" if name else key, given[0])] if given else []
    return InVain(*parameters[0], len(parameters)) if parameters else None


def line_of(attribute: str) -> tuple[str, int, str] | None:
    """File, line and text of the first statement of the program's main script that sets this attribute to False."""
    filename = getattr(sys.modules.get("__main__"), "__file__", None)
    lines = linecache.getlines(filename) if isinstance(filename, str) else []
    if not 0 < len(lines) <= MOST_LINES:
        return None
    statement = re.compile(rf"[^#]*\.{attribute}\s*=(?!=)[^#]*\bFalse\b")
    found = next((number for number, text in enumerate(lines, 1) if statement.match(text)), None)
    return None if found is None else (str(filename), found, lines[found - 1].strip())

"""Tensors as the table reach names them: by their modules, or by shape where no module that was called has them."""

from __future__ import annotations

import re
from typing import Final

NAMELESS: Final = "a tensor "
"""What the collector calls a tensor that belongs to no module that was called."""


def each(names: str) -> list[str]:
    """The tensors that the collector names, without how many more there are. A comma within a shape parts none."""
    known = names.partition(" and ")[0]
    return re.split(r", (?![^\[]*\])", known) if known else []


def is_nameless(names: str) -> bool:
    """Whether no module of the program has these tensors under a name, as those in a list."""
    return names.startswith(NAMELESS)

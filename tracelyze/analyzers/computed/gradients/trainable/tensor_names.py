"""Tensors as the table reach names them: by their modules, or by shape where no module that was called has them."""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final

from tracelyze.formatting import listed

NAMELESS: Final = "a tensor "
"""What the collector calls a tensor that belongs to no module that was called."""
SHOWN: Final = 4
"""Names that a sentence can bear."""
ROOM: Final = 120
"""Characters that these names may have, those of adapters deep in a model among them; a longer one stands alone."""


def each(names: str) -> list[str]:
    """The tensors that the collector names, without how many more there are. A comma within a shape parts none."""
    known = names.partition(" and ")[0]
    return re.split(r", (?![^\[]*\])", known) if known else []


def is_nameless(names: str) -> bool:
    """Whether no module of the program has these tensors under a name, as those in a list."""
    return names.startswith(NAMELESS)


def in_a_sentence(names: str) -> str:
    """The first of the tensors that the collector names, and how many more there are; those without a name by shape."""
    known, more = each(names), names.partition(" and ")[2]
    if all(map(is_nameless, known)):
        shapes = dict.fromkeys(one.removeprefix(NAMELESS) for one in known)
        return f"tensors of shape {listed(shapes, most=SHOWN)}"
    lengths = accumulate(len(one) for one in known)
    shown = [one for one, length in zip(known[:SHOWN], lengths, strict=False) if length <= ROOM] or known[:1]
    rest = len(known) - len(shown) + (int(more.partition(" ")[0].replace(",", "")) if more else 0)
    return f"{', '.join(shown)} and {rest:,} more" if rest else names

"""Names of weights that differ by what they begin with: in words, and the line that makes them the model's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracelyze.diagnosis import Location


def said(given: str, expected: str, names: str = "Its names") -> str:
    """A sentence. `given`, `expected`: what the names of the weights and those of the model begin with."""
    if given and not expected:
        return f"{names} begin with {given!r}, which the model's names do not."
    if expected and not given:
        return f"The model's names begin with {expected!r}, which these do not."
    return f"What it calls {given + '*'!r} the model calls {expected + '*'!r}."


def renamed(given: str, expected: str, state: str, some: bool) -> str:
    """The line that renames the weights, which the script calls `state`. `some`: others are to be left out."""
    name = f'name.removeprefix("{given}")' if given else "name"
    name = f'"{expected}" + {name}' if expected else name
    chosen = f' if name.startswith("{given}")' if some and given else ""
    return f"{state} = {{{name}: tensor for name, tensor in {state}.items(){chosen}}}"


def name_of(place: Location | None) -> str:
    """What the script's line calls the weights that it hands over."""
    own = re.search(r"\bload_state_dict\(\s*([A-Za-z_]\w*)\s*[,)]", place.source) if place else None
    return own[1] if own else "state"

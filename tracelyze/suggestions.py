"""Names that people type: what to say when one is not known."""

from __future__ import annotations

from collections.abc import Collection

from tracelyze.errors import Cause, InputError

LONGEST = 60  # characters of a name that are repeated


def unknown(what: str, name: str, known: Collection[str], remedy: str = "") -> InputError:
    """The error for a `name` that is none of `known`: proposes the nearest ones, or lists them all if nothing is near.

    `what` begins the sentence ("pyproject.toml: no such rule"); `remedy` says where the names are listed, if they are
    too many to list here.
    """
    import difflib

    near = difflib.get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    listed = f"known are {', '.join(sorted(known)) or 'none'}"
    help_ = f"did you mean {' or '.join(near)}?" if near else remedy or listed
    return InputError(Cause.UNKNOWN_NAME, f"{what}: {name[:LONGEST]!r}; {help_}")

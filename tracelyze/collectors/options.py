"""What the user chose when the run was started, on its way through the environment to every process of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, fields

VARIABLE = "TRACELYZE_OPTIONS"
BUDGET = 1.0  # percent of the step time: less than what a run's speed varies by anyway


@dataclass(frozen=True)
class CollectOptions:
    """`signals_off` are not recorded, `signals_on` are although they are off by default.

    `profile_every`: steps between profiler windows, 0 for none. `budget`: percent of the step time that recording may
    take. `cadences`: (signal, steps between its samples) pairs that the budget does not touch. `extensions`: (name,
    `package.module:Class`) pairs, the signals of other packages.
    """

    quiet: bool = False
    signals_off: tuple[str, ...] = ()
    profile_every: int = 0
    budget: float = BUDGET
    signals_on: tuple[str, ...] = ()
    cadences: tuple[tuple[str, int], ...] = ()
    extensions: tuple[tuple[str, str], ...] = ()

    def to_environment(self) -> dict[str, str]:
        """The environment variable that carries the options."""
        return {VARIABLE: json.dumps(asdict(self))}


def from_environment() -> CollectOptions:
    """The options that this process was started with; the defaults if it has none."""
    given = json.loads(os.environ.get(VARIABLE) or "{}")
    known = {field.name: given[field.name] for field in fields(CollectOptions) if field.name in given}
    for name in ("signals_off", "signals_on"):
        known[name] = tuple(known.get(name, ()))
    known["cadences"] = tuple((name, int(every)) for name, every in known.get("cadences", ()))
    known["extensions"] = tuple((name, place) for name, place in known.get("extensions", ()))
    return CollectOptions(**known)

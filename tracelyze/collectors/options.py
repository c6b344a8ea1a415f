"""What the user chose when the run was started, on its way through the environment to every process of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass

VARIABLE = "TRACELYZE_OPTIONS"


@dataclass(frozen=True)
class CollectOptions:
    """`signals_off`: signals that are not recorded. `profile_every`: steps between profiler windows, 0 for none."""

    quiet: bool = False
    signals_off: tuple[str, ...] = ()
    profile_every: int = 0

    def to_environment(self) -> dict[str, str]:
        """The environment variable that carries the options."""
        return {VARIABLE: json.dumps(asdict(self))}


def from_environment() -> CollectOptions:
    """The options that this process was started with; the defaults if it has none."""
    given = json.loads(os.environ.get(VARIABLE) or "{}")
    return CollectOptions(
        bool(given.get("quiet")), tuple(given.get("signals_off", ())), int(given.get("profile_every", 0))
    )

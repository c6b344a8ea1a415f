"""Hooks of the model's modules that are registered again and again, and never removed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

FIX: Final = (
    "Register a hook once, above the loop, or keep the handle that registering it returns, and call remove() on that "
    "before the next one is registered."
)
FIX_CODE: Final = """handle = module.register_forward_hook(hook)  # your own call, with its handle kept
...  # what the hook is for
handle.remove()"""
_FEWEST: Final = 4  # derived: looks with more hooks each time; a model that is wrapped once shows two
_TIMES: Final = 2.0  # derived: the hooks that were there at first are fewer than what came


class Added(NamedTuple):
    """Hooks at the first look that saw any, and at the last; the line that registers them, where there is only one."""

    first: int
    last: int
    step: int
    registered: Location | None

    def said(self) -> str:
        where = f" Line {self.registered.line} registers them." if self.registered is not None else ""
        return (
            f"What grew is the number of hooks on the model's modules: {self.first} after step {self.step:,}, "
            f"{self.last} at the end. Each of them runs at every call, until it is removed.{where}"
        )


def of(process: Process) -> Added | None:
    """None where their number did not grow again and again."""
    rows = process.events_of("hooks")
    counts = [int(row["value"]) for row in rows]
    if len(counts) < _FEWEST or counts[-1] < _TIMES * counts[0]:
        return None
    return Added(counts[0], counts[-1], int(rows[0]["step"]), script_lines.only(process, "module-hook"))

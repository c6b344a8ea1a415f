"""The lines that empty the averages of an optimizer, and the count of steps that belongs beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

_EMPTIES: Final = r"""\[["']\w+["']\]\.(?:zero_|fill_)\(|\bexp_avg(?:_sq)?\b"""  # state["exp_avg_sq"].zero_()
_STATE: Final = re.compile(r"""^(?P<state>[A-Za-z_][\w.]*)\[["']""")
_LONGEST_NAME: Final = 20  # characters, so that a title stays short
_TOGETHER: Final = 3  # lines: what one stretch of a function does
_FIX: Final = "Set the count of steps to zero where the averages are emptied, or make a new optimizer there."


def name(optimization: Optimization) -> str:
    """Its class, where that is short."""
    own = str(optimization.facts.get("name") or "")
    return own if 0 < len(own) <= _LONGEST_NAME else "the optimizer"


def place(optimization: Optimization) -> Location | None:
    """The only line that empties averages, or the first one of a few that stand together."""
    return script_lines.only(optimization.process, "zero-fill", _EMPTIES)


def remedy(optimization: Optimization) -> tuple[str, str]:
    """What to do, and an example with the name that the script gives the state, where that line is known."""
    first = place(optimization)
    own = optimization.facts.get("step_defined_at") is not None
    found = _STATE.match(first.source) if first is not None else None
    state = found["state"] if found is not None else "state"
    count = f'{state}["step"] = 0' if own else f'{state}["step"].zero_()'
    if first is None or found is None:
        loop = f"for {state} in optimizer.state.values():\n    {count}  # where its averages are emptied"
        return _FIX, loop if own else "optimizer.state.clear()  # instead: averages and count of steps begin anew"
    lines = [one for one in optimization.process.locations("zero-fill") if re.search(_EMPTIES, one.source)]
    near = [one for one in lines if one.file_function == first.file_function]
    near = sorted((one for one in near if abs(one.line - first.line) <= _TOGETHER), key=lambda one: one.line)
    text = "\n".join(one.source.strip() for one in near)
    return f"{_FIX} Line {first.line} empties them.", f"{text}\n{count}  # beside that, for each state"

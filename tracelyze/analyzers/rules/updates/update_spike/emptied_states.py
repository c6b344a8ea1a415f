"""The lines that empty the averages of an optimizer, and the count of steps that belongs beside them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

_EMPTIES: Final = r"\bexp_avg(?:_sq)?\b"  # as torch's optimizers call them: state["exp_avg_sq"].zero_()
_OWN: Final = (  # as the script's own may call them; other states are emptied, too
    r"""\[["'](?:m|v|s|mu|nu|m1|m2|v1|v2|first\w*|second\w*|avg\w*|moment\w*|\w*var\w*)["']\]\.(?:zero_|fill_)\("""
)
_MADE_IN: Final = ("step", "__init__")  # functions in which an optimizer makes its averages at first
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
    return script_lines.only_of(_lines(optimization))


def _lines(optimization: Optimization) -> list[Location]:
    pattern = f"{_EMPTIES}|{_OWN}" if _is_own(optimization) else _EMPTIES
    lines = [one for one in optimization.process.locations("zero-fill") if re.search(pattern, one.source)]
    return [one for one in lines if one.function not in _MADE_IN]


def _is_own(optimization: Optimization) -> bool:
    """Whether the script defines the optimizer's step."""
    return optimization.facts.get("step_defined_at") is not None


def remedy(optimization: Optimization) -> tuple[str, str]:
    """What to do, and an example with the name that the script gives the state, where that line is known."""
    first, own = place(optimization), _is_own(optimization)
    found = _STATE.match(first.source) if first is not None else None
    state = found["state"] if found is not None else "state"
    count = f'{state}["step"] = 0' if own else f'{state}["step"].zero_()'
    if first is None or found is None:
        loop = f"for {state} in optimizer.state.values():\n    {count}  # where its averages are emptied"
        return _FIX, loop if own else "optimizer.state.clear()  # instead: averages and count of steps begin anew"
    near = [one for one in _lines(optimization) if one.file_function == first.file_function]
    near = sorted((one for one in near if abs(one.line - first.line) <= _TOGETHER), key=lambda one: one.line)
    text = "\n".join(one.source.strip() for one in near)
    does = "empties" if re.search(_EMPTIES, first.source) else "seems to empty"  # another state may have such a name
    return f"{_FIX} Line {first.line} {does} them.", f"{text}\n{count}  # beside that, for each state"

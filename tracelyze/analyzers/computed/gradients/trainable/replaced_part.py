"""An optimizer all of whose tensors are those of a part that the model no longer has: another took its place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.computed.gradients.trainable import moved_below, tensor_names
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.script import script_lines
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location

SHOWN: Final = 3  # names that a sentence can bear
_ASSIGNED: Final = re.compile(r"\s*(?P<name>[\w.\[\]]+)\s*(?::[^=]+)?=(?!=)")


class ReplacedPart(NamedTuple):
    """`put_in`: the line that gives the model its new part; `said`, `fix` and `code` as of a finding."""

    put_in: Location
    said: str
    fix: str
    code: str


def of(optimization: Optimization) -> ReplacedPart | None:
    """None unless backward reached none of the optimizer's tensors, which no module that is called has, and instead
    reached those of a part that one line of the script puts into the model."""
    process = optimization.process
    last = {row["optimizer"]: row for row in process.tables["reach"].records()}
    own, orphans = last.get(optimization.optimizer), last.get(None)
    if not own or not orphans or not orphans["missed"] or own["missed"] < own["held"]:
        return None
    names = tensor_names.each(str(orphans["names"] or ""))
    put_in = script_lines.replaced(process, names) if tensor_names.is_nameless(str(own["names"] or "")) else None
    part = _ASSIGNED.match(put_in.source) if put_in is not None else None
    if put_in is None or part is None:
        return None
    made = optimization.made_at
    above = made is not None and made.file_function == put_in.file_function and made.line < put_in.line
    where = f" (line {made.line})" if above and made is not None else ""
    assigned = _ASSIGNED.match(made.source) if made is not None else None
    optimizer = assigned["name"] if above and assigned is not None else "optimizer"
    moved = moved_below.of(optimization, put_in)
    scheduled = ", and above what makes the scheduler" * bool(schedulers.last_rows(process))
    added = (
        f"# right below line {put_in.line}, where it is not moved up{scheduled}:\n"
        f'{optimizer}.add_param_group({{"params": {part["name"]}.parameters()}})'
    )
    return ReplacedPart(
        put_in,
        said=f"Line {put_in.line} puts {part['name']} into the model, and backward computes the gradients of "
        f"{listed(names, most=SHOWN)}, which no optimizer holds. The {plural(own['held'], 'tensor')} that the "
        "optimizer holds belong to no module that is called any more. Nothing is learned from such steps.",
        fix=f"Put the new part in (line {put_in.line}) before the optimizer is made{where} and its parameters are "
        "listed, or give it the new ones afterwards.",
        code=moved.code if moved is not None else added,
    )

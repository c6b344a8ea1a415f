"""What the script calls its optimizers and models: a class alone does not tell two of them apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_MADE: Final = re.compile(r"\s*(?:self\.)?([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)\s*[A-Za-z_][\w.]*\s*\(")


def assigned(line: Location | None) -> str | None:
    """The variable or attribute to which a line assigns the one thing that it makes: `opt = Adam(...)`."""
    found = _MADE.match(line.source) if line is not None else None
    return found.group(1) if found is not None else None


def optimizer(optimization: Optimization) -> str:
    """ "opt (Adam)"; where the script's name for it is not known, or others have it too, "Adam (optimizer 1)"."""
    kind = optimization.facts.get("name") or "an optimizer"
    names = [assigned(one.made_at) for one in optimization.process.optimizations]
    own = assigned(optimization.made_at)
    if own is None or names.count(own) > 1:
        return f"{kind} (optimizer {optimization.optimizer})"
    return f"{own} ({kind})"


def model(process: Process, number: float | int | None) -> str | None:
    """ "teacher (Sequential)"; the class alone where no name is known that this model has for itself."""
    rows = {row["model"]: row for row in process.models.records()}
    row = rows.get(number)
    if row is None:
        return None
    names = [one["called_as"] for one in rows.values()]
    own = row["called_as"]
    own = None if own is None or names.count(own) > 1 else own.removeprefix("self.")
    return f"{own} ({row['name']})" if own else row["name"]

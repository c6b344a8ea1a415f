"""The one clip of a step that accumulates gradients: the script's own statement, behind the last backward."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import edits
from tracelyze.analyzers.evidence.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Diff, Location

_ACCUMULATES: Final = re.compile(r"\bwith (?P<name>[A-Za-z_][\w.]*)\.accumulate\(")


def of_step(optimization: Optimization, place: Location | None, limit: str) -> tuple[str, Diff | None]:
    """An example, and the edit of the only line that clips, where a block of Accelerate says when the gradients of a
    step are complete."""
    process = optimization.process
    own = own_statement.at(process, place)
    if own is None or place is None or not own.is_whole:
        return f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})  # only here\noptimizer.step()", None
    above = [line for number, line in edits.recorded_lines(process, place).items() if number < own.line]
    names = {found["name"] for line in above if (found := _ACCUMULATES.search(line))}
    clip = own.dedented(own.text)
    if len(names) == 1:
        head = f"if {names.pop()}.sync_gradients:  # once the gradients of a step are complete"
        example = "\n".join([head, *(f"    {line}" for line in clip.split("\n"))])
        assigned = isinstance(own.parsed.statement, ast.Assign)  # lines below may ask for it at each micro-batch
        return example, None if assigned else own.under(head)
    stepped = optimization.step_location.source if optimization.step_location else "optimizer.step()"
    return f"# the line as it is, right above the step, behind the last backward:\n{clip}\n{stepped}", None

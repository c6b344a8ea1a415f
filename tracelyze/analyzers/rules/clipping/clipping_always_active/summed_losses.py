"""The line that sums a loss over a batch, and divides it by nothing."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Finding

_SUMS: Final = re.compile(r"\.sum\(\)")
_WEIGHS: Final = re.compile(r"mask|valid|weight", re.IGNORECASE)


class Summed(NamedTuple):
    """The line, and the statement with the sum divided by the number of its terms: an example, for reports may divide
    what it returns."""

    place: Location
    code: str


def at_its_sum(optimization: Optimization, finding: Finding) -> Finding:
    """A finding about large gradients at the line that sums the loss; as it is where that line is not known, or where
    the loss was seen to be a mean."""
    known = optimization.steps["loss_is_mean"][optimization.steps.known("loss_is_mean")]
    summed = of(optimization.process, optimization.backward_location) if len(known) and not known.any() else None
    if summed is None:
        return finding
    line = summed.place.line
    return replace(
        finding,
        summary=f"{finding.summary} Line {line} sums the loss over the batch, and nothing divides it by its terms.",
        fix=f"Divide the sum in line {line} by the number of its terms: the norm shrinks by that number, and max_norm "
        "may fit as it is. Look at the learning rate then. Where a report divides this loss already, change that too.",
        fix_code=summed.code,
        diff=None,
        setting=None,
        location=summed.place,
        seen_at=finding.location,
    )


def of(process: Process, training: Location | None) -> Summed | None:
    """The only sum of a product with a mask in the function that computes the loss, `return (losses * mask).sum()`,
    where nothing in it, nor in what calls backward, divides."""
    losses = {one.file_function: one for one in process.locations("loss")}
    if len(losses) != 1 or training is None:
        return None
    (loss,) = losses.values()
    lines = recorded_text.of_function(process, loss)
    around = [*lines.values(), *recorded_text.of_function(process, training).values()]
    found = [number for number, text in lines.items() if _SUMS.search(text)]
    if len(found) != 1 or any(_divides(text) for text in around):
        return None
    place = loss.at(found[0], lines[found[0]])
    own = own_statement.at(process, place)
    mask = _mask(own) if own is not None else None
    if own is None or mask is None:
        return None
    changed = own.parsed.with_parts({mask[0]: f"{own.parsed.text_of(mask[0])} / {mask[1]}.sum()"})
    return Summed(place, own.dedented(changed))


def _divides(text: str) -> bool:
    code = code_of(text)
    return "loss" in code and re.search(r"/|\.div_?\(|\.mean\(|reduction=[\"']mean", code) is not None


def _mask(own: OwnStatement) -> tuple[ast.expr, str] | None:
    """The sum, which is all that is returned or assigned, and what it weighs by."""
    value = getattr(own.parsed.statement, "value", None)
    summed = value.func.value if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) else None
    if value is None or not isinstance(summed, ast.BinOp) or not isinstance(summed.op, ast.Mult):
        return None
    names = [
        own.parsed.text_of(one) for one in (summed.left, summed.right) if isinstance(one, ast.Name | ast.Attribute)
    ]
    masks = [one for one in names if _WEIGHS.search(one)]
    return (value, masks[0]) if len(masks) == 1 else None

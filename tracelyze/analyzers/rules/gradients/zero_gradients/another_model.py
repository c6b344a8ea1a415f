"""An optimizer that holds one model while backward goes through another of the same size: a copy, or a later one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask


def reached_instead(optimization: Optimization) -> dict[str, Any] | None:
    """The row of the table reach with as many tensors and elements, outside of the only optimizer, as it holds itself.

    None where backward reached one of its own tensors, or what it reached differs in size: a part of the same model.
    """
    rows = list(optimization.process.tables["reach"].records())
    own = [row for row in rows if row["optimizer"] == optimization.optimizer]
    if len(optimization.process.optimizations) != 1 or not own or own[-1]["missed"] < own[-1]["held"]:
        return None
    size = (own[-1]["held"], own[-1]["held_elements"])
    return next(
        (row for row in rows if row["optimizer"] is None and (row["missed"], row["missed_elements"]) == size), None
    )


def finding(optimization: Optimization, reached: dict[str, Any], affected: Mask, first: int, rule: str) -> Finding:
    """What is wrong: `affected` are the steps without a gradient, the first of them at index `first`."""
    begin, count = timing.step_at(optimization, first), int(reached["missed"])
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain",
        title=f"The optimizer holds other tensors than the model that backward reaches: all {plural(count, 'tensor')}",
        summary=(
            f"Backward computed gradients of {reached['names'] or plural(count, 'tensor')}, which no optimizer holds. "
            f"The {plural(count, 'tensor')} that the optimizer holds, of the same sizes in all, never had one: they "
            "are those of another instance of the model, or of one whose tensors were replaced since. Usual causes: "
            "the script trains a copy (copy.deepcopy), or once the optimizer is made it builds the model again or "
            "loads weights with assign=True. No step changed what the loss is computed from."
        ),
        fix="Build the optimizer from the parameters of the model that computes the loss, after the last line that "
        "builds, copies or replaces it, or loads into it with assign=True.",
        fix_code="# below the last line that builds, copies or replaces the model that computes the loss:\n"
        "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)",
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=[
            Evidence("tensors that the optimizer holds", count, "tensors"),
            Evidence("of them with a gradient", 0, "tensors", 1, "with none there is nothing to learn", role="basis"),
            Evidence("tensors of the same sizes in all that backward reached", count, "tensors"),
        ],
        cost=timing.cost_of(optimization, affected),
        location=optimization.made_at or optimization.step_location,
        seen_at=optimization.step_location,
        charts=pictures.loss(optimization, [Mark(float(begin), "another model")]),
        false_alarm="A loop that only computes gradients and hands them to something other than this optimizer.",
    )

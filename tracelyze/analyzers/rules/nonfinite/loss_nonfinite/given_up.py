"""Losses that were not finite and that no backward followed, because the loop looks for that: what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import timing
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits


class GivenUp(NamedTuple):
    """Losses that were not finite and that no backward followed: words, the step that did not come, and what is known.
    `for_good`: none came after that; `rare`: next to nothing is lost; `sure`: no evaluation looks the same."""

    title: str
    told: str
    begin: int
    for_good: bool
    rare: bool
    sure: bool


def told_of(process: Process, optimization: Optimization, rows: list[dict[str, Any]], limits: Limits) -> GivenUp:
    """`rows`: the events, in order."""
    begin, kinds = int(rows[0]["step"] or 0) + 1, {row["name"] or "NaN" for row in rows}
    what = kinds.pop() if len(kinds) == 1 else "NaN or Inf"
    later = int((timing.numbers(optimization) >= begin).sum())
    for_good = later == 0 and len(rows) >= limits["recovered"]
    lost = max(len(rows), validation.unused_forwards(process))  # of a loop that has settled not every loss is looked at
    rare = not for_good and lost < limits["lost"] * (lost + len(optimization.steps))
    evaluated = _in_evaluations(process, rows)
    count = "At least " * (lost > len(rows) and not evaluated) + plural(len(rows), "loss")
    title = f"{count} {'were' if len(rows) > 1 else 'was'} {what}, and"
    told = f"After step {begin - 1:,} the loss was {what} and no backward followed"
    if evaluated:
        told += ": the loop gives up the batch, or evaluates the model in train mode with autograd on."
        return GivenUp(f"{title} no backward followed", told, begin, for_good, rare, sure=False)
    told += ": the loop looks for that and "
    if for_good:
        told += "gives up the batch. No step came after that: the weights are probably lost already, and the loop runs "
        told += "on without training."
    elif later == 0 and process.exit.kind == "exception":
        return GivenUp(f"{title} the program ended there", f"{told}raises an exception.", begin, for_good, rare, True)
    elif later == 0:
        return GivenUp(f"{title} no step came after that", f"{told}makes no step.", begin, for_good, rare, True)
    else:
        told += f"gives up the batch. {plural(later, 'later step')} kept training. What such batches have in common is "
        told += "never learned."
    return GivenUp(f"{title} the loop skipped the step", told, begin, for_good, rare, True)


def _in_evaluations(process: Process, rows: list[dict[str, Any]]) -> bool:
    """Whether all of them came where the model was evaluated as it is trained: in train mode, with autograd on."""
    evals = process.evals
    as_in_training = (evals["grad_mode"] == validation.GRAD) & (evals["model_in_train"] == 1)
    after = set(evals["after_step"][validation.passes(process) & as_in_training].tolist())
    return all(row["step"] in after for row in rows)

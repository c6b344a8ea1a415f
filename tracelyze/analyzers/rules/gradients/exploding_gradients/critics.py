"""A critic whose scores nothing bounds, in a training of two networks against each other: both gradients explode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rules.gradients.exploding_gradients import left_out_penalties
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates import dropped
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Diff, Location

FIRST = 10  # norms: a critic without a bound leaves its level within some tens of steps
MORE = 1.5  # times the samples: a last step more or less is no sign
BLOCKS = 10  # of the loss: a single value below zero may be chance
BELOW = 5  # losses below zero, which one may be by rounding, beside a penalty that is added to them and grows
POSITIONAL = 4  # arguments of torch.autograd.grad that stand before create_graph
BOUND = (
    "Bound the critic: add a gradient penalty to its loss, normalise its layers by their spectral norm, or "
    "clip its weights after each of its steps."
)
BOUND_CODE = (
    "alpha = torch.rand(len(real), *[1] * (real.dim() - 1), device=real.device)  # one for each sample\n"
    "mixed = (alpha * real + (1 - alpha) * fake.detach()).requires_grad_(True)\n"
    "(slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)\n"
    "loss = loss + 10 * (slope.flatten(1).norm(dim=1) - 1).square().mean()  # before the critic's backward"
)


def finding(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """One of two optimizers that work against each other, whose loss goes below zero, as a difference of mean scores
    does, while the gradient norms of both leave their first level and stay far above it.

    A discriminator's cross-entropy, hinge or squared error is never below zero, and neither is the error of a critic
    that values actions. A penalty or a bound on the weights keeps the critic's norm near its first level: it grew by
    0.2 to 28 times in 19 such trainings, and by 37 to 430 times in three as short ones without. Where the script drops
    the bounded weights that it computes, less growth tells.
    """
    both = optimization.process.optimizations
    if len(both) != 2 or len(optimization.process.trainings) > 1 or style.weighs_choices(optimization.process):
        return None
    other = next(one for one in both if one is not optimization)
    own, others = _growth(optimization, limits), _growth(other, limits)
    loss = optimization.steps["loss"][np.isfinite(optimization.steps["loss"])]
    if own is None or others is None or len(loss) < limits["losses"] or not _scores_for(optimization, other):
        return None
    slope, graphed = _constant_slope(optimization)
    lowest = float(np.min(statistics.block_medians(loss, BLOCKS)))
    below = int((loss < 0).sum())
    ratio = limits["ratio"] if dropped.bounds_weights(optimization.process) is None else limits["unbounded"]
    if (lowest >= 0 and (slope is None or below < BELOW)) or min(own[0], others[0]) < ratio:
        return None
    begin, name = own[1], timing.training_of(optimization)
    step = timing.step_at(optimization, begin)
    went = f"fell from {number(float(loss[0]))} to {number(lowest)}" if lowest < 0 else f"was below zero {below} times"
    why = (
        f"Line {slope.line} takes a gradient without create_graph=True: for the backward of the loss it is a constant, "
        "so that a penalty made of it bounds nothing."
        if slope
        else "Where nothing bounds the critic's slope it makes that difference as large as it likes, and what it hands "
        "on grows with it."
    )
    left = None if slope else left_out_penalties.of(optimization)
    if left is not None:
        why = left.why
    return Finding(
        rule=rule,
        severity="critical",
        confidence="likely",
        title=f"Nothing bounds the critic: its gradients rose to {number(own[0])} times their first level",
        summary=(
            f"The loss of {name} {went}. "
            "An error is never below zero; a difference of mean scores, as a Wasserstein critic has, may be. From step "
            f"{step} on its gradient norm stays more than ten times above its first level, and ends at "
            f"{number(own[0])} times; that of {timing.training_of(other)} ends at {number(others[0])} times. {why}"
        ),
        fix="Ask for the graph of that gradient: create_graph=True." if slope else left.fix if left else BOUND,
        fix_code="" if slope else left.code if left else BOUND_CODE,
        diff=left.diff if left else graphed,
        first_step=step,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, begin),
        evidence=[
            Evidence("late norm over first norm, critic", own[0], "", ratio, limits.source("ratio")),
            Evidence("late norm over first norm, other optimizer", others[0], "", ratio, limits.source("ratio")),
            Evidence("lowest loss of the critic, median of a tenth of the run", lowest)
            if lowest < 0
            else Evidence("losses of the critic below zero", below, "losses", BELOW),
        ],
        location=slope or (left.place if left else None) or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.grad_norm(optimization, [Mark(float(step), "leaves its level")])
        + pictures.loss(optimization, [Mark(float(step), "gradients leave their level")]),
        false_alarm="A pair whose objective is meant to grow without an end.",
    )


def _constant_slope(optimization: Optimization) -> tuple[Location | None, Diff | None]:
    """The script's only line that takes a gradient without its graph, and the edit that asks for it."""
    place = script_lines.only(optimization.process, "slope")
    own = own_statement.at(optimization.process, place)
    call = own.only_call("grad") if own else None
    if own is None or call is None:
        return place, None
    if len(call.args) > POSITIONAL:
        return None, None
    return place, own.changed(own.with_argument(("grad",), "create_graph", "True"))


def _growth(optimization: Optimization, limits: Limits) -> tuple[float, int] | None:
    """The late gradient norm over the first ones, and the row from which on it stays above ten times these; None where
    too few norms were measured."""
    steps = optimization.steps
    rows = np.flatnonzero(np.isfinite(steps["grad_norm"]) & (steps["grad_norm"] > 0) & ~timing.skipped(optimization))
    norm: Floats = steps["grad_norm"][rows]
    if len(norm) < limits["norms"]:
        return None
    first = statistics.median(norm[:FIRST])
    tail = norm[-max(3, int((rows >= limits["late"] * len(steps)).sum())) :]
    return float(np.median(tail)) / first, int(rows[statistics.onset(norm, 10 * first) or 0])


def _scores_for(critic: Optimization, other: Optimization) -> bool:
    """Whether one of two optimizers may be that of a critic: each holds networks of its own, and its steps are on more
    samples in all: it scores real ones beside made ones, or steps more often. The actor of reinforcement learning,
    whose loss may be below zero, is trained on no more than its critic."""
    links = critic.process.tables.get("links")
    rows = [] if links is None else [row for row in links.records() if row["model"] is not None]
    held = [{row["model"] for row in rows if row["optimizer"] == one.optimizer} for one in (critic, other)]
    samples = [float(np.nansum(one.steps["batch_size"])) for one in (critic, other)]
    return all(held) and held[0].isdisjoint(held[1]) and samples[0] > MORE * samples[1] > 0

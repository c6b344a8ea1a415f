"""Single batches with a loss like before the training, again and again: their data is not like that of the others."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers import statistics
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rules.loss.loss_spikes import odd_values
from tracelyze.analyzers.script import batch_lines
from tracelyze.analyzers.signatures.spikes import lone_spikes
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import listed, number, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

# Losses whose median is the level of the one in the middle: some dozens of steps show a level and not a trend.
_AROUND = 33
UNKNOWN = "wrong labels or units, a broken shard, samples that were not normalised, or that weigh far more in the loss."
CODES = (
    "Leave such values out of the loss, or out of the data: they may stand for a missing one, or have another unit. "
)
CHECK = (
    "Check the samples of these steps: their labels, their range, the file they come from. Log the sample ids of each "
    "batch to know which they are."
)
CLIP = " Until then clip the gradient norm, which bounds what one batch does to the weights."
_LOSS = re.compile(r"^(?:[\w.]+\()?(?P<name>[A-Za-z_]\w*)\)?\.backward\(\s*\)")
_FIRST = 0.1  # share of the run in which a training settles


@dataclass(frozen=True)
class BadBatches:
    """`rows`: places of the losses, shape [batches]; `height`: their median, in multiples of the level around them."""

    rows: NDArray[np.intp]
    height: float


def of_losses(losses: Floats, limits: Limits) -> BadBatches | None:
    """Losses that stand apart from all others (`apart`), above whatever the run began with; or that tower (`gap`).

    A heavy tail has losses of all heights; of several kinds of batches (tasks, sources) the worst is worst at first.
    What towers needs no quiet beginning: the same samples come in the first epoch, too.
    """
    first = int(_FIRST * len(losses))
    if len(losses) < limits["losses"] or not first or losses.min() <= 0:
        return None
    highest_at_first = float(losses[:first].max())
    # The median of so many batches cannot be above the first losses otherwise.
    above_first = 2 * int((losses[first:] > highest_at_first).sum()) >= limits["batches"]
    towers = float(losses.max()) >= limits["height"] * statistics.median(losses)
    if not above_first and not towers:
        return None  # as in most runs, before what costs time
    # A model that is not sure of anything yet has no higher losses for wrong labels: they stand out later.
    over = np.log(losses / statistics.running_median(losses, _AROUND))
    for begin in (first, len(losses) // 2):
        found = _apart(over[begin:], begin, limits, limits["single"], limits["apart"])
        if found is not None and float(np.median(losses[found.rows])) > highest_at_first:
            return _with_earlier(found, losses, over, first, limits["single"]) if begin == first else found
    found = _apart(over[first:], first, limits, limits["height"], limits["gap"]) or _soon(over, first, limits)
    return _with_earlier(found, losses, over, first, limits["height"]) if found is not None else None


def _soon(over: Floats, first: int, limits: Limits) -> BadBatches | None:
    """Losses of the first half that tower above all others there, though some by less than `height`: batches that
    weigh so much are learned by heart, so that their losses fall to those of the others later."""
    if (over[first:] > np.log(limits["single"])).sum() > limits["rare"] * len(over[first:]):
        return None  # a second kind of data, which is rarer in that half by chance
    half = over[first : len(over) // 2]
    found = _apart(half, first, limits, limits["single"], limits["gap"]) if len(half) >= limits["losses"] else None
    return found if found is not None and found.height >= limits["height"] else None


def often(optimization: Optimization, rows: NDArray[np.intp], losses: Floats, limits: Limits) -> BadBatches | None:
    """Losses that tower above all others in more batches than are `rare`, if these hold values far beyond the others'.

    `rows`: the step of each loss, as a row of the table of steps. A loss alone may be that of a second kind of data.
    """
    first = int(_FIRST * len(losses))
    if len(losses) < limits["losses"] or losses.min() <= 0:
        return None
    if float(losses.max()) < limits["height"] * statistics.median(losses):
        return None  # as in most runs, before what costs time
    over = np.log(losses / statistics.running_median(losses, _AROUND))
    found = _apart(over[first:], first, limits, limits["height"], limits["gap"], most=limits["often"])
    if found is None:
        return None
    found = _with_earlier(found, losses, over, first, limits["height"])
    steps = [int(step) for step in timing.numbers(optimization)[rows[found.rows]]]
    return found if odd_values.told(optimization, steps, float(losses[found.rows].min())) else None


def towering(losses: Floats, limits: Limits) -> BadBatches | None:
    """Two losses or some more that tower above all others, and above whatever the run began with."""
    first = int(_FIRST * len(losses))
    if len(losses) < limits["losses"] or losses.min() <= 0:
        return None
    found = lone_spikes.towering(
        losses[first:],
        np.arange(first, len(losses)),
        height=limits["height"],
        gap=limits["gap"],
        sigmas=limits["sigmas"],
    )
    rows = np.array(found, dtype=np.intp) + first
    if not limits["pair"] <= len(rows) < limits["batches"] or losses[rows].min() <= losses[:first].max():
        return None
    level = statistics.running_median(losses, _AROUND)
    return BadBatches(rows, float(np.median(losses[rows] / level[rows])))


def _apart(
    over: Floats, begin: int, limits: Limits, least: float, gap: float, most: float | None = None
) -> BadBatches | None:
    """The losses from `begin` on that stand apart from all others there.

    `over`: logarithms of losses over the level around them, shape [losses]. `least`: how many times its level such a
    loss is. `gap`: least ratio between the logarithms of the lowest of them and of the highest other one. `most`: the
    largest share of the batches that are such.
    """
    high = over > max(float(np.log(least)), limits["sigmas"] * statistics.spread(over))
    if not limits["batches"] <= int(high.sum()) <= (most or limits["rare"]) * len(over):
        return None
    if float(over[high].min()) < gap * float(over[~high].max()):
        return None
    return BadBatches(np.flatnonzero(high) + begin, float(np.exp(np.median(over[high]))))


def _with_earlier(found: BadBatches, losses: Floats, over: Floats, first: int, least: float) -> BadBatches:
    """Those of the first losses as well that are as high, and `least` times the losses around them and all that came
    before: a loss that falls from where it began is not."""
    lowest, usual = float(losses[found.rows].min()), float(losses[0])
    earlier = []
    for row in range(1, first):
        if losses[row] >= max(lowest, least * usual) and over[row] >= np.log(least):
            earlier.append(row)
        else:
            usual = max(usual, float(losses[row]))
    rows = np.concatenate([np.array(earlier, dtype=np.intp), found.rows])
    return BadBatches(rows, float(np.exp(np.median(over[rows]))))


def finding(
    optimization: Optimization, rows: NDArray[np.intp], found: BadBatches, rule: str, limits: Limits
) -> Finding:
    """What is wrong, with the steps. `rows`: the step of each loss, as a row of the table of steps."""
    steps = [int(step) for step in timing.numbers(optimization)[rows[found.rows]]]
    share = len(steps) / max(1, len(rows))
    losses = optimization.steps["loss"][rows[found.rows]]
    values = odd_values.told(optimization, steps, float(losses.min()))
    begin, end = statistics.longest_run(np.isin(np.arange(found.rows.max() + 1), found.rows))
    back = "at the next" if end - begin == 1 else f"after {number(end - begin)} in a row at most"
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{len(steps)} single batches have a loss about {number(found.height)} times that of their neighbours",
        summary=(
            f"At steps {listed(steps, most=8)} ({percent(share)} of all) the loss of one batch was about "
            f"{number(found.height)} times that of its neighbours, and back to normal {back}. "
            f"No update does that; these batches hold different data: {values or UNKNOWN} Each one pushes the weights "
            "the wrong way."
        ),
        fix=(CODES if values else "") + CHECK + CLIP * (not optimization.steps.known("clip_max_norm").any()),
        fix_code=_logged(optimization),
        first_step=steps[0],
        last_step=steps[-1],
        evidence=[
            Evidence("batches that stand apart", len(steps), "", *limits.against("batches")),
            Evidence("median height over the losses around", found.height, "", *limits.against("single")),
            Evidence("steps", listed(steps, most=12)),
        ],
        location=_taken(optimization) or optimization.backward_location,
        charts=pictures.loss(optimization, [Mark(float(step), "bad batch") for step in steps[:8]]),
        false_alarm="A rare kind of batch that is hard and meant to be there.",
    )


def _logged(optimization: Optimization) -> str:
    """A call that names the samples of each step in the next recording, where the loss is known."""
    line = optimization.backward_location
    called = _LOSS.search(line.source) if line is not None else None
    below = f"below line {line.line}" if line is not None and called else "below the line that computes the loss"
    name = called["name"] if called else "loss"
    return f"import tracelyze\n# {below}, with the ids of its samples:\ntracelyze.log(loss={name}, batch=sample_ids)"


def _taken(optimization: Optimization) -> Location | None:
    """The line that makes a sample, or by which the loop takes a batch: where to ask which samples it holds."""
    process = optimization.process
    made = batch_lines.sample(process, optimization.loader) or batch_lines.of_a_generator(process)
    return made or process.location("loader") or batch_lines.entering(process)

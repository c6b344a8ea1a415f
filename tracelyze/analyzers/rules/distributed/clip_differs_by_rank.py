"""clip-differs-by-rank: ranks that hold parts of one model clip by the norms of their own parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import number, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Floats

Step = tuple[float, float, float]  # loss, norm before clipping, max_norm
RETURNED = 2  # steps.grad_norm_source: what the clip returned
MOST_STEPS = 500


def check(process: Process, limits: Limits) -> Outcome:
    """Ranks with the same loss at every step compute one model together: the norms that they clip by must agree too."""
    ranks: dict[int, dict[int, Step]] = {
        peer.rank: peer.gathered[RULE.id]
        for peer in process.peers
        if RULE.id in peer.gathered and peer.thread == 1 and peer.attempt == process.attempt
    }
    if len(ranks) < 2:
        return Skipped("fewer than two ranks clip gradients by their norm", "not-applicable")
    first = min(ranks)
    differ: dict[int, float] = {}
    for rank in sorted(ranks.keys() - {first}):
        steps = sorted(ranks[first].keys() & ranks[rank].keys())
        if len(steps) < limits["steps"]:
            return Skipped(f"clips of rank {rank} were looked at in too few of the steps of rank {first}")
        a = np.array([ranks[first][step] for step in steps])
        b = np.array([ranks[rank][step] for step in steps])
        losses = a[:, 0], b[:, 0]
        begin = steps[0] == 1
        if np.ptp(a[:, 0]) == 0 or not (_same_losses(*losses, limits) or (begin and _drift_apart(*losses, limits))):
            return Passed(
                f"ranks {first} and {rank} have losses of their own: no parts of one model that see one batch"
            )
        ratio = _coefficient(a) / _coefficient(b)
        apart = np.abs(ratio - 1) > limits["apart"]
        if apart.mean() >= limits["often"]:
            differ[rank] = float(np.median(np.abs(ratio[apart] - 1)))
    if not differ:
        return Passed(f"{plural(len(ranks), 'rank')} clip by the same norm")
    return [_finding(process, ranks, first, differ, limits)]


def _same_losses(a: Floats, b: Floats, limits: Limits) -> bool:
    """Whether two ranks have the same loss at nearly all steps. `a`, `b`: the losses, shape [steps]."""
    return bool((np.abs(a - b) <= limits["loss"] * np.abs(a)).mean() >= limits["share"])


def _drift_apart(a: Floats, b: Floats, limits: Limits) -> bool:
    """Whether losses that began as one rise and fall together ever since, as those of the same batches do.

    Layers that every rank holds drift apart by clips that differ, and with them the losses.
    """
    losses = np.stack([a, b])
    if abs(a[0] - b[0]) > limits["loss"] * abs(a[0]) or losses.min() <= 0:
        return False
    changes = np.diff(np.log(losses), axis=1)[:, len(a) // 2 :]  # at first all losses fall alike
    return changes.shape[1] >= limits["steps"] and bool(np.corrcoef(changes)[0, 1] >= limits["together"])


def _coefficient(steps: Floats) -> Floats:
    """What the gradients were multiplied by, shape [steps]."""
    return np.asarray(np.minimum(1.0, steps[:, 2] / np.maximum(steps[:, 1], 1e-30)), dtype=np.float64)


def gather(process: Process) -> dict[int, Step] | None:
    """Losses and clips of one rank, by step."""
    if len(process.optimizations) != 1:
        return None
    steps = process.longest.steps
    columns = [steps[name] for name in ("loss", "grad_norm", "clip_max_norm")]
    known = np.isfinite(np.stack(columns)).all(0) & (steps["grad_norm_source"] == RETURNED)
    rows = np.flatnonzero(known)[:MOST_STEPS]
    found = {int(steps["step"][row]): (columns[0][row], columns[1][row], columns[2][row]) for row in rows}
    return {step: (float(a), float(b), float(c)) for step, (a, b, c) in found.items()} or None


def _finding(
    process: Process, ranks: dict[int, dict[int, Step]], first: int, differ: dict[int, float], limits: Limits
) -> Finding:
    most = max(differ.values())
    other = next(iter(differ))
    norms = [np.median([norm for _, norm, _ in ranks[rank].values()]) for rank in (first, other)]
    return Finding(
        rule=RULE.id,
        severity="critical",
        confidence="likely",
        title=f"Ranks that share one model clip it differently, by {percent(most)}",
        summary=(
            f"Ranks {first} and {other} began with the same loss, and their losses move together: they compute one "
            f"model. But each clips by the norm of the gradients that it holds ({number(float(norms[0]))} and "
            f"{number(float(norms[1]))} in the middle): parts of one model are scaled differently, and the update no "
            "longer points along the gradient."
        ),
        fix="Clip by the norm of the whole model: sum the squares over the ranks that hold its parts first. With FSDP "
        "call the wrapper's own clip_grad_norm_.",
        fix_code=(
            "squares = sum(p.grad.pow(2).sum() for p in model.parameters() if p.grad is not None)\n"
            "dist.all_reduce(squares)  # parts that every rank holds must count once\n"
            "scale = (max_norm / (squares.sqrt() + 1e-6)).clamp(max=1.0)\n"
            "for p in model.parameters():\n    if p.grad is not None:\n        p.grad.mul_(scale)"
        ),
        first_step=min(ranks[first]),
        ranks=[first, *differ],
        evidence=[
            Evidence(
                "difference of the clip coefficients (median)", most, "share", limits["apart"], limits.source("apart")
            ),
            Evidence("ranks compared", len(ranks), "ranks"),
        ],
        location=process.location("clip") or process.longest.step_location,
        false_alarm="Stages of a pipeline that clip apart on purpose.",
    )


RULE = Rule(
    id="clip-differs-by-rank",
    family="distributed",
    severity="critical",
    title="Ranks clip parts of one model differently",
    about="A model that is split over ranks has one gradient, and one norm. Clipping each part by its own bends it.",
    check=check,
    gather=gather,
    verify="Record the run again: all ranks clip by the same norm.",
    absent="The run has one rank, or clips nothing.",
    needs=(("steps.grad_norm", "steps.clip_max_norm", "steps.loss"),),
    thresholds=(
        Threshold("steps", 10, "steps", "derived: losses of ten steps agree by chance on no two ranks"),
        Threshold("loss", 1e-4, "share", "float32 sums in another order differ by 1e-6; other data by percents"),
        Threshold("share", 0.9, "share", "derived: one model has one loss at every step"),
        Threshold(
            "together", 0.8, "", "correlation of the losses' changes: derived, 0 +- 0.3 between batches that differ"
        ),
        Threshold("apart", 0.01, "share", "derived: rounding moves a norm by 1e-6, half precision by 1e-3"),
        Threshold("often", 0.5, "share", "derived: most steps; where nothing is clipped there is nothing to differ"),
    ),
    not_when="Ranks with losses of their own (data-parallel, sweeps), clips that are not reached, equal norms.",
    references=("https://docs.pytorch.org/docs/stable/fsdp.html",),
)

"""small-batch-per-rank: every rank has so little to compute for a step that exchanging gradients takes most of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding
from tracelyze.formatting import duration, number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


class Work(NamedTuple):
    """Medians over the steps of one rank: time outside of backward, within it, and samples."""

    own: float
    backward: float
    samples: float
    steps: int
    device: str
    averages: bool  # its model is wrapped so that gradients are exchanged inside of backward


def check(process: Process, limits: Limits) -> Outcome:
    """What backward takes beyond anything that it can compute, on the rank that waits least for others."""
    work: dict[int, Work] = {
        peer.rank: peer.gathered[RULE.id]
        for peer in process.peers
        if RULE.id in peer.gathered and peer.thread == 1 and peer.attempt == process.attempt
    }
    if len(work) < 2:
        return Skipped("the run has one rank", "not-applicable")
    if not all(one.averages for one in work.values()):
        return Skipped("no DistributedDataParallel averages gradients inside of backward", "not-applicable")
    if any(one.device != "cpu" for one in work.values()):
        return Skipped("on a device the host does not see when work is done", record="--profile-every 100")
    if min(one.steps for one in work.values()) < limits["steps"]:
        return Skipped(f"fewer than {limits['steps']:.0f} steps of a rank were looked at")
    shares = {rank: _exchanged(one, limits) / (one.own + one.backward) for rank, one in work.items()}
    rank = min(shares, key=lambda number: shares[number])  # a rank that is late waits for nobody
    if shares[rank] < limits["share"]:
        known = percent(max(shares[rank], 0.0))
        return Passed(
            f"exchanging gradients takes {known} of a step, as far as can be told: less than all else"
            if shares[rank] > 0
            else "backward takes no longer than its computation may"
        )
    return [_finding(process, work, rank, shares[rank], limits)]


def gather(process: Process) -> Work | None:
    """The medians of one rank."""
    if len(process.optimizations) != 1:
        return None
    steps = process.longest.steps
    known = np.isfinite(steps["backward_seconds"]) & np.isfinite(steps["seconds"]) & (steps["backwards"] == 1)
    known[: min(3, len(known))] = False  # buckets are laid out anew after the first
    if not known.any():
        return None
    backward, sizes = steps["backward_seconds"][known], steps["batch_size"][known]
    return Work(
        float(np.median(steps["seconds"][known] - backward)),
        float(np.median(backward)),
        float(np.median(sizes[np.isfinite(sizes)])) if np.isfinite(sizes).any() else np.nan,
        int(known.sum()),
        process.device,
        any(row["name"] == "DistributedDataParallel" for row in process.models.records()),
    )


def _exchanged(work: Work, limits: Limits) -> float:
    """Seconds of backward that are no computation: the forward, which the rest of the step contains, bounds that."""
    return work.backward - limits["forwards"] * work.own


def _finding(process: Process, each: dict[int, Work], rank: int, share: float, limits: Limits) -> Finding:
    work = each[rank]
    sizes = [one.samples for one in each.values()]
    lost = share * (work.own + work.backward)
    return Finding(
        rule=RULE.id,
        severity="info",
        confidence="likely",
        title=f"{percent(share)} of a step goes into exchanging gradients: {_said(sizes)} are little work",
        summary=(
            f"Outside of backward rank {rank} needs {duration(work.own)} a step, its forward included; backward takes "
            f"{duration(work.backward)}. Computing gradients takes no longer than {limits['forwards']:.0f} forwards, "
            f"so at least {duration(lost)} of each step go into averaging gradients across {len(each)} "
            "ranks. That takes as long for one sample as for a thousand."
        ),
        fix="Give each rank more samples a step (with a learning rate to match), accumulate over several backwards "
        "under no_sync(), or use fewer ranks.",
        fix_code="with model.no_sync():  # all but the last of the accumulated backwards\n    loss.backward()",
        evidence=[
            Evidence("exchange of gradients, at least", share, "share", *limits.against("share")),
            Evidence("backward", work.backward, "s"),
            Evidence("rest of the step", work.own, "s"),
            *([Evidence(f"samples of rank {rank}", work.samples, "samples")] if np.isfinite(work.samples) else []),
        ],
        cost=Cost(lost * len(process.longest.steps), share),
        location=process.location("backward"),
        false_alarm="A backward that computes far more than its forward, or a network that is slow for another reason.",
    )


def _said(sizes: list[float]) -> str:
    """How many samples ranks have in a step, which may differ from rank to rank."""
    if not np.isfinite(sizes).all():
        return "the ranks' batches"
    low, high = number(min(sizes)), number(max(sizes))
    return f"{low} samples a rank" if low == high else f"{low} to {high} samples a rank"


RULE = Rule(
    id="small-batch-per-rank",
    family="distributed",
    severity="info",
    title="Ranks spend more time exchanging gradients than computing them",
    about="Exchanging gradients costs the same for one sample as for a thousand: with little work per rank, it "
    "dominates.",
    check=check,
    gather=gather,
    verify="Record the run again: a sample costs less time.",
    absent="The run has one rank.",
    needs=(("steps.backward_seconds",),),
    thresholds=(
        Threshold("steps", 10, "steps", "derived: the median of ten is not moved by four odd ones"),
        Threshold("forwards", 3, "forwards", "derived: two products for each of the forward, and one recomputation"),
        Threshold("share", 0.5, "share", "derived: a batch twice as large costs less than half as much again"),
    ),
    not_when="One rank that holds up the others, devices, accumulation, gradients that are averaged by hand.",
)

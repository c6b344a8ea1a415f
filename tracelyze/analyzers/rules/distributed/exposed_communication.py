"""exposed-communication: all ranks stand in a collective that a line of the script calls, step after step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Cost, Evidence, Finding, Location
from tracelyze.formatting import number, percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

CALLS: Final = frozenset({
    "all_reduce", "all_gather", "all_gather_into_tensor", "all_gather_object", "broadcast", "broadcast_object_list",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "all_to_all", "all_to_all_single",
})  # fmt: skip
CODE: Final = (
    "if step % 500 == 0:  # not at every step\n"
    "    flat = torch.cat([one.flatten() for one in tensors])\n"
    "    dist.all_reduce(flat)  # one call for all of them"
)


class Waited(NamedTuple):
    """What the sampler saw of one rank while it trained. `times`: how often it stood in a collective of one line."""

    times: int
    samples: int
    name: str
    place: Location | None
    calls: float  # collectives per step, of all kinds
    averages: bool  # its model is wrapped so that gradients are exchanged inside of backward
    device: str


def check(process: Process, limits: Limits) -> Outcome:
    """Share of the samples in which a rank stood in such a call, on the rank in which it is the smallest."""
    ranks: dict[int, Waited] = {
        peer.rank: peer.gathered[RULE.id]
        for peer in process.peers
        if RULE.id in peer.gathered and peer.thread == 1 and peer.attempt == process.attempt
    }
    if len(ranks) < 2:
        return Skipped("the run has one rank", "not-applicable")
    if not all(one.averages for one in ranks.values()):
        return Skipped("no DistributedDataParallel averages gradients inside of backward", "not-applicable")
    if any(one.device != "cpu" for one in ranks.values()):
        return Skipped("on a device the host does not see when communication is done", record="--profile-every 100")
    if min(one.samples for one in ranks.values()) < limits["samples"]:
        return Skipped(f"fewer than {limits['samples']:.0f} samples of a rank's place were taken")
    shares = {rank: one.times / one.samples for rank, one in ranks.items()}
    least = min(shares, key=lambda rank: shares[rank])  # a rank that is late waits for nobody
    one = ranks[least]
    if shares[least] < limits["waited"] or one.calls < limits["calls"] or one.place is None:
        return Passed(f"collectives that a line of the script calls take {percent(shares[least])} of the samples")
    return [_finding(process, one, one.place, sorted(ranks), limits)]


def gather(process: Process) -> Waited | None:
    """What is known of one rank."""
    if len(process.optimizations) != 1 or not process.samples.has("innermost"):
        return None
    samples, ends = process.samples, process.longest.steps["time"]
    training = (samples["time"] > ends[0]) & (samples["time"] <= ends[-1])
    seen, looked = Counter[tuple[str, Location]](), 0
    for innermost, site, trains in zip(samples.text("innermost"), samples["site"], training, strict=True):
        place = process.site(site) if trains and innermost and np.isfinite(site) else None
        name = str(innermost).rpartition(" ")[2]
        looked += place is not None
        if place and "distributed_c10d.py" in str(innermost) and name in CALLS and f"{name}(" in place.source:
            seen[name, place] += 1
    (name, line), times = seen.most_common(1)[0] if seen else (("", None), 0)
    groups = [row for row in process.tables["collectives"].records() if row["operation"] is None]
    calls = max((float(row["enqueued"] or 0) for row in groups), default=0.0) / len(ends)
    wrapped = any("DistributedDataParallel" in (row["name"], row.get("parallel")) for row in process.models.records())
    return Waited(times, looked, name, line, calls, wrapped, process.device)


def _finding(process: Process, one: Waited, place: Location, ranks: list[int], limits: Limits) -> Finding:
    share, ends = one.times / one.samples, process.longest.steps["time"]
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"{percent(share)} of the training is spent in {one.name}, which the script itself calls",
        summary=(
            f"Looked at once a second, each rank stood in {one.name} at line {place.line} in {percent(share)} of the "
            f"samples or more, so they do not just wait for one slow rank. A step makes {number(one.calls)} collective "
            "calls. DistributedDataParallel averages gradients while backward runs and keeps the weights equal; what "
            "else is exchanged at each step is waited for."
        ),
        fix="Exchange less often, or put many tensors into one call. If they are weights or optimizer state, they stay "
        "equal without it: check them every few hundred steps, if at all.",
        fix_code=CODE,
        first_step=1,
        last_step=len(ends),
        ranks=ranks,
        evidence=[
            Evidence("samples in this call", share, "share", *limits.against("waited")),
            Evidence("samples", one.samples, "samples", limits["samples"], role="basis"),
            Evidence("collective calls in a step", one.calls, "calls", *limits.against("calls")),
        ],
        cost=Cost(share * float(ends[-1] - ends[0]), share),
        location=place,
        false_alarm="An exchange that the method needs at each step, as of embeddings in contrastive learning.",
    )


RULE = Rule(
    id="exposed-communication",
    family="distributed",
    severity="warning",
    title="Communication is not hidden behind computation",
    about="Collectives that a script calls between steps, beside DistributedDataParallel, are waited for by all ranks.",
    check=check,
    gather=gather,
    verify="Record the run again: a step takes less time.",
    absent="The run has one rank.",
    needs=(("samples.innermost", "collectives.enqueued"),),
    thresholds=(
        Threshold("waited", 0.3, "share", "of the samples, on each rank: twenty samples are right to within a fifth"),
        Threshold("samples", 20, "samples", "of the place of each rank while it trains, one a second"),
        Threshold("calls", 8, "calls", "per step; metrics take a few, and buckets of gradients as many"),
    ),
    not_when="One slow rank that the others wait for, metrics, devices, gradients that are averaged by hand.",
)

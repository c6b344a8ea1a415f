"""What a rank does by itself in a step: the time in which it does not wait for others.

Ranks that average gradients wait in the backward; where the script averages them by a collective of its own, in that.
In a data-parallel forward they wait for the buffers of the lowest rank.
"""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.throughput import contention, loading_lines, pace, waiting
from tracelyze.analyzers.rules.distributed.straggler import arrivals

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.distributed.straggler.arrivals import Arrivals
    from tracelyze.diagnosis import Location


MESSAGES: Final = 1.0  # sends and receives in a step: derived, fewer are those of validation or of a setup
MESSAGING: Final = 0.1  # of the looks: derived, what happens in every step is seen as often as it takes of a step
_MESSAGES: Final = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
WINDOWS: Final = 5  # looks at the processor time: derived, their median is not moved by two odd ones
WITHIN: Final = 2  # steps from look to look: of longer steps the time of many looks would be left out
_FEWEST: Final = 2  # looks: one may have found it anywhere
COLLECTIVES: Final = "the script's collectives"
BUFFERS: Final = "backward and the broadcast of buffers"


class OwnWork(NamedTuple):
    """Medians over the steps that were looked at, in seconds: outside of backward, within it, and for the loader.

    `seconds`: from the first of these steps to the last; `crowded`: share of them for which other programs held the
    processors; `seen`: lines at which the rank was found outside of backward, with their share of that; `loads_at`: the
    line of the dataset that makes its samples.
    """

    own: float
    backward: float
    loading: float
    steps: int
    device: str
    seconds: float
    crowded: float
    seen: tuple[tuple[Location, float], ...]
    loads_at: Location | None
    arrivals: Arrivals
    waits_in: str = "backward"
    """What `backward` is the time of, and `own` the rest of a step."""
    models: frozenset[tuple[str, int, int]] = frozenset()
    """Class, tensors and elements of the models that it calls; none where they are split over the ranks."""
    messages: float = 0.0
    """Sends and receives in a step, as far as they are counted. When they begin and end is not recorded."""
    messaging: float = 0.0
    """Share of the looks of the sampler that found the rank in a send or receive."""
    processor: float = np.nan
    """Processor time of a step, in seconds: what others do on the machine does not make it longer."""
    values: float = np.nan
    """Numbers in the largest tensor of a batch."""
    reads: tuple[tuple[Location, float], ...] | None = None
    """Lines that read values back from tensors, other than in a function that trains, with how often they do in a step;
    None where that was not recorded."""
    host: str = ""


def of(process: Process) -> OwnWork | None:
    """The work of one rank; None where it has several optimizers, or steps of unknown length."""
    if len(process.optimizations) != 1:
        return None
    steps = process.longest.steps
    known = np.isfinite(steps["backward_seconds"]) & np.isfinite(steps["seconds"])
    known &= ~(steps["loader_first"] == 1)
    known[: min(3, len(known))] = False
    if not known.any():
        return None
    backward, seconds = steps["backward_seconds"][known], steps["seconds"][known]
    return OwnWork(
        own=float(np.median(seconds - backward)),
        backward=float(np.median(backward)),
        loading=float(np.median(np.nan_to_num(steps["loader_wait"][known]))),
        steps=int(known.sum()),
        device=process.device,
        seconds=float(np.ptp(steps["time"][known])),
        crowded=contention.shares(process.longest).own,
        seen=pace.seen_outside_of_backward(process.longest),
        loads_at=_loads_at(process),
        arrivals=arrivals.of(process),
        models=_models(process),
        messages=arrivals.messages(process) / len(steps),
        messaging=_messaging(process),
        processor=_processor(process),
        values=_values(process),
        reads=_reads(process),
        host=str(process.facts.get("host") or ""),
    )


def _processor(process: Process) -> float:
    """The median over the looks of the sampler; NaN where these were few, or few steps lie between them."""
    samples, ends = process.samples, process.longest.steps["time"]
    if not samples.has("cpu_seconds") or not np.isfinite(ends).all():
        return np.nan
    time = samples["time"]
    known = np.isfinite(time) & np.isfinite(samples["cpu_seconds"]) & (time >= ends[0]) & (time <= ends[-1])
    steps = np.diff(np.searchsorted(ends, time[known])).astype(np.float64)
    used = np.diff(samples["cpu_seconds"][known])
    if len(steps) < WINDOWS or float(np.median(steps)) < WITHIN:
        return np.nan
    return float(np.median(used[steps > 0] / steps[steps > 0]))


def _values(process: Process) -> float:
    """The median over the batches of the training that were looked at; NaN where these were few."""
    largest: dict[float, float] = {}
    for row in process.tables["batches"].records():
        if row["trained"] and row["shape"]:
            size = float(math.prod(loss_calls.sizes(row["shape"])))
            largest[row["step"]] = max(size, largest.get(row["step"], 0.0))
    return float(np.median(list(largest.values()))) if len(largest) >= WINDOWS else np.nan


def _reads(process: Process) -> tuple[tuple[Location, float], ...] | None:
    if process.signals.get("reads", {}).get("state") != "on":
        return None
    trains = process.functions("backward", "training-call")
    found = [
        (process.site(row["site"]), row["per_step"]) for row in process.sites.shared_records() if row["role"] == "read"
    ]
    return tuple((line, float(count or 0)) for line, count in found if line and line.file_function not in trains)


def more_work(rank: int, ranks: Mapping[int, OwnWork], ratio: float) -> float:
    """How much longer the processors of a rank work for a step than those of the others (median), in seconds; 0 where
    that is less than so many times as long, or not known."""
    own, usual = ranks[rank].processor, usual_of(rank, ranks, "processor")
    return own - usual if own >= ratio * usual else 0.0


def usual_of(rank: int, ranks: Mapping[int, OwnWork], name: str) -> float:
    """The median of what all other ranks have."""
    return float(np.median([getattr(one, name) for number, one in ranks.items() if number != rank]))


def shared_out(ranks: Mapping[int, OwnWork]) -> str:
    """Why what ranks do outside of backward says nothing of which one is slow; empty where it does.

    Stages of a pipeline, or a model of its own on each rank, differ in their work on purpose, and wait for each other
    in sends and receives, at any place in a step.
    """
    if any(one.messages >= MESSAGES or one.messaging >= MESSAGING for one in ranks.values()):
        return "the ranks wait for each other in sends and receives, and for how long is not recorded"
    known = [one.models for one in ranks.values() if one.models]
    if any(not mine & theirs for mine, theirs in itertools.combinations(known, 2)):
        return "the ranks train different models, so their work differs on purpose"
    return ""


def _messaging(process: Process) -> float:
    if not process.samples.has("innermost"):
        return 0.0
    found = [str(one) for one in process.samples.text("innermost") if one]
    inside = sum("distributed_c10d.py" in one and one.rpartition(" ")[2] in _MESSAGES for one in found)
    return inside / len(found) if inside >= _FEWEST else 0.0


def _models(process: Process) -> frozenset[tuple[str, int, int]]:
    """None of a wrapper that splits its weights: each rank holds as much as it was dealt."""
    rows = [row for row in process.models.records() if row["parameters"] and row["elements"]]
    if any("FullySharded" in f"{row['name']} {row['parallel']}" for row in rows):
        return frozenset()
    return frozenset((str(row["name"]), int(row["parameters"]), int(row["elements"])) for row in rows)


def _loads_at(process: Process) -> Location | None:
    waited = waiting.measure(process.longest)
    if waited is None:
        return None
    return loading_lines.seen(process, waited) or process.site(waited.loader.get("read_by"))


def without_waits(ranks: dict[int, OwnWork]) -> dict[int, OwnWork]:
    """The ranks' own work, where they wait for each other outside of the backward: in collectives of the script, or for
    the buffers that a data-parallel forward has from the lowest rank."""
    known = {rank: one.arrivals for rank, one in ranks.items()}
    waited = arrivals.waits(known)
    steps = {rank: one.own + one.backward for rank, one in ranks.items()}
    if waited and not all(waited[rank] * steps[rank] <= one.backward for rank, one in ranks.items()):
        return {rank: _waiting(one, waited[rank] * steps[rank], COLLECTIVES) for rank, one in ranks.items()}
    of_buffers = arrivals.waits_for_the_first(known)
    if not any(of_buffers.values()):
        return ranks  # what they waited may have been within the backward
    return {
        rank: _waiting(one, one.backward + min(of_buffers[rank] * steps[rank], one.own), BUFFERS)
        for rank, one in ranks.items()
    }


def doing(rank: int, ranks: dict[int, OwnWork], of: Mapping[str, float]) -> tuple[Location | None, str]:
    """A line at which this rank does what no other one does, and what is known of it, with the limits of the rule."""
    seen = place(rank, ranks, of["line"], of["elsewhere"])
    if seen is not None:
        others = f"rank {min(ranks.keys() - {rank})}" if len(ranks) == 2 else "any other rank"
        return seen, f"it was seen in line {seen.line} far more often than {others}"
    reads = reads_alone(rank, ranks, of["reads"])
    if reads is not None:
        return reads, f"it alone reads values back in line {reads.line}, in each step"
    return None, "check what only this rank does in a step, and check its machine"


def place(rank: int, ranks: dict[int, OwnWork], part: float, elsewhere: float) -> Location | None:
    """The line at which this rank was found for at least this part of what it takes longer than the median of the
    others, and each of the others for at most that part of its share."""
    slow, others = ranks[rank], [dict(one.seen) for number, one in ranks.items() if number != rank]
    longer = slow.own - float(np.median([one.own for number, one in ranks.items() if number != rank]))
    for line, share in slow.seen:
        most = max((other.get(line, 0.0) for other in others), default=0.0)
        if (share - most) * slow.own >= part * longer and most <= elsewhere * share:
            return line
    return None


def reads_alone(rank: int, ranks: Mapping[int, OwnWork], each_step: float) -> Location | None:
    """The line that reads most often of those at which this rank reads values back in each step, and no other one does,
    if all of them stand in one function. On machines of their own a rank may be slow for what no line shows."""
    others = [one for number, one in ranks.items() if number != rank]
    if any(one.reads is None or one.host != ranks[rank].host for one in ranks.values()):
        return None
    elsewhere = {line.file_line for one in others for line, _ in one.reads or ()}
    own = [(count, line) for line, count in ranks[rank].reads or () if line.file_line not in elsewhere]
    often = [one for one in own if one[0] >= each_step]
    alone = len({line.file_function for _, line in own}) == 1
    return max(often, key=lambda one: one[0])[1] if often and alone else None


def _waiting(one: OwnWork, seconds: float, there: str) -> OwnWork:
    return one._replace(own=one.own + one.backward - seconds, backward=seconds, waits_in=there)

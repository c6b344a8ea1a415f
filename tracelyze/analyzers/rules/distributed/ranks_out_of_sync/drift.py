"""Whether the ranks of a run hold the same weights, and what makes them differ where they should be equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tracelyze.analyzers.computed.ranks import weights
from tracelyze.analyzers.rules.distributed.ranks_out_of_sync import unfrozen

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.computed.ranks.weights import Sums
    from tracelyze.analyzers.recorded.run import Peer, Process


Kind = Literal["few", "equal", "parts", "never-equal", "rates", "apart"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Drift:
    """What became of the weights of one rank, beside those of the lowest one.

    equal: the same weights, at the end or in between; parts: never the same, nor the gradients; few: too few looks.
    never-equal: the same gradients, but other weights from the start; rates: the same gradients, but other rates;
    apart: equal at first, and never again, or not since layers were unfrozen that nothing averages.
    """

    rank: int
    kind: Kind
    since: int = 2  # step at which they are known to differ, where they do

    def words(self) -> str:
        """When they were equal, and since when they are not."""
        if self.since == type(self).since:
            return "At the first step the weights were equal on all ranks. Ever since, at the same steps, they differ"
        return f"At first the weights were equal on all ranks. From step {self.since:,} on they differ"


def of(process: Process, peer: Peer, own: Mapping[int, Sums], other: Mapping[int, Sums], *, looks: float,
       equal: float) -> Drift:  # fmt: skip
    """How the weights of two ranks drift apart. `own`, `other`: their sums by step; `equal`: the largest distance of
    weights that are the same."""
    steps = sorted(own.keys() & other.keys())
    if len(steps) < looks:
        return Drift(peer.rank, "few")
    distances = [weights.apart(own[step], other[step]) for step in steps]
    rates = any(weights.same_tensors_other_rates(own[step], other[step]) for step in steps)
    if rates or distances[0] > equal:
        if weights.same_gradients(process, [peer.open()], equal):
            return Drift(peer.rank, "never-equal" if distances[0] > equal else "rates")
        return Drift(peer.rank, "parts")
    same = [at for at, distance in enumerate(distances) if distance <= equal]
    later = steps[same[-1] + 1 :]
    at_first = len(same) > 1 and same == list(range(len(same))) and len(later) >= looks - 1
    if at_first and unfrozen.of(process, [peer.open()], equal) is not None:
        return Drift(peer.rank, "apart", later[0])
    return Drift(peer.rank, "equal" if min(distances[2:]) <= equal else "apart")

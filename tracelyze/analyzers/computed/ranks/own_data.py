"""What to do about uneven batches where each rank has data of its own: a sampler that divides them would take a part of
each rank's data only, and leave them as uneven as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence.loss import statement

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process

_DIVIDE: Final = (
    "Split the data evenly: DistributedSampler pads or drops so that all ranks get the same number of samples. Use the "
    "same batch size on all ranks."
)
_DIVIDED: Final = (
    "sampler = DistributedSampler(dataset, drop_last=True)\n"
    "loader = DataLoader(dataset, batch_size=per_rank, sampler=sampler, drop_last=True)  # per_rank: one number"
)
_WEIGH: Final = (
    "Weigh each rank's loss by its share of the samples. Each rank has data of its own, of which a DistributedSampler "
    "would only take a part; or pool the data, and divide them evenly."
)
_WEIGHED: Final = """samples = torch.tensor(float(len(x)), device=x.device)  # of this rank's batch
torch.distributed.all_reduce(samples)  # and of all ranks
{loss} = {loss} * len(x) * torch.distributed.get_world_size() / samples  # in front of the backward"""
_SHORTEST: Final = (
    "Have all ranks stop with the shortest one. Each rank has data of its own, of which a DistributedSampler would "
    "only take a part; or pool the data, and divide them evenly."
)
_CUT: Final = """batches = torch.tensor(len(loader))  # on the device, with NCCL
torch.distributed.all_reduce(batches, op=torch.distributed.ReduceOp.MIN)
for batch in itertools.islice(loader, int(batches)):
    ...  # as it is"""


def samples(loader: dict[str, Any]) -> float | None:
    """How many samples a rank has by itself, within a batch; None where a sampler divides what all ranks have."""
    size, length = loader.get("batch_size"), loader.get("length")
    divided = loader.get("iterable") or "Distributed" in str(loader.get("sampler"))
    return float(size * length) if size and length and not divided else None


def differs(each: Iterable[tuple[float | None, float]], share: float) -> bool:
    """Whether ranks have different amounts of data. `each`: the samples of a rank, and of its batches."""
    pairs = list(each)
    known = [number for number, _ in pairs if number is not None]
    if len(known) < len(pairs):
        return False
    return max(known) - min(known) > max(share * min(known), *(size for _, size in pairs))


def remedy(process: Process, apart: bool, of_size: bool) -> tuple[str, str]:
    """Words and an example. `apart`: ranks have data of their own, and not equally many. `of_size`: their batches
    differ in size, and not in number."""
    if not apart:
        return _DIVIDE, _DIVIDED
    if not of_size:
        return _SHORTEST, _CUT
    loss = statement.name_of(process.longest.backward_location) or "loss"
    return _WEIGH, _WEIGHED.format(loss=loss)

"""What uneven batches do, and what to do about them, also where each rank has data of its own: a sampler that divides
them would take a part of each rank's data only, and leave them as uneven as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.diagnosis import Location

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
_AS_ONE: Final = (
    "Where you pool the data, record the run again: all ranks have batches of the same size. Where you weight the "
    "losses, the sizes still differ, and this finding comes again: compare a step's gradient with that of one process."
)
_SHORTEST: Final = (
    "Have all ranks stop with the shortest one. Each rank has data of its own, of which a DistributedSampler would "
    "only take a part; or pool the data, and divide them evenly."
)
_CUT: Final = """batches = torch.tensor(len(loader))  # on the device, with NCCL
torch.distributed.all_reduce(batches, op=torch.distributed.ReduceOp.MIN)
for batch in itertools.islice(loader, int(batches)):
    ...  # as it is"""

_POOL: Final = (
    "Divide the samples evenly, not the files or the parts that they come in: pool the data of all ranks, and let a "
    "DistributedSampler give each its share."
)
_POOLED: Final = (
    "dataset = ConcatDataset(parts)  # those of all ranks, on every rank\n"
    "sampler = DistributedSampler(dataset)\n"
    "loader = DataLoader(dataset, batch_size=per_rank, sampler=sampler)  # per_rank: one number"
)
_BY_HAND: Final = (
    "Divide the samples evenly, not the files or the parts that they come in: put those of all ranks together in the "
    "same order on every rank, and take every nth of them."
)
_NTH: Final = (
    "rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()\n"
    "even = len(samples) // ranks * ranks  # samples: those of all ranks\n"
    "own = samples[rank:even:ranks]  # as many on each"
)
_WEIGHTS: Final = (
    "All ranks count equally in the average, so samples in small batches weigh more, and ranks with small batches wait "
    "for the others."
)
_ALONE: Final = (
    "Once it is done, the others have no one to average with: they hang, or the last steps use only part of the data."
)
_DEALS: Final = re.compile(  # files[rank::world], range(rank, files, world)
    r"\[[\w.() ]*rank[\w.() ]*::|\b(?:range|islice)\((?:[\w.]+,)?\s*[\w.() ]*rank\b[\w.() ]*,[^,]+,"
)


class Uneven(NamedTuple):
    """A way in which batches of ranks differ: in what, what comes of it, and what to do, in words and as an example.

    `effect` may name the share of the longest epoch for which the shortest rank `{idles}`, `code` the `{loss}`.
    """

    what: str
    effect: str
    fix: str
    code: str
    verify: str = ""  # where that of the rule does not hold


IN_THE_MEAN: Final = Uneven("samples per batch in the mean", _WEIGHTS, _DIVIDE, _DIVIDED)
IN_SIZE: Final = Uneven("samples per batch", _WEIGHTS, _DIVIDE, _DIVIDED)
IN_SIZE_OF_OWN_DATA: Final = Uneven("samples per batch", _WEIGHTS, _WEIGH, _WEIGHED, _AS_ONE)
IN_SIZE_BY_HAND: Final = Uneven("samples per batch", _WEIGHTS, _BY_HAND, _NTH)
IN_NUMBER: Final = Uneven("batches per epoch", _ALONE, _DIVIDE, _DIVIDED)
IN_NUMBER_OF_OWN_DATA: Final = Uneven("batches per epoch", _ALONE, _SHORTEST, _CUT)
JOINED: Final = Uneven(
    "batches per epoch",
    "The others go on without it, as under Join: it idles for {idles} of the longest epoch, while they learn from "
    "their own data only.",
    _POOL,
    _POOLED,
)


def are_joined(steps: list[int], lengths: list[float], least: float, share: float) -> bool:
    """Whether some ranks go on alone for long in each epoch: their loaders are longer, by as much as they make more
    steps, and the shortest ends before `least` of the longest."""
    if len(lengths) < len(steps) or min(lengths) > least * max(lengths):
        return False
    of_steps, of_lengths = min(steps) / max(steps), min(lengths) / max(lengths)
    return steps.index(min(steps)) == lengths.index(min(lengths)) and abs(of_steps / of_lengths - 1.0) <= share


def dealt(process: Process, loader: Location | None) -> Location | None:
    """The only line which deals out files or parts by rank: of the function that makes the loader, else of all."""
    if loader is None:
        lines = [one for one in recorded_text.matching(process, _DEALS) if _DEALS.search(code_of(one.source))]
        return lines[0] if len(lines) == 1 else None
    text = recorded_text.of_function(process, loader)
    found = [at for at, line in text.items() if _DEALS.search(code_of(line))]
    return loader.at(found[0], text[found[0]]) if len(found) == 1 else None


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

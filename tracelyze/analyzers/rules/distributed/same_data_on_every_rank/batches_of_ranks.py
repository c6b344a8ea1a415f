"""The first batches of each rank side by side: the same fingerprint in a row is the same batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.formatting import times

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ROWS: Final = 8
MOST_RANKS: Final = 6

SEED = "Draw the batches of each rank from a generator with a seed of its own, or divide the samples among the ranks."
SEED_CODE = (
    "# once, above the loop; the weights keep the common seed\n"
    "own = torch.Generator().manual_seed(seed + torch.distributed.get_rank())\n"
)
DRAWN_CODE = "index = torch.randint(len(data), (batch_size,), generator=own)"
SAMPLER = "Divide the data among the ranks, and call sampler.set_epoch when an epoch begins."
SAMPLER_CODE = (
    "sampler = DistributedSampler(dataset, shuffle=True)\n"
    "loader = DataLoader(dataset, batch_size=batch_size, sampler=sampler)  # without shuffle=True\n"
    "for epoch in range(epochs):\n    sampler.set_epoch(epoch)"
)
SHARDS = (
    "Divide the samples in the data set's __iter__: an IterableDataset takes no sampler. For data sets of Hugging Face "
    "there is split_dataset_by_node."
)
SHARDS_CODE = (
    "rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()\n"
    "yield from itertools.islice(samples, rank, None, ranks)  # in __iter__; samples: what it gave until now"
)


OWN = (
    "Have {sampler} give each rank a part of its own, by the rank and the number of ranks at the time when it is gone "
    "through; all ranks have to shuffle alike."
)
OWN_CODE = (
    "# in {sampler}.__iter__; {items}: the list of all that it gave until now. Its __len__ shrinks as well\n"
    "rank, ranks = torch.distributed.get_rank(), torch.distributed.get_world_size()\n"
    "yield from {items}[rank : len({items}) // ranks * ranks : ranks]"
)
_OF_TORCH = ("RandomSampler", "SequentialSampler", "SubsetRandomSampler", "WeightedRandomSampler", "BatchSampler")
_INFINITE = "_InfiniteConstantSampler"


def own_sampler(loader: Mapping[str, Any] | None) -> str:
    """The class of the loader's sampler where it is none of those of torch that know of no ranks: it may divide the
    data, and was told wrong numbers, or did so too early."""
    name = str((loader or {}).get("sampler") or "")
    return "" if (loader or {}).get("iterable") or name in (*_OF_TORCH, _INFINITE, "none") else name


def divided(by_hand: bool, iterable: bool) -> tuple[str, str]:
    """How to give each rank samples of its own, in words and as code: batches made by hand, or those of a loader."""
    if by_hand:
        return SEED, SEED_CODE + DRAWN_CODE
    return (SHARDS, SHARDS_CODE) if iterable else (SAMPLER, SAMPLER_CODE)


def _source(loader: Mapping[str, Any] | None) -> str:
    if loader is None:
        return "no loader"
    if loader.get("iterable"):
        return f"{loader.get('dataset') or 'a data set'}, an IterableDataset, which no sampler divides"
    return f"sampler {loader.get('sampler')}"


def text(batches: Mapping[int, Mapping[int, str]]) -> str:
    """A line for each of the first places at which all ranks were looked at; `batches`: by rank, then by place."""
    ranks = sorted(batches)[:MOST_RANKS]
    common = sorted(set.intersection(*(set(batches[rank]) for rank in ranks))) if ranks else []
    rows = [
        ("batch", *(f"rank {rank}" for rank in ranks)),
        *((str(at + 1), *(batches[rank][at] for rank in ranks)) for at in common[:MOST_ROWS]),
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    left_out = len(batches) - len(ranks)
    return "\n".join([*lines, *([f"and {left_out:,} more ranks"] if left_out else [])])


def said(
    of_ranks: str, several: int, batches: int, loader: Mapping[str, Any] | None, later_alike: bool | None
) -> tuple[str, str]:
    """Title and summary. `batches`: how many were compared; `loader`: None where batches are made by hand.
    `later_alike`: whether passes after the first are the same as well; None where none was compared."""
    by_hand, early = loader is None, str((loader or {}).get("early_rank") or "")
    what = f"{batches} batches{'' if by_hand else ' of the first pass'} compared, {_source(loader)}"
    title = f"{of_ranks} ranks train on the same {'batches' if by_hand else 'samples'}"
    whole, alone = f"an epoch takes {times(several)} as long as with the data divided.", ": they do the work of one"
    averaged, who = "Averaged over ranks, their gradients are those of one rank", f"{of_ranks.lower()} ranks"
    if by_hand:
        same = f"called models with the same batch at each step ({what})"
        return title + alone, f"From the first step on, {who} {same}. {averaged}."
    same = f"were handed the same batch at each place ({what})"
    if later_alike and not early:
        return title + alone, f"From the first pass on, {who} {same}. {averaged}, and {whole}"
    if early:
        asked = f"{early} asked for the rank as it was made, before there was a process group: each took itself for the"
        return f"{title}: {early} was made too early", f"In the first pass {who} {same}. {asked} only rank, and {whole}"
    order = "" if later_alike is None else " In later passes the orders are not all the same."
    if sampler := own_sampler(loader):
        same = f"In the first pass {who} {same}.{order} {sampler} gives each the same batches{alone}."
        return f"{title}: {sampler} gives each the same", same
    return f"{title}: nothing divides them", f"In the first pass {who} {same}.{order} Nothing divides the data: {whole}"

"""Batches as the recorder writes them down, epoch by epoch, whose contents come in a given order."""

from __future__ import annotations

import random
from typing import Any

SETTINGS = {"dataset": "Images", "length": 50, "batch_size": 32, "num_workers": 0, "iterable": False, "made_at": 2}
RANDOM = SETTINGS | {"sampler": "RandomSampler", "shuffled": True}
SEEN = (0, 1, 2, 3, 4, 5, 6, 7, 16, 32)
IDS = {"dtype": "int64", "shape": "64", "mean": 190.0, "std": 120.0, "min": 2.0, "max": 398.0, "zeros": 0.0}


def batch(loader: int, epoch: int, place: int, content: object, **more: Any) -> dict[str, Any]:
    """A row of the table batches."""
    row = {"loader": loader, "epoch": epoch, "batch": place, "step": 50 * epoch + place, "field": "0", "trained": True}
    return row | {"prints": f"{content}a {content}b", "print": str(content)} | more


def epochs(orders: list[list[int]], loaders: list[int] | None = None, **more: Any) -> list[dict[str, Any]]:
    """Passes in which place `p` holds batch `order[p]`."""
    return [
        batch(loaders[epoch] if loaders else 0, 0 if loaders else epoch, p, order[p], **more) | {"step": 50 * epoch + p}
        for epoch, order in enumerate(orders)
        for p in SEEN
    ]


def shuffled(seeds: list[int], count: int = 50) -> list[list[int]]:
    return [random.Random(seed).sample(range(count), count) for seed in seeds]

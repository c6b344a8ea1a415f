"""Ranks that step at a pace of their own, under a wrapper that averages their gradients."""

from __future__ import annotations

from typing import Any

COUNT = 200
DDP = [{"model": 0, "name": "DistributedDataParallel", "parameters": 4, "elements": 100}]


def rank(make: Any, number: int, own: float = 0.02, backward: float = 0.02, count: int = COUNT, **more: Any) -> Any:
    tables, samples = more.pop("tables", None), more.pop("samples", None)
    steps = make.steps(count) | {"seconds": [own + backward] * count, "backward_seconds": [backward] * count}
    loaders = [{"loader": 0, "dataset": "Images", "iterable": False, "length": more.pop("length", 100)}]
    loaders[0] |= {"read_by": more.pop("read_by", None)} | more.pop("loader", {})
    more = {"loader_wait": [0.0] * count, "loader_first": [False] * count} | more
    models = more.pop("models", DDP)
    return make.process(
        steps | more, facts={"rank": number}, models=models, loaders=loaders, evals={}, samples=samples, more=tables
    )


def named(*processes: Any) -> Any:
    for process in processes:
        process.name = f"rank{process.rank:05d}"
    return processes


def sizes(make: Any, *each: list[int], **more: Any) -> Any:
    ranks = [rank(make, number, batch_size=some, count=len(some), **more) for number, some in enumerate(each)]
    return make.check("uneven-batches", *named(*ranks))

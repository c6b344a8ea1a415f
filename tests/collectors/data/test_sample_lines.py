"""Lines by which a loader's samples are made, read off what a dataset calls."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import named_calls, sample_lines
from tracelyze.collectors.program.lines.loops import stream_loops

SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


class Flip:
    def __call__(self, x: Any) -> Any:
        return x.flip(0) if random.random() < 0.5 else x  # flips


class ToNumbers:
    def __call__(self, x: Any) -> Any:
        return torch.from_numpy(x).float()  # converts


class Plain(Dataset[Any]):
    def __init__(self, transform: Any = None) -> None:
        self.x, self.transform, self.rng = np.zeros((9, 3)), transform, np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        label = torch.tensor(index)
        x = self.x[index]
        if self.transform is not None:
            x = self.transform(x)
        return x, label  # returns


class Noisy(Plain):
    def __getitem__(self, index: int) -> Any:
        noise = self.rng.normal(size=3)  # noise
        x = torch.as_tensor(self.x[index] + noise)  # made
        return x, index


def collate(rows: Any) -> Any:
    return torch.stack([torch.from_numpy(row) for row in rows])  # stacks


def seeds(worker: int) -> None:
    print(worker)
    np.random.seed(7)  # seeds


def told(rows: list[dict[str, Any]], role: str) -> list[str]:
    return [SOURCE[row["line"] - 1].partition("  # ")[2] for row in rows if row["role"] == role]


@pytest.mark.parametrize(
    ("dataset", "line", "draws"),
    [
        (Plain(), "returns", []),
        (Plain(ToNumbers()), "converts", []),
        (Plain(SimpleNamespace(transforms=[Flip(), ToNumbers()])), "returns", []),
        (Noisy(), "made", ["noise"]),
        (Subset(Noisy(), [1, 2]), "made", ["noise"]),
        (TensorDataset(torch.zeros(4, 3)), None, []),
        ([1, 2, 3], None, []),
    ],
)
def test_lines_of_a_dataset(dataset: Any, line: str | None, draws: list[str]) -> None:
    rows: list[dict[str, Any]] = []
    sites, loader = Sites(rows.append), DataLoader(dataset)
    found = sample_lines.sample(dataset, loader.collate_fn, sites)
    sample_lines.draws(dataset, loader.collate_fn, sites)
    assert (found is None) == (line is None)
    assert told(rows, "sample") == ([] if line is None else [line])
    assert told(rows, "draws") == draws


def test_a_list_of_transforms_of_a_library() -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    rows: list[dict[str, Any]] = []
    dataset = Plain(transforms.Compose([Flip(), ToNumbers()]))
    assert sample_lines.sample(dataset, None, Sites(rows.append)) is not None
    sample_lines.draws(dataset, None, Sites(rows.append))
    assert (told(rows, "sample"), told(rows, "draws")) == (["converts"], ["flips"])


def test_what_puts_batches_together_and_what_seeds_workers() -> None:
    rows: list[dict[str, Any]] = []
    assert sample_lines.sample([1, 2], collate, Sites(rows.append)) is not None
    sample_lines.worker_seed(seeds, Sites(rows.append))
    sample_lines.worker_seed(None, Sites(rows.append))
    assert (told(rows, "sample"), told(rows, "worker-seed")) == (["stacks"], ["seeds"])


class Drawn(Plain):
    def __getitem__(self, index: int) -> Any:
        start = self.rng.integers(6)
        return self.x[start : start + 3]


class Thrown(Plain):
    def __getitem__(self, *_: int) -> Any:
        return self.x[0]


class Captured(Plain):
    def __getitem__(self, index: int) -> Any:
        return [x + index for x in self.x]


class Inherited(Noisy):
    def __getitem__(self, index: int) -> Any:
        return super().__getitem__(index)


@pytest.mark.parametrize(
    ("dataset", "ignores"),
    [
        (Plain(), False),
        (Noisy(), False),
        (Drawn(), True),
        (Subset(Drawn(), [1, 2]), True),
        (Thrown(), None),
        (Captured(), False),
        (Inherited(), False),
        (TensorDataset(torch.zeros(3)), None),
    ],
)
def test_a_dataset_that_ignores_its_index(dataset: Any, ignores: bool | None) -> None:
    assert sample_lines.ignores_index(dataset) is ignores


class Stream(torch.utils.data.IterableDataset[Any]):
    def __init__(self) -> None:
        self.split()

    def split(self) -> None:
        info = torch.utils.data.get_worker_info()  # asks too early
        self.part, self.parts = (info.id, info.num_workers) if info else (0, 1)

    def __iter__(self) -> Any:
        return iter(range(self.part, 100, self.parts))


class AsksAtOnce(torch.utils.data.IterableDataset[Any]):
    def __init__(self) -> None:
        self.info = torch.utils.data.get_worker_info()  # asks at once

    def __iter__(self) -> Any:
        return iter(range(100))


class AsksInTime(Stream):
    def __iter__(self) -> Any:
        self.split()
        return super().__iter__()


class AsksItself(Stream):
    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        return iter(range(info.id if info else 0, 100, 2))


@pytest.mark.parametrize(
    ("stream", "text"),
    [(Stream(), "asks too early"), (AsksAtOnce(), "asks at once"), (AsksInTime(), None), (AsksItself(), None)],
)
def test_the_line_that_asks_for_the_worker_where_there_is_none(stream: Any, text: str | None) -> None:
    found: list[int] = []
    sites: Any = SimpleNamespace(at=lambda role, code, line: found.append(line))
    sample_lines.asked_when_made(stream, sites)
    assert [text in SOURCE[line - 1] for line in found] == [True] * (text is not None)


def in_shards(self: Any) -> Any:
    shards = sorted(self.shards)
    for shard in shards:  # shards
        for row in shard:
            if row is None:
                continue
            yield row


def handed_on(self: Any) -> Any:
    for shard in self.shards:  # handed on
        yield from shard


def for_ever(self: Any) -> Any:
    while True:
        for row in self.rows:
            yield row + row


def twice(self: Any) -> Any:
    for row in self.rows:
        yield row
    for row in self.more:
        yield row


def with_a_rest(self: Any) -> Any:
    held = []
    for row in self.rows:
        held.append(row)
        if len(held) > 9:
            yield held.pop()
    yield from held


@pytest.mark.parametrize(
    ("stream", "line"),
    [(in_shards, "# shards"), (handed_on, "# handed on"), (for_ever, ""), (twice, ""), (with_a_rest, "")],
)
def test_the_loop_by_which_a_stream_yields_all_it_has(stream: Any, line: str) -> None:
    found = stream_loops.outermost(stream.__code__)
    assert (found is None) == (not line)
    assert found is None or SOURCE[found - 1].endswith(line)


def as_planes(rows: Any) -> Any:
    labels = torch.from_numpy(rows[1])
    planes = torch.from_numpy(rows[0]).float()  # planes
    return planes, labels


def batches(rows: Any) -> Any:
    for at in range(0, len(rows), 8):
        yield as_planes(rows[at : at + 8])


def of_numbers(rows: Any) -> Any:
    for row in rows:
        yield torch.tensor(row)  # numbers


@pytest.mark.parametrize(("maker", "line"), [(batches, "# planes"), (of_numbers, "# numbers")])
def test_the_line_that_makes_a_batch_of_a_generator(maker: Any, line: str) -> None:
    rows: list[dict[str, Any]] = []
    functions = [as_planes.__code__, batches.__code__, of_numbers.__code__]
    sample_lines.of_batches(maker.__code__, functions, Sites(rows.append))
    assert told(rows, "batch-sample") == [line.removeprefix("# ")]


class Lit:
    def configure_optimizers(self) -> Any:
        optimizer = object()
        if not optimizer:
            return None
        return {  # returned
            "optimizer": optimizer,
        }


def test_what_configure_optimizers_returns() -> None:
    (line,) = named_calls.optimizers_returned(Lit.configure_optimizers.__code__)
    assert SOURCE[line - 1].endswith("# returned")
    assert named_calls.optimizers_returned(as_planes.__code__) == []

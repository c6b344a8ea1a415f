"""Whose row a field of a batch holds that has one for all samples, and the line of the collate_fn that keeps it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.collectors.conftest import Collect  # noqa: E402
from tracelyze.collectors.program.lines import definitions  # noqa: E402
from tracelyze.collectors.program.loading import lone_rows  # noqa: E402
from tracelyze.collectors.program.loading.timed_lines import TimedLines  # noqa: E402

Sample = tuple[Any, int]
SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def keeps_the_last(samples: list[Sample]) -> Any:
    images = []
    for image, shop in samples:
        images.append(image)
        shops = torch.tensor([shop])  # the line
    return torch.stack(images), shops


def keeps_the_first(samples: list[Sample]) -> Any:
    return torch.stack([image for image, _ in samples]), torch.tensor([samples[0][1]])  # the line


def takes_the_largest(samples: list[Sample]) -> Any:
    longest = 0
    for _, length in samples:
        longest = max(longest, length)
    return torch.stack([image for image, _ in samples]), torch.tensor([longest])


def has_all(samples: list[Sample]) -> Any:
    images, shops = [], []
    for image, shop in samples:
        row = torch.tensor(shop)
        images.append(image)
        shops.append(row)
    return torch.stack(images), torch.stack(shops)


def weighs_the_batch(samples: list[Sample]) -> Any:
    return torch.stack([image for image, _ in samples]), torch.rand(1)


def seen(collate: Callable[..., Any], shops: Callable[[int, int], int]) -> dict[str, float]:
    """What was counted of field 1 over the batches that are timed."""
    lines = TimedLines(collate)
    for batch in range(6):
        samples = [(torch.full((2,), float(at)), shops(batch, at)) for at in range(8)]
        lines.begin()
        collate(samples)
        lines.end()
    assert lines.lone_rows is not None
    return lines.lone_rows.found.get("1", {})


def mixed(batch: int, at: int) -> int:
    return (3 * batch + 5 * at) % 11


pytestmark = pytest.mark.skipif(sys.getprofile() is not None, reason="the tests are profiled")


def test_the_last_sample_of_a_loop_that_keeps_no_other() -> None:
    found = seen(keeps_the_last, mixed)
    assert (found["looks"], found["last"], found["extreme"] < 5) == (5, 5, True)
    assert found["chance"] < -3
    assert lone_rows.of_bytes(lone_rows.LoneRows.to_bytes(made(found)) + b"rest") == {"1": found}


def test_samples_that_hold_plain_lists() -> None:
    lines = TimedLines(keeps_the_last_list)
    for batch in range(6):
        lines.begin()
        keeps_the_last_list([{"x": [0.1 * at], "vitals": [0.1 * mixed(batch, at), 0.3]} for at in range(8)])
        lines.end()
    assert lines.lone_rows is not None
    found = lines.lone_rows.found["vitals"]
    assert (found["looks"], found["last"]) == (5, 5), "0.1 is another number in float32"


def keeps_the_last_list(rows: list[dict[str, Any]]) -> Any:
    xs, vitals = [], []
    for row in rows:
        xs.append(row["x"])
    vitals.append(row["vitals"])
    return {"x": torch.tensor(xs), "vitals": torch.tensor(vitals)}


def names_the_fields(samples: list[Any]) -> Any:
    images = []
    for image, shop, _ in samples:  # noqa: B007
        images.append(image)
    return {"image": torch.stack(images), "shop": torch.tensor([shop])}


@pytest.mark.parametrize(("last", "known"), [(0.5, True), (torch.ones(2), True), (3, False)])
def test_a_mapping_that_is_made_of_tuples(last: Any, known: bool) -> None:
    lines = TimedLines(names_the_fields)
    for batch in range(6):
        lines.begin()
        names_the_fields([(torch.full((2,), float(at)), mixed(batch, at), last) for at in range(8)])
        lines.end()
    assert lines.lone_rows is not None
    found = lines.lone_rows.found.get("shop", {})
    assert found.get("last") == (5 if known else None), "two whole numbers may be either"


def made(found: dict[str, float]) -> lone_rows.LoneRows:
    rows = lone_rows.LoneRows(keeps_the_last.__code__)
    rows.found = {"1": found}
    return rows


def test_rows_that_are_no_sample_alone() -> None:
    assert seen(keeps_the_last, lambda batch, _: batch) == {}, "one domain for each batch"
    assert seen(has_all, mixed) == {}
    largest = seen(takes_the_largest, mixed)
    assert (largest["extreme"], largest["last"] < 5) == (5, True)
    rising = seen(takes_the_largest, lambda batch, at: batch + at)
    assert (rising["last"], rising["extreme"]) == (5, 5), "sorted by length"
    assert seen(weighs_the_batch, mixed)["last"] == 0
    assert seen(keeps_the_first, mixed)["first"] == 5


@pytest.mark.parametrize("collate", [keeps_the_last, keeps_the_first, takes_the_largest, has_all])
def test_the_line_that_keeps_one_sample_alone(collate: Callable[..., Any]) -> None:
    code = collate.__code__
    line = definitions._of_the_first_sample(code) or definitions._of_the_last_sample(code)
    marked = [number for number, text in enumerate(SOURCE, 1) if "# the line" in text and number > 10]
    inside = [number for number in marked if number in {at for *_, at in code.co_lines()}]
    assert line == (inside[0] if inside else None)


def test_a_library_s_function_is_not_looked_at() -> None:
    assert lone_rows.of(torch.utils.data.default_collate) is None


PROGRAM = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

class Shops(Dataset):
    def __len__(self):
        return 256
    def __getitem__(self, i):
        return {"x": torch.randn(4), "shop": i % 13, "y": torch.randn(())}

def collate(samples):
    xs, ys = [], []
    for one in samples:
        xs.append(one["x"])
        ys.append(one["y"])
        shop = torch.tensor([one["shop"]])
    return {"x": torch.stack(xs), "shop": shop, "y": torch.stack(ys)}

workers = int(sys.argv[1])
loader = DataLoader(Shops(), 16, shuffle=True, collate_fn=collate, num_workers=workers)
model, table = nn.Linear(4, 1), nn.Embedding(13, 4)
optimizer = torch.optim.SGD([*model.parameters(), *table.parameters()], lr=0.01)
for _ in range(2):
    for batch in loader:
        loss = (model(batch["x"] + table(batch["shop"])).squeeze(1) - batch["y"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize("workers", [0, 1])
def test_what_a_training_records(collect: Collect, tmp_path: Path, workers: int) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    (process,) = collect(sys.executable, str(script), str(workers)).run.processes
    rows = [row for row in process.events.records() if row["kind"] == "lone-row"]
    assert {row["name"] for row in rows} == {"shop"}
    counts = json.loads(rows[-1]["text"])
    assert counts["last"] == counts["looks"] >= 3
    assert counts["chance"] < -3
    assert process.site(process.loaders["collated_by"][0]).source == 'shop = torch.tensor([one["shop"]])'

"""What is recorded of the content of batches: statistics that are right, and prints that recognise the same sample."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.utils.data import (  # noqa: E402
    BatchSampler,
    DataLoader,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
)

from tests.collectors.conftest import Collect, program  # noqa: E402
from tracelyze.analyzers import diagnose  # noqa: E402
from tracelyze.collectors.signals.data.loader import describe  # noqa: E402
from tracelyze.collectors.tensors.fingerprints import SAMPLES, Fingerprints, classes, fields, statistics  # noqa: E402

Rows = list[dict[str, Any]]


def rows_of(collect: Collect, kind: str, *options: str) -> Rows:
    done = collect(sys.executable, program("fed.py"), kind, options=options)
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    assert [row for row in process.events.records() if row["kind"] == "collector-error"] == []
    return list(process.tables["batches"].records())


def content() -> tuple[Any, Any]:
    torch.manual_seed(0)
    return torch.randn(64, 3, 8, 8), torch.arange(64) % 4


STREAM = """
import warnings; warnings.simplefilter("error")
import torch
from torch.utils.data import DataLoader, IterableDataset
class Stream(IterableDataset):
    asked = 0
    def __len__(self):
        Stream.asked += 1
        return 3
    def __iter__(self):
        return iter([torch.ones(8, 4)] * 6)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Stream(), batch_size=None)
for _ in range(3):
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
print("asked", Stream.asked)
"""


HEAD = """
import torch
from torch import nn
body, head = nn.Linear(3, 8), nn.Linear(8, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.05)
for _ in range(12):
    loss = head(torch.relu(body(torch.rand(16, 3)))).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        body.weight.mul_(1e20)
"""


EVALUATED_FIRST = """
import torch
torch.manual_seed(0)
model = torch.nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(24):
    if step % 12 == 0:
        with torch.no_grad():
            for rows in (4, 32):
                for _ in range(10):
                    model(torch.randn(rows, 6))
    optimizer.zero_grad()
    model(torch.randn(4, 6)).square().mean().backward()
    optimizer.step()
"""


SLICES = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 8), nn.Linear(5, 8)
        self.head = nn.Linear(8, 1)
    def forward(self, left, right):
        return self.head(torch.relu(self.left(left) + self.right(right)))
left, right, y = torch.randn(600, 3), torch.randn(600, 5), torch.randn(600, 1)
right[431, 2] = float("nan")
model, kind = Both(), sys.argv[1]
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
maker = nn.Linear(4, 5)
for step in range(120):
    rows = torch.arange(5 * step, 5 * step + 5)
    if kind == "made":  # by another model, whose weights have overflowed
        with torch.no_grad():
            maker.weight.fill_(float("inf") if step == 90 else 0.1)
            right[rows] = maker(torch.rand(5, 4))
            b = right[rows]
        loss = (model(left[rows], b) - y[rows]).square().mean()
    elif kind == "named":
        loss = (model(left=left[rows], right=right[rows]) - y[rows]).square().mean()
    else:
        loss = (model(left[rows], right[rows]) - y[rows]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("kind", "field"), [("placed", "1"), ("named", "right"), ("made", None)])
def test_the_input_of_the_first_loss_that_is_not_finite(kind: str, field: str | None, collect: Collect) -> None:
    """Most steps are skipped, and the input is gone after the backward. What another model made is no batch."""
    done = collect(sys.executable, "-c", SLICES, kind)
    (process,) = done.run.processes
    broken = [row for row in process.tables["batches"].records() if row["nonfinite"]]
    if field is None:
        assert not broken
    else:
        assert (broken[0]["field"], broken[0]["step"], broken[0]["loader"]) == (field, 86, None)
        assert broken[0]["alert"], "it was looked at because of its loss"
    first = [row for row in process.tables["batches"].records() if row["step"] < 8]
    assert first
    assert not any(row["alert"] for row in first)
    rules = [one.rule for one in diagnose(done.run).findings]
    assert ("nonfinite-input" in rules) is (field is not None)


RARE = """
import sys
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
x, y = torch.randn(800, 3), torch.randn(800, 1)
for row in range(100, 800, 150):
    x[row] = float("nan")
loader = DataLoader(TensorDataset(x, y), batch_size=4)
batches = loader if sys.argv[1] == "loader" else ((x[at : at + 4], y[at : at + 4]) for at in range(0, 800, 4))
model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for inputs, targets in batches:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    if not torch.isfinite(loss):
        continue
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("way", ["loader", "slices"])
def test_what_the_model_was_given_where_the_loop_gives_the_batch_up(way: str, collect: Collect) -> None:
    """No backward follows: the input is looked at as the loss is made."""
    done = collect(sys.executable, "-c", RARE, way)
    (process,) = done.run.processes
    broken = [row for row in process.tables["batches"].records() if row["nonfinite"]]
    assert [row["batch"] for row in broken] == [25, 62, 100, 137, 175]
    assert {row["trained"] for row in broken} == {False}
    (finding,) = [one for one in diagnose(done.run).findings if one.rule == "nonfinite-input"]
    assert finding.confidence == "certain"


def test_what_one_model_hands_to_another_is_no_batch(collect: Collect) -> None:
    """The body overflows: its output is not finite, and no input of the training was."""
    done = collect(sys.executable, "-c", HEAD)
    (process,) = done.run.processes
    rows = list(process.tables["batches"].records())
    assert {row["shape"] for row in rows} == {"16x3"}
    assert not any(row["nonfinite"] for row in rows)
    assert process.steps["loss"][-1] != process.steps["loss"][-1] or process.steps["loss"][-1] == float("inf")


def test_what_is_evaluated_before_the_training_does_not_take_its_place(collect: Collect) -> None:
    (process,) = collect(sys.executable, "-c", EVALUATED_FIRST).run.processes
    rows = list(process.tables["batches"].records())
    assert [row["step"] for row in rows if row["trained"]][:8] == list(range(8))


def test_a_stream_is_not_asked_for_its_length(collect: Collect) -> None:
    """torch remembers that somebody asked, and then warns of a stream that gives more than it said."""
    done = collect(sys.executable, "-c", STREAM)
    assert done.process.stdout == "asked 0\n", done.process.stderr
    (process,) = done.run.processes
    assert [row["length"] for row in process.tables["loaders"].records()] == [None]
    assert len(process.steps) == 18


SAMPLER_WITHOUT_LENGTH = """
import torch
from torch.utils.data import DataLoader, Sampler
class Drawn(Sampler):
    def __iter__(self):
        return iter(range(24))
    def __len__(self):
        raise ValueError("how many are drawn is known only in the end")
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(torch.ones(32, 4), batch_size=8, sampler=Drawn())
for _ in range(3):
    for x in loader:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


def test_a_sampler_that_refuses_its_length_is_recorded_without_it(collect: Collect) -> None:
    done = collect(sys.executable, "-c", SAMPLER_WITHOUT_LENGTH)
    assert done.process.returncode == 0, done.process.stderr
    (process,) = done.run.processes
    assert [row for row in process.events.records() if row["kind"] == "collector-error"] == []
    assert [row["length"] for row in process.tables["loaders"].records()] == [None]
    waits = [row["loader_batches"] for row in process.steps.records()]
    assert waits == [1] * 9


def test_whose_order_a_loader_follows_and_what_of_it_takes_the_epoch() -> None:
    """A sampler of batches of the script's own orders what a sampler within it, or beside it, does not."""

    class Lengths(BatchSampler):
        def __init__(self, sampler, shuffle):
            super().__init__(sampler, 4, False)
            self.shuffle = shuffle

        def __iter__(self):
            return iter([[3, 2, 1, 0]])

        def set_epoch(self, epoch):
            pass

    class Plain:
        def __iter__(self):
            return iter([[0, 1]])

    data, drawn = list(range(8)), RandomSampler(range(8))
    ranks = DistributedSampler(data, num_replicas=2, rank=0)
    for loader, sampler, shuffled, takes in (
        (DataLoader(data, batch_sampler=Lengths(SequentialSampler(data), True)), "Lengths", None, "batch_sampler"),
        (DataLoader(data, batch_sampler=Lengths(SequentialSampler(data), False)), "Lengths", None, None),
        (DataLoader(data, batch_sampler=Lengths(drawn, True)), "RandomSampler", True, "batch_sampler"),
        (DataLoader(data, batch_sampler=Plain()), "Plain", None, None),
        (DataLoader(data, batch_sampler=BatchSampler(drawn, 4, False)), "RandomSampler", True, None),
        (DataLoader(data, sampler=ranks), "DistributedSampler", True, "sampler"),
        (
            DataLoader(data, batch_sampler=BatchSampler(ranks, 4, False)),
            "DistributedSampler",
            True,
            "batch_sampler.sampler",
        ),
        (DataLoader(data, 4, shuffle=True), "RandomSampler", True, None),
        (DataLoader(data, 4), "SequentialSampler", False, None),
    ):
        row = describe(loader, 0, None)
        assert (row["sampler"], row["shuffled"], row["takes_epoch"]) == (sampler, shuffled, takes)


def test_batches_of_loaders_have_their_place_and_their_use(collect: Collect) -> None:
    images, _ = content()
    rows = rows_of(collect, "split")
    inputs = [row for row in rows if row["field"] == "0"]
    train = [row for row in inputs if row["loader"] == 0]
    assert [(row["epoch"], row["batch"]) for row in train] == [(e, b) for e in range(2) for b in range(8)]
    assert {row["trained"] for row in train} == {True}
    assert {row["shape"] for row in train} == {"8x3x8x8"}
    assert {row["dtype"] for row in train} == {"float32"}
    evaluated = [row for row in inputs if row["loader"] == 1]
    assert [(row["epoch"], row["batch"], row["trained"]) for row in evaluated] == [(0, 0, False), (1, 0, False)]
    assert train[0]["mean"] == pytest.approx(images[:8].mean().item(), abs=1e-5)
    assert train[0]["std"] == pytest.approx(images[:8].std(correction=0).item(), rel=1e-4)
    assert train[0]["min"] == pytest.approx(images[:8].min().item())
    assert train[0]["max"] == pytest.approx(images[:8].max().item())
    first, second = ([row["prints"] for row in train if row["epoch"] == epoch] for epoch in range(2))
    assert first == second, "the same order in every epoch"
    assert len(set(" ".join(first).split())) == 64, "and every sample differs"
    assert evaluated[0]["prints"].startswith(train[0]["prints"]), "the validation set begins with the training set"


def test_targets_are_counted_by_class(collect: Collect) -> None:
    targets = [row for row in rows_of(collect, "split") if row["field"] == "1"]
    assert {row["classes"] for row in targets if row["loader"] == 0} == {json.dumps(dict.fromkeys("0123", 2))}
    assert {row["prints"] for row in targets} == {None}, "a class label does not make a sample recognisable"
    assert {row["zeros"] for row in targets} == {0.25}


def test_streams_of_mappings_blank_samples_and_nan(collect: Collect) -> None:
    rows = rows_of(collect, "stream")
    pixels = [row for row in rows if row["field"] == "pixels"]
    assert {row["field"] for row in rows} == {"pixels", "labels"}
    assert [row["batch"] for row in pixels] == list(range(8))
    assert [row["nonfinite"] for row in pixels] == [index == 4 for index in range(8)]
    assert {row["prints"].split()[1] for row in pixels} == {"-"}


def test_loops_without_a_loader_are_seen_as_the_model_is_called(collect: Collect) -> None:
    rows = rows_of(collect, "plain")
    assert [(row["loader"], row["batch"], row["field"]) for row in rows] == [(None, index, "0") for index in range(8)]
    assert {row["trained"] for row in rows} == {True}
    images, _ = content()
    assert rows[0]["prints"] == Fingerprints(torch).of(images[:8])[0]


def test_what_cannot_be_read_is_left_out(collect: Collect) -> None:
    rows = rows_of(collect, "unusual")
    odd = [row for row in rows if row["loader"] < 3 and row["mean"] is None]
    assert len(odd) == 3
    assert {row["prints"] for row in odd} == {None}
    assert len([row for row in rows if row["loader"] == 3]) == 16


def test_the_signal_can_be_switched_off(collect: Collect) -> None:
    assert rows_of(collect, "split", "--no-signal", "batches") == []


def test_prints_do_not_depend_on_memory_layout_or_on_the_rest_of_the_batch() -> None:
    images = torch.randn(16, 3, 20, 20)
    prints = Fingerprints(torch)
    usual, _ = prints.of(images)
    assert usual is not None
    assert len(usual.split()) == SAMPLES
    assert prints.of(images.to(memory_format=torch.channels_last))[0] == usual
    assert prints.of(images[:SAMPLES].clone())[0] == usual
    assert prints.of(images[3:9])[0] == " ".join(usual.split()[3:8] + prints.of(images[8:9])[0].split())
    changed = images.clone()
    changed[2, 0, 0, 0] += 1
    different = [a != b for a, b in zip(usual.split(), prints.of(changed)[0].split(), strict=True)]
    assert different == [index == 2 for index in range(SAMPLES)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool])
@pytest.mark.parametrize("shape", [(5, 7), (5, 2, 300), (5,), (), (1, 1)])
def test_statistics_of_every_dtype(dtype: Any, shape: tuple[int, ...]) -> None:
    tensor = (torch.randn(shape) * 10).abs().to(dtype)
    mean, deviation, low, high, there, total = (value.item() for value in statistics(torch, tensor))
    plain = tensor.to(torch.float64)
    assert mean == pytest.approx(plain.mean().item(), rel=1e-3, abs=1e-6)
    assert deviation == pytest.approx(plain.std(correction=0).item(), rel=1e-3, abs=1e-5)
    assert (low, high) == pytest.approx((plain.min().item(), plain.max().item()), rel=1e-3)
    assert there == pytest.approx((plain != 0).double().mean().item())
    assert total == pytest.approx(plain.sum().item(), rel=1e-3, abs=1e-3)


def test_one_nan_anywhere_shows_in_the_sum() -> None:
    for place in (0, 123_457, 999_999):
        tensor = torch.ones(1000, 1000)
        tensor.view(-1)[place] = float("nan")
        assert torch.isnan(statistics(torch, tensor)[-1])


def test_fields_of_what_loaders_hand_out() -> None:
    one, two = torch.ones(2, 4), torch.zeros(2)
    assert [name for name, _ in fields(torch, (one, two))] == ["0", "1"]
    assert [name for name, _ in fields(torch, {"x": one, "meta": {"y": two}, "text": ["a"]})] == ["x", "meta.y"]
    assert fields(torch, one)[0][1] is one
    assert fields(torch, ["a", 3]) == []
    assert fields(torch, object()) == []


def test_classes_are_counted_for_integer_targets_only() -> None:
    assert classes(torch.tensor([1, 1, 0])) == {"0": 1, "1": 2}
    assert classes(torch.tensor([[2], [2]])) == {"2": 2}
    assert classes(torch.tensor([1.0, 2.0])) is None
    assert classes(torch.ones(4, 9, dtype=torch.long)) is None, "token ids"
    assert classes(torch.arange(500)) is None

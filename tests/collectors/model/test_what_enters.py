"""What enters a model, its layers and its losses: micro-batches, layers in a row, dead units, predictions."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.collectors.conftest import Collect, program  # noqa: E402
from tracelyze.collectors.signals.loss.loss_inputs import origin  # noqa: E402
from tracelyze.collectors.tensors.functional_activations import FunctionalActivations  # noqa: E402
from tracelyze.collectors.tensors.layers import Products, Silence  # noqa: E402
from tracelyze.collectors.tensors.loss_targets import columns  # noqa: E402


def test_batches_of_a_step_are_counted_whatever_fed_them(collect: Collect) -> None:
    done = collect(sys.executable, program("microbatches.py"))
    (process,) = done.run.processes
    truth = json.loads(done.process.stdout)
    assert [
        list(row) for row in zip(*(process.steps[name] for name in ("microbatches", "model_calls")), strict=True)
    ] == truth


def facts_of(model: nn.Sequential, batch: torch.Tensor) -> list[dict[str, object]]:
    products, found = Products(torch), []
    for name, layer in model.named_children():
        batch = layer(batch)
        found.append(products.facts(layer, name, batch))
    return found


def test_layers_that_follow_on_each_other() -> None:
    plain = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 2))
    found = facts_of(plain, torch.randn(5, 8))
    assert [one.get("fed_by") for one in found] == [None, "0", None, None]
    assert (found[0]["inputs"], found[0]["outputs"]) == (8, 16)
    batch = torch.randn(5, 3, 8)  # [batch, time, features]
    tokens = facts_of(nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)), batch)
    assert tokens[1]["fed_by"] == "0"
    pictures = facts_of(nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3)), torch.randn(2, 1, 9, 9))
    assert pictures[1]["fed_by"] == "0"


@pytest.mark.parametrize(
    "layers",
    [
        (nn.Linear(8, 16), nn.ReLU(inplace=True), nn.Linear(16, 4)),
        (nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)),
        (nn.Linear(8, 16, bias=False), nn.Linear(16, 4, bias=False)),  # factors of one matrix
    ],
)
def test_layers_with_something_between(layers: tuple[nn.Module, ...]) -> None:
    assert not any("fed_by" in one for one in facts_of(nn.Sequential(*layers), torch.randn(5, 8)))


def test_depthwise_and_pointwise_convolutions_belong_together() -> None:
    separable = nn.Sequential(nn.Conv2d(4, 4, 3, groups=4), nn.Conv2d(4, 8, 1))
    assert not any("fed_by" in one for one in facts_of(separable, torch.randn(2, 4, 9, 9)))


def test_units_that_are_silent_in_two_looks() -> None:
    silence = Silence(torch)
    first = torch.zeros(6, 4)
    first[0, 0] = first[3, 1] = 1.0
    a, b, c = torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.ReLU()
    assert silence.share(a, first, 4) is None, "there was no look before"
    second = torch.zeros(6, 4)
    second[:, 2] = 1.0
    assert float(silence.share(a, second, 4)) == 0.25
    assert float(silence.share(a, torch.zeros(6, 4), 4)) == 0.75
    pictures = torch.zeros(2, 3, 5, 5)
    silence.share(b, pictures, 3)
    pictures[1, 2, 4, 4] = 1.0
    assert float(silence.share(b, pictures, 3)) == pytest.approx(2 / 3)
    sequences = torch.zeros(2, 7, 3)  # units in the last dimension
    silence.share(c, sequences, 3)
    assert float(silence.share(c, sequences, 3)) == 1.0


def test_the_softmax_that_a_logarithm_was_taken_of() -> None:
    scores = torch.randn(6, 4, requires_grad=True)
    for given, dim in (
        ((scores.softmax(0) + 1e-8).log(), 0),
        (scores.softmax(1).clamp_min(1e-8).log(), 1),
        (scores.softmax(-1).log(), 1),
        ((scores.softmax(1) + scores.sigmoid()).log(), None),  # something else
        (scores.exp().log(), None),
    ):
        assert origin(given.grad_fn, 2) == ("Log", dim, True)


def test_predictions_beside_targets() -> None:
    labels = torch.arange(40) % 4
    sure = nn.functional.one_hot(labels, 4) * 50.0
    found = columns(torch, "cross_entropy", sure, labels, (), {})
    assert float(found["varies"]) == pytest.approx(math.sqrt(0.75), abs=1e-3)
    assert float(found["target_varies"]) == pytest.approx(math.sqrt(0.75), abs=1e-3)
    assert float(columns(torch, "cross_entropy", torch.ones(40, 4), labels, (), {})["varies"]) == 0.0
    values = torch.randn(40, 1)
    found = columns(torch, "mse_loss", 0.5 * values, values, (), {})
    assert float(found["varies"] / found["target_varies"]) == pytest.approx(0.5)
    assert columns(torch, "mse_loss", values, values.squeeze(1), (), {}) == {}


def test_targets_that_do_not_count() -> None:
    labels = torch.tensor([3, -100, -100, 1, 2, 0, 1, 1])
    assert float(columns(torch, "cross_entropy", torch.randn(8, 4), labels, (), {})["ignored"]) == 0.25
    given = columns(torch, "cross_entropy", torch.randn(8, 4), labels.clamp(min=0), (), {"ignore_index": 0})
    assert float(given["ignored"]) == 0.375
    maps = torch.full((2, 5, 5), -100)
    assert float(columns(torch, "cross_entropy", torch.randn(2, 4, 5, 5), maps, (), {})["ignored"]) == 1.0


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 16)
        self.third, self.act, self.last = nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2)

    def forward(self, x: Any) -> Any:
        x = nn.functional.relu(self.first(x))
        x = torch.relu(self.norm(x) + x)
        x = self.second(x).relu_()
        return self.last(self.act(self.third(x)))


def relus_of(model: Any, x: Any) -> list[tuple[str, Any]]:
    functions = FunctionalActivations()
    hooks = [
        module.register_forward_hook(lambda m, _, out, name=name: functions.returned(m, name, {}, out))
        for name, module in model.named_modules()
        if name
    ]
    output = model(x)
    for hook in hooks:
        hook.remove()
    return [(before.name, result) for kind, before, result in functions.found([output]) if kind == "ReLU"]


def test_relus_that_are_functions_are_found_with_the_module_before_them() -> None:
    model, x = Functional(), torch.randn(5, 8)
    found = relus_of(model, x)
    assert sorted(name for name, _ in found) == ["first", "norm", "second"]  # the module's own is not among them
    results = dict(found)
    assert torch.equal(results["first"], nn.functional.relu(model.first(x)))
    assert all(float(result.detach().min()) == 0 for result in results.values())


class Squashing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act, self.second, self.last = nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        x = torch.sigmoid(self.second(self.act(self.first(x))))
        for _ in range(3):
            x = torch.tanh(self.second(x))
        return self.last(x)


def test_squashing_functions_count_once_for_each_module() -> None:
    functions, model = FunctionalActivations(), Squashing()
    for name, module in model.named_children():
        module.register_forward_hook(lambda m, _, out, name=name: functions.returned(m, name, {}, out))
    found = [(kind, before.name) for kind, before, _ in functions.found([model(torch.randn(5, 8))])]
    assert sorted(found) == [("Sigmoid", "second"), ("Tanh", "second")]


def test_results_that_hooks_of_the_program_packed_are_not_asked_for() -> None:
    def refuse(_: Any) -> Any:
        raise AssertionError("unpacked")

    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, refuse):
        assert relus_of(Functional(), torch.randn(5, 8)) == []


def test_positions_all_over_a_sample_are_compared() -> None:
    """Images have dark edges, and spectra quiet ones: what differs between samples lies in the middle."""
    for shape in ((16, 160), (16, 3, 28, 28), (16, 5), (16, 9)):
        truth = torch.zeros(shape)
        width = shape[-1]
        truth[..., width // 3 : width - width // 3] = torch.rand(shape)[..., : width - 2 * (width // 3)]
        found = columns(torch, "mse_loss", torch.zeros(shape), truth, (), {})
        assert found["varies"] == 0
        assert found["target_varies"] > 0.1


def test_a_flattened_image_is_not_read_along_its_first_column() -> None:
    """Positions at one distance meet the same column of every row where the side divides it."""
    for channels, side in ((1, 16), (1, 28), (1, 32), (3, 32), (1, 64)):
        edge = side // 8
        truth = torch.zeros(16, channels, side, side)
        truth[..., edge:-edge, edge:-edge] = torch.rand(16, channels, side - 2 * edge, side - 2 * edge)
        flat = truth.flatten(1)
        found = columns(torch, "binary_cross_entropy", torch.full_like(flat, 0.5), flat, (), {})
        assert found["varies"] == 0
        assert found["target_varies"] > 0.3, side


ONE_BY_ONE = """
import torch
import torch.nn.functional as F
from torch import nn
torch.manual_seed(0)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(12):
    losses = []
    for _ in range(3):
        scores = model(torch.randn(4))
        losses.append(F.cross_entropy(scores, torch.tensor(1)))
        losses.append(F.nll_loss(scores.log_softmax(0), torch.tensor(1)))
        losses.append(F.binary_cross_entropy_with_logits(scores[0], torch.tensor(1.0)))
        losses.append(F.binary_cross_entropy(scores[0].sigmoid(), torch.tensor(1.0)))
        losses.append(F.mse_loss(scores[0], torch.tensor(1.0)))
    optimizer.zero_grad()
    torch.stack(losses).mean().backward()
    optimizer.step()
"""


def test_losses_of_one_sample_without_a_dimension_for_samples(collect: Collect) -> None:
    (process,) = collect(sys.executable, "-c", ONE_BY_ONE).run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    rows = list(process.tables["loss_calls"].records())
    assert {row["function"] for row in rows} == {
        "cross_entropy",
        "nll_loss",
        "binary_cross_entropy_with_logits",
        "binary_cross_entropy",
        "mse_loss",
    }
    assert all(row["target_shape"] == "" and row["target_lowest"] is None for row in rows)

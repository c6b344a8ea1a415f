"""`collect --probe`: the training does not notice, and what a copy of its model is found to do."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tests.collectors.conftest import Collect, program, run_plain  # noqa: E402
from tracelyze.collectors.signals.probing import replays  # noqa: E402
from tracelyze.collectors.signals.probing.copied_model import (  # noqa: E402
    CopiedModel,
    NotCopied,
    RandomStates,
    preserved,
)
from tracelyze.collectors.signals.probing.mixing import Mixing  # noqa: E402


@pytest.mark.parametrize("kind", ["", "raises", "replaced", "object"])
def test_the_training_does_not_notice(collect: Collect, kind: str) -> None:
    command = (sys.executable, program("probed.py"), kind)
    done = collect(*command, options=("--probe",))
    assert done.process.returncode == 0, done.process.stderr
    assert done.process.stdout == run_plain(*command).stdout
    assert done.own_stderr == ""
    (process,) = done.run.processes
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    looks = [*process.tables["replays"].records(), *process.tables["mixings"].records()]
    assert [row["step"] for row in looks] == [1, 4, 1, 4]
    failed = {row["failed"] for row in looks}
    if kind == "replaced":
        assert failed == {"forward of a Linear was replaced: a copy would call the program's own model"}
    elif kind == "object":
        assert failed == {"the model is given a object"}
    elif kind == "":
        assert failed == {None}
        assert process.signals["probe"]["state"] != "failed"


def test_nothing_is_called_again_unless_asked_for(collect: Collect) -> None:
    (process,) = collect(sys.executable, program("probed.py"), "").run.processes
    assert len(process.tables["replays"]) == len(process.tables["mixings"]) == 0
    assert "--probe" in process.signals["probe"]["reason"]


class Model(nn.Module):
    """What a test makes of the samples."""

    def __init__(self, function: Callable[[Any, Any], Any], layer: Any = None) -> None:
        super().__init__()
        self.enter, self.layer, self.function = nn.Linear(6, 8), layer, [function]

    def forward(self, x: Any, *more: Any) -> Any:
        return self.function[0](self.layer, self.enter(x))


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


def mixing(model: Any, x: Any, *more: Any, along: int = 0) -> dict[str, Any]:
    with preserved(torch, model):
        states, copied = RandomStates(torch), CopiedModel(torch, model, (x, *more), {})
        return Mixing(torch, copied, states, x.shape[along], along, x).compare()


def batch(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def test_samples_that_keep_to_themselves() -> None:
    x = batch(16, 10, 6)
    plain = mixing(Model(lambda layer, h: h.mean(1)), x)
    assert (plain["others"], plain["same_others"], plain["repeats"]) == (0, True, True)
    lstm = nn.LSTM(8, 8, batch_first=True)
    assert mixing(Model(lambda layer, h: layer(h)[0][:, -1], lstm), x)["others"] == 0
    positions_first = nn.LSTM(8, 8)
    assert mixing(Model(lambda layer, h: layer(h)[0], positions_first), batch(10, 16, 6), along=1)["others"] == 0
    norm = nn.BatchNorm1d(8)
    assert mixing(Model(lambda layer, h: layer(h), norm), batch(16, 6))["others"] == 0, "in eval mode"


def test_samples_that_are_mixed() -> None:
    x = batch(16, 10, 6)
    viewed = mixing(Model(lambda layer, h: h.reshape(10, -1, 8).mean(0)), x)
    assert (viewed["others"], viewed["by_position"], viewed["halves"], viewed["same_others"]) == (9, 1, True, True)
    assert (viewed["module"], viewed["kind"]) == ("", "Model")
    lstm = mixing(Model(lambda layer, h: layer(h)[0], nn.LSTM(8, 8)), x)
    assert (lstm["others"], lstm["along_samples"], lstm["along_others"]) == (8, "layer:LSTM", 0)
    assert (lstm["module"], lstm["kind"]) == ("layer", "LSTM")


def test_a_table_of_positions_beside_attention_along_the_samples() -> None:
    x = batch(16, 10, 6)

    def attends(layer: Any, h: Any) -> Any:
        return layer(h + layer.table, h, h)[0]

    for shape, told in (((1, 10, 8), True), ((1, 1, 8), False), ((10, 8), False)):
        attention = nn.MultiheadAttention(8, 2)
        attention.table = nn.Parameter(torch.zeros(shape))
        assert mixing(Model(attends, attention), x)["position_table"] is told
    states = nn.GRU(8, 8)
    states.first = nn.Parameter(torch.zeros(1, 10, 8))
    assert not mixing(Model(lambda layer, h: layer(h, layer.first)[0], states), x)["position_table"], (
        "states of a batch"
    )


def test_what_mixes_on_purpose_can_be_told() -> None:
    x = batch(16, 6)
    dense = mixing(Model(lambda layer, h: torch.softmax(h @ h.T / 8, dim=1) @ h), x)
    assert dense["others"] == dense["by_position"] == 15
    pooled = Model(lambda layer, h: torch.softmax((m := h.mean(1)) @ m.T, dim=1) @ m)
    assert mixing(pooled, batch(16, 400, 6))["by_position"] >= 12, "one of 400 positions changes all a little"
    assert mixing(Model(lambda layer, h: h @ h.T), x)["squares"]
    mixed = mixing(Model(lambda layer, h: h + h[torch.randperm(len(h))]), x)
    assert not mixed["same_others"]
    assert not mixing(Model(lambda layer, h: torch.roll(h, 1, 0) * torch.ones(16, 1)), x)["halves"]
    with pytest.raises(NotCopied, match="connects samples"):
        mixing(Model(lambda layer, h: h), x, torch.randint(0, 16, (2, 40)))
    with pytest.raises(NotCopied, match="too few samples"):
        mixing(Model(lambda layer, h: h), batch(2, 6))


def replay(model: Any) -> dict[str, Any]:
    with preserved(torch, model):
        return replays.compare(torch, CopiedModel(torch, model, (batch(16, 6),), {}), RandomStates(torch))


def test_steps_that_repeat_and_one_that_does_not() -> None:
    drops = replay(Model(lambda layer, h: layer(h), nn.Dropout(0.5)))
    assert (drops["outputs"], drops["gradients"], drops["module"]) == (0.0, 0.0, None)
    tossed = torch.Generator().manual_seed(3)
    dice = replay(Model(lambda layer, h: layer(h * torch.rand(h.shape, generator=tossed)), nn.Tanh()))
    assert dice["outputs"] > 0.1
    assert (dice["module"], dice["kind"]) == ("layer", "Tanh")


def test_states_are_put_back() -> None:
    model = Model(lambda layer, h: layer(h), nn.BatchNorm1d(8))
    before, state = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    gradient = model.enter.weight.grad = torch.ones_like(model.enter.weight)
    with preserved(torch, model):
        model.eval()
        model.train(False)
        model.layer.training = True
        model(torch.randn(16, 6)).sum().backward()
        model.enter.weight.grad = None
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.training
    assert model.layer.training
    assert model.enter.weight.grad is gradient
    assert torch.equal(torch.get_rng_state(), state)

"""Targets beside the numbers that a model was given, read from the graph behind its prediction."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402

from tests.collectors.conftest import sizes_are_told  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.targets import label_columns  # noqa: E402
from tracelyze.collectors.tensors.written_out.errors import meeting, sides  # noqa: E402

SAMPLES = 40
SAME = 1 - 1e-6


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)
    torch.manual_seed(0)


def columns_of(prediction: Any, target: Any) -> dict[str, float]:
    return {name: float(one) for name, one in label_columns.columns(torch, prediction, target).items()}


def test_a_label_among_the_columns_of_a_table() -> None:
    classes = torch.randint(0, 2, (SAMPLES,))
    table = torch.cat([torch.randn(SAMPLES, 5), (classes[:, None].float() - 0.4) / 0.7], 1)
    for net in (
        nn.Linear(6, 2),
        nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 2)),
        nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 2)),
    ):
        found = columns_of(net(table), classes)
        assert (found["column"], found["columns"], found["column_rows"]) == (5.0, 6.0, SAMPLES)
        assert found["column_same"] > SAME > found["column_other"]
    flipped = classes.clone()
    flipped[3] = 1 - flipped[3]
    assert columns_of(nn.Linear(6, 2)(table), flipped)["column_same"] < 0.99, "a feature that is wrong once"


def test_a_column_for_each_class() -> None:
    classes = torch.randint(0, 4, (SAMPLES,))
    table = torch.cat([torch.randn(SAMPLES, 3), F.one_hot(classes, 4).float()], 1)
    assert columns_of(nn.Linear(7, 4)(table), classes)["column_same"] > SAME
    table[:, 6] = torch.randn(SAMPLES)
    assert columns_of(nn.Linear(7, 4)(table), classes)["column_same"] < SAME, "one of the classes has no column"


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM, nn.RNN])
def test_a_window_that_ends_in_its_target(kind: Any) -> None:
    window, layer = torch.randn(SAMPLES, 9, 3), kind(3, 8, batch_first=True)
    head = nn.Linear(8, 1)
    found = columns_of(head(layer(window)[0][:, -1]), window[:, -1, 2:])
    assert (found["columns"], found["column"]) == (27.0, 26.0)
    assert found["column_same"] > SAME
    later = columns_of(head(layer(window)[0][:, -1]), torch.randn(SAMPLES, 1))
    assert later["column_same"] < 0.9


def test_what_tells_nothing() -> None:
    table = torch.randn(SAMPLES, 4)
    net = nn.Linear(4, 4)
    assert columns_of(net(table), table) == {}, "an autoencoder"
    assert columns_of(net(table[:8])[:, 0], table[:8, 0]) == {}, "few samples"
    assert columns_of(nn.Linear(1, 1)(table[:, :1]), table[:, :1]) == {}, "one input"
    assert columns_of(net(table)[:, :1], torch.ones(SAMPLES, 1))["column_rows"] == 0.0, "targets that are all the same"


@pytest.mark.skipif(not sizes_are_told(), reason="the nodes of this torch do not tell their sizes")
@pytest.mark.parametrize("turned", [False, True])
def test_prediction_and_target_of_a_loss_that_is_written_out(turned: bool) -> None:
    net, x, y = (
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)),
        torch.randn(SAMPLES, 4),
        torch.randn(SAMPLES),
    )
    for way in (
        lambda d: (d**2).mean(),
        lambda d: d.abs().mean(),
        lambda d: d.square().mean() + 0.1,
        lambda d: (d * d).mean(),
    ):
        prediction = net(x).squeeze(1)
        found = meeting(torch, way(y - prediction if turned else prediction - y).grad_fn)
        assert found is not None
        both = sides(torch, found)
        assert both is not None
        torch.testing.assert_close(both[0], prediction.detach())
        torch.testing.assert_close(both[1], y)
    found = meeting(torch, ((net(x).sigmoid().squeeze(1) - y) ** 2).mean().grad_fn)
    assert found is not None
    both = sides(torch, found)
    assert both is not None, "the sigmoid has saved what it put out"
    torch.testing.assert_close(both[0], net(x).sigmoid().squeeze(1).detach())
    torch.testing.assert_close(both[1], y)
    found = meeting(torch, ((torch.nn.functional.gelu(net(x)).squeeze(1) - y) ** 2).mean().grad_fn)
    assert found is not None
    assert sides(torch, found) is None, "neither what a linear layer made nor saved"

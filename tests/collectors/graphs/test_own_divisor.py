"""By what the script divides the losses of micro-batches, beside the means that they are."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402

from tracelyze.collectors.signals.loss.loss import own_divisor  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402

ROWS, COLUMNS, COUNTED = 8, 5, 23.0


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)


def masked_sum(x: Any) -> Any:
    mask = (torch.arange(ROWS * COLUMNS) < COUNTED).float().reshape(ROWS, COLUMNS)
    return (x**2 * mask).sum(), mask.sum()


def summed(x: Any) -> Any:
    return F.cross_entropy(x, torch.zeros(ROWS, dtype=torch.long), reduction="sum")


CASES = {
    "mean, divided by four": (lambda x: (x**2).mean() / 4, 4.0, False),
    "mean of a loss function, divided by four": (lambda x: summed(x) / ROWS / 4, 4.0, False),
    "masked mean, divided by six": (lambda x: masked_sum(x)[0] / masked_sum(x)[1] / 6, 6.0, False),
    "sum over all elements of several micro-batches": (lambda x: (x**2).sum() / (4 * ROWS * COLUMNS), 160.0, True),
    "sum over all targets of several micro-batches": (lambda x: summed(x) / (4 * ROWS), 4.0, True),
    "a part, and an auxiliary loss": (lambda x: summed(x) / (4 * ROWS) + 0.1 * (x**2).mean(), None, True),
    "two parts": (lambda x: 0.9 * (x.sum() / 400) + 0.1 * ((x**2).sum() / 900), None, True),
    "its own mean, and an auxiliary loss": (lambda x: summed(x) / ROWS + (x**2).mean(), 1.0, False),
    "a mean, and a sum that a large number divides": (lambda x: summed(x) / ROWS + (x**2).sum() / 1000, 1.0, False),
    "sums that are no cross-entropy": (
        lambda x: F.mse_loss(x, torch.zeros(ROWS, COLUMNS), reduction="sum") / ROWS + (x**2).sum() / ROWS,
        1.0,
        False,
    ),
    "its own mean": (lambda x: summed(x) / ROWS, 1.0, False),
}


@pytest.mark.parametrize("case", CASES)
def test_divisor_beyond_the_mean(case: str) -> None:
    loss, divisor, is_part = CASES[case]
    found = own_divisor(torch, loss(torch.randn(ROWS, COLUMNS, requires_grad=True)).grad_fn)
    assert found[:2] == (divisor, is_part)


MEANS = {
    "a mean": (lambda x: x.square().mean(), (1.0, True)),
    "a mean below zero": (lambda x: -x.square().mean(), (1.0, True)),
    "a mean, divided by four": (lambda x: -x.square().mean() / 4, (4.0, True)),
    "a mean, and an auxiliary one": (lambda x: x.square().mean() + 0.01 * x.mean(), (1.0, True)),
    "a divided mean, and an auxiliary one": (lambda x: x.square().mean() / 4 + 0.01 * x.mean(), (1.0, False)),
    "a mean, and a penalty": (lambda x: x.square().mean() + 0.01 * x.square().sum(), (1.0, False)),
    "a mean of one number": (lambda x: x.square().sum().mean(), (1.0, False)),
    "a sum": (lambda x: x.square().sum(), (1.0, False)),
}


@pytest.mark.parametrize("case", MEANS)
def test_means_over_a_batch(case: str) -> None:
    loss, expected = MEANS[case]
    found = own_divisor(torch, loss(torch.randn(ROWS, COLUMNS, requires_grad=True)).grad_fn)
    assert (found[0], found[2]) == expected

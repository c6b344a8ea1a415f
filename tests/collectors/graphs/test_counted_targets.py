"""Over how many targets a cross-entropy is a mean, and the weight of that mean, from the graph behind it."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.written_out.counted_targets import counted  # noqa: E402

B, T, V = 3, 4, 5
HEAD = torch.nn.Linear(2, V)
TARGET = torch.tensor([[1, 2, 0, 0], [3, 4, 1, 0], [2, 0, 0, 0]])
COUNTS = TARGET != 0
MASK, NUMBER = COUNTS.float(), 6
LABELS = TARGET.masked_fill(~COUNTS, -100)


@pytest.fixture(autouse=True)
def watched() -> None:
    """As the signal does in torch before 2.10, where a program that has used hooks for saved tensors is not read."""
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)


def scores() -> Any:
    return HEAD(torch.randn(B, T, 2))


def of_each(s: Any) -> Any:
    return F.cross_entropy(s.mT, TARGET, reduction="none")


def surprise(s: Any) -> Any:
    return -s.log_softmax(-1).gather(-1, TARGET.unsqueeze(-1)).squeeze(-1)


def of_torch(s: Any, **options: Any) -> Any:
    return F.cross_entropy(s.flatten(0, 1), LABELS.flatten(), **options)


MEANS = {
    "masked": lambda s: (of_each(s) * MASK).sum() / MASK.sum(),
    "kept from zero": lambda s: (of_each(s) * MASK).sum() / MASK.sum().clamp(min=1),
    "by a number": lambda s: (of_each(s) * COUNTS).sum() / COUNTS.sum().item(),
    "summed twice": lambda s: (of_each(s) * MASK).sum(1).sum() / MASK.sum(),
    "selected": lambda s: of_each(s)[COUNTS].mean(),
    "masked_select": lambda s: of_each(s).masked_select(COUNTS).mean(),
    "where": lambda s: torch.where(COUNTS, of_each(s), 0.0).sum() / COUNTS.sum(),
    "filled": lambda s: of_each(s).masked_fill(~COUNTS, 0.0).sum() / COUNTS.sum(),
    "torch's": of_torch,
    "torch's of sequences": lambda s: F.cross_entropy(s.mT, LABELS),
    "torch's sum": lambda s: of_torch(s, reduction="sum") / NUMBER,
    "torch's of each": lambda s: of_torch(s, reduction="none").sum() / NUMBER,
    "written out": lambda s: (surprise(s) * MASK).sum() / MASK.sum(),
    "written out, selected": lambda s: surprise(s)[COUNTS].mean(),
    "another term": lambda s: of_each(s)[COUNTS].mean() + 0.01 * HEAD.weight.square().sum(),
}
WEIGHED = {
    "smoothed by hand": (lambda s: (0.9 * surprise(s)[COUNTS] - 0.1 * s.log_softmax(-1)[COUNTS].mean(-1)).mean(), 0.9),
    "divided": (lambda s: (of_each(s) * MASK).sum() / MASK.sum() / 8, 1 / 8),
    "a sum": (lambda s: of_torch(s, reduction="sum"), NUMBER),
    "a sum over the step": (lambda s: (of_each(s) * MASK).sum() / torch.tensor(24.0), NUMBER / 24),
    "a mean times its share": (lambda s: of_torch(s) * MASK.sum() / 24, NUMBER / 24),
    "a mean over all positions": (lambda s: (of_each(s) * MASK).mean(), NUMBER / (B * T)),
}
OTHER = {
    "no classes": lambda s: ((s.sum(-1) - 1).square() * MASK).sum() / MASK.sum(),
    "weights of classes": lambda s: of_torch(s, weight=torch.rand(V)),
    "two of them": lambda s: of_torch(s) + of_each(s).mean(),
    "what is taken off": lambda s: HEAD.weight.sum() - of_torch(s),
    "two of each target": lambda s: (surprise(s) + of_each(s))[COUNTS].mean(),
    "a sum of other sizes": lambda s: (surprise(s) + s.square().mean()).mean(),
    "means of rows": lambda s: ((of_each(s) * MASK).sum(1) / MASK.sum(1)).mean(),
    "trained factor": lambda s: of_torch(s) * HEAD.bias.sum(),
}


def found(loss: Any) -> tuple[float, float] | None:
    with torch.no_grad():
        one = counted(torch, loss.grad_fn)
    return None if one is None else (one.targets.item(), one.weight.item())


@pytest.mark.parametrize("name", MEANS)
def test_a_mean_over_its_own_targets(name: str) -> None:
    assert found(MEANS[name](scores())) == pytest.approx((NUMBER, 1.0))


@pytest.mark.parametrize("name", WEIGHED)
def test_what_weighs_the_mean(name: str) -> None:
    loss, weight = WEIGHED[name]
    assert found(loss(scores())) == pytest.approx((NUMBER, weight))


@pytest.mark.parametrize("name", OTHER)
def test_other_losses(name: str) -> None:
    assert found(OTHER[name](scores())) is None


def test_weights_of_single_targets_are_no_mask() -> None:
    """As the advantages of a policy are: what a target weighs then is not known."""
    targets, weight = found((surprise(scores()) * torch.randn(B, T)).sum() / 6) or (0.0, 0.0)
    assert targets == B * T
    assert math.isnan(weight)


def test_memory_that_the_program_keeps_elsewhere_is_not_read() -> None:
    unpacked: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: unpacked.append(1) or t):
        loss = (of_each(scores()) * MASK).sum() / MASK.sum() / 8
    assert found(loss) is None
    assert not unpacked

"""Cross-entropies that a script writes out by itself: which targets count is read from the graph behind the loss."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.targets.sequences import IGNORED  # noqa: E402
from tracelyze.collectors.tensors.written_out.likelihoods import likelihood  # noqa: E402

B, T, V = 3, 4, 5
HEAD = torch.nn.Linear(2, V)
TARGET = torch.tensor([[1, 2, 0, 0], [3, 4, 1, 0], [2, 0, 0, 0]])
COUNTS = TARGET != 0


@pytest.fixture(autouse=True)
def watched() -> None:
    """As the signal does in torch before 2.10, where a program that has used hooks for saved tensors is not read."""
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)


def scores() -> Any:
    return HEAD(torch.randn(B, T, 2))


def targets(loss: Any) -> Any:
    found = likelihood(torch, loss.grad_fn)
    return None if found is None else (found.classes, found.targets.tolist())


def surprise(s: Any) -> Any:
    return -s.log_softmax(-1).gather(-1, TARGET.unsqueeze(-1)).squeeze(-1)


ALL = {
    "gather": lambda s: surprise(s).mean(),
    "sum": lambda s: surprise(s).sum(1).mean() / 2,
    "index": lambda s: -F.log_softmax(s.view(-1, V), 1)[torch.arange(B * T), TARGET.view(-1)].mean(),
    "ones": lambda s: -(F.one_hot(TARGET, V) * F.log_softmax(s, -1)).sum(-1).mean(),
    "logarithm": lambda s: -torch.log(s.softmax(-1) + 1e-9).gather(2, TARGET[..., None]).mean(),
    "logarithm afterwards": lambda s: -s.softmax(-1).gather(2, TARGET[..., None]).clamp(min=1e-9).log().mean(),
    "a second term": lambda s: 0.9 * surprise(s).mean() - 0.1 * s.log_softmax(-1).mean() + HEAD.weight.square().sum(),
    "take along": lambda s: -torch.take_along_dim(s.log_softmax(-1), TARGET.unsqueeze(-1), -1).mean(),
}
MASKED = {
    "product": lambda s: (surprise(s) * COUNTS).sum() / COUNTS.sum(),
    "numbers": lambda s: (COUNTS.float() * surprise(s)).sum() / COUNTS.sum(),
    "selection": lambda s: surprise(s)[COUNTS].mean(),
    "masked_select": lambda s: surprise(s).masked_select(COUNTS).mean(),
    "filled": lambda s: surprise(s).masked_fill(~COUNTS, 0.0).sum() / COUNTS.sum(),
    "torch's of each": lambda s: (
        (F.cross_entropy(s.mT, TARGET, reduction="none") * COUNTS.float()).sum() / COUNTS.sum()
    ),
    "torch's, flat": lambda s: F.cross_entropy(s.flatten(0, 1), TARGET.flatten(), reduction="none")[
        COUNTS.flatten()
    ].mean(),
    "torch's, ignoring": lambda s: F.cross_entropy(s.mT, TARGET, reduction="none", ignore_index=0).sum() / COUNTS.sum(),
    "ones": lambda s: -(F.one_hot(TARGET, V) * COUNTS[..., None] * F.log_softmax(s, -1)).sum() / COUNTS.sum(),
}
OTHER = {
    "advantages": lambda s: (surprise(s) * torch.randn(B, T)).mean(),
    "means of rows": lambda s: (surprise(s).sum(1) / torch.tensor([1.0, 2.0, 3.0])).mean(),
    "divergence": lambda s: (surprise(s) - torch.rand(B, T)).mean(),
    "focal": lambda s: ((1 - torch.exp(-surprise(s))) ** 2 * surprise(s)).mean(),
    "preference": lambda s: -F.logsigmoid(surprise(s).sum(1)).mean(),
    "chances": lambda s: -s.softmax(-1).gather(2, TARGET[..., None]).mean(),
    "softened": lambda s: -(torch.rand(B, T, V) * s.log_softmax(-1)).sum(-1).mean(),
    "other dimension": lambda s: -s.log_softmax(1).gather(-1, TARGET.unsqueeze(-1)).mean(),
    "first cut off": lambda s: -s.log_softmax(-1)[:, 1:].gather(-1, TARGET[:, 1:].unsqueeze(-1)).mean(),
    "chosen at random": lambda s: -F.log_softmax(s.view(-1, V), 1)[torch.randperm(12), TARGET.view(-1)].mean(),
    "called": lambda s: F.cross_entropy(s.view(-1, V), TARGET.view(-1)),
}


@pytest.mark.parametrize("name", ALL)
def test_all_targets_count(name: str) -> None:
    assert targets(ALL[name](scores())) == (V, TARGET.flatten().tolist())


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_leaves_targets_out(name: str) -> None:
    assert targets(MASKED[name](scores())) == (V, TARGET.masked_fill(~COUNTS, IGNORED).flatten().tolist())


@pytest.mark.parametrize("name", OTHER)
def test_what_is_not_understood_is_left_alone(name: str) -> None:
    assert targets(OTHER[name](scores())) is None


def test_memory_that_the_program_keeps_elsewhere_is_not_read() -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        loss = ALL["gather"](scores())
    assert targets(loss) is None

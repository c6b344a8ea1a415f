"""A sigmoid of a sigmoid, or a softmax of a softmax, under a loss: read off the graph behind it."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors.written_out import squashed_twice  # noqa: E402

SCORES = torch.nn.Linear(3, 4)
TARGET = torch.tensor([0, 3, 1, 1, 2])
YES = (torch.arange(20).view(5, 4) % 3 == 0).float()


def scores() -> Any:
    return SCORES(torch.randn(5, 3))


def log_loss(p: Any) -> Any:
    return -(YES * torch.log(p + 1e-7) + (1 - YES) * torch.log(1 - p + 1e-7)).mean()


def formula(z: Any) -> Any:
    return (z.clamp(min=0) - z * YES + torch.log1p(torch.exp(-z.abs()))).mean()


TWICE = {
    "log": (lambda z: log_loss(z.sigmoid().sigmoid()), ("Sigmoid", "Sigmoid")),
    "views": (lambda z: log_loss(z.sigmoid().view(-1).clamp(0, 1).sigmoid().view(5, 4)), ("Sigmoid", "Sigmoid")),
    "formula": (lambda z: formula(z.sigmoid()), ("LogSigmoid", "Sigmoid")),
    "logsigmoid": (lambda z: -F.logsigmoid(z.sigmoid()).mean(), ("LogSigmoid", "Sigmoid")),
    "picked": (lambda z: -z.softmax(1).softmax(1)[torch.arange(5), TARGET].log().mean(), ("Softmax", "Softmax")),
    "log_softmax": (lambda z: -F.log_softmax(z.softmax(1), 1).gather(1, TARGET[:, None]).mean(),
                    ("LogSoftmax", "Softmax")),
    "logsumexp": (lambda z: (z.softmax(1).logsumexp(1) - z.softmax(1)[torch.arange(5), TARGET]).mean(),
                  ("Logsumexp", "Softmax")),
}  # fmt: skip
ONCE = {
    "once": lambda z: log_loss(z.sigmoid()),
    "formula": formula,
    "sharpened": lambda z: log_loss((20 * (z.sigmoid() - 0.5)).sigmoid()),
    "a gate before": lambda z: log_loss((z * z.sigmoid()).sigmoid()),
    "no logarithm": lambda z: (z.sigmoid().sigmoid() - YES).square().mean(),
    "logs of logs": lambda z: -F.log_softmax(F.log_softmax(z, 1), 1).gather(1, TARGET[:, None]).mean(),
    "softmax of logs": lambda z: -F.log_softmax(z, 1).softmax(1)[torch.arange(5), TARGET].log().mean(),
    "two terms": lambda z: log_loss(z.sigmoid().sigmoid()) + log_loss(z.sigmoid()),
    "entropy": lambda z: -(z.softmax(1) * z.log_softmax(1)).sum(1).mean(),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_second_one_is_seen_under_the_logarithm(name: str) -> None:
    loss, expected = TWICE[name]
    found = squashed_twice.under_logarithm(loss(scores()).grad_fn)
    assert found is not None
    assert found[:2] == expected


@pytest.mark.parametrize("name", ONCE)
def test_one_is_none_twice(name: str) -> None:
    assert squashed_twice.under_logarithm(ONCE[name](scores()).grad_fn) is None


def test_what_made_the_scores_of_the_squashing_before_a_loss() -> None:
    z = scores()
    made = {
        "Sigmoid": [z.sigmoid().sigmoid(), z.sigmoid().view(4, 5).sigmoid().clamp(1e-6, 1 - 1e-6)],
        "Softmax": [F.log_softmax(z.softmax(1), 1), torch.log(z.softmax(1).softmax(1) + 1e-8), z.softmax(1).sigmoid()],
        "": [z, z.sigmoid(), F.log_softmax(z, 1), F.log_softmax(F.log_softmax(z, 1), 1), (5 * z.sigmoid()).sigmoid()],
    }
    for expected, inputs in made.items():
        assert [squashed_twice.made_from(one.grad_fn) for one in inputs] == [expected] * len(inputs)

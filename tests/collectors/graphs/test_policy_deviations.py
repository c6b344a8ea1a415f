"""What the graph behind a policy's loss tells of how widely it draws continuous actions."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributions import (  # noqa: E402
    Categorical,
    Independent,
    MultivariateNormal,
    Normal,
    TanhTransform,
    TransformedDistribution,
)

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.policies import deviations  # noqa: E402

B, H, A = 32, 4, 3
MEAN, VALUE = nn.Linear(H, A), nn.Linear(H, 1)


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    torch.manual_seed(0)


class Parts:
    """A law whose deviation is exp(-1) in each dimension."""

    def __init__(self) -> None:
        self.states, self.actions, self.gains = torch.randn(B, H), torch.randn(B, A), torch.randn(B)
        self.log_deviation = nn.Parameter(torch.full((A,), -1.0))
        self.mean, self.deviation = MEAN(self.states), self.log_deviation.exp()

    def by_hand(self) -> Any:
        distance = (self.actions - self.mean) / self.log_deviation.exp()
        return (-0.5 * distance**2 - self.log_deviation - 0.5 * math.log(2 * math.pi)).sum(-1)

    def by_variance(self) -> Any:
        return (-((self.actions - self.mean) ** 2) / (2 * self.deviation**2) - self.log_deviation).sum(-1)


LAWS = {
    "normal": lambda p: Normal(p.mean, p.deviation).log_prob(p.actions).sum(-1),
    "independent": lambda p: Independent(Normal(p.mean, p.deviation.expand(B, A)), 1).log_prob(p.actions),
    "several": lambda p: MultivariateNormal(p.mean, scale_tril=torch.diag(p.deviation)).log_prob(p.actions),
    "squashed": lambda p: (
        TransformedDistribution(Normal(p.mean, p.deviation), [TanhTransform()]).log_prob(p.actions.tanh()).sum(-1)
    ),
    "by hand": Parts.by_hand,
    "by variance": Parts.by_variance,
}
OTHERS = {
    "constant": lambda p: Normal(p.mean, 0.5).log_prob(p.actions).sum(-1),
    "choices": lambda p: Categorical(logits=p.mean).log_prob(torch.zeros(B, dtype=torch.long)),
    "squares": lambda p: (p.mean - p.actions).pow(2).sum(-1),
    "logarithm": lambda p: p.mean.exp().log().sum(-1),
}


def losses(log_prob: Any, p: Parts) -> list[Any]:
    ratio, mask = (log_prob - log_prob.detach()).exp(), torch.ones(B)
    value = (VALUE(p.states).squeeze(-1) - p.gains).pow(2).mean()
    return [
        -(log_prob * p.gains).mean() + 0.5 * value - 0.01 * p.log_deviation.sum(),
        -torch.min(ratio * p.gains, ratio.clamp(0.8, 1.2) * p.gains).mean(),
        -(log_prob * p.gains * mask).sum() / mask.sum(),
    ]


@pytest.mark.parametrize("law", LAWS)
def test_the_deviation_of_a_normal_law(law: str) -> None:
    parts = Parts()
    for loss in losses(LAWS[law](parts), parts):
        found = deviations.deviation(torch, loss.grad_fn)
        assert found is not None
        spread, both_signs = map(float, deviations.facts(torch, *found))
        assert (spread, both_signs) == (pytest.approx(math.exp(-1), rel=1e-4), 1.0)


@pytest.mark.parametrize("law", OTHERS)
def test_what_has_no_deviation_that_is_trained(law: str) -> None:
    parts = Parts()
    for loss in losses(OTHERS[law](parts), parts):
        assert deviations.deviation(torch, loss.grad_fn) is None

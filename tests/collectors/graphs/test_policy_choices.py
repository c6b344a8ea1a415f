"""What the graph behind a policy's loss tells of the odds that it chooses by."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributions import Bernoulli, Categorical, Normal  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.policies import choices  # noqa: E402

B, H, A = 32, 16, 5
NET, VALUE = nn.Sequential(nn.Linear(H, H), nn.Tanh(), nn.Linear(H, A)), nn.Linear(H, 1)


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    torch.manual_seed(0)


def read(loss: Any) -> tuple[float, float, float] | None:
    """Entropy, whether weights have both signs, the sign of a single weight."""
    found = choices.choices(torch, loss.grad_fn)
    if found is None:
        return None
    entropy, most, both_signs, sign = map(float, choices.facts(torch, found))
    assert 0 <= entropy <= most + 1e-5
    return entropy, both_signs, sign


class Parts:
    """What losses of a policy are made of."""

    def __init__(self) -> None:
        self.states, self.gains = torch.randn(B, H), torch.randn(B)
        self.scores = 2 * NET(self.states)
        self.law = Categorical(logits=self.scores)
        self.taken = self.law.sample()
        self.log_p = self.scores.log_softmax(-1)
        self.chosen = self.log_p.gather(-1, self.taken[:, None])[:, 0]
        self.laws = [Categorical(logits=one) for one in self.scores]
        self.logs = [law.log_prob(one) for law, one in zip(self.laws, self.taken, strict=True)]
        self.rows = [Categorical(probs=one[None].softmax(-1)) for one in self.scores]
        self.old = self.chosen.detach() + 0.01 * torch.randn(B)

    def clipped(self, new: Any) -> Any:
        ratio = (new - self.old).exp()
        return -torch.min(ratio * self.gains, ratio.clamp(0.8, 1.2) * self.gains).mean()


LOSSES = {
    "law": lambda p: -(p.law.log_prob(p.taken) * p.gains).mean(),
    "gathered": lambda p: -(p.chosen * p.gains).mean() + 0.5 * F.mse_loss(VALUE(p.states)[:, 0], p.gains),
    "indexed": lambda p: -(p.gains * p.log_p[torch.arange(B), p.taken]).sum() / B,
    "cross-entropy": lambda p: (F.cross_entropy(p.scores, p.taken, reduction="none") * p.gains).mean(),
    "of odds": lambda p: -(Categorical(probs=p.scores.softmax(-1)).log_prob(p.taken) * p.gains).mean(),
    "log of a chosen one": lambda p: -(p.scores.softmax(-1).gather(1, p.taken[:, None])[:, 0].log() * p.gains).mean(),
    "clipped": lambda p: p.clipped(p.law.log_prob(p.taken)) - 0.01 * p.law.entropy().mean(),
    "dot": lambda p: -(torch.stack(p.logs) @ p.gains),
    "stacked": lambda p: -(torch.stack(p.logs) * p.gains).sum(),
    "attached": lambda p: -(p.chosen * (p.gains - VALUE(p.states)[:, 0])).mean(),
    "each by its own": lambda p: torch.stack([-one * g for one, g in zip(p.logs, p.gains, strict=True)]).sum(),
    "each by a float": lambda p: sum(-one * g for one, g in zip(p.logs, p.gains.tolist(), strict=True)),
    "concatenated": lambda p: torch.cat(
        [-law.log_prob(one[None]) * g for law, one, g in zip(p.rows, p.taken, p.gains, strict=True)]
    ).sum(),
    "masked": lambda p: (-(p.chosen * p.gains) * (torch.arange(B) < 20)).sum() / 20,
    "scaled": lambda p: -1.0 * (p.chosen * p.gains).mean(),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_the_entropy_of_what_is_chosen_from(kind: str) -> None:
    parts = Parts()
    found = read(LOSSES[kind](parts))
    assert found is not None
    assert found[0] == pytest.approx(parts.law.entropy().mean().item(), abs=0.12)  # of a loop, some are looked at
    assert found[1:] == (1.0, 0.0)
    parts.gains = parts.gains.abs()
    found = read(LOSSES[kind](parts))
    assert found is not None
    assert found[1] == 0.0 or kind == "attached", "all weights have one sign"


def test_one_choice_at_a_time() -> None:
    parts = Parts()
    for loss, sign in (
        (-parts.logs[0] * torch.tensor(0.7), 1.0),
        (-parts.logs[0] * -0.7, -1.0),
        (-(parts.logs[0] * torch.tensor([-0.7])).mean() + VALUE(parts.states[0]).pow(2).sum(), -1.0),
    ):
        found = read(loss)
        assert found is not None
        assert found == (pytest.approx(parts.laws[0].entropy().item(), abs=1e-5), 0.0, sign)


def test_yes_or_no() -> None:
    law = Bernoulli(logits=3 * NET(torch.randn(B, H)))
    found = read(-(law.log_prob(law.sample()).sum(-1) * torch.randn(B)).mean())
    assert found is not None
    assert found[0] == pytest.approx(law.entropy().mean().item(), abs=1e-5)


def test_odds_of_zero_and_long_sequences() -> None:
    scores = NET(torch.randn(8, 16, H)).masked_fill(torch.arange(A) == 2, -torch.inf)
    taken = Categorical(logits=scores).sample()
    found = read(-(scores.log_softmax(-1).gather(-1, taken[..., None])[..., 0] * torch.randn(8, 1)).mean())
    assert found is not None
    assert found[0] == pytest.approx(Categorical(logits=scores.clamp(min=-1e9)).entropy().mean().item(), abs=1e-4)
    assert choices._some_rows(torch.zeros(300, 400, 50), 10_000).numel() <= 20_000


OTHERS = {
    "cross-entropy": lambda p: F.cross_entropy(p.scores, p.taken),
    "scaled cross-entropy": lambda p: F.cross_entropy(p.scores, p.taken) * torch.tensor(1024.0),
    "two targets": lambda p: 0.3 * F.cross_entropy(p.scores, p.taken) + 0.7 * F.cross_entropy(p.scores, p.taken),
    "distillation": lambda p: -(torch.randn(B, A).softmax(-1) * p.log_p).sum(-1).mean(),
    "entropy": lambda p: -(p.log_p.exp() * p.log_p).sum(-1).mean(),
    "values": lambda p: (p.scores.gather(1, p.taken[:, None])[:, 0] * p.gains).mean(),
    "a normal law": lambda p: -(Normal(p.scores, 1.0).log_prob(torch.randn(B, A)).sum(-1) * p.gains).mean(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_losses_that_weigh_no_choices(kind: str) -> None:
    assert read(OTHERS[kind](Parts())) is None

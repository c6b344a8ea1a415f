"""What the graph behind a policy's loss tells of its entropy and its advantages, and losses that look like one."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributions import Categorical, Normal  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.policies import terms as policy_terms  # noqa: E402

B, H, A = 32, 16, 5
BODY, HEAD, VALUE = nn.Sequential(nn.Linear(H, H), nn.Tanh()), nn.Linear(H, A), nn.Linear(H, 1)
DEVIATION = nn.Parameter(torch.zeros(A))


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    torch.manual_seed(0)


def read(loss: Any) -> tuple[bool, dict[str, float]]:
    """Whether the advantages of a loss are part of its graph, and what is known of its entropy."""
    found = policy_terms.terms(torch, loss.grad_fn)
    for product in found.products:
        is_one, value, most, punished = map(float, policy_terms.entropy(torch, *product))
        if is_one:
            return found.undetached, {"value": value, "most": most, "punished": punished}
    return found.undetached, {}


class Parts:
    """What losses of a policy are made of."""

    def __init__(self) -> None:
        self.hidden, self.returns = BODY(torch.randn(B, H)), torch.randn(B)
        self.scores, self.value = HEAD(self.hidden), VALUE(self.hidden).squeeze(-1)
        self.dist = Categorical(logits=self.scores)
        self.taken = self.dist.sample()
        self.log_p = self.scores.log_softmax(-1)
        self.chosen = self.log_p.gather(-1, self.taken[:, None])[:, 0]
        self.moved = torch.randn(B, A)
        self.error = F.mse_loss(self.value, self.returns)


def ratio(log_p: Any) -> Any:
    return (log_p - log_p.detach() - 0.01 * torch.randn(B)).exp()


ENTROPIES = {
    "categorical": lambda p: p.dist.entropy().mean(),
    "of odds": lambda p: Categorical(probs=p.scores.softmax(-1)).entropy().sum() / B,
    "by hand": lambda p: -(p.log_p.exp() * p.log_p).sum(-1).mean(),
    "guarded": lambda p: -(p.scores.softmax(-1) * (p.scores.softmax(-1) + 1e-8).log()).sum(1).mean(),
    "masked": lambda p: (p.dist.entropy() * (torch.arange(B) < 20)).sum() / 20,
    "stacked": lambda p: torch.stack([Categorical(logits=one).entropy() for one in p.scores.split(8)]).mean(),
}


@pytest.mark.parametrize("kind", ENTROPIES)
def test_the_sign_of_the_entropy(kind: str) -> None:
    for loss, punished in (
        (lambda p, h: -(p.chosen * p.returns).mean() + 0.5 * p.error - 0.01 * h, -1),
        (lambda p, h: -(p.chosen * p.returns).mean() + 0.5 * p.error + 0.01 * h, 1),
        (lambda p, h: -((p.chosen * p.returns).mean() + 0.05 * h), -1),
        (lambda p, h: 1024.0 * ((-(p.chosen * p.returns)).mean() - h * -0.05) / 4, 1),
        (lambda p, h: torch.sub(p.error, h, alpha=-0.1), 1),
    ):
        parts = Parts()
        undetached, entropy = read(loss(parts, ENTROPIES[kind](parts)))
        expected = parts.dist.entropy().mean().item()
        assert (undetached, entropy["punished"]) == (False, punished)
        assert entropy["value"] == pytest.approx(expected, abs=0.15)
        assert entropy["most"] == pytest.approx(1.609, abs=1e-3)


NO_ENTROPIES = {
    "cross-entropy with a teacher": lambda p: -(torch.randn(B, A).softmax(-1) * p.log_p).sum(-1).mean(),
    "divergence from another": lambda p: (p.log_p.exp() * (p.log_p - torch.randn(B, A).log_softmax(-1))).sum(-1).mean(),
    "focal": lambda p: -((1 - p.chosen.exp()) ** 2 * p.chosen).mean(),
    "value of a policy": lambda p: (p.log_p.exp() * (0.2 * p.log_p - torch.randn(B, A))).sum(-1).mean(),
    "gates": lambda p: (p.scores.softmax(-1) * VALUE(p.hidden)).mean(),
}


@pytest.mark.parametrize("kind", NO_ENTROPIES)
def test_what_is_no_entropy(kind: str) -> None:
    assert read(NO_ENTROPIES[kind](Parts())) == (False, {})


ADVANTAGES = {
    "plain": lambda p: p.returns - p.value,
    "normalised": lambda p: (a := p.returns - p.value, (a - a.mean()) / (a.std() + 1e-8))[1],
    "one step ahead": lambda p: p.returns + 0.9 * p.value.roll(1).detach() - p.value,
    "stacked": lambda p: torch.stack([r - VALUE(h)[0] for r, h in zip(p.returns, p.hidden, strict=True)]),
}
POLICIES = {
    "reinforce": lambda p, a: -(p.chosen * a).mean(),
    "indexed": lambda p, a: -(a * p.log_p[torch.arange(B), p.taken]).mean(),
    "cross-entropy": lambda p, a: (F.cross_entropy(p.scores, p.taken, reduction="none") * a).mean(),
    "clipped": lambda p, a: -torch.min((r := (p.chosen - p.chosen.detach()).exp()) * a, r.clamp(0.8, 1.2) * a).mean(),
    "ratio of normals": lambda p, a: -(ratio(Normal(p.scores, DEVIATION.exp()).log_prob(p.moved).sum(-1)) * a).mean(),
    "normal": lambda p, a: -(Normal(p.scores, DEVIATION.exp()).log_prob(p.moved).sum(-1) * a).mean(),
}
ERRORS = {
    "mse": lambda p, a: F.mse_loss(p.value, p.returns),
    "power": lambda p, a: (p.returns - p.value).pow(2).mean(),
    "huber": lambda p, a: F.smooth_l1_loss(p.value, p.returns),
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("advantage", ADVANTAGES)
def test_advantages_that_are_part_of_the_graph(policy: str, advantage: str) -> None:
    for error in ERRORS if advantage != "stacked" else ():
        parts = Parts()
        weight = ADVANTAGES[advantage](parts)
        rest = 0.5 * ERRORS[error](parts, weight) - 0.01 * parts.dist.entropy().mean()
        assert read(POLICIES[policy](parts, weight) + rest)[0]
        assert not read(POLICIES[policy](parts, weight.detach()) + rest)[0]
    parts = Parts()
    weight = ADVANTAGES[advantage](parts)
    assert read(POLICIES[policy](parts, weight) + weight.pow(2).mean())[0], "the advantage is squared itself"
    assert not read(POLICIES[policy](parts, weight))[0], "no squared error: nothing says what else it is"


def test_weights_of_likelihoods_that_are_learned_on_purpose() -> None:
    parts = Parts()
    noise = VALUE(parts.hidden).squeeze(-1)
    for loss in (
        (noise.neg().exp() * -parts.chosen + noise).mean() + parts.error,  # the noise of labels
        -((1 - parts.chosen.exp()) ** 2 * parts.chosen).mean() + parts.error,  # focal
        -(torch.sigmoid(noise) * parts.chosen).mean() + parts.error,
        (0.2 * parts.chosen - parts.value).mean() + parts.error,  # the values of a policy, as in SAC
        -(DEVIATION[0].exp() * parts.chosen).mean() + parts.error,  # one weight for all
    ):
        assert not read(loss)[0]


def test_weights_have_both_signs_or_one() -> None:
    for weights, both in ((torch.randn(B), 1), (torch.rand(B), 0), (torch.arange(B) % 2.0, 0), (-torch.rand(B), 0)):
        assert float(policy_terms.both_signs(torch, weights)) == both


def ratios(loss: Any) -> bool | None:
    """Whether all ratios of a loss are 1; None: it has none."""
    found = policy_terms.terms(torch, loss.grad_fn)
    return bool(policy_terms.all_ones(torch, found)) if found.ratios else None


def test_ratios_of_a_policy() -> None:
    parts = Parts()
    a, now = parts.returns, parts.chosen
    moved = now.detach() + 1e-4
    for kind in (lambda r: r * a, lambda r: torch.min(r * a, r.clamp(0.8, 1.2) * a)):
        assert ratios(-kind((now - now.detach()).exp()).mean()) is True
        assert ratios(-kind(torch.exp(now - moved)).mean()) is False
    assert ratios(-(now * a).mean()) is None
    assert ratios(-(F.softplus(now - moved) * a).mean()) is None
    normal = Normal(parts.scores, DEVIATION.exp()).log_prob(parts.moved).sum(-1)
    assert ratios(-((normal - normal.detach()).exp() * a).mean()) is True

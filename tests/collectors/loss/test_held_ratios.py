"""Weights that correct for another policy and are constants of the loss: found in variables of the script by values."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributions import Categorical, MultivariateNormal, Normal  # noqa: E402

from tracelyze.collectors.program.consumed import held_ratios  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.policies import ratios  # noqa: E402

B, T, H, A = 16, 6, 8, 5
HEAD = nn.Linear(H, A)
APART = math.exp(0.1) - 1  # old log-probabilities are 0.1 lower


@pytest.fixture(autouse=True)
def own_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """This file is the script."""
    place = "tracelyze.collectors.program.call_sites.is_library"
    monkeypatch.setattr(place, lambda name: os.path.normpath(name) != str(Path(__file__)))
    saved_values.watch(torch)
    torch.manual_seed(0)


def read(loss: Any, frame: Any) -> float | None:
    found = held_ratios.ratio(torch, loss.grad_fn, frame)
    if found is None:
        return None
    distance, both_signs, _ = map(float, ratios.facts(torch, found))
    assert both_signs
    return distance


def scores() -> tuple[Any, Any]:
    new = HEAD(torch.randn(B, T, H)).log_softmax(-1).gather(-1, torch.randint(0, A, (B, T, 1))).squeeze(-1)
    return new, new.detach() - 0.1


def capped() -> Any:
    new, old = scores()
    adv = torch.randn(B, 1)
    w = (new - old).exp().clamp(max=2).detach()
    return read(-(w * adv * new).mean(), sys._getframe()), old, w


def cut_at_one() -> Any:
    """Those below 1 are left as they are."""
    target, behaviour = scores()
    behaviour = behaviour + 0.2 * (torch.arange(T) % 2)
    with torch.no_grad():
        rho = torch.exp(target - behaviour).clamp(max=1.0)
        advantage = rho * torch.randn(B, T)
    return read(-(target * advantage).mean(), sys._getframe()), behaviour


def quotient_of_an_object() -> Any:
    new, old = scores()
    batch = SimpleNamespace(probability=old.exp(), delta=torch.randn(B, T))
    weights = new.detach().exp() / batch.probability
    return read(-(weights * batch.delta * new).mean(), sys._getframe()), batch


def with_its_graph() -> Any:
    new, batch = scores()[0], {}
    batch["old"] = new.detach() - 0.1
    ratio = (new - batch["old"]).exp()
    return read(-(ratio.detach() * torch.randn(B, 1) * new).mean(), sys._getframe()), ratio


def written_in_the_loss() -> Any:
    new, old = scores()
    adv = torch.randn(B, T)
    return read(-((new.detach() - old).exp() * adv * new).mean(), sys._getframe()), adv, old


def masked() -> Any:
    """What was not written has old log-probabilities of zero."""
    new, old = scores()
    mask = (torch.arange(T) < 4).float()
    old, gain = old * mask, torch.randn(B, 1)
    weight = ((new.detach() - old) * mask).exp()
    return read(-(weight * gain * new * mask).sum() / mask.sum(), sys._getframe()), weight


def of_a_normal_law() -> Any:
    law = Normal(HEAD(torch.randn(B, H)), 0.5)
    new = law.log_prob(law.sample()).sum(-1)
    old, gain = new.detach() - 0.1, torch.randn(B)
    is_weight = torch.exp(new.detach() - old)
    return read(-(is_weight * gain * new).mean(), sys._getframe()), is_weight


def of_several_dimensions() -> Any:
    deviation = nn.Parameter(torch.ones(A))
    law = MultivariateNormal(HEAD(torch.randn(B, H)), scale_tril=torch.diag(deviation))
    new = law.log_prob(law.sample())
    old, gain = new.detach() - 0.1, torch.randn(B)
    is_weight = torch.exp(new.detach() - old)
    return read(-(is_weight * gain * new).mean(), sys._getframe()), is_weight


def computed_anew() -> Any:
    """The loss weighs log-probabilities that are computed a second time, as `dist.log_prob(action)` in its own line."""
    observed, action = torch.randn(B, T, H), torch.randint(0, A, (B, T))
    law, batch = Categorical(logits=HEAD(observed)), {"gain": torch.randn(B, T)}
    batch["old"] = law.log_prob(action).detach() - 0.1
    ratio = torch.exp(law.log_prob(action) - batch["old"])
    rho = ratio.detach().clamp(max=2.0)
    return read(-(rho * batch["gain"] * law.log_prob(action)).mean(), sys._getframe()), rho


@pytest.mark.parametrize(
    "loss",
    [
        capped,
        computed_anew,
        quotient_of_an_object,
        with_its_graph,
        written_in_the_loss,
        masked,
        of_a_normal_law,
        of_several_dimensions,
    ],
)
def test_weights_that_are_found(loss: Any) -> None:
    assert loss()[0] == pytest.approx(APART, rel=0.02)


def test_a_ratio_is_read_as_it_was_before_its_limit() -> None:
    assert cut_at_one()[0] == pytest.approx((APART + 1 - math.exp(-0.1)) / 2, rel=0.02)


def ones() -> Any:
    new, old = scores()
    old, adv = old + 0.1, torch.randn(B, 1)
    w = (new - old).exp().detach()
    return read(-(w * adv * new).mean(), sys._getframe()), w


def test_weights_that_are_one() -> None:
    assert ones()[0] == pytest.approx(0.0, abs=1e-6)


def no_weight() -> Any:
    """Old log-probabilities are kept, and nothing is made of them."""
    new, old = scores()
    adv, mask = torch.randn(B, T), torch.ones(B, T)
    return read(-(adv * new * mask).mean(), sys._getframe()), old, mask


def of_advantages() -> Any:
    """As in advantage-weighted regression: exponentials of something else."""
    new, old = scores()
    value, adv = torch.randn(B, T), torch.randn(B, T)
    w = (adv - value).exp()
    return read(-(w * adv * new).mean(), sys._getframe()), old, value


def of_a_reference() -> Any:
    """How far the policy has moved away from where it began."""
    new, _ = scores()
    ref_logs, adv = new.detach() - 0.3, torch.randn(B, T)
    moved = (new - ref_logs).exp().detach()
    return read(-(adv * new).mean(), sys._getframe()), moved


def of_no_policy() -> Any:
    predicted, weight = HEAD(torch.randn(B, H)), torch.randn(B, A)
    return read((weight * predicted).mean(), sys._getframe()), weight


def only_logged() -> Any:
    """A ratio that is made for a plot, beside a loss that weighs by advantages alone."""
    observed, action = torch.randn(B, T, H), torch.randint(0, A, (B, T))
    law, adv = Categorical(logits=HEAD(observed)), torch.randn(B, T)
    old = law.log_prob(action).detach() - 0.1
    ratio = torch.exp(law.log_prob(action) - old)
    return read(-(adv * law.log_prob(action)).mean(), sys._getframe()), ratio


def on_another_device() -> Any:
    """A ratio that a variable holds elsewhere, and that is none of what this loss weighs."""
    law, action, adv = Categorical(logits=HEAD(torch.randn(B, T, H))), torch.randint(0, A, (B, T)), torch.randn(B, T)
    new, old = (torch.ones(B, T, device="meta", requires_grad=one) for one in (True, False))
    ratio = (new * 2 - old).exp()
    rho = ratio.detach()
    return read(-(adv * law.log_prob(action)).mean(), sys._getframe()), old, rho


@pytest.mark.parametrize("loss", [no_weight, of_advantages, of_a_reference, of_no_policy, only_logged])
def test_what_is_no_such_weight(loss: Any) -> None:
    assert loss()[0] is None


def test_a_ratio_on_another_device_is_none_of_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """A meta tensor stands for one on another device: it is not plain, as that one would be."""
    monkeypatch.setattr(held_ratios, "is_plain", lambda _, one: isinstance(one, torch.Tensor))
    assert on_another_device()[0] is None

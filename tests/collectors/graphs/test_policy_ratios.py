"""Where the ratio of two policies is found behind a loss, which of its elements count, and what is no such ratio."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.policies import completions, ratios  # noqa: E402

B, T, H, A = 16, 6, 8, 5
BODY, HEAD = nn.Linear(H, H), nn.Linear(H, A)


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    torch.manual_seed(0)


class Parts:
    """New log-probabilities of choices, old ones that are 0.1 lower, advantages of sequences, and their lengths."""

    def __init__(self) -> None:
        self.log_odds = HEAD(BODY(torch.randn(B, T, H)).tanh()).log_softmax(-1)
        self.new = self.log_odds.gather(-1, torch.randint(0, A, (B, T, 1))).squeeze(-1)
        self.mask = (torch.arange(T) < torch.randint(1, T, (B, 1))).float()
        self.old = self.new.detach() - 0.1
        self.padded = torch.where(self.mask > 0, self.old, 0.0)  # zeros where nothing was written
        self.gain = torch.randn(B, 1)
        self.reference = self.new.detach() + torch.randn(B, T)


def away(loss: Any) -> float | None:
    found = ratios.ratio(torch, loss.grad_fn)
    if found is None:
        return None
    distance, both_signs, _ = map(float, ratios.facts(torch, found))
    assert next(ratios.nearest_parameters(found)) is HEAD.bias
    return distance if both_signs else None


def clipped(ratio: Any, gain: Any) -> Any:
    return -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain)


def penalised(p: Parts) -> Any:
    gap = p.new - p.reference
    return (((clipped((p.new - p.padded).exp(), p.gain) + 0.1 * (gap.exp() - gap - 1)) * p.mask).sum()) / p.mask.sum()


def weighed_penalty(p: Parts) -> Any:
    """As in TRL: the distance to the reference is corrected by the same ratio."""
    ratio, gap = (p.new - p.padded).exp(), p.reference - p.new
    terms = 0.1 * (gap.exp() - gap - 1) * ratio + clipped(ratio, p.gain)
    return ((terms * p.mask).sum(1) / p.mask.sum(1)).mean()


def quotient(p: Parts) -> Any:
    return (p.new.exp() / p.old.exp()).squeeze()


def of_odds(p: Parts) -> Any:
    logits = HEAD(BODY(torch.randn(B, T, H)).tanh())
    odds = logits.softmax(-1).gather(-1, torch.randint(0, A, (B, T, 1))).squeeze(-1)
    return odds / (odds.detach() * 2.71828**-0.1)


LOSSES = {
    "mean": lambda p: clipped(torch.exp(p.new - p.old), p.gain).mean(),
    "one product": lambda p: -(p.gain * torch.min((r := (p.new - p.old).exp()), r.clamp(0.8, 1.2))).mean(),
    "by the sign": lambda p: (
        -(
            torch.where(p.gain > 0, torch.min(r := (p.new - p.old).exp(), torch.tensor(1.2)), r.clamp(min=0.8)) * p.gain
        ).mean()
    ),
    "limited before": lambda p: clipped((p.new - p.old).clamp(-20, 20).exp(), p.gain).mean(),
    "of sequences": lambda p: clipped(
        (((p.new - p.padded) * p.mask).sum(1) / p.mask.sum(1)).exp(), p.gain.squeeze(1)
    ).mean(),
    "masked sum": lambda p: (clipped((p.new - p.padded).exp(), p.gain) * p.mask).sum() / p.mask.sum(),
    "masked first": lambda p: clipped((p.new - p.padded).exp() * p.mask, p.gain).sum() / p.mask.sum(),
    "masked advantages": lambda p: clipped((p.new - p.padded).exp(), p.gain * p.mask).sum(),
    "boolean mask": lambda p: (clipped((p.new - p.padded).exp(), p.gain) * (p.mask > 0)).sum(),
    "filled": lambda p: clipped((p.new - p.padded).exp(), p.gain).masked_fill(p.mask == 0, 0.0).sum(),
    "where": lambda p: torch.where(p.mask > 0, clipped((p.new - p.padded).exp(), p.gain), 0.0).sum(),
    "chosen": lambda p: clipped((p.new - p.padded).exp(), p.gain)[p.mask > 0].mean(),
    "selected": lambda p: clipped((p.new - p.padded).exp(), p.gain).masked_select(p.mask > 0).mean(),
    "beside a penalty": penalised,
    "in a penalty, too": weighed_penalty,
    "divided": lambda p: clipped(quotient(p), p.gain).mean(),
    "divided odds, masked": lambda p: (clipped(of_odds(p), p.gain) * p.mask).sum() / p.mask.sum(),
    "beside others": lambda p: clipped((p.new - p.old).exp(), p.gain).mean() + p.new.exp().mean(),
}


@pytest.mark.parametrize("kind", LOSSES)
def test_ratios_and_their_masks(kind: str) -> None:
    assert away(LOSSES[kind](Parts())) == pytest.approx(2.71828**0.1 - 1, rel=1e-3)


OTHERS = {
    "no ratio": lambda p: -(p.new * p.gain).mean(),
    "of the reference": lambda p: ((p.reference - p.new).exp() * p.mask).sum(),
    "of the reference, turned": lambda p: ((p.new - p.reference).exp() * p.mask).sum(),
    "corrected by constants": lambda p: -((p.new - p.old).exp().detach() * p.gain * p.new).mean(),
    "both trained": lambda p: -((p.new - p.new.flip(0)).exp() * p.gain).mean(),
    "preferences": lambda p: -F.logsigmoid(0.1 * ((p.new - p.old).sum(1) - (p.new - p.old).flip(0).sum(1))).mean(),
    "limited, of no two": lambda p: -((p.new / p.old).clamp(0.5, 2.0) * p.gain).mean(),
    "limited, scaled": lambda p: -((p.new.exp() / 3.0).clamp(0.5, 2.0) * p.gain).mean(),
    "probabilities": lambda p: -(p.new.exp() * p.gain).mean(),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_is_no_ratio_of_two_policies(kind: str) -> None:
    assert away(OTHERS[kind](Parts())) is None


def test_few_outliers_do_not_decide() -> None:
    parts = Parts()
    old = parts.old.clone()
    old[0, 0] -= 30
    distance = away(clipped((parts.new - old).exp(), parts.gain).mean())
    assert distance == pytest.approx(0.105, abs=0.02)


def full(loss: Any) -> float | None:
    """The share of sequences that count up to the end; None where a loss has no sequences, NaN without a mask."""
    found = completions.facts(torch, loss.grad_fn)
    facts = dict(zip(completions.COLUMNS, map(float, found), strict=True)) if found else {}
    assert not facts or (facts["rows"], facts["length"]) == (B, T)
    return facts.get("full")


MASKED = {
    "likelihoods": lambda p: -(p.new * p.gain * p.mask).sum(),
    "likelihoods, masked last": lambda p: (-(p.new * p.gain) * p.mask).sum(1).mean(),
    "filled": lambda p: (-(p.new * p.gain)).masked_fill(p.mask == 0, 0.0).sum(),
    **{name: LOSSES[name] for name in ("masked sum", "boolean mask", "where", "in a penalty, too")},
}


@pytest.mark.parametrize("kind", MASKED)
def test_sequences_that_count_up_to_the_end(kind: str) -> None:
    for cut in (0, 12, B):
        parts = Parts()
        parts.mask[:cut] = 1
        assert full(MASKED[kind](parts)) == pytest.approx(cut / B)


def test_no_sequences_or_no_mask() -> None:
    parts = Parts()
    assert full(-(parts.new * parts.gain).mean()) is None
    assert full(-(parts.new[:, 0] * parts.gain[:, 0]).mean()) is None
    assert full(F.mse_loss(parts.log_odds, torch.zeros(B, T, A))) is None
    other = full(-(parts.new * torch.rand(B, T)).mean())
    assert other is not None
    assert other != other, "weights that are no mask"

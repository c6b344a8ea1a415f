"""What the graph behind a loss tells of a policy's weights, and of masks behind a softmax."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import flat_operations, saved_values  # noqa: E402
from tracelyze.collectors.tensors.attention import masked_attention, seen_ids, softmax_dimension  # noqa: E402
from tracelyze.collectors.tensors.policies import weights as policy_weights  # noqa: E402
from tracelyze.collectors.tensors.written_out import picked_classes  # noqa: E402

B, T, H, V = 4, 9, 16, 12
QKV, HEAD = nn.Linear(H, 3 * H), nn.Linear(H, V)
CAUSAL = torch.ones(T, T).tril()


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    torch.manual_seed(0)


def attended(change: Any, heads: int = 1) -> dict[str, float]:
    q, k, v = (one.view(B, T, heads, -1).transpose(1, 2) for one in QKV(torch.randn(B, T, H)).chunk(3, -1))
    weights = change((q @ k.transpose(-1, -2)).softmax(-1))
    mixed = torch.einsum("bhqk,bhkd->bqhd", weights, v) if heads > 1 else (weights @ v).transpose(1, 2)
    loss = HEAD(mixed.reshape(B, T, H)).square().mean()
    found = masked_attention.columns(torch, loss.grad_fn, loss.device)
    return {name: float(value) for name, value in found.items()}


def test_masks_behind_the_softmax() -> None:
    keys = (torch.arange(T) < torch.tensor([9, 5, 6, 3])[:, None]).view(B, 1, 1, T)
    for change in (
        lambda w: w * CAUSAL,
        lambda w: w.tril(),
        lambda w: w.masked_fill(CAUSAL == 0, 0.0),
        lambda w: torch.where(CAUSAL == 1, w, 0.0),
        lambda w: torch.where(CAUSAL == 0, 0.0, w),
        lambda w: F.dropout(w * CAUSAL, 0.1),
        lambda w: w * keys,
        lambda w: w * (CAUSAL.bool() & keys),
        lambda w: F.dropout(w.masked_fill(~(keys & keys.transpose(-1, -2)), 0.0), 0.1),  # padding asks in vain
        lambda w: w * (CAUSAL.bool() & keys & keys.transpose(-1, -2)),
        lambda w: w * keys.flip(-1),
    ):
        found = attended(change, heads=2)
        assert (found["masked_rows"] > 0.1, found["masked_regularly"]) == (True, 1.0)


def test_what_is_no_mask_behind_the_softmax() -> None:
    queries = (torch.arange(T) < torch.tensor([9, 5, 6, 3])[:, None]).view(B, 1, T, 1)
    for change in (
        lambda w: w,
        lambda w: F.dropout(w, 0.2),
        lambda w: w * CAUSAL / (w * CAUSAL).sum(-1, keepdim=True),
        lambda w: w * queries,  # padding asks in vain
        lambda w: w * torch.tensor([0.5, 2.0]).view(1, 2, 1, 1),  # heads of unequal weight
    ):
        found = attended(change, heads=2)
        assert found["masked_rows"] * found["masked_regularly"] == 0.0
    for other in (torch.ones(T, T), CAUSAL, queries, queries.transpose(-1, -2), CAUSAL * queries):
        drawn = attended(lambda w, other=other: w * ((torch.rand(B, 1, T, T) > 0.3) & other.bool()))
        assert drawn["masked_regularly"] == 0.0


def weighed(weights: Any, kind: str) -> dict[str, float]:
    scores, actions = HEAD(torch.randn(B, T, H)), torch.randint(0, V, (B, T))
    chosen = torch.distributions.Categorical(logits=scores).log_prob(actions)
    mask = (torch.arange(T) < 7).float().expand(B, T)
    losses = {
        "reinforce": lambda: -(chosen * weights).mean(),
        "gathered": lambda: -(weights * scores.log_softmax(-1).gather(-1, actions[..., None])[..., 0]).sum() / 5,
        "entropy": lambda: (
            F.cross_entropy(scores.flatten(0, 1), actions.flatten(), reduction="none").mul(weights.flatten()).mean()
        ),
        "clipped": lambda: (
            -torch.min(
                (chosen - chosen.detach()).exp() * weights, (chosen - chosen.detach()).exp().clamp(0.8, 1.2) * weights
            ).mean()
        ),
        "masked": lambda: (-((chosen - chosen.detach()).exp() * weights) * mask).sum() / mask.sum(),
    }
    return {name: float(value) for name, value in policy_weights.columns(torch, losses[kind]().grad_fn).items()}


@pytest.mark.parametrize("kind", ["reinforce", "gathered", "entropy", "clipped", "masked"])
def test_weights_of_a_policy(kind: str) -> None:
    found = weighed(torch.randn(B, T), kind)
    assert (found["weights"] >= B * T, found["weights_zero"]) == (True, 0.0)
    assert 0.2 < found["weights_negative"] < 0.8
    assert weighed(torch.zeros(B, T), kind)["weights_zero"] == 1.0


def test_losses_without_a_policy() -> None:
    scores = HEAD(torch.randn(B, T, H))
    mask = (torch.arange(T) < 5).float()
    for loss in (scores.square().mean(), (scores.square().mean(-1) * mask).sum(), F.mse_loss(scores, scores.detach())):
        assert not policy_weights.columns(torch, loss.grad_fn)
    labels = torch.randint(0, V, (B, T)).flatten()
    masked = (F.cross_entropy(scores.flatten(0, 1), labels, reduction="none") * mask.repeat(B)).mean()
    assert float(policy_weights.columns(torch, masked.grad_fn)["weights"]) == 0.0, "a mask is no weight"


def shared_out(dim: int, product: str, drop: float = 0.0, heads: int = 2) -> dict[str, float]:
    q, k, v = (one.view(B, T, heads, -1).transpose(1, 2) for one in QKV(torch.randn(B, T, H)).chunk(3, -1))
    scores = (q @ k.transpose(-1, -2)) / 4 + torch.zeros(T, T)
    if product == "transposed":
        weights = scores.transpose(-1, -2).softmax(dim)
        mixed = weights.transpose(-1, -2) @ v
    else:
        weights = F.dropout(scores.masked_fill(CAUSAL == 0, -1e9).softmax(dim), drop)
        mixed = torch.einsum("bhqk,bhkd->bhqd", weights, v) if product == "einsum" else weights @ v
    loss = HEAD(mixed.transpose(1, 2).reshape(B, T, H)).square().mean()
    found = softmax_dimension.columns(torch, loss.grad_fn, loss.device)
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("product", ["matmul", "einsum"])
@pytest.mark.parametrize("drop", [0.0, 0.2])
def test_a_softmax_over_another_dimension_than_the_keys(product: str, drop: float) -> None:
    for dim, axis in ((-1, -1.0), (3, -1.0), (2, -2.0), (1, -3.0), (0, -4.0)):
        found = shared_out(dim, product, drop)
        assert (found["products"], found["softmax_axis"], found["summed_axis"]) == (1.0, axis, -1.0)
        assert found["products_wrong"] == (axis != -1.0)


def test_scores_that_are_transposed() -> None:
    assert shared_out(-2, "transposed")["products_wrong"] == 0.0
    assert shared_out(-1, "transposed")["products_wrong"] == 1.0


def test_a_softmax_that_is_no_attention_over_keys() -> None:
    x, centres = torch.randn(B, T, H), nn.Parameter(torch.randn(5, H))
    clusters = HEAD(x).softmax(-1).transpose(1, 2) @ HEAD(x)  # soft assignments of a layer's scores, summed over tokens
    slots = (centres @ QKV(x)[..., :H].transpose(1, 2)).softmax(1)
    slots = (slots / slots.sum(-1, keepdim=True)) @ HEAD(x)  # they compete for the inputs, and are normalised again
    for made in (clusters, slots):
        assert softmax_dimension.columns(torch, made.sum().grad_fn, made.device) == {}


def pooled(dim: int, way: str) -> dict[str, float]:
    """Attention pooling over T positions: one weight for each, from scores that are no product."""
    h = QKV(torch.randn(B, T, H))
    score = nn.Linear(3 * H, 1)(torch.tanh(h))
    if way == "unsqueezed":
        mixed = (score.squeeze(-1).softmax(dim).unsqueeze(-1) * h).sum(1)
    elif way == "matmul":
        mixed = (score.softmax(dim).transpose(1, 2) @ h).squeeze(1)
    else:
        mixed = (h * score.softmax(dim)).sum(dim=1)
    loss = mixed.square().mean()
    found = softmax_dimension.columns(torch, loss.grad_fn, loss.device)
    return {name: float(value) for name, value in found.items()}


@pytest.mark.parametrize("way", ["product", "unsqueezed", "matmul"])
def test_pooling_by_attention(way: str) -> None:
    assert pooled(1, way)["products_wrong"] == 0.0
    assert pooled(0, way)["products_wrong"] == 1.0, "samples compete instead of positions"
    if way != "unsqueezed":
        assert pooled(-1, way)["products_wrong"] == 1.0, "a softmax of one number is 1"


def test_weights_that_share_positions_out() -> None:
    x, capsules = QKV(torch.randn(B, T, H)), nn.Linear(3 * H, 5 * 4)
    votes = capsules(x).view(B, T, 5, 4)
    routed = (HEAD(x[..., :H])[..., :5].softmax(-1)[..., None] * votes).sum(1)  # each position chooses a capsule
    gated = (x * HEAD(x[..., :H])[..., :1].sigmoid() * x.softmax(-1)).sum(1)  # over the features, summed over positions
    first = (HEAD(x.transpose(0, 1)[..., :H])[..., :1].softmax(0) * x.transpose(0, 1)).sum(0)  # positions come first
    for made, wrong in ((routed, None), (gated, None), (first, 0.0)):
        found = softmax_dimension.columns(torch, made.sum().grad_fn, made.device)
        assert (float(found["products_wrong"]) if found else None) == wrong


def picked(loss: Any) -> tuple[float, ...] | None:
    found = picked_classes.columns(torch, loss.grad_fn, loss.device)
    return tuple(float(found[name]) for name in picked_classes.COLUMNS) if found and found["picks"] else None


def test_a_likelihood_that_is_picked_from_what_is_normalised_over_the_samples() -> None:
    scores, y, rows = nn.Linear(H, 5)(torch.randn(32, H)), torch.randint(0, 5, (32,)), torch.arange(32)
    for dim, wrong in ((0, 1.0), (1, 0.0), (-1, 0.0)):
        logp, axis = F.log_softmax(scores, dim), -2.0 if dim == 0 else -1.0
        assert picked(-logp.gather(1, y[:, None]).mean()) == (1.0, wrong, axis, -1.0)
    for dim, wrong in ((0, 1.0), (1, 0.0)):
        logp, axis = F.log_softmax(scores, dim), -2.0 if dim == 0 else -1.0
        assert picked(-logp[rows, y].mean()) == (1.0, wrong, axis, -1.0)
    tokens, ids = HEAD(torch.randn(B, T, H)), torch.randint(0, V, (B, T, 1))
    assert picked(-F.log_softmax(tokens, 1).gather(-1, ids).sum()) == (1.0, 1.0, -2.0, -1.0)


def test_actions_that_are_drawn_from_what_is_normalised_over_the_samples() -> None:
    scores = nn.Linear(H, 5)(torch.randn(32, H))
    for dim, wrong in ((0, 1.0), (1, 0.0)):
        policy = torch.distributions.Categorical(probs=scores.softmax(dim))
        loss = -policy.log_prob(policy.sample()).mean() - 0.01 * policy.entropy().mean()
        assert picked(loss) == (1.0, wrong, -2.0 if dim == 0 else -1.0, -1.0)
    policy = torch.distributions.Categorical(logits=scores)
    assert picked(-policy.log_prob(policy.sample()).mean()) is None
    weighed = scores.softmax(0)  # divided by something else than its own sum
    assert picked((weighed / scores.exp().sum(1, keepdim=True)).log().gather(1, torch.ones(32, 1).long()).sum()) is None


def test_picks_that_say_nothing_of_the_classes() -> None:
    tokens, last = HEAD(torch.randn(B, T, H)), torch.randint(0, T, (B, 1, 1)).expand(B, 1, V)
    assert picked(F.log_softmax(tokens, -1).gather(1, last).sum()) is None, "distributions at the last positions"
    pairs, y = nn.Linear(H, 16)(torch.randn(16, H)), torch.arange(16).flip(0)
    assert picked(F.log_softmax(pairs, 0).gather(1, y[:, None]).sum()) is None, "all pairs of a batch"
    both = nn.Linear(H, 5)(torch.randn(16, H))
    matching = F.log_softmax(both, 0) + F.log_softmax(both, 1)
    assert picked(matching.gather(1, torch.randint(0, 5, (16, 1))).sum()) is None, "normalised both ways"
    over = F.log_softmax(both, 0)
    some = over[torch.tensor([1, 3, 3]), torch.tensor([0, 1, 4])]
    assert picked(some.sum()) is None, "pairs of a matching"


def test_a_loop_over_samples_that_weighs_each() -> None:
    logits, advantages = nn.Linear(H, 6)(torch.randn(8, H)), torch.zeros(8)
    chosen = F.log_softmax(logits, -1).gather(1, torch.randint(0, 6, (8, 1))).squeeze(1)
    for terms in (
        [-one * weight for one, weight in zip(chosen, advantages, strict=True)],
        [-one * float(weight) for one, weight in zip(chosen, advantages, strict=True)],
    ):
        for loss in (torch.stack(terms).mean(), sum(terms) / 8):
            found = policy_weights.columns(torch, loss.grad_fn)
            assert (float(found["weights"]), float(found["weights_zero"])) == (8.0, 1.0)
    few = chosen[0] * torch.tensor(0.5) + chosen[1] * torch.tensor(0.5)
    assert not policy_weights.columns(torch, few.grad_fn)
    scaled = F.cross_entropy(logits, torch.randint(0, 6, (8,))) * torch.tensor(1024.0)
    assert not policy_weights.columns(torch, scaled.grad_fn)


def test_operations_without_a_derivative_in_every_way_to_the_parameters() -> None:
    """Not beside a way around them (a straight-through estimator, another term), nor where the data were rounded."""
    x = torch.randn(B, H)
    for loss, found in (
        (torch.sign(HEAD(x)).square().mean(), ["sign"]),
        ((HEAD(x).round() + HEAD(x).floor()).mean(), ["floor", "round"]),
        ((HEAD(x) + (HEAD(x).sign() - HEAD(x)).detach()).mean(), []),
        (HEAD(x).sign().mean() + 0.1 * HEAD.weight.square().sum(), []),
        (HEAD(x.round()).mean(), []),
    ):
        assert flat_operations.in_every_way(loss.grad_fn) == found


def seen(hidden: Any, ids: Any, dropout: float = 0.0, layers: int = 1, then: Any = None) -> dict[str, float]:
    """What is told of an encoder from which these positions are hidden; `then`: those hidden from a second layer."""
    layer = nn.TransformerEncoderLayer(H, 2, 2 * H, dropout=dropout, batch_first=True)
    encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    x = nn.Embedding(V, H)(ids)
    more = hidden.shape[1] - ids.shape[1]
    x = encoder(torch.cat([torch.zeros(len(x), more, H), x], 1), src_key_padding_mask=hidden)
    if then is not None:
        x = layer(x, src_key_padding_mask=then)
    found = seen_ids.columns(torch, x[:, 0].sum().grad_fn, x.device)
    return {name: float(value) for name, value in found.items()}


def test_ids_that_a_mask_leaves_to_look_at() -> None:
    lengths = torch.tensor([9, 4, 5, 6, 3, 7, 8, 6])
    padding = torch.arange(9) >= lengths[:, None]
    ids = torch.randint(1, V, (8, 9)).masked_fill(padding, 0)
    first = torch.ones(8, 1, dtype=torch.bool)
    for dropout in (0.0, 0.1):  # with a fused kernel, and without
        turned = {"hiding_rows": 7.0, "one_id_rows": 1.0, "one_id": 0.0}
        assert seen(~padding, ids, dropout) == seen(~padding, ids, dropout, layers=2) == turned
        assert seen(torch.cat([first, ~padding], 1), ids, dropout) == turned, "a class token, hidden too"
        assert seen(torch.cat([~first, ~padding], 1), ids, dropout) == turned, "or not hidden"
        for right in (padding, torch.cat([~first, padding], 1), torch.zeros_like(padding)):
            assert seen(right, ids, dropout)["hiding_rows"] == 0.0, "all that is hidden is one id"
        assert seen(padding.flip(1), ids.flip(1), dropout)["hiding_rows"] == 0.0, "padding in front"
        only_first = torch.arange(9).expand(8, 9) > 0
        summed_up = ids.clone()
        summed_up[:, 0] = 1
        assert seen(padding, summed_up, dropout, then=only_first)["one_id_rows"] == 0.0, "a summary of all"

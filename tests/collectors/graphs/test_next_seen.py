"""What the graph behind the scores tells of attention to the next position, whose id is the target."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tests.collectors.conftest import right_or_untold  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.embedded_ids import columns  # noqa: E402
from tracelyze.collectors.tensors.targets.sequences import Targets  # noqa: E402

V, B, T, H = 30, 6, 9, 16
EMBED, PLACES, HEAD = nn.Embedding(V, H), nn.Embedding(T, H), nn.Linear(H, V)
MASK = nn.Transformer.generate_square_subsequent_mask(T)
LOOK_BACK = torch.ones(T, T, dtype=torch.bool).tril()
Q, K, VALUES, A, B_ = (nn.Linear(H, H) for _ in range(5))


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)


def ids(seed: int = 1) -> Any:
    """Rows of ids and one more column, so that the next id of every position is known."""
    return torch.randint(3, V, (B, T + 1), generator=torch.Generator().manual_seed(seed))


def share(scores: Any, target: Any, ignored: int = -100) -> float:
    with torch.no_grad():
        return float(columns(torch, scores, Targets(target, ignored)).get("sees_next", math.nan))


def seen(model: Any) -> float:
    tokens = ids()
    return share(model(tokens[:, :-1]).reshape(-1, V), tokens[:, 1:].reshape(-1))


def encoder(mask: Any = None, dropout: float = 0.1, first: bool = True, hint: bool = False, **options: Any) -> Any:
    layer = nn.TransformerEncoderLayer(H, 2, 32, dropout, batch_first=first, **options)
    layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return lambda x: HEAD(layers(EMBED(x) + PLACES(torch.arange(T)), mask=mask, is_causal=hint))


def by_hand(mask: Any, fill: float = -1e9) -> Any:
    def model(x: Any) -> Any:
        h = EMBED(x)
        scores = Q(h) @ K(h).transpose(1, 2)
        scores = scores if mask is None else scores.masked_fill(~mask, fill)
        return HEAD(h + F.dropout(scores.softmax(-1), 0.1) @ VALUES(h))

    return model


def masked_late(mask: Any) -> Any:
    """Weights are masked behind the softmax: nothing is read of what is hidden, though its scores count."""

    def model(x: Any) -> Any:
        h = EMBED(x)
        weights = (Q(h) @ K(h).transpose(1, 2)).softmax(-1) * mask
        return HEAD(h + F.dropout(weights, 0.1) @ VALUES(h))

    return model


def heads(rotary: bool = False, adapter: bool = False, **options: Any) -> Any:
    def model(x: Any) -> Any:
        h = F.layer_norm(EMBED(x), (H,))
        parts = [Q(h) + B_(A(h)) if adapter else Q(h), K(h), VALUES(h)]
        q, k, v = (part.view(B, T, 2, H // 2).transpose(1, 2) for part in parts)
        if rotary:
            q, k = (torch.cat([-part[..., 4:], part[..., :4]], -1) * 0.5 + part for part in (q, k))
        mixed = F.scaled_dot_product_attention(q, k, v, **options)
        return HEAD(h + mixed.transpose(1, 2).reshape(B, T, H))

    return model


def list_of_heads(mask: Any) -> Any:
    """Heads of one attention, each a module of its own, beside each other."""

    heads = [[nn.Linear(H, H // 2) for _ in range(3)] for _ in range(2)]

    def model(x: Any) -> Any:
        h, parts = EMBED(x), []
        for query, key, value in heads:
            scores = query(h) @ key(h).transpose(1, 2)
            scores = scores if mask is None else scores.masked_fill(~mask, float("-inf"))
            parts.append(scores.softmax(-1) @ value(h))
        return HEAD(h + torch.cat(parts, dim=-1))

    return model


LEAKING = [
    encoder(),
    encoder(dropout=0.0),
    encoder(dropout=0.0, norm_first=True),
    encoder(torch.zeros(T, T)),
    by_hand(None),
    by_hand(torch.ones(T, T, dtype=torch.bool).tril(1)),  # off by one
    by_hand(LOOK_BACK.T),  # the wrong half
    masked_late(LOOK_BACK.T.float()),
    heads(),
    heads(rotary=True),
    heads(adapter=True),
    heads(attn_mask=torch.ones(T, T, dtype=torch.bool)),
    lambda x: heads()(x) + heads(is_causal=True)(x),  # one of several
    list_of_heads(None),
]
MASKED = [
    encoder(MASK),
    encoder(MASK, 0.0),
    encoder(MASK, 0.0, hint=True),
    by_hand(LOOK_BACK),
    by_hand(LOOK_BACK, -1e4),
    masked_late(LOOK_BACK.float()),
    by_hand(LOOK_BACK, float("-inf")),
    heads(is_causal=True),
    heads(rotary=True, is_causal=True),
    heads(adapter=True, is_causal=True),
    heads(attn_mask=LOOK_BACK),
    heads(attn_mask=MASK),
    list_of_heads(LOOK_BACK),
]


@pytest.mark.parametrize("model", LEAKING)
def test_attention_without_a_causal_mask(model: Any) -> None:
    assert right_or_untold(seen(model), 1.0)


@pytest.mark.parametrize("model", MASKED)
def test_attention_with_one(model: Any) -> None:
    assert right_or_untold(seen(model), 0.0)


@pytest.mark.parametrize("index", range(len(LEAKING)))
def test_square_batches(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many samples as positions: the sizes of the weights do not tell which way they run."""
    monkeypatch.setitem(globals(), "B", T)
    assert right_or_untold(seen(LEAKING[index]), 1.0)
    if index < len(MASKED):
        assert right_or_untold(seen(MASKED[index]), 0.0)


def test_attention_across_the_samples_of_a_square_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """batch_first was forgotten: nothing is known of the next position."""
    monkeypatch.setitem(globals(), "B", T)
    assert seen(encoder(first=False)) not in (0.0, 1.0)


@pytest.mark.parametrize("mask", [None, MASK])
def test_time_may_come_before_the_batch(mask: Any) -> None:
    tokens = ids().T.contiguous()
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(H, 2, 32), 2, enable_nested_tensor=False)
    scores = HEAD(layer(EMBED(tokens[:-1]), mask=mask))
    assert share(scores.view(-1, V), tokens[1:].reshape(-1)) == (1.0 if mask is None else 0.0)


@pytest.mark.parametrize("model", [encoder(), encoder(MASK)])
def test_scores_that_are_cut_behind_the_model(model: Any) -> None:
    tokens = ids()[:, 1:]
    scores = model(tokens)[:, :-1]
    expected = seen(model)
    assert share(scores.reshape(-1, V), tokens[:, 1:].reshape(-1)) == expected
    assert share(scores.transpose(1, 2), tokens[:, 1:]) == expected


def sequences(causal: bool) -> Any:
    """An encoder that sees all of its input, and a decoder that is masked; of the same ids, as an autoencoder has."""
    model = nn.Transformer(H, 2, 1, 1, 32, 0.1, batch_first=True)
    mask = MASK if causal else None
    return lambda x: HEAD(model(EMBED(x), EMBED(x), tgt_mask=mask))


def shared(x: Any) -> Any:
    """One embedding for an encoder that sees all, pooled, and a masked decoder."""
    h = EMBED(x)
    layer = nn.TransformerEncoder(nn.TransformerEncoderLayer(H, 2, 32, batch_first=True), 1)
    return HEAD(F.scaled_dot_product_attention(h, h, Q(h), is_causal=True) + layer(h).mean(1, keepdim=True))


def crossing(x: Any) -> Any:
    """One embedding for both sides of an encoder and decoder."""
    h, model = EMBED(x), nn.Transformer(H, 2, 1, 1, 32, 0.0, batch_first=True)
    return HEAD(model(h, h, tgt_mask=MASK))


def shifted(x: Any) -> Any:
    return encoder()(x).roll(1, 1)


NOT_SHOWN = [
    shared,
    crossing,
    shifted,
    lambda x: HEAD(EMBED(x)),
    lambda x: HEAD(nn.LSTM(H, H, batch_first=True)(EMBED(x))[0]),
    lambda x: HEAD(checkpoint(lambda h: F.scaled_dot_product_attention(h, h, h), EMBED(x), use_reentrant=False)),
    lambda x: nn.Linear(T * H, T * V)(heads()(x).matmul(HEAD.weight).flatten(1)),
]


@pytest.mark.parametrize("model", NOT_SHOWN)
def test_what_the_graph_does_not_tell(model: Any) -> None:
    assert not seen(model) > 0.0


def test_encoders_may_see_all() -> None:
    assert seen(sequences(causal=True)) == 0.0
    assert seen(sequences(causal=False)) == 1.0


def test_a_prefix_that_sees_itself() -> None:
    tokens, lengths = ids(), torch.tensor([2, 3, 4, 5, 6, 7])
    inside = torch.arange(T) < lengths[:, None]
    mask = LOOK_BACK | (inside[:, :, None] & inside[:, None, :])
    target = tokens[:, 1:].clone()
    target[torch.arange(T) < lengths[:, None] - 1] = -100
    assert share(by_hand(mask)(tokens[:, :-1]).reshape(-1, V), target.reshape(-1)) == 0.0
    assert share(by_hand(mask)(tokens[:, :-1]).reshape(-1, V), tokens[:, 1:].reshape(-1)) == pytest.approx(
        0.4, abs=0.05
    )


@pytest.mark.parametrize("which", ["same", "masked", "other"])
def test_other_targets_are_no_next_ids(which: str) -> None:
    tokens = ids()[:, 1:]
    hidden = torch.rand(B, T, generator=torch.Generator().manual_seed(2)) < 0.3
    target = {"same": tokens, "masked": tokens.masked_fill(~hidden, -100), "other": ids(3)[:, 1:]}[which]
    x = tokens.masked_fill(hidden, 1) if which == "masked" else tokens
    assert math.isnan(share(encoder()(x).reshape(-1, V), target.reshape(-1)))


def recurrent(both: bool, first: bool = True, layers: int = 2, kind: type[nn.Module] = nn.LSTM) -> Any:
    layer, head = kind(H, H, layers, batch_first=first, bidirectional=both), nn.Linear(H * (1 + both), V)

    def model(x: Any) -> Any:
        h = EMBED(x)
        out, _ = layer(h if first else h.transpose(0, 1))
        return head(out if first else out.transpose(0, 1))

    return model


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("layers", [1, 2])
def test_a_recurrent_layer_in_both_directions_reads_the_next_id(first: bool, layers: int) -> None:
    assert seen(recurrent(both=True, first=first, layers=layers)) == 1.0
    assert math.isnan(seen(recurrent(both=False, first=first, layers=layers))), "told by sees_later"


def test_batches_read_as_time_run_across_samples() -> None:
    """batch_first was forgotten: what runs backwards are the samples, not the positions."""
    layer, head = nn.LSTM(H, H, bidirectional=True), nn.Linear(2 * H, V)
    assert math.isnan(seen(lambda x: head(layer(EMBED(x))[0])))


def test_a_last_state_of_both_directions_is_no_position() -> None:
    """An encoder's last state begins a decoder that reads from the left: the encoder's ids are not its targets."""
    encode, decode = nn.LSTM(H, H // 2, bidirectional=True, batch_first=True), nn.LSTM(H, H, batch_first=True)

    def model(x: Any) -> Any:
        _, (state, cell) = encode(EMBED(x))
        first = tuple(torch.cat(list(one), -1).unsqueeze(0) for one in (state, cell))
        return HEAD(decode(EMBED(x), first)[0])

    assert math.isnan(seen(model))

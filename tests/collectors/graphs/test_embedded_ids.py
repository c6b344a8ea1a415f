"""What the graph behind the scores tells of the ids that were embedded, and of the positions that a model sees."""

from __future__ import annotations

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

V, B, T, H = 20, 6, 9, 16
EMBED, HEAD = nn.Embedding(V, H), nn.Linear(H, V)


@pytest.fixture(autouse=True)
def watched() -> None:
    """As the signal does in torch before 2.10, where a program that has used hooks for saved tensors is not read."""
    torch.manual_seed(0)  # few ids are compared in each test: their share would differ from run to run
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)


def ids(padded: bool = False) -> Any:
    drawn = torch.randint(3, V, (B, T), generator=torch.Generator().manual_seed(1))
    return drawn.masked_fill(torch.arange(T) > torch.tensor([8, 2, 3, 4, 5, 6])[:, None], 0) if padded else drawn


def columns_of(model: Any, x: Any, target: Any, ignored: int = -100, weight: Any = None) -> dict[str, float]:
    scores = model(x).reshape(-1, V)
    with torch.no_grad():
        found = columns(torch, scores, Targets(target.reshape(-1), ignored, weight))
    return {name: float(value) for name, value in found.items()}


def recurrent(kind: Any, layers: int = 1, both: bool = False) -> Any:
    layer, head = kind(H, H, layers, batch_first=True, bidirectional=both), nn.Linear(H * (1 + both), V)
    return lambda x: head(layer(EMBED(x))[0])


def attending(masked: bool, dropout: float = 0.1, shift: Any = None, hint: bool = False) -> Any:
    layer = nn.TransformerEncoderLayer(H, 2, 32, dropout, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    mask = nn.Transformer.generate_square_subsequent_mask(T) if masked else None
    return lambda x: HEAD(encoder((shift or (lambda h: h))(EMBED(x)), mask=mask, is_causal=hint))


def by_hand(masks_itself: bool = False) -> Any:
    layer = nn.Linear(H, 3 * H)
    mask = torch.ones(T, T).tril(-1 if masks_itself else 0)
    mask[0, 0] = 1

    def model(x: Any) -> Any:
        q, k, v = layer(EMBED(x)).split(H, -1)
        k = torch.cat([k[..., H // 2 :], k[..., : H // 2]], -1)
        return HEAD((q @ k.transpose(1, 2)).masked_fill(mask == 0, -1e9).softmax(-1) @ v)

    return model


RECURRENT = [nn.LSTM, nn.GRU, nn.RNN]


def cached(x: Any) -> Any:
    """With a cache that is empty, and a choice of positions that leaves none out."""
    q, k, v = (layer(EMBED(x)) for layer in KEYS)
    k, v = torch.cat([torch.empty(B, 0, H), k], -2), torch.cat([torch.empty(B, 0, H), v], -2)
    return HEAD(F.scaled_dot_product_attention(q, k, v, is_causal=True)[:, slice(0, None), :])


def padded(causal: bool, left: bool, additive: bool = False) -> Any:
    """As transformers masks a batch: rows of padding that would see nothing see everything."""
    lengths = torch.tensor([3, 4, 5, 4, 6, 7])[:, None]  # the last positions are padding in every sample
    there = torch.arange(T) >= T - lengths if left else torch.arange(T) < lengths
    mask = there[:, None, :].expand(B, T, T) & (torch.ones(T, T, dtype=torch.bool).tril() if causal else True)
    mask = (mask | ~mask.any(-1, keepdim=True))[:, None]
    given = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min) if additive else mask

    def model(x: Any) -> Any:
        q, k, v = (layer(EMBED(x))[:, None] for layer in KEYS)
        return HEAD(F.scaled_dot_product_attention(q, k, v, attn_mask=given)[:, 0])

    return model


KEYS = [nn.Linear(H, H) for _ in "qkv"]
CAUSAL = [
    cached,
    *[recurrent(kind, layers) for kind in RECURRENT for layers in (1, 2)],
    *[attending(True, dropout, hint=hint) for dropout in (0.0, 0.1) for hint in (False, True)],
    by_hand(),
    *[padded(True, left, additive) for left in (False, True) for additive in (False, True)],
]


@pytest.mark.parametrize("model", CAUSAL)
def test_a_model_that_reads_from_the_left(model: Any) -> None:
    x = ids()
    same, next_one = columns_of(model, x, x), columns_of(model, x, x.roll(-1, 1))
    assert right_or_untold(same["sees_later"], 0.0)
    assert right_or_untold(next_one["sees_later"], 0.0)
    assert (same["ids_equal"], next_one["ids_equal"]) == (1.0, 0.0)
    assert same["ids_compared"] > 20


def encoded(kind: Any, use: str) -> Any:
    encoder, decoder = kind(H, H, batch_first=True), kind(H, H, batch_first=True)

    def model(x: Any) -> Any:
        out, state = encoder(EMBED(x))
        if use == "state":
            return HEAD(decoder(EMBED(x), state)[0])
        return HEAD(decoder(out[:, -1:].expand(-1, T, -1).contiguous())[0])

    return model


def shifted(h: Any) -> Any:
    return F.pad(h, (0, 0, 1, 0))[:, :-1]


def shifted_later(x: Any) -> Any:
    layer, first = nn.LSTM(H, H, batch_first=True), nn.Linear(H, H)
    return HEAD(layer(shifted(first(EMBED(x))))[0])


NOT_SHOWN = [
    *[recurrent(kind, both=True) for kind in RECURRENT],
    *[encoded(kind, use) for kind in RECURRENT for use in ("state", "last")],
    attending(False),
    attending(False, 0.0),
    *[padded(False, left) for left in (False, True)],
    attending(True, shift=shifted),
    attending(True, 0.0, shift=lambda h: h.roll(1, 1)),
    attending(True, shift=lambda h: torch.cat([torch.zeros(B, 1, H), h[:, :-1]], 1)),
    shifted_later,
    by_hand(masks_itself=True),
    lambda x: HEAD(EMBED(x)),
    lambda x: nn.Linear(T * H, T * V)(nn.LSTM(H, H, batch_first=True)(EMBED(x))[0].flatten(1)),
    lambda x: HEAD(checkpoint(lambda h: F.scaled_dot_product_attention(h, h, h), EMBED(x), use_reentrant=False)),
]


@pytest.mark.parametrize("model", NOT_SHOWN)
def test_a_model_that_may_copy(model: Any) -> None:
    x = ids()
    found = columns_of(model, x, x)
    assert right_or_untold(found.get("ids_equal"), 1.0)
    assert found.get("sees_later") != 0.0


def begun(x: Any) -> Any:
    return torch.cat([torch.ones(B, 1, dtype=torch.long), x[:, :-1]], 1)


def with_memory(kind: Any, layers: int = 1, states: bool = True) -> Any:
    """A decoder that begins with the encoder's state, and attends to what it has made of the source."""
    encoder, decoder = (kind(H, H, layers, batch_first=True) for _ in range(2))
    keys, head = nn.Linear(H, H), nn.Linear(2 * H, V)

    def model(x: Any, y: Any) -> Any:
        made, state = encoder(EMBED(x))
        q, _ = decoder(EMBED(y), state if states else None)
        k = keys(made)
        hidden = (x == 3)[:, None, :]
        weights = (q @ k.transpose(1, 2)).masked_fill(hidden, -1e9).softmax(-1)
        return head(torch.cat([q, weights @ k], -1))

    return model


def transformer(masked: bool = True, weights: bool = False) -> Any:
    body = nn.Transformer(H, 2, 1, 2, 32, batch_first=True)
    if weights:  # written out, as with the weights asked for
        attend = body.decoder.layers[0].multihead_attn.forward
        body.decoder.layers[0].multihead_attn.forward = lambda *a, **k: attend(*a, **{**k, "need_weights": True})

    def model(x: Any, y: Any) -> Any:
        mask = nn.Transformer.generate_square_subsequent_mask(y.shape[1]) if masked else None
        return HEAD(body(EMBED(x), EMBED(y), tgt_mask=mask))

    return model


def begins_with_state(kind: Any) -> Any:
    encoder, decoder = kind(H, H, batch_first=True), kind(H, H, batch_first=True)
    return lambda x, y: HEAD(decoder(EMBED(y), encoder(EMBED(x))[1])[0])


DECODERS = [
    *[with_memory(kind, layers, states) for kind in RECURRENT for layers, states in ((1, True), (2, True), (1, False))],
    *[begins_with_state(kind) for kind in RECURRENT],
    *[transformer(weights=weights) for weights in (False, True)],
]


@pytest.mark.parametrize("length", [5, T])
@pytest.mark.parametrize("model", DECODERS)
def test_a_decoder_beside_an_encoder(model: Any, length: int) -> None:
    """What it is given at each position shows, also where its source has the same length, or is the same text."""
    x, y = ids().roll(1, 0)[:, :length], ids()
    for source in [x, y.clone()] if length == T else [x]:
        same = columns_of(lambda given, source=source: model(source, given), y, y)
        assert (same["sees_later"], same["ids_equal"]) == (0.0, 1.0)


@pytest.mark.parametrize("model", DECODERS)
@pytest.mark.parametrize("rows", [1, 2, B])
def test_an_autoencoder_whose_decoder_is_given_what_came_before(model: Any, rows: int) -> None:
    y = ids()
    found = columns_of(lambda given: model(given[:rows], begun(y)[:rows]), y[:rows], y[:rows])
    assert found["ids_equal"] < 0.5 or found["sees_later"] != 0.0


@pytest.mark.parametrize("model", [transformer(masked=False)])
def test_a_decoder_that_sees_all_of_its_target(model: Any) -> None:
    y = ids()
    assert columns_of(lambda given: model(given[:, :5], given), y, y)["sees_later"] != 0.0


def test_padding() -> None:
    model, x = recurrent(nn.LSTM), ids(padded=True)
    target = torch.cat([x[:, 1:], torch.zeros(B, 1, dtype=torch.long)], 1)
    found = columns_of(model, x, target)
    share = float((x == 0).sum()) / x.numel()
    assert found["pad_share"] == pytest.approx(share)
    assert found["pad_rows"] == pytest.approx(5 / 6)
    assert (found["pad_target"], found["pad_same"]) == (0.0, 1.0)
    assert found["pad_elsewhere"] == 6, "the last id of each row is followed by padding, or by what was added to it"
    assert (found["pad_behind"], found["pad_begins"]) == (-1.0, 0.0), "these rows end in different ids"
    assert columns_of(model, x, x)["pad_elsewhere"] == 0, "tags"
    assert columns_of(model, x, target, ignored=0)["pad_share"] == 0.0
    assert columns_of(model, x, target, weight=(torch.arange(V) > 0).float())["pad_share"] == 0.0
    assert columns_of(model, x, target.masked_fill(target == 0, -100))["pad_share"] == 0.0
    assert columns_of(model, x.T.contiguous(), target.T.contiguous())["pad_share"] == pytest.approx(share), "time first"
    target[:, -1] = -100  # as by a model that shifts its labels itself
    assert columns_of(model, x, target)["pad_share"] == pytest.approx(share - 5 / x.numel())


@pytest.mark.parametrize("way", ["", "time first", "within"])
def test_padding_behind_an_end_symbol(way: str) -> None:
    """What is to be said after the end symbol is padding already. An id that stands elsewhere, too, is none."""
    model, x = recurrent(nn.LSTM), ids(padded=True)
    end, lengths = V - 1, (x != 0).sum(1)
    x[x == end] = 1
    x[torch.arange(B), lengths - 1] = end
    if way == "within":
        x[0, 0] = end
    target = torch.cat([x[:, 1:], torch.zeros(B, 1, dtype=torch.long)], 1)
    turn = torch.Tensor.t if way == "time first" else torch.Tensor.contiguous
    found = columns_of(model, turn(x).contiguous(), turn(target).contiguous())
    ends = int((lengths < x.shape[1]).sum())
    assert (found["pad_behind"], found["pad_begins"]) == ((-1.0, 0.0) if way == "within" else (end, ends))


def test_padding_of_a_decoder_that_begins_with_the_id_of_padding() -> None:
    """As T5 is given its labels, one position later."""
    model, target = recurrent(nn.LSTM), ids(padded=True)
    x = F.pad(target[:, :-1], (1, 0))
    found = columns_of(model, x, target)
    assert found["pad_share"] == pytest.approx(float((x[:, 1:] == 0).sum()) / x.numel())
    assert (found["pad_target"], found["pad_same"]) == (0.0, 1.0)
    assert columns_of(model, x, target.masked_fill(target == 0, -100))["pad_share"] == 0.0
    x[0, 0] = 5
    assert columns_of(model, x, target)["pad_share"] == 0.0, "an id that some rows begin with, and others do not"


def test_ends_that_are_no_padding() -> None:
    model, x = recurrent(nn.LSTM), ids()
    ended = x.clone()
    ended[:, -1] = 2
    assert columns_of(model, ended, ended)["pad_share"] < 0.05, "one end symbol each"
    frequent = x.masked_fill(x < 14, 3)
    assert columns_of(model, frequent, frequent)["pad_share"] < 0.05, "a frequent id"
    segments = (torch.arange(T) > torch.tensor([2, 5, 3, 4, 5, 6])[:, None]).long()
    assert columns_of(model, segments, torch.ones_like(x))["pad_share"] == 0.0, "two segments"
    pause = x.clone()
    pause[:, 3:7] = 2
    assert columns_of(model, pause, pause)["pad_share"] < 0.05, "all pause at once"
    pause[:, 7:] = 2
    assert columns_of(model, pause, pause)["pad_share"] < 0.05, "and to the end"


def test_other_targets_are_left_alone() -> None:
    scores = nn.Linear(H, V)(EMBED(ids()).mean(1))
    assert columns(torch, scores, Targets(ids()[:, 0])) == {}
    image = nn.Conv2d(1, V, 3)(torch.randn(2, 1, 8, 8))
    assert columns(torch, image, Targets(torch.zeros(2, 6, 6, dtype=torch.long))) == {}


@pytest.mark.parametrize("length", [2, 3, 6])
def test_running_parities_equal_their_input_at_the_first_position_only(length: int) -> None:
    bits = torch.randint(0, 2, (64, length))
    found = columns_of(recurrent(nn.LSTM), bits, bits.cumsum(1) % 2)
    if length == 2:
        assert found["ids_compared"] == 0
    else:
        assert 0.2 < found["ids_equal"] < 0.8


def test_padding_beside_the_ids_of_a_source() -> None:
    """The targets of a translation end one position later than its source: their end symbol stands beside padding."""
    model, x = recurrent(nn.LSTM), ids(padded=True)
    target = x.roll(1, 1)
    target[:, 0] = 1
    found = columns_of(model, x, target)
    assert (found["pad_target"], found["pad_same"]) == (0.0, pytest.approx(1 - 5 / (x == 0).sum().item(), abs=0.05))


def test_targets_two_ids_later_of_rows_whose_last_id_was_cut_off() -> None:
    """Inputs are rows without their last id and labels rows without their first, which the model shifts once more."""
    lengths = torch.tensor([5, 6, 7, 8, 9, 9])[:, None]
    rows = torch.randint(3, V, (B, T + 1), generator=torch.Generator().manual_seed(2))
    x = rows[:, :-1].masked_fill(torch.arange(T) >= lengths, 0)
    labels = rows[:, 1:].masked_fill(torch.arange(T) >= lengths, -100)
    again = F.pad(labels[:, 1:], (0, 1), value=-100)
    found = columns_of(padded(True, False), x, again)
    assert (found["ids_ahead"], found["sees_later"]) == (1.0, 0.0)
    assert columns_of(padded(True, False), x, labels)["ids_ahead"] < 0.5

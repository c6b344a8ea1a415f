"""What is measured of rows of ids: their ends, their beginnings, the template, several samples in a row."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.embedded_ids import columns  # noqa: E402
from tracelyze.collectors.tensors.targets.sequences import Targets  # noqa: E402

PAD, BOS, EOS, SEP, V, H = 0, 1, 2, 3, 40, 16
EMBED, HEAD, KEYS = nn.Embedding(V, H), nn.Linear(H, V), [nn.Linear(H, H) for _ in "qkv"]
Lists = list[list[int]]


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)


def model(ids: Any, mask: Any = None, fused: bool = False) -> Any:
    q, k, v = (layer(EMBED(ids)) for layer in KEYS)
    if fused:
        return HEAD(F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None))
    mask = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril() if mask is None else mask
    return HEAD((q @ k.transpose(1, 2)).masked_fill(~mask, float("-inf")).softmax(-1) @ v)


def found_in(rows: Lists, filler: int = PAD, masked: tuple[int, ...] = (PAD,), left: bool = False, **how: Any) -> Any:
    """Of rows that are filled up, with scores and labels that the script shifts."""
    longest = max(len(row) for row in rows)
    fill = [[filler] * (longest - len(row)) for row in rows]
    ids = torch.tensor([more + row if left else row + more for row, more in zip(rows, fill, strict=True)])
    labels = ids.clone()
    for one in masked:
        labels[ids == one] = -100
    if how.pop("inside", False):  # a model that shifts inside
        scores, labels = model(ids, **how), F.pad(labels, (0, 1), value=-100)[:, 1:]
    else:
        scores, labels = model(ids, **how)[:, :-1], labels[:, 1:]
    scores = scores.reshape(-1, V)
    with torch.no_grad():
        found = columns(torch, scores, Targets(labels.reshape(-1)))
    return {name: float(value) for name, value in found.items()}


TEXTS = [[BOS, *range(10 + n, 15 + 2 * n), EOS] for n in range(6)]


@pytest.mark.parametrize("inside", [False, True])
def test_the_end_of_rows(inside: bool) -> None:
    own = found_in(TEXTS, inside=inside)
    assert (own["ids_next"], own["end_id"], own["end_least"], own["end_counts"]) == (1.0, PAD, 0.0, 0.0)
    assert (own["stop_id"], own["stop_same"]) == (EOS, 1.0)
    assert (own["targets_least"], own["targets_most"]) == (6.0, 11.0)
    shared = found_in(TEXTS, filler=EOS, masked=(EOS,), inside=inside)
    assert (shared["end_id"], shared["end_rows"], shared["end_least"], shared["end_counts"]) == (EOS, 1.0, 1.0, 0.0)
    assert shared["stop_same"] < 0.5
    assert found_in(TEXTS, filler=EOS, masked=(), inside=inside)["end_counts"] > 6
    assert found_in(TEXTS, filler=EOS, masked=(EOS,), left=True)["end_least"] == 1.0


def test_what_stands_behind_the_last_target_that_counts() -> None:
    stopped = [[*row[:3], 4, *row[3:-1], 4, EOS] for row in TEXTS]
    for left in (False, True):
        shared = found_in(stopped, filler=EOS, masked=(EOS,), left=left)
        assert (shared["stop_id"], shared["stop_same"], shared["stop_inside"]) == (4.0, 1.0, 6.0)
        assert (shared["behind_id"], shared["behind_rows"], shared["behind_counts"]) == (EOS, 1.0, 0.0)
        assert shared["stop_after"] <= 0.5
    apart = found_in(stopped, masked=(PAD, EOS))
    assert (apart["end_id"], apart["behind_id"], apart["behind_rows"], apart["stop_id"]) == (PAD, EOS, 1.0, 4.0)
    counted = found_in(stopped)
    assert (counted["behind_id"], counted["stop_id"], counted["stop_inside"]) == (PAD, EOS, 0.0)
    turns = [[*row[:3], SEP, 9, *row[3:-1], SEP, EOS] for row in TEXTS]
    assert found_in(turns, filler=EOS, masked=(EOS,))["stop_after"] == 1.0
    assert found_in([row[:-1] for row in TEXTS[:1] * 3])["behind_id"] == -1.0, "nothing stands behind it"


def test_an_end_that_is_a_target_of_rows_that_were_given_without_it() -> None:
    """A script that hands the model all ids but the last one, and the loss the number that it ignores."""

    def least(texts: Lists, filler: int) -> float:
        full = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in texts], batch_first=True, padding_value=filler)
        scores = model(full[:, :-1]).reshape(-1, V)
        with torch.no_grad():
            return float(columns(torch, scores, Targets(full[:, 1:].reshape(-1), filler))["end_least"])

    assert least(TEXTS, EOS) == 1.0, "the longest row is not filled up, and yet ends in it"
    assert least(TEXTS, PAD) == 0.0, "an end of its own"
    assert least([row[:-1] for row in TEXTS], PAD) == 0.0, "items of which the next is told, and no end"


def test_the_beginning_of_rows() -> None:
    doubled = [[BOS, *row] for row in TEXTS]
    assert found_in(TEXTS)["begin_twice"] == 0.0
    for left in (False, True):
        found = found_in(doubled, left=left)
        assert (found["begin_id"], found["begin_twice"]) == (BOS, 1.0)
    assert found_in(TEXTS, left=True)["begin_twice"] == 0.0
    assert found_in([[SEP, SEP, n, n + 1, SEP, n + 2, EOS] for n in range(5, 20)])["begin_twice"] == 0.0, (
        "used elsewhere"
    )


def test_templates_and_prompts() -> None:
    template = [BOS, 30, 31, 32, 33]
    found = found_in([[*template, *row[1:]] for row in TEXTS])
    assert (found["prefix"], found["prefix_share"] > 0.3) == (5.0, True)
    parted = found_in([[*row[:-1], SEP, 5 + n, 9, EOS] for n, row in enumerate(TEXTS)])
    assert (parted["separator"], 0.5 < parted["separator_share"] < 0.8) == (SEP, True)
    assert found_in(TEXTS)["separator"] == -1.0, "an end symbol parts nothing"
    filled = [[*row, *[PAD] * (15 - len(row))] for row in TEXTS]
    assert found_in(filled, masked=())["separator"] == -1.0, "nor where what fills up the rows counts"
    answered = [[*row[:-1], SEP, 5 + n, 9, EOS, *[PAD] * (9 - n)] for n, row in enumerate(TEXTS)]
    assert found_in(answered, masked=())["separator"] == SEP
    same = found_in([TEXTS[0]] * 4)
    assert (same["prefix"], same["separator"]) == (0.0, -1.0), "one text several times: nothing tells where it parts"


def test_several_samples_in_a_row() -> None:
    rows = [[*TEXTS[n], *TEXTS[n + 1], *TEXTS[5 - n]] for n in range(3)]
    for fused in (False, True):
        found = found_in(rows, fused=fused)
        assert (found["parts"], found["crosses"] > 0) == (3.0, True)
    ids = torch.tensor([row + [PAD] * (max(map(len, rows)) - len(row)) for row in rows])
    part = (ids == BOS).cumsum(1)
    mask = (part[:, :, None] == part[:, None, :]) & torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).tril()
    for fused in (False, True):
        assert found_in(rows, mask=mask, fused=fused)["crosses"] == 0.0
    assert found_in(TEXTS)["parts"] <= 1.0


@pytest.mark.parametrize("begun", [True, False])
def test_several_samples_in_rows_of_one_length(begun: bool) -> None:
    """All rows are filled up, with an id of its own: samples end in the one before it, and begin alike, or as prompts
    that do not count."""
    texts = [row if begun else row[1:] for row in TEXTS]
    packed = [[*texts[n], *texts[n + 1], *texts[5 - n]] for n in range(3)]
    shape = torch.ones(32, 32, dtype=torch.bool)

    def found(rows: Lists, mask: Any = None, prompts: int = 3) -> Any:
        ids = torch.tensor([row + [PAD] * (32 - len(row)) for row in rows])
        opens = torch.cat([torch.ones_like(ids[:, :1]), (ids == EOS)[:, :-1].long()], 1)
        part = opens.cumsum(1)
        counts = (ids != PAD) & ~sum((opens.roll(at, 1) for at in range(prompts)), torch.zeros_like(ids)).bool()
        if mask is not None:
            mask = mask & shape.tril() & (part[:, :, None] == part[:, None, :])
            mask |= (ids == PAD)[:, :, None] & shape.tril()  # what padding sees is nobody's business
        scores = model(ids, mask=mask)[:, :-1].reshape(-1, V)
        with torch.no_grad():
            got = columns(torch, scores, Targets(ids.masked_fill(~counts, -100)[:, 1:].reshape(-1)))
        return {name: float(value) for name, value in got.items()}

    assert (found(packed)["parts"], found(packed)["crosses"] > 0) == (3.0, True)
    assert found(packed, mask=shape)["crosses"] == 0.0
    assert found(texts)["parts"] == 1.0
    assert found([[*row, *row] for row in texts[:2]])["parts"] == 1.0, "room for more: turns of a conversation"
    assert found(packed, prompts=0)["parts"] == (3.0 if begun else 1.0), "sentences end in one id, too"


def test_the_mark_of_a_section_begins_no_sample() -> None:
    """Prompts that begin with the mark of their first section: "### Instruction: ... ### Response: ..."."""
    sections = [[SEP, 20, *row[1:-1], SEP, 21, 5 + n, SEP, 22] for n, row in enumerate(TEXTS)]
    assert found_in(sections)["parts"] == 1.0
    packed = [[*sections[n], *sections[n + 1]] for n in range(4)]
    assert found_in(packed)["parts"] == 2.0, "each sample goes on as the rows do"
    assert found_in(packed[:1])["parts"] > 1.0, "of one row nobody knows how others go on"


def test_answers_in_rows_that_are_cut_anywhere() -> None:
    """Prompts are masked, each answer ends in one id, and the stream of samples is cut into equal pieces."""
    length, samples = 12, [(list(range(10 + n, 14 + n % 3 + n)), [30 + n % 5, 31, EOS]) for n in range(12)]
    stream = [pair for prompt, answer in samples for pair in [(i, False) for i in prompt] + [(i, True) for i in answer]]
    rows = [stream[at : at + length] for at in range(0, len(stream) - length + 1, length)]
    ids = torch.tensor([[one for one, _ in row] for row in rows])
    labels = torch.tensor([[one if counts else -100 for one, counts in row] for row in rows])

    def found(mask: Any = None, labels: Any = labels) -> Any:
        scores = model(ids, mask=mask)[:, :-1].reshape(-1, V)
        with torch.no_grad():
            got = columns(torch, scores, Targets(labels[:, 1:].reshape(-1)))
        return {name: float(value) for name, value in got.items()}

    own = found()
    assert own["parts"] == 0.0
    assert own["answers"] > 1.5
    assert own["crosses"] > 0.0
    assert own["answers_cut"] == sum(row[1][1] for row in rows) / len(rows) > 0
    behind = torch.zeros_like(ids, dtype=torch.bool)
    behind[:, 1:] = (labels[:, :-1] == EOS) & (labels[:, 1:] == -100)
    part = behind.cumsum(1)
    apart = (part[:, :, None] == part[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()
    assert found(apart)["crosses"] == 0.0
    several = labels.clone()
    several[several == 31] = -100  # answers that are parted, and end in several ids
    assert found(labels=several)["answers"] == 1.0

"""Targets that are slices: the order of the labels in the tensor that they are cut out of."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.collectors.tensors.targets import kept_order  # noqa: E402

SORTED = torch.arange(5).repeat_interleave(40)
TABLE = torch.cat([torch.rand(200, 3), SORTED[:, None].float()], dim=1)


def order_of(target: Any) -> tuple[int, ...]:
    known, values = kept_order.rows_and_order(torch, target)
    return (*known.values(), *(int(one) for one in values.values()))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        (SORTED[:16], (200, 200, 5, 5, 4)),
        (SORTED[64:80], (200, 200, 5, 5, 4)),
        (SORTED.flip(0)[:16], (200, 200, 5, 5, -4)),
        (SORTED[:16].unsqueeze(1), (200, 200, 5, 5, 4)),
        (TABLE[32:64, 3], (200, 200, 5, 5, 4)),
        ((torch.arange(200) % 5)[:16], (200, 200, 200, 5, 199 - 2 * 39)),
        (torch.arange(100_000)[:50], (100_000, 2041, 2041, 2041, 2040)),  # one in 49 is looked at
    ],
)
def test_the_whole_tensor_is_looked_at(target: Any, found: tuple[int, ...]) -> None:
    assert order_of(target) == found


@pytest.mark.parametrize(
    "target",
    [
        SORTED,  # all there is
        SORTED[torch.arange(16)],  # a copy
        SORTED[:16].float(),
        SORTED.view(20, 10)[:4],  # several for each sample
        torch.zeros(1).expand(16),
        torch.tensor(3),
        torch.rand(4, 4, device="meta")[:2, 0],
        TABLE.to_sparse(),
    ],
)
def test_what_shows_no_order(target: Any) -> None:
    assert order_of(target) == ()


def test_nothing_is_written() -> None:
    labels = torch.randint(0, 9, (3000,))
    before, version = labels.clone(), labels._version
    order_of(labels[30:60])
    assert torch.equal(labels, before)
    assert labels._version == version

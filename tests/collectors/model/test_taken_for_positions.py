"""Which dimensions recurrences and attention of torch take for positions, and which one holds the samples."""

from __future__ import annotations

import torch
from torch import nn

from tracelyze.collectors.tensors.attention import taken_for_positions


def facts(layer: nn.Module, given: torch.Tensor, **named: torch.Tensor) -> dict[str, object]:
    return taken_for_positions.facts(torch, layer, (layer, given) if given is not None else (layer,), named)


def test_sizes_of_what_is_taken_for_positions_and_samples() -> None:
    x = torch.zeros(5, 7, 8)
    assert facts(nn.LSTM(8, 4), x) == {"positions_first": True, "positions": 5, "rows": 7}
    assert facts(nn.GRU(8, 4, batch_first=True), x) == {"positions_first": False, "positions": 7, "rows": 5}
    attention = nn.MultiheadAttention(8, 2)
    assert facts(attention, None, query=x, key=x, value=x) == {"positions_first": True, "positions": 5, "rows": 7}
    assert facts(nn.TransformerEncoderLayer(8, 2), x)["positions"] == 5
    assert facts(nn.Linear(8, 4), x) == facts(nn.LSTM(8, 4), x[0]) == {}


def test_a_view_of_images_tells_samples_from_positions() -> None:
    images = torch.zeros(6, 8, 1, 6)  # as many columns as samples
    columns = images.squeeze(2).permute(2, 0, 1)
    assert facts(nn.LSTM(8, 4), columns)["positions_outermost"] is False
    assert facts(nn.LSTM(8, 4, batch_first=True), columns)["positions_outermost"] is True
    assert facts(nn.LSTM(8, 4, batch_first=True), images.flatten(2).transpose(1, 2))["positions_outermost"] is False
    assert "positions_outermost" not in facts(nn.LSTM(8, 4), columns.contiguous())
    assert "positions_outermost" not in facts(nn.LSTM(8, 4), torch.zeros(6, 6, 8).transpose(0, 1))

"""Which operation made a gradient NaN, by the shape of the graph after its backward."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.analyzers import diagnose  # noqa: E402
from tracelyze.collectors.signals.gradients.hidden_rows import MASKED_ROWS  # noqa: E402
from tracelyze.collectors.signals.gradients.singular_operations import suspects  # noqa: E402


def named(loss: Any, leaves: list[Any]) -> list[str]:
    loss.backward()
    finite = {id(p) for p in leaves if p.grad is None or bool(p.grad.isfinite().all())}
    broken = {id(p) for p in leaves} - finite
    assert broken
    return suspects(loss.grad_fn, finite, broken)


def leaf(*values: float) -> Any:
    return torch.tensor(values, requires_grad=True)


def test_operations_at_their_edge() -> None:
    x, w = leaf(0.0, 0.0), leaf(2.0, 3.0)
    assert named(((x * w).square().sum().sqrt() + w.sum()) * 1.0, [x, w]) == ["sqrt at 0"]
    x = leaf(0.0, 1.0)
    hidden = torch.where(x > 0, x.log() * x, torch.zeros(2))
    assert named(hidden.sum(), [x]) == ["log at 0 in a branch that where() hides"]
    x = leaf(1.0, 0.5)
    assert named(torch.acos(x).sum(), [x]) == ["acos at 1"]


def test_what_lies_elsewhere_is_no_suspect() -> None:
    x, w = leaf(0.0, 0.0), leaf(4.0, 9.0)
    loss = x.pow(0.5).sum() + w.sqrt().sum() + (w / 3).log().sum()
    assert named(loss, [x, w]) == ["a power below 1 at 0"]


def test_powers_are_told_apart_by_their_exponents() -> None:
    x, w = leaf(0.0, 0.0), leaf(4.0, 9.0)
    both = x.pow(2).sum() + (x + x).pow(0.5).sum() + (x * x + 0.0).sum().sqrt() + w.sum()
    assert named(both, [x, w]) == ["sqrt at 0", "a power below 1 at 0"] or set(named(both, [x, w])) == {
        "sqrt at 0",
        "a power below 1 at 0",
    }
    x = leaf(0.0, 1.0)
    assert named((x**2).sum() * float("inf"), [x]) == [], "a square has a slope everywhere"


def test_what_torch_gives_a_gradient_of_zero_is_no_suspect() -> None:
    x = leaf(0.0, 0.0)
    edges = [x.norm(), torch.linalg.vector_norm(x), x.std(), torch.cdist(x[:, None], x[:, None]).sum()]
    sum(edges).backward()
    assert x.grad.isfinite().all()
    x, y = leaf(0.0, 0.0), leaf(1.0, 1.0)
    loss = torch.nn.functional.normalize(x + y, dim=0).sum() + (x.norm() + x.sum()).sqrt()
    assert named(loss, [x]) == ["sqrt at 0"], "the divisor of normalize is kept above 0"
    x = leaf(0.0, 0.0)
    assert named((x.sum().sqrt() / x.square().sum().clamp(max=1.0)), [x]) == ["division by 0", "sqrt at 0"]


def attended(hide: bool, layer: bool = True, fused: bool = False, masked: bool = True) -> list[str]:
    """What may have made the gradients NaN of attention in which all positions of one row are masked."""
    torch.manual_seed(0)
    x, padding = leaf(*(0.1 * one for one in range(24))), torch.zeros(3, 4, dtype=torch.bool)
    padding[1] = masked
    rows, attention = x.view(3, 4, 2), torch.nn.MultiheadAttention(2, 1, batch_first=True)
    if layer:
        out, _ = attention(rows, rows, rows, key_padding_mask=padding, need_weights=not fused)
    else:
        scores = (rows @ rows.transpose(1, 2)).masked_fill(padding[:, None], float("-inf"))
        out = scores.softmax(-1) @ rows
    out = out.masked_fill(padding[..., None], 0.0) if hide else out
    loss = out.square().mean()
    loss.backward()
    leaves = [x, *attention.parameters()] if layer else [x]
    broken = {id(one) for one in leaves if one.grad is not None and not bool(one.grad.isfinite().all())}
    assert not broken or hide
    return suspects(loss.grad_fn, {id(one) for one in leaves} - broken, broken) if broken else []


def test_rows_of_attention_that_are_masked_everywhere() -> None:
    assert attended(hide=True) == [MASKED_ROWS]
    assert attended(hide=True, layer=False) == [MASKED_ROWS]
    assert attended(hide=True, fused=True) == [], "which gives such rows an output of 0"
    assert attended(hide=True, masked=False) == []
    x = leaf(-1.0, 2.0)
    weights = torch.softmax(torch.stack([x, x]).masked_fill(torch.eye(2, dtype=torch.bool), float("-inf")), -1)
    loss = (weights.masked_fill(torch.eye(2, dtype=torch.bool), 0.0) * float("inf")).sum()
    loss.backward()
    assert suspects(loss.grad_fn, set(), {id(x)}) == [], "no values are weighed: no attention"
    y = leaf(-1.0, 2.0)
    scores = torch.softmax((y[:, None] * y[None]).masked_fill(torch.eye(2, dtype=torch.bool), float("-inf")), -1) @ y
    (scores * float("inf")).sum().backward()
    assert suspects((scores * 1.0).sum().grad_fn, set(), {id(y)}) == [], "nothing hides what it puts out"


SCRIPT = """
import torch
from torch import nn
torch.manual_seed(0)
class Metric(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(6, 4)
        self.scale = nn.Parameter(torch.ones(1))
    def forward(self, a, b):
        gap = self.embed(a) - self.embed(b)
        return self.scale * gap.square().sum(1).sqrt()
net = Metric()
opt = torch.optim.SGD(net.parameters(), 0.01)
for step in range(30):
    a, b = torch.randn(8, 6), torch.randn(8, 6)
    if step == 12:
        b[3] = a[3]
    loss = net(a, b).mean()
    opt.zero_grad(); loss.backward(); opt.step()
"""


@pytest.mark.starts_programs
def test_the_operation_is_named(collect: Any, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    diagnosis = diagnose(collect(sys.executable, str(script)).run)
    (finding,) = [one for one in diagnosis.findings if one.rule == "nonfinite-gradients"]
    assert (finding.first_step, finding.caused_by) == (13, None)
    assert "embed" in finding.title
    assert "sqrt at 0" in finding.summary

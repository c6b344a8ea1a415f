"""Inputs that change while the model is trained on them, and whether autograd still needs them then."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.collectors.conftest import program
from tracelyze.analyzers import diagnose

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from tracelyze.collectors.signals.data import saved_inputs  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (("between",), "fired"),
        (("between", "inline"), "fired"),
        (("inline",), "passed"),
        (("data",), "fired"),
        (("between", "once"), "passed"),
        (("between", "scaled"), "passed"),
        (("in place", "scaled"), "skipped"),
        (("swapped",), "skipped"),
        (("after",), "passed"),
        ((), "passed"),
    ],
)
def test_buffers_that_are_filled_anew(collect: Any, said: tuple[str, ...], expected: str) -> None:
    diagnosis = diagnose(collect(sys.executable, program("refilled.py"), *said).run, select=["corrupted-copy"])
    check = diagnosis.checks[0]
    assert check.status == expected, check.reason
    if expected == "fired":
        (finding,) = diagnosis.findings
        assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "certain", 1)
        assert finding.location is not None
        assert "from_numpy" in finding.location.source


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, one: Any, other: Any) -> Any:
        ctx.save_for_backward(one, other)
        return one * other

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        one, _ = ctx.saved_tensors
        return None, (gradient * one).sum()


def test_what_a_graph_has_saved() -> None:
    saved_values.watch(torch)
    images, ids, labels = torch.randn(4, 3, 8, 8), torch.randint(0, 9, (4, 5)), torch.randint(0, 3, (4,))
    table, weight = nn.Embedding(9, 4), torch.ones(1, requires_grad=True)
    linear, flat = nn.Linear(192, 3), images.flatten(1)

    def needs(output: Any, given: Any) -> bool:
        extent = saved_inputs.extent(given)
        return saved_inputs.saved([output.sum()], {extent}) == {extent}

    assert needs(nn.Conv2d(3, 4, 3)(images), images)
    assert needs(linear(flat), images), "a view"
    assert needs(nn.functional.cross_entropy(linear(flat), labels), labels)
    assert needs(table(ids), ids)
    assert needs(table.weight[ids], ids)
    assert not needs(linear(flat / 255), images), "numbers of its own"
    assert not needs(linear.requires_grad_(False)(flat) * weight, images), "the weights are frozen"
    assert not needs(checkpoint(nn.Linear(8, 8), images, use_reentrant=False), images), "not to be asked"
    assert needs(_Product.apply(images, weight), images)
    ring = torch.zeros(3, 4, 192)
    used, other = ring[1], ring[2]
    assert needs(nn.Linear(192, 3)(used), ring)
    assert not needs(nn.Linear(192, 3)(used), other), "another part of the same memory"

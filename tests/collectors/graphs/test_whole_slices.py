"""What is read off a graph does not depend on whether torch makes slices of colons that leave nothing out.

Older versions of torch (2.6 still) make one of each colon before an index, as in `x[:, None]` and `x[:, 1:]`.
"""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.signals.gradients.singular_operations import suspects  # noqa: E402
from tracelyze.collectors.signals.loss.loss_inputs import origin  # noqa: E402
from tracelyze.collectors.signals.loss.nonfinite_operations import first_broken  # noqa: E402
from tracelyze.collectors.tensors import graphs, saved_values  # noqa: E402
from tracelyze.collectors.tensors.policies import ratios  # noqa: E402
from tracelyze.collectors.tensors.written_out.compared import compared  # noqa: E402
from tracelyze.collectors.tensors.written_out.errors import meeting, sides  # noqa: E402
from tracelyze.collectors.tensors.written_out.likelihoods import likelihood  # noqa: E402

BATCH, WIDTH, CLASSES = 6, 4, 3


@pytest.fixture(autouse=True)
def watched() -> None:
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)
    torch.manual_seed(0)


def whole(x: Any) -> Any:
    """`x[:]`, as it is recorded where that makes a slice."""
    return torch.ops.aten.slice.Tensor(x, 0, 0, 2**63 - 1)


def scores() -> Any:
    return nn.Linear(WIDTH, CLASSES)(torch.randn(BATCH, WIDTH, requires_grad=True))


def test_a_slice_that_leaves_nothing_out_is_none() -> None:
    x = scores()
    assert saved_values.kind(whole(x).grad_fn) == graphs.kind_of(whole(x).grad_fn) == "Alias"
    assert saved_values.kind(x[1:].grad_fn) == saved_values.kind(x[:, :-1].grad_fn) == "Slice"


def test_a_divisor_that_is_kept_from_0_is_no_suspect() -> None:
    vectors = nn.Parameter(torch.randn(BATCH, WIDTH))
    norms = (vectors * 2).abs().sum(1)
    for divisor, expected in ((norms.clamp(min=1e-6), []), (norms, ["division by 0"])):
        loss = (vectors / whole(divisor)[:, None]).sum()
        assert suspects(loss.grad_fn, set(), {id(vectors)}) == expected


def test_what_is_broken_reaches_the_loss() -> None:
    (found,) = first_broken(torch, whole(nn.Parameter(torch.zeros(BATCH)).log())[:, None].mean().grad_fn)
    assert found.reaches


def test_all_of_what_a_softmax_made_is_there() -> None:
    assert origin(whole(scores().softmax(1))[:, None].grad_fn, 3) == ("Softmax", None, True)
    assert origin(whole(scores().softmax(1))[1:].grad_fn, 2) == ("Softmax", None, False)


def test_prediction_and_target_of_a_difference() -> None:
    target = torch.randn(BATCH, CLASSES)
    found = meeting(torch, ((whole(scores()) - target) ** 2).mean().grad_fn)
    assert found is not None
    values = sides(torch, found)
    assert values is not None
    assert torch.allclose(values[1], target, atol=1e-6)


def test_a_student_and_its_teacher() -> None:
    loss = -(whole(scores().softmax(1))[:, None] * whole(scores().log_softmax(1))[:, None]).sum(2).mean()
    assert len(compared(loss.grad_fn)) == 1


def test_a_ratio_of_two_policies() -> None:
    logs = scores().log_softmax(1).gather(1, torch.zeros(BATCH, 1, dtype=torch.long))[:, 0]
    distance = whole(logs - torch.randn(BATCH))[:, None]
    loss = -(distance.exp() * torch.randn(BATCH, 1)).mean()
    assert ratios.ratio(torch, loss.grad_fn) is not None


def test_classes_that_are_picked() -> None:
    picked = torch.randint(0, CLASSES, (BATCH,))
    logs = whole(whole(scores()).log_softmax(1))
    found = likelihood(torch, (-whole(logs[torch.arange(BATCH), picked]).mean()).grad_fn)
    assert found is not None
    assert found.targets.equal(picked)

"""Losses that a script writes out by itself: which shapes met, read from the graph behind the scalar."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.analyzers import diagnose  # noqa: E402
from tracelyze.collectors.tensors import saved_values  # noqa: E402
from tracelyze.collectors.tensors.written_out.compared import compared  # noqa: E402
from tracelyze.collectors.tensors.written_out.errors import meeting  # noqa: E402

B = 9
NET = torch.nn.Linear(4, 1)
X, Y = torch.randn(B, 4), torch.rand(B)


@pytest.fixture(autouse=True)
def watched() -> None:
    """As the signal does in torch before 2.10, where a program that has used hooks for saved tensors is not read."""
    saved_values.watch(torch)
    saved_values._used[:] = [False] * len(saved_values._used)


def prediction() -> Any:
    return NET(X)


def met(loss: Any) -> tuple[tuple[int, ...], tuple[int, ...], bool] | None:
    found = meeting(torch, loss.grad_fn)
    return None if found is None else (found.given, found.target, found.crossed)


CROSSED = {
    "squares": lambda p: ((p - Y) ** 2).mean(),
    "target first": lambda p: (Y - p).pow(2).sum() / B,
    "square": lambda p: torch.square(p - Y).mean(),
    "absolute": lambda p: (p - Y).abs().mean(),
    "root": lambda p: torch.sqrt(((p - Y) ** 2).mean() + 1e-8),
    "with a regulariser": lambda p: ((p - Y) ** 2).mean() + 1e-3 * NET.weight.square().sum(),
    "entropy": lambda p: -(Y * torch.log(torch.sigmoid(p)) + (1 - Y) * torch.log(1 - torch.sigmoid(p))).mean(),
    "gaussian": lambda p: -torch.distributions.Normal(p, 1.0).log_prob(Y).mean(),
    "weights": lambda p: (Y * (p - Y[:, None]) ** 2).mean(),
    "quantiles": lambda p: sum(torch.maximum(q * (Y - p), (q - 1) * (Y - p)).mean() for q in (0.1, 0.9)),
    "smooth": lambda p: (torch.sqrt(0.5 * (0.2 * (Y - p)) ** 2 + 1.0) - 1.0).mean(),
    "log-cosh": lambda p: torch.nn.functional.softplus(-2.0 * (p - Y)).mean(),
    "policy": lambda p: -(torch.nn.functional.logsigmoid(p) * Y).mean(),
}


@pytest.mark.parametrize("name", CROSSED)
def test_every_prediction_meets_every_target(name: str) -> None:
    assert met(CROSSED[name](prediction())) == ((B, 1), (B,), True)


def test_a_flat_prediction_and_a_column_of_targets() -> None:
    assert met(((prediction().squeeze(1) - Y[:, None]) ** 2).mean()) == ((B,), (B, 1), True)


@pytest.mark.parametrize(
    "loss",
    [
        lambda p: ((p - Y[:, None]) ** 2).mean(),
        lambda p: ((p.squeeze(1) - Y) ** 2).mean(),
        lambda p: ((p.squeeze(1)[:, None] - Y[None]) ** 2).mean(),  # all pairs on purpose
        lambda p: ((p - torch.rand(B, B)) ** 2).mean(),  # a target for every pair
        lambda p: ((p - torch.rand(B, 7)) ** 2).mean(),  # several targets for each prediction
        lambda p: (p - 0.5).pow(2).mean(),
        lambda p: (torch.tensor([0.1, 0.5, 0.9]) * (Y[:, None] - p)).mean(),  # quantiles
        lambda p: ((p - p.T) ** 2).mean(),  # all pairs of predictions
        lambda p: torch.nn.functional.mse_loss(p, Y[:, None]) / 4,
        lambda p: (torch.nn.functional.softplus(p) - Y[:, None] * p).mean(),
    ],
)
def test_shapes_that_belong_together(loss: Any) -> None:
    found = met(loss(prediction()))
    assert found is None or not found[2]


def test_memory_that_the_program_keeps_elsewhere_is_not_read() -> None:
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        loss = ((prediction() - Y) ** 2).mean()
    found = met(loss)
    assert found is None or not found[2]


SCRIPT = """
import torch
torch.manual_seed(0)
class Trainer:
    def __init__(self):
        self.net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
        self.opt = torch.optim.Adam(self.net.parameters(), 1e-2)
    def step(self, x, y):
        error = self.net(x) - y
        loss = error.square().mean()
        self.opt.zero_grad(); loss.backward(); self.opt.step()
trainer = Trainer()
x = torch.randn(256, 4); y = x.sum(1)%s
for _ in range(40):
    pick = torch.randint(0, 256, (32,))
    trainer.step(x[pick], y[pick])
"""


@pytest.mark.starts_programs
@pytest.mark.parametrize(("ending", "status"), [("", "fired"), (".unsqueeze(1)", "passed")])
def test_a_recorded_loss(collect: Any, tmp_path: Path, ending: str, status: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % ending)
    diagnosis = diagnose(collect(sys.executable, str(script)).run, select=["loss-broadcast"])
    assert diagnosis.checks[0].status == status, diagnosis.checks[0].reason
    if diagnosis.findings:
        (finding,) = diagnosis.findings
        assert (finding.severity, finding.confidence) == ("critical", "certain")
        assert "[32, 1] with [32]" in finding.title
        assert "loss.backward()" in finding.location.source


TEACHER = torch.nn.Linear(4, 6)
STUDENT = torch.nn.Linear(4, 6)


def two(loss: Any) -> list[tuple[str, str, bool]]:
    """Whose bias is the nearest behind what is given, and behind what it is compared with."""

    def whose(node: Any) -> str:
        waiting = [node]
        for one in waiting:
            if getattr(one, "variable", None) is not None:
                return "student" if one.variable is STUDENT.bias else "teacher"
            waiting += [following for following, _ in one.next_functions if following is not None]
        return ""

    return [(whose(one.given), whose(one.target), one.either) for one in compared(loss.grad_fn)]


ERRORS_OF_TWO = {
    "squares": lambda s, t: ((s - t) ** 2).mean(),
    "pow": lambda s, t: (s - t).pow(2).sum(1).mean() * 0.5 + s.log_softmax(1).mean(),
    "square": lambda s, t: torch.square(s - t).mean(),
    "product": lambda s, t: (d := s - t, (d * d).mean())[1],
    "absolute": lambda s, t: (s - t).abs().mean(),
    "norm": lambda s, t: (s - t).norm(dim=1).mean(),
    "root": lambda s, t: ((s - t) ** 2).mean().sqrt(),
}
DISTRIBUTIONS_OF_TWO = {
    "cross-entropy": lambda s, t: -(t.softmax(1) * s.log_softmax(1)).sum(1).mean(),
    "softened": lambda s, t: -((s / 2).log_softmax(1) * (t / 2).softmax(1)).sum(1).mean() * 4,
    "guarded": lambda s, t: -(t.softmax(1) * (s.softmax(1) + 1e-8).log()).sum(1).mean(),
    "difference": lambda s, t: (t.softmax(1) * (t.softmax(1).log() - s.log_softmax(1))).sum(1).mean(),
}


@pytest.mark.parametrize("name", [*ERRORS_OF_TWO, *DISTRIBUTIONS_OF_TWO])
def test_what_two_models_put_out_is_compared(name: str) -> None:
    loss = (ERRORS_OF_TWO | DISTRIBUTIONS_OF_TWO)[name](STUDENT(X), TEACHER(X))
    assert ("student", "teacher", name in ERRORS_OF_TWO) in two(loss)


@pytest.mark.parametrize("name", [*ERRORS_OF_TWO, *DISTRIBUTIONS_OF_TWO])
def test_a_target_without_a_graph_is_none_of_two(name: str) -> None:
    assert not two((ERRORS_OF_TWO | DISTRIBUTIONS_OF_TWO)[name](STUDENT(X), TEACHER(X).detach()))


def test_what_compares_no_two_outputs() -> None:
    student, teacher = STUDENT(X), TEACHER(X)
    for loss in (
        (student * teacher).mean(),
        -(teacher.log_softmax(1) * student).mean(),  # an advantage that weighs the logarithm of a choice
        (student - teacher).mean(),
        (student.softmax(1) * teacher).sum(1).mean(),  # gates
        (student - student).pow(2).mean(),
        torch.nn.functional.cross_entropy(student - teacher, torch.zeros(B, dtype=torch.long)),
    ):
        assert not two(loss)

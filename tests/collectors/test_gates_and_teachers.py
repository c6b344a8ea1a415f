"""Gates of experts are found by what stands beside them, teachers by what is behind a target."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.program import two_models  # noqa: E402
from tracelyze.collectors.program.gates import Gates  # noqa: E402
from tracelyze.collectors.program.optimizers import Tracked  # noqa: E402


class Mixture(nn.Module):
    def __init__(self, gate: str = "gate", stacked: bool = False) -> None:
        super().__init__()
        setattr(self, gate, nn.Linear(6, 4))
        self.experts: Any = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        if stacked:
            self.experts = nn.Module()
            self.experts.up = nn.Parameter(torch.randn(4, 6, 6))


def test_gates_of_experts() -> None:
    for model in (Mixture(), Mixture("router", stacked=True)):
        gate = next(iter(model.children()))
        gates = Gates(torch, nn.Sequential(nn.Linear(4, 6), model))
        assert gates.facts(gate) == {"experts": 4}
        scores = torch.zeros(40, 4)
        scores[:, 2] = 1.0
        assert [float(one) for one in gates.numbers(scores, 4)] == [2.0, 1.0, 3.0]
    head = Mixture("head")
    assert Gates(torch, head).facts(head.head) == {}


def held(*modules: nn.Module) -> list[Tracked]:
    optimizer = torch.optim.SGD([p for module in modules for p in module.parameters()], lr=0.1)
    held.kept = [*getattr(held, "kept", []), optimizer]  # type: ignore[attr-defined]
    return [Tracked(optimizer, 0)]


def test_what_is_behind_a_target_alone() -> None:
    student, teacher, x = nn.Linear(5, 3), nn.Linear(5, 3).eval(), torch.randn(7, 5)
    models = [(0, teacher), (1, student)]
    found = two_models.columns(student(x), teacher(x), held(student, teacher), models)
    assert found == {"target_trained": 2, "target_model": 0, "target_in_train": False, "input_model": 1}
    assert two_models.columns(student(x), teacher(x), held(student), models) == {}, "nothing updates it"
    shared = nn.Linear(5, 5)
    inside = two_models.columns(student(shared(x)), shared(x)[:, :3], held(student, shared), models)
    assert inside == {}, "nothing is behind the target that is not behind the input"

"""Gates of experts are found by what stands beside them, teachers by what is behind a target."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from tracelyze.collectors.program.modules import gate_parameters, two_models  # noqa: E402
from tracelyze.collectors.program.modules.gates import Gates  # noqa: E402
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
        assert [float(one) for one in gates.numbers(gate, scores, 4)] == [2.0, 1.0, 3.0]


class Batched(nn.Module):
    """Experts in one tensor, and a gate that is a layer or a matrix of the model's own."""

    def __init__(self, layer: bool, how: str = "softmax", favourite: int | None = None) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(4, 6, 8))
        self.how, self.layer = how, layer
        self.router: Any = nn.Linear(6, 4) if layer else nn.Parameter(torch.randn(6, 4))
        self.bias = nn.Parameter(torch.zeros(4))
        if favourite is not None:
            with torch.no_grad():
                self.bias[favourite] = 100.0

    def forward(self, x: Any) -> Any:
        scores = (self.router(x) if self.layer else x @ self.router) + self.bias
        values, chosen = scores.topk(2, dim=-1) if self.how == "topk" else scores.softmax(-1).max(-1, keepdim=True)
        weights = torch.zeros_like(scores).scatter(-1, chosen, values.softmax(-1) if self.how == "topk" else values)
        return torch.einsum("ned,ne->nd", torch.einsum("nd,edh->neh", x, self.up), weights)


def test_a_layer_beside_experts_in_one_tensor() -> None:
    model = Batched(layer=True)
    assert Gates(torch, nn.Sequential(model)).facts(model.router) == {"experts": 4}
    wide = Batched(layer=True)
    wide.up = nn.Parameter(torch.randn(4, 5, 8))
    assert Gates(torch, wide).facts(wide.router) == {}, "these weights do not read what the layer reads"
    convolved = nn.Module()
    convolved.gate, convolved.conv = nn.Linear(6, 4), nn.Conv1d(6, 4, 3)
    assert Gates(torch, convolved).facts(convolved.gate) == {}, "channels of a convolution are no experts"


@pytest.mark.parametrize("how", ["softmax", "topk"])
def test_a_gate_that_is_a_matrix(how: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 6), Batched(layer=False, how=how, favourite=2), nn.Linear(8, 3))
    (gate,) = Gates(torch, model).parameters
    assert (gate.name, gate.experts) == ("1.router", 4)
    output = model(torch.randn(40, 6))
    ((found, scores),) = gate_parameters.scores(torch, [output], [gate])
    assert found is gate
    told = [float(one) for one in Gates(torch, model).numbers(gate.parameter, scores, 4)]
    assert told == [2.0, 1.0, 3.0], "the favourite, its share, and how many others are idle"
    with torch.no_grad():
        assert list(gate_parameters.scores(torch, [model(torch.randn(4, 6))], [gate])) == []


def test_a_matrix_that_is_no_gate() -> None:
    other = Batched(layer=False)
    other.router = nn.Parameter(torch.randn(6, 5))
    assert Gates(torch, other).parameters == [], "it has not one output for each expert"
    other = nn.Module()
    other.switch = nn.Parameter(torch.randn(6, 4))
    assert Gates(torch, other).parameters == [], "no experts stand beside it"


class Dispatch(nn.Module):
    """Four blocks beside a layer with four outputs: they get the tokens that it chooses, or all of them, or before."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        self.pick = nn.Linear(6, 4)
        self.parts = nn.ModuleList(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 6)) for _ in range(4))

    def forward(self, x: Any, gates: Gates) -> None:
        blocks = list(self.parts)
        if self.way == "before":
            for block in blocks:
                gates.returned(block, block(x))
        scores = self.pick(x)
        gates.called(self.pick, scores, 4)
        for index, block in enumerate(blocks):
            chosen = scores.argmax(1) == index if self.way == "chosen" else torch.ones(len(x), dtype=torch.bool)
            if self.way == "two" and index not in (0, 1):
                continue
            if self.way != "before" and chosen.any():
                gates.returned(block, block(x[chosen]))


@pytest.mark.parametrize("way", ["chosen", "all", "before", "two"])
def test_a_gate_of_another_name_is_known_by_the_tokens_that_its_experts_get(way: str) -> None:
    """Blocks that all run, heads of which two are in use, and a head that follows its blocks are no experts."""
    torch.manual_seed(0)
    model = Dispatch(way)
    gates = Gates(torch, model)
    assert gates.facts(model.pick) == {"experts": 4}
    model(torch.randn(40, 6), gates)
    told = [float(one) for one in gates.values()]
    assert (way == "chosen") == all(one == one for one in told)
    narrow = nn.Module()
    narrow.head, narrow.blocks = nn.Linear(6, 4), nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
    assert Gates(torch, narrow).facts(narrow.head) == {}, "it does not read what the blocks read"


class Biased(nn.Module):
    """A gate by its name, whose scores are not all that decides: which experts get which tokens is given."""

    def __init__(self, second_list: bool = False) -> None:
        super().__init__()
        self.router = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))
        if second_list:
            self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(4))

    def told(self, favourite: int | None, numbers: list[int], asked: int = 40) -> list[float]:
        """What is told of a gate that scores one expert highest, or each in turn, while the experts get so many."""
        gates = Gates(torch, self)
        scores = torch.eye(4).repeat(asked // 4, 1) if favourite is None else torch.eye(4)[[favourite] * asked]
        gates.called(self.router, scores, 4)
        for expert, number in zip(self.experts, numbers, strict=True):
            if number:
                gates.returned(expert, torch.zeros(number, 6))
        return [float(one) for one in gates.values()]


def test_a_bias_on_the_choice_overloads_or_balances_experts_whatever_the_gate_scores() -> None:
    assert Biased().told(None, [0, 40, 0, 0]) == [1.0, 1.0, 3.0], "even scores, and one expert gets all"
    assert Biased().told(2, [15, 9, 7, 9]) == [0.0, 0.375, 0.0], "one favourite, and tokens that are shared out"
    assert Biased().told(None, [40, 40, 0, 0]) == [0.0, 1.0, 2.0], "two experts for each token"


@pytest.mark.parametrize("numbers", [[40, 40, 40, 40], [10, 10, 10, 10], [20, 9, 5, 5], [0, 0, 0, 0]])
def test_experts_that_do_not_show_the_choice(numbers: list[int]) -> None:
    """All get all, all are filled up to one number, some tokens are dropped, or experts return no tensor."""
    assert Biased().told(2, numbers) == [2.0, 1.0, 3.0], "the scores tell"
    assert Biased(second_list=True).told(2, [12, 9, 10, 9]) == [2.0, 1.0, 3.0], "which list holds the experts?"


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


def test_a_part_that_is_behind_a_target_alone() -> None:
    """A teacher that is called within the trained model: the outermost part which holds nothing of the other."""
    whole, x = nn.Module(), torch.randn(7, 5)
    whole.towers = nn.Module()
    whole.towers.teacher = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).eval()
    whole.student = nn.Linear(5, 3)
    both, models = (whole.student, whole.towers.teacher), [(3, whole)]
    found = two_models.columns(both[0](x), both[1](x), held(*both), models)
    assert found == {"target_trained": 4, "target_part": "towers", "target_in_train": True}
    whole.towers.eval()
    assert two_models.columns(both[0](x), both[1](x), held(*both), models)["target_in_train"] is False
    whole.eval()
    assert two_models.columns(both[0](x), both[1](x), held(*both), models)["target_in_train"] is True, "all of it is"
    whole.towers.student = whole.student
    del whole.student
    assert two_models.columns(both[0](x), both[1](x), held(*both), models)["target_part"] == "towers.teacher"
    called = two_models.columns(both[0](x), both[1](x), held(*both), [*models, (4, both[1])])
    assert (called["target_model"], "target_part" in called) == (4, False), "it is a model of its own"

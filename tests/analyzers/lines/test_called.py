"""Names that the script gives to its optimizers, as far as the lines that make them show them."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import called
from tracelyze.diagnosis import Location


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("opt = torch.optim.SGD(net.parameters(), lr=0.1)", "opt"),
        ("self.opt_heads = SGD(heads, lr=0.1)", "opt_heads"),
        ("policy.opt: Optimizer = build(policy)", "policy.opt"),
        ("return torch.optim.SGD(net.parameters())", None),
        ("opts = [SGD(one.parameters()) for one in nets]", None),
        ("a, b = SGD(x), SGD(y)", None),
        ("trainer.fit(optimizer=SGD(x))", None),
    ],
)
def test_what_a_line_assigns(source: str, name: str | None) -> None:
    assert called.assigned(Location("train.py", 3, "main", source)) == name


def _two(make: Any, *sources: str) -> list[str]:
    sites = [
        {"site": n, "role": "optimizer", "file": "train.py", "line": n, "function": "main", "source": source}
        for n, source in enumerate(sources)
    ]
    optimizers = [{"optimizer": n, "name": "SGD", "made_at": n} for n in range(len(sources))]
    steps = make.steps()
    steps["optimizer"] = [n % 2 for n in range(len(steps["step"]))]
    process = make.process(steps, sites=sites, optimizers=optimizers)
    return [timing.name_of(one) for one in process.optimizations]


def test_two_optimizers_by_their_names(make: Any) -> None:
    assert _two(make, "a = SGD(x)", "self.b = SGD(y)") == [" of a (SGD)", " of b (SGD)"]
    assert _two(make, "self.opt = SGD(x)", "self.opt = SGD(y)") == [" of SGD (optimizer 0)", " of SGD (optimizer 1)"]
    assert _two(make, "return SGD(x)", "b = SGD(y)") == [" of SGD (optimizer 0)", " of b (SGD)"]

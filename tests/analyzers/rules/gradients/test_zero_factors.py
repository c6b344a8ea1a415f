"""Trainable tensors that are all exactly zero, so that no gradient comes of their products."""

from __future__ import annotations

from typing import Any

import pytest

LOOP = """\
for name, param in model.named_parameters():
    if "lora_" in name:
        nn.init.zeros_(param)
"""
COUNT = 400


def finding(
    make: Any, names: tuple[str, ...], norms: tuple[float, ...], sources: dict[int, str], text: str = ""
) -> Any:
    rows = [
        {"time": 0.1, "step": step, "optimizer": 0, "parameter": name, "weight_norm": norm, "grad_norm": 0.0}
        for step in (1, 10, 90) for name, norm in zip(names, norms, strict=True)
    ]  # fmt: skip
    place = {"role": "zero-fill", "file": "a.py", "function": "adapt"}
    place |= {"excerpt": text, "excerpt_line": 20} if text else {}
    sites = [place | {"site": 9 + at, "line": at, "source": source} for at, source in sources.items()]
    steps = make.steps() | {"grads_zero": [8] * COUNT}
    return make.check("zero-gradients", make.process(steps, sites=sites, more={"parameters": rows}))[2]


LORA = ("layers.0.lora_A.weight", "layers.0.lora_B.weight")


def test_both_factors_of_adapters_are_zero(make: Any) -> None:
    found = finding(make, LORA, (0.0, 0.0), {22: "nn.init.zeros_(param)"}, LOOP)
    assert found.location.line == 22
    assert "All 2 trainable tensors that were looked at were exactly zero" in found.summary
    assert found.summary.endswith("Line 22 fills with zeros.")
    assert found.fix.endswith("lora_B at zero, and lora_A as it is made.")
    assert found.fix_code == 'if "lora_B" in name:\n    nn.init.zeros_(param)'


def test_parameters_that_are_made_of_zeros(make: Any) -> None:
    lines = {12: "self.down = nn.Parameter(torch.zeros(4, 12))", 13: "self.up = nn.Parameter(torch.zeros(32, 4))"}
    found = finding(make, ("down", "up"), (0.0, 0.0), lines)
    assert (found.location.line, found.summary.endswith("Lines 12 and 13 fill with zeros.")) == (12, True)
    assert "the other at random." in found.fix


@pytest.mark.parametrize(
    "sources",
    [
        {},
        {22: "nn.init.zeros_(param)", 90: "nn.init.zeros_(self.gate)"},
        {22: "p.grad.zero_()"},
        {22: "nn.init.zeros_(layer.bias)"},
    ],
)
def test_no_line_is_named_where_it_is_not_known(make: Any, sources: dict[int, str]) -> None:
    found = finding(make, LORA, (0.0, 0.0), sources)
    assert "were exactly zero" in found.summary
    assert "with zeros" not in found.summary
    assert 'if "lora_A" in name:' in found.fix_code


def test_other_silent_gradients_are_not_explained_by_zeros(make: Any) -> None:
    for norms in ((0.7, 0.0), (0.7, 0.3)):
        assert "tensors that were looked at" not in finding(make, LORA, norms, {22: "nn.init.zeros_(param)"}).summary

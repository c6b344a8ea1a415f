"""frozen-parameters: groups of an optimizer that take in the parameters with certain names, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.rules.updates.reach import ALL, FREE, RAN

GROUPS = """\
def groups(model, lr):
    first = [p for n, p in model.named_parameters() if "down_" in n]
    second = [p for n, p in model.named_parameters() if {test}]
    return [{{"params": first}}, {{"params": second, "lr": lr}}]"""


@pytest.mark.parametrize(
    ("test", "made", "names", "known"),
    [
        ('"up_" in n', "opt = torch.optim.AdamW(groups(model, 1e-3))", "head.weight, head.bias", True),
        ('"up_" in n', "opt = torch.optim.AdamW(model.parameters())", "head.weight, head.bias", False),
        ('"up_" in n', "opt = torch.optim.AdamW(groups(model, 1e-3))", "head.up_.weight", False),  # it takes that
        ('"down_" not in n', "opt = torch.optim.AdamW(groups(model, 1e-3))", "head.weight", False),  # all the rest
    ],
)
def test_groups_of_adapters_alone(make: Any, test: str, made: str, names: str, known: bool) -> None:
    text = GROUPS.format(test=test)
    place = {"file": "a.py", "function": "groups", "excerpt": text, "excerpt_line": 1}
    sites = [place | {"site": at, "role": "parameters-text", "line": at, "source": text.splitlines()[at - 1].strip()}
             for at in (2, 3)]  # fmt: skip
    sites.append({"site": 4, "role": "optimizer", "file": "a.py", "function": "main", "line": 50, "source": made,
                  "excerpt": f"    {made}", "excerpt_line": 50})  # fmt: skip
    optimizer = {"optimizer": 0, "name": "AdamW", "made_at": 4, "parameters": 8, "groups": 2}
    row = FREE | {"names": names, "missed": 2, "shared_model": 2}
    process = make.process(sites=sites, optimizers=[optimizer], more={"reach": [ALL, row], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    assert (finding.location.line == 4) is known
    assert ('names contain "down_" and "up_"' in finding.summary) is known
    assert ('("down_", "up_")' in finding.fix_code) is known

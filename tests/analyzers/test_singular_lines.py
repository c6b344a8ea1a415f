"""The line of a dataset that can make NaN of finite numbers, where it is the only one that was recorded."""

from __future__ import annotations

import pytest

from tracelyze.analyzers.evidence import script_lines


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["def __getitem__(self, i):", "    w = self.x[i]", "    w = (w - w.mean()) / w.std()", "    return w"], 2),
        (["def __getitem__(self, i):", "    return np.log(self.x[i])"], 1),
        (["def __getitem__(self, i):", "    return self.x[i] / 255.0"], None),
        (["def __getitem__(self, i):", "    a = self.x[i] / self.scale", "    return torch.sqrt(a)"], None),
        (["def __getitem__(self, i):", "    return open(f'{self.root}/{i}.npy')"], None),
    ],
)
def test_the_only_one(make, lines: list[str], expected: int | None) -> None:
    site = {"site": 1, "role": "reader", "file": "train.py", "line": 20, "function": "__getitem__",
            "source": lines[0], "excerpt_line": 20, "excerpt": "\n".join(lines)}  # fmt: skip
    process = make.process(make.steps(), sites=[site])
    found = script_lines.singular_beside(process, process.location("reader"))
    assert (None if found is None else found.line - 20) == expected

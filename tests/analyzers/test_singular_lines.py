"""The line of a dataset that can make NaN of finite numbers, where it is the only one that was recorded."""

from __future__ import annotations

import pytest

from tests.analyzers.test_edits import sites_of
from tracelyze.analyzers.evidence import script_lines
from tracelyze.analyzers.evidence.candidates.attended_rows import MASKED


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


LAYER = """\
def forward(self, x, padding):
    h = self.embed(x)
    h, _ = self.attention(h, h, h,
                          key_padding_mask=padding)
    return h.masked_fill(padding[..., None], 0.0)"""


def test_rows_that_are_masked_everywhere(make) -> None:
    rows = sites_of(LAYER, **{"attending-layer": "self.attention("})
    broken = {"step": 12, "kind": "nonfinite-gradient", "name": "l.weight", "value": 2.0}
    steps = make.steps(40) | {"grads_nonfinite": [0] * 12 + [2] * 28, "grad_norm": [1.0] * 12 + [float("nan")] * 28}
    found = make.check("nonfinite-gradients", make.process(steps, sites=rows, events=[broken | {"text": MASKED}]))[2]
    assert (found.location.line, found.location.function) == (3, "train")
    assert "a mask hid a NaN of the forward from the loss" in found.summary
    assert found.fix_code.endswith("padding = padding & ~padding.all(-1, keepdim=True)")
    own = sites_of("weights = scores.softmax(-1)", attention="softmax")
    found = make.check("nonfinite-gradients", make.process(steps, sites=own, events=[broken | {"text": MASKED}]))[2]
    assert "torch.finfo(scores.dtype).min" in found.fix_code
    both = make.process(
        steps, sites=[*rows, own[0] | {"site": 7, "function": "other"}], events=[broken | {"text": MASKED}]
    )
    assert make.check("nonfinite-gradients", both)[2].location != found.location, "which of them is not known"
    other = make.check("nonfinite-gradients", make.process(steps, sites=rows, events=[broken | {"text": ""}]))[2]
    assert other.location is None or other.location.line != 3
    assert "or a mask hid a NaN" in other.summary, "which is not excluded"

"""Gradients far above max_norm because a masked loss is summed over the batch, and losses that are divided."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.rules.clipping.clipping_always_active import summed_losses

LOSS = """    def loss(self, x, tags, mask):
        per_token = self.token_loss(self.model(x).transpose(1, 2), tags)
        return (per_token * mask).sum()"""
TRAIN = """            loss = self.loss(*batch)
            loss.backward()"""


def process_of(make: Any, loss: str = LOSS, train: str = TRAIN, is_mean: bool = False) -> Any:
    sites = [
        {"site": 1, "role": "loss", "line": 21, "function": "loss", "source": loss.split("\n")[1].strip()}
        | {"excerpt": loss, "excerpt_line": 20},
        {"site": 2, "role": "backward", "line": 31, "function": "train_epoch", "source": "loss.backward()"}
        | {"excerpt": train, "excerpt_line": 30},
        {"site": 3, "role": "clip", "line": 32, "function": "train_epoch"}
        | {"source": "clip_grad_norm_(self.model.parameters(), 1.0)"},
    ]
    steps = make.steps() | {"clip_max_norm": [1.0] * 400, "grad_norm": [150.0] * 400, "grad_norm_source": [2] * 400}
    steps |= {"loss_is_mean": [is_mean] * 400}
    return make.process(steps=steps, sites=[{"file": "train.py"} | one for one in sites])


def test_a_masked_loss_that_nothing_divides(make: Any) -> None:
    _, _, finding = make.check("clipping-always-active", process_of(make))
    assert (finding.location.line, finding.seen_at.line) == (22, 32)
    assert finding.fix_code == "return (per_token * mask).sum() / mask.sum()"
    assert finding.diff is None, "a report may divide what it returns"
    assert "Line 22 sums the loss over the batch" in finding.summary


@pytest.mark.parametrize(
    "change",
    [
        {"is_mean": True},
        {"loss": LOSS + " / mask.sum()"},
        {"loss": LOSS.replace("* mask", "* scale")},  # what it weighs by is no mask
        {"loss": LOSS.replace("(per_token * mask).sum()", "per_token.sum()")},
        {"train": TRAIN.replace("self.loss(*batch)", "self.loss(*batch) / 32")},
        {"train": TRAIN.replace("loss.backward()", "(loss / count).backward()")},
    ],
)
def test_losses_that_are_divided_or_not_known(make: Any, change: dict[str, Any]) -> None:
    process = process_of(make, **change)
    finding = make.check("clipping-always-active", process)[2]
    assert "sums the loss" not in finding.summary
    assert finding.location.line == 32
    if not change.get("is_mean"):
        assert summed_losses.of(process, process.location("backward")) is None

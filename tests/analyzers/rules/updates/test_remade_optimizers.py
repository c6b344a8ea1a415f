"""A loss that jumps behind the first update of each optimizer that is made anew, and jumps that come from elsewhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

EPOCH, EPOCHS = 70, 8
BEGUN = [EPOCH * epoch + 1 for epoch in range(1, EPOCHS)]


def losses(first: float = 1.0, after: tuple[float, ...] = (4.0, 2.0, 3.0, 1.5), of: tuple[int, ...] = ()) -> Any:
    """Flat losses, times `first` at the first step of an optimizer and `after` at those behind it; `of`: which ones."""
    loss = 0.02 + 0.0004 * np.random.default_rng(5).standard_normal(EPOCH * EPOCHS)
    for at, step in enumerate(BEGUN):
        if not of or at in of:
            loss[step - 1] *= first
            loss[step : step + len(after)] *= after
    return loss.tolist()


def judged(make: Any, rule: str, loss: list[float], begun: list[int], **columns: Any) -> Any:
    optimizer = {"optimizer": 0, "name": "Adam", "made_at": 3, "site": 4, "options": "{}"}
    text = {"file": "train.py", "function": "train"}
    sites = [
        {"site": 3, "role": "optimizer", "line": 12, "source": "opt = torch.optim.Adam(net.parameters(), lr=RATE)"}
        | text,
        {"site": 4, "role": "step", "line": 18, "source": "opt.step()"} | text,
    ]
    steps = make.steps(len(loss)) | {"loss": loss, "lr": [0.003] * len(loss)} | columns
    process = make.process(steps=steps, optimizers=[optimizer], sites=sites)
    process.remade = {0: begun}
    return make.check(rule, process)


def test_each_new_optimizer_makes_the_loss_jump(make: Any) -> None:
    _, _, finding = judged(make, "loss-spikes", losses(), BEGUN)
    assert finding.title.startswith("The loss jumps after the first update of each new Adam, to 4")
    assert "every 70 steps" in finding.summary
    assert (finding.location.line, finding.seen_at.line, finding.first_step) == (12, 18, BEGUN[0] + 1)
    assert "opt = torch.optim.Adam(net.parameters(), lr=RATE)" in finding.fix_code
    some = judged(make, "loss-spikes", losses(of=(0, 1, 3, 4, 6)), BEGUN)[2]
    assert "of 5 new optimizers" in some.title
    assert "5 of 7" in some.summary


@pytest.mark.parametrize(
    ("loss", "begun", "columns"),
    [
        (losses(first=3.0), BEGUN, {}),  # the first batch is worse already: the data or the objective changed
        (losses(after=(2.5, 1.0, 1.0, 1.0)), BEGUN, {}),  # a single batch, not by much
        (losses(of=(1, 4)), BEGUN, {}),  # two of seven
        (losses(), [], {}),  # the optimizer is the same all the time
        (losses(), BEGUN, {"lr": [0.003 - 0.00004 * (step % EPOCH) for step in range(EPOCH * EPOCHS)]}),  # a rate
    ],
)
def test_jumps_that_no_new_optimizer_explains(make: Any, loss: list[float], begun: list[int], columns: Any) -> None:
    status, _, *found = judged(make, "loss-spikes", loss, begun, **columns)
    assert status == "passed" or "new" not in found[0].title


def test_gradients_that_leap_with_it_are_no_finding_of_their_own(make: Any) -> None:
    norm = np.ones(EPOCH * EPOCHS)
    norm[BEGUN] = 15.0
    columns = {"grad_norm": norm.tolist(), "grad_norm_source": ["computed"] * len(norm)}
    assert judged(make, "gradient-spikes", losses(), BEGUN, **columns)[0] == "passed"
    assert judged(make, "gradient-spikes", losses(), [], **columns)[0] == "fired"

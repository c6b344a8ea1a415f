"""The script's own statement at a place: found as a whole, and changed in one thing alone."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.computed.schedules import own_rates
from tracelyze.analyzers.evidence.editing import one_clip, own_statement
from tracelyze.diagnosis import Diff, Location


def recorded(make: Any, text: str, line: int, role: str = "clip") -> tuple[Any, Location]:
    """A process of which these lines are known, and the place of one of them."""
    source = text.split("\n")[line - 1].strip()
    row = {"site": 1, "role": role, "file": "train.py", "line": line, "function": "f", "source": source}
    process = make.process(sites=[{**row, "excerpt": text, "excerpt_line": 1}])
    return process, process.site(1)


def applied(text: str, diff: Diff | None) -> str:
    assert diff is not None
    lines = text.split("\n")
    assert lines[diff.line - 1 : diff.line - 1 + len(diff.removed)] == diff.removed
    return "\n".join([*lines[: diff.line - 1], *diff.added, *lines[diff.line - 1 + len(diff.removed) :]])


LONG = """    opt = torch.optim.Adam(net.parameters())
    self.sched = torch.optim.lr_scheduler.OneCycleLR(
        opt, max_lr=lr,  # the peak
        total_steps=epochs * len(loader), pct_start=0.1,
    )
    for x in loader:"""


@pytest.mark.parametrize("line", [2, 3, 4])
def test_one_argument_changes_and_all_else_stays(make, line: int) -> None:
    process, place = recorded(make, LONG, line)
    changed = applied(LONG, own_rates.of_groups(process, place))
    assert changed == LONG.replace("max_lr=lr", "max_lr=[group['lr'] for group in opt.param_groups]")


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("s = OneCycleLR(self.opt, 0.1, 500)", "s = OneCycleLR(self.opt, [{rates}], 500)"),
        ("s = OneCycleLR(self.opt, **options)", None),  # which may set it
        ("s = OneCycleLR(*arguments)", None),
        ("s = CosineAnnealingLR(self.opt, 500)", None),
        ("s = [OneCycleLR(o, 0.1, 9), OneCycleLR(o, 0.1, 9)]", None),
    ],
)
def test_an_argument_that_may_be_set_elsewhere_is_left_alone(make, line: str, changed: str | None) -> None:
    process, place = recorded(make, line, 1)
    diff = own_rates.of_groups(process, place)
    rates = "group['lr'] for group in self.opt.param_groups"
    assert (diff.added[0] if diff else None) == (changed and changed.format(rates=rates))


def test_a_statement_is_found_as_a_whole_or_not_at_all(make) -> None:
    assert own_statement.at(*recorded(make, LONG, 6)) is not None, "the head of a block"
    assert own_statement.at(*recorded(make, LONG.rsplit("\n", 2)[0], 2)) is None, "its end was not recorded"
    assert own_statement.at(*recorded(make, "model = Net(\n    nn.Linear(4, 8),\n    nn.ReLU(),", 2)) is None
    process, place = recorded(make, LONG, 1)
    moved = Location(place.file, place.line, place.function, "opt = torch.optim.SGD(net.parameters())")
    assert own_statement.at(process, moved) is None, "another text than what ran"


ACCUMULATES = """with accelerator.accumulate(model):
    accelerator.backward(loss)
    {line}
    optimizer.step()"""


def test_the_condition_stands_before_the_line_as_it_is(make) -> None:
    text = ACCUMULATES.format(line="norms.append(accelerator.clip_grad_norm_(model.parameters(), args.limit).item())")
    process, place = recorded(make, text, 3)
    changed = applied(text, one_clip.once_complete(process, place))
    assert "\n    if accelerator.sync_gradients:" in changed
    assert "\n        norms.append(accelerator.clip_grad_norm_(model.parameters(), args.limit).item())" in changed
    process, place = recorded(make, ACCUMULATES.format(line="norm = accelerator.clip_grad_norm_(ps, 1.0)"), 3)
    assert one_clip.once_complete(process, place) is None, "lines below ask for the norm at every micro-batch"
    process, place = recorded(make, "loss.backward()\nclip_grad_norm_(ps, self.limit)\nstep()", 2)
    assert one_clip.once_complete(process, place) is None

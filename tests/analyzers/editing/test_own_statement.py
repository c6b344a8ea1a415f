"""The script's own statement at a place: found as a whole, and changed in one thing alone."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.computed.schedules import own_rates
from tracelyze.analyzers.rules.clipping.clip_per_microbatch import one_clip
from tracelyze.analyzers.rules.updates.frozen_parameters import empty_groups
from tracelyze.analyzers.rules.updates.shared_parameter_two_optimizers import shared_tensors
from tracelyze.analyzers.script.editing import own_statement
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


CUT = LONG[: LONG.index("\n        total")]


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        (CUT, True),
        (CUT + "\n        total_steps=epochs", True),  # what goes on
        (CUT.replace(",  # the peak", ""), False),  # the rate may go on
        (CUT.replace("max_lr=lr", "pct_start=0.1"), False),  # the rate may follow
        (CUT.replace("OneCycleLR", "CyclicLR"), False),
    ],
)
def test_an_argument_changes_in_a_call_whose_end_was_not_recorded(make, text: str, changes: bool) -> None:
    process, place = recorded(make, text, 2)
    diff = own_rates.of_groups(process, place)
    assert (diff is not None) is changes
    if diff is not None:
        assert applied(text, diff) == text.replace("max_lr=lr", "max_lr=[group['lr'] for group in opt.param_groups]")


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


TWO = """def configure_optimizers(self):
    body = torch.optim.AdamW(self.encoder.parameters(), self.rate)
    heads = torch.optim.Adam({given}, 0.02)
    return [body, heads]"""


@pytest.mark.parametrize(
    ("given", "shares", "kept"),
    [
        ("self.parameters()", 4, "[p for p in self.parameters() if id(p) not in held]"),
        ("self.parameters()", 6, None),  # nothing would be left for it
        ("groups", 4, None),
    ],
)
def test_the_later_optimizer_leaves_out_what_the_earlier_one_holds(
    make, given: str, shares: int, kept: str | None
) -> None:
    text = TWO.format(given=given)
    lines = text.split("\n")
    row = {"role": "optimizer", "file": "train.py", "function": "f", "excerpt": text, "excerpt_line": 1}
    sites = [{**row, "site": one, "line": one + 1, "source": lines[one].strip()} for one in (1, 2)]
    held = [
        {"optimizer": one, "name": name, "made_at": one + 1, "parameters": 6}
        for one, name in ((0, "AdamW"), (1, "Adam"))
    ]
    steps = {name: list(values) for name, values in make.steps().items()}
    steps["optimizer"] = [index % 2 for index in range(len(steps["step"]))]
    earlier, later = make.process(steps, sites=sites, optimizers=held).optimizations
    code, diff = shared_tensors.left_out(later, earlier, shares)
    assert "id(p) not in held" in code
    if kept is None:
        assert diff is None
    else:
        assert f"heads = torch.optim.Adam({kept}, 0.02)" in applied(text, diff)
        assert 'held = {id(p) for group in body.param_groups for p in group["params"]}' in applied(text, diff)


@pytest.mark.parametrize(
    ("given", "names", "place", "code"),
    [
        ("matrices", "tok.weight", 2, "matrices = [p for p in matrices if p is not net.tok.weight]"),
        (
            "[*a, *b]",
            "tok.weight",
            2,
            "one = torch.optim.Muon([p for p in [*a, *b] if p is not net.tok.weight], lr=0.1)",
        ),
        ("matrices", "tok.weight, up.weight", 3, "held = {id(p)"),  # a hidden layer: either may keep it
    ],
)
def test_what_is_tied_to_an_embedding_is_not_for_muon(make, given: str, names: str, place: int, code: str) -> None:
    text = f"def f(net):\n    one = torch.optim.Muon({given}, lr=0.1)\n    two = torch.optim.AdamW(net.parameters())"
    lines = text.split("\n")
    row = {"role": "optimizer", "file": "train.py", "function": "f", "excerpt": text, "excerpt_line": 1}
    sites = [{**row, "site": one, "line": one + 1, "source": lines[one].strip()} for one in (1, 2)]
    held = [{"optimizer": one, "name": ("Muon", "AdamW")[one], "made_at": one + 1, "parameters": 6} for one in (0, 1)]
    steps = {name: list(values) for name, values in make.steps().items()}
    steps["optimizer"] = [index % 2 for index in range(len(steps["step"]))]
    layers = [{"model": 0, "module": "tok", "kind": "Embedding"}, {"model": 0, "module": "up", "kind": "Linear"}]
    models = [{"model": 0, "name": "LM", "called_as": "net"}]
    process = make.process(steps, sites=sites, optimizers=held, models=models, more={"modules": layers})
    earlier, later = process.optimizations
    found = shared_tensors.remedy(later, earlier, 1, names)
    assert found.place.line == place
    assert code in found.code
    assert "sum of both" not in shared_tensors.effect(later, earlier), "their rates have nothing in common"


@pytest.mark.parametrize(
    ("text", "example"),
    [
        (
            "slow = filter(wanted, net.parameters())\ncount(slow)\nopt = Adam([{'params': slow}, {'params': fast}])",
            "slow = list(filter(wanted, net.parameters()))",
        ),
        ("opt = Adam([{'params': slow}, {'params': fast}])", "slow = list(slow)"),
        ("opt = Adam(groups)", "params = list(params)"),
    ],
)
def test_a_group_whose_iterator_was_used_up(make, text: str, example: str) -> None:
    line = text.count("\n") + 1
    site = {"site": 1, "role": "optimizer", "file": "train.py", "line": line, "function": "f", "excerpt": text}
    site |= {"source": text.rsplit("\n", maxsplit=1)[-1], "excerpt_line": 1}
    row: dict[str, Any] = {"optimizer": 0, "name": "Adam", "made_at": 1, "groups": 2, "empty_groups": "[0]"}
    process = make.process(sites=[site], optimizers=[row])
    found = empty_groups.of(process.optimizations[0])
    assert found is not None
    assert found.example.startswith(example)
    assert (found.diff is not None) == ("filter" in text)
    row |= {"empty_groups": None}
    assert empty_groups.of(make.process(optimizers=[row]).optimizations[0]) is None

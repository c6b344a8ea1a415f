"""Edits that findings propose: applied to the program they were made for, they repair it. Unsure, none is made."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.analyzers.sites import applied, sites_of
from tracelyze.analyzers import context
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.rules.checkpoints.snapshot_aliased import kept_copies
from tracelyze.analyzers.script import edits
from tracelyze.analyzers.script.editing import loader_arguments
from tracelyze.analyzers.script.loss import squashed_names
from tracelyze.diagnosis import Diff

LOOP = """\
def train(model, loader, optimizer, scaler):
    for x, y in loader:
        loss = criterion(model(x), y)
        {backward}
        {middle}
        {step}
        log(loss)
"""


def statements(source: str) -> list[str]:
    compile(source, "train.py", "exec")
    return [line.strip() for line in source.splitlines()]


def test_clearing_goes_right_behind_the_step(make) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step="optimizer.step()")
    process = make.process(sites=sites_of(source, backward="backward()", step="optimizer.step()"))
    lines = statements(applied(source, edits.clear_after_step(process.optimizations[0])))
    assert lines[lines.index("optimizer.step()") + 1] == "optimizer.zero_grad()"


def test_the_finding_about_missing_clearing_proposes_that_edit(make) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step="optimizer.step()")
    sites = sites_of(source, backward="backward()", step="optimizer.step()")
    steps = make.steps() | {"grads_carried": [0] + [8] * 399}
    _, _, finding = make.check("missing-zero-grad", make.process(steps, sites=sites))
    assert finding.diff == Diff("train.py", 7, [], ["        optimizer.zero_grad()"])
    assert finding.verify
    assert finding.excluded


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        ("loss = criterion(logits.softmax(1), y)", "loss = criterion(logits, y)"),
        ("loss = criterion(model(x).softmax(dim=-1), y)", "loss = criterion(model(x), y)"),
        ("loss = F.cross_entropy(F.softmax(model(x), dim=1), y)", "loss = F.cross_entropy(model(x), y)"),
        ("loss = criterion(logits, y.softmax(1))", None),  # probabilities as the target are right
        ("loss = criterion(logits.softmax(1)[mask], y)", None),
        ("loss = criterion(probabilities, y)", None),
    ],
)
def test_a_softmax_goes_out_of_the_line_of_the_loss(make, line: str, repaired: str | None) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step="optimizer.step()")
    source = source.replace("loss = criterion(model(x), y)", line)
    process = make.process(sites=sites_of(source, loss="loss ="))
    diff = edits.without_softmax(process, process.location("loss"))
    if repaired is None:
        assert diff is None
    else:
        assert repaired in statements(applied(source, diff))


@pytest.mark.parametrize(
    ("above", "line", "repaired"),
    [
        (
            "p = torch.softmax(z, dim=-1)",
            "loss = F.cross_entropy(p, y, weight=w)",
            "loss = F.cross_entropy(z, y, weight=w)",
        ),
        ("p = z.softmax(1)\noptimizer.zero_grad()", "loss = criterion(p, y)", "loss = criterion(z, y)"),
        ("p = F.softmax(out.logits, -1)\n\nn = len(y)", "loss = f(p, y) / n", "loss = f(out.logits, y) / n"),
        ("p = F.softmax(model(x), 1)", "loss = criterion(p, y)", "loss = criterion(model(x), y)"),
        ("p = z.softmax(1)\nz = z * mask", "loss = criterion(p, y)", None),  # other scores by then
        ("p = z.softmax(1)\nz.mul_(2.0)", "loss = criterion(p, y)", None),
        ("p = z.softmax(1)\nz[0] = 1.0", "loss = criterion(p, y)", None),
        ("p = z.softmax(1)\nfor _ in range(2):\n    z = z * 2", "loss = criterion(p, y)", None),
        ("p = p.softmax(1)", "loss = criterion(p, y)", None),  # the name stands for the scores no more
        ("p = z.softmax(1)\np = p * 2", "loss = criterion(p, y)", None),
        ("p = z.softmax(1)", "loss = criterion(z, p)", None),  # probabilities as the target are right
        ("p = z.softmax(1)\np[mask] = 0.0", "loss = criterion(p, y)", None),
        ("p = z.softmax(1)[mask]", "loss = criterion(p, y)", None),
    ],
)
def test_a_name_of_a_softmax_gives_way_to_the_scores(make, above: str, line: str, repaired: str | None) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step="optimizer.step()")
    lines = [f"        {one}" if one else "" for one in [*above.split("\n"), line]]
    source = source.replace("        loss = criterion(model(x), y)", "\n".join(lines))
    process = make.process(sites=sites_of(source, loss="loss =", other=above.split("\n", maxsplit=1)[0]))
    diff = squashed_names.given_scores(process, process.location("loss"), "softmax")
    assert squashed_names.given_scores(process, process.location("loss"), "sigmoid") is None
    if repaired is None:
        assert diff is None
    else:
        assert repaired in statements(applied(source, diff))


def test_clearing_moves_before_the_backward(make) -> None:
    source = LOOP.format(backward="loss.backward()", middle="optimizer.zero_grad()", step="optimizer.step()")
    roles = {"backward": "backward()", "zero_grad": "zero_grad()", "step": "optimizer.step()"}
    training = make.process(sites=sites_of(source, **roles)).optimizations[0]
    lines = statements(applied(source, edits.clear_before_backward(training)))
    order = [line for line in lines if line.startswith(("loss.backward", "optimizer."))]
    assert order == ["optimizer.zero_grad()", "loss.backward()", "optimizer.step()"]


UPDATE = """\
def apply_update(self):
    {clear}
    {middle}
    self.opt.step()
    self.sched.step()
"""


@pytest.mark.parametrize(
    ("clear", "middle", "moved"),
    [
        ("self.opt.zero_grad(set_to_none=False)", "clip_grad_norm_(self.net.parameters(), 1.0)", True),
        ("self.net.zero_grad()", "pass", True),
        ("self.opt.zero_grad()", "loss.backward()", False),
        ("if fresh: self.opt.zero_grad()", "pass", False),
    ],
)
def test_clearing_moves_behind_the_step_of_a_helper(make, clear: str, middle: str, moved: bool) -> None:
    """The backward is another function's."""
    source = UPDATE.format(clear=clear, middle=middle)
    training = make.process(sites=sites_of(source, step="self.opt.step()", **{"clear-text": "zero_grad("})).longest
    diff = edits.clear_behind_the_step(training, training.process.location("clear-text"))
    assert (diff is not None) == moved
    if moved:
        expected = ["def apply_update(self):", middle, "self.opt.step()", clear, "self.sched.step()"]
        assert statements(applied(source, diff)) == expected


HELPER = """\
class Update:
    def prepare(self):
        {clear}

def train(update, batches):
    for batch in batches:
        loss = update.loss(batch)
        loss.backward()
        {call}
        update.apply()
"""


@pytest.mark.parametrize(
    ("clear", "call", "moved"),
    [
        ("self.opt.zero_grad()", "update.prepare()", True),
        ("self.opt.zero_grad()", "update.prepare()  # clears", True),
        ("self.opt.zero_grad()\n        self.clip()", "update.prepare()", False),  # which belongs behind the backward
        ("self.opt.zero_grad()", "size = update.prepare()", False),
        ("self.opt.zero_grad()", "if fresh:\n            update.prepare()", False),
    ],
)
def test_the_call_of_what_clears_moves_before_the_backward(make, clear: str, call: str, moved: bool) -> None:
    source = HELPER.format(clear=clear, call=call)
    sites = sites_of(source, **{"backward": "backward()", "clear-text": "zero_grad("})
    sites[1] |= {"function": "prepare"}
    training = make.process(sites=sites).longest
    found = edits.call_before_backward(training, training.process.location("clear-text"))
    assert (found is not None) == moved
    if found is not None:
        order = statements(applied(source, found[1]))
        assert (found[0].line, order.index(call) + 1) == (9, order.index("loss.backward()"))


def test_a_partial_clearing_becomes_the_optimizers_own(make) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step="optimizer.step()")
    source = source.replace("        loss =", "        model.head.zero_grad(set_to_none=True)\n        loss =")
    roles = {"backward": "backward()", "zero_grad": "zero_grad(", "step": "optimizer.step()"}
    training = make.process(sites=sites_of(source, **roles)).optimizations[0]
    lines = statements(applied(source, edits.clear_all(training)))
    assert "optimizer.zero_grad()" in lines
    assert not [line for line in lines if "head" in line]


def test_gradients_are_unscaled_before_the_clip(make) -> None:
    clip = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"
    source = LOOP.format(backward="scaler.scale(loss).backward()", middle=clip, step="scaler.step(optimizer)")
    roles = {"backward": "backward()", "clip": "clip_grad", "step": "scaler.step"}
    training = make.process(sites=sites_of(source, **roles)).optimizations[0]
    lines = statements(applied(source, edits.unscale_before_clip(training)))
    assert lines[lines.index(clip) - 1] == "scaler.unscale_(optimizer)"


@pytest.mark.parametrize(
    ("taken", "before"),
    [
        ("total = get_total_norm([p.grad for p in model.parameters()])", "total ="),
        (("params = [p for p in model.parameters() if p.grad is not None]\n"
         "total = get_total_norm([p.grad for p in params])"), "params ="),
        ("total = 0.0\nfor p in model.parameters():\n    total += p.grad.norm() ** 2", "for p in"),
        ("total = get_total_norm(\n    [p.grad for p in model.parameters()]\n)", "total ="),
        ("total = measured(model)", None),  # by a function of the script's own
    ],
)  # fmt: skip
def test_gradients_are_unscaled_before_the_norm_that_a_clip_is_given(make, taken: str, before: str | None) -> None:
    """In front of the clip it is too late: the norm is that of the scaled gradients."""
    lines = [*taken.split("\n"), "clip_grads_with_norm_(model.parameters(), 1.0, total)"]
    middle = "\n".join([lines[0], *[f"        {one}" for one in lines[1:]]])
    source = LOOP.format(backward="scaler.scale(loss).backward()", middle=middle, step="scaler.step(optimizer)")
    roles = {"backward": "backward()", "clip": "clip_grads", "step": "scaler.step"}
    training = make.process(sites=sites_of(source, **roles)).optimizations[0]
    diff = edits.unscale_before_clip(training)
    if before is None:
        assert diff is None
        return
    repaired = statements(applied(source, diff))
    assert repaired[repaired.index("scaler.unscale_(optimizer)") + 1].startswith(before)


def test_both_halves_of_a_scaler(make) -> None:
    source = LOOP.format(backward="scaler.scale(loss).backward()", middle="pass", step="optimizer.step()")
    roles = {"backward": "backward()", "step": "optimizer.step()"}
    training = make.process(sites=sites_of(source, **roles)).optimizations[0]
    lines = statements(applied(source, edits.step_by_scaler(training)))
    at = lines.index("scaler.step(optimizer)")
    assert lines[at + 1] == "scaler.update()"
    source = LOOP.format(backward="loss.backward()", middle="pass", step="scaler.step(optimizer)")
    roles = {"backward": "backward()", "step": "scaler.step"}
    training = make.process(sites=sites_of(source, **roles)).optimizations[0]
    assert "scaler.scale(loss).backward()" in statements(applied(source, edits.scale_the_loss(training)))


@pytest.mark.parametrize(("above", "kept"), [("scaler.scale(loss)", False), ("scaler.scale(other)", True)])
def test_a_scaled_loss_that_is_dropped_goes_into_the_backward(make: Any, above: str, kept: bool) -> None:
    backward = f"{above}\n        loss.backward()"
    source = LOOP.format(backward=backward, middle="pass", step="scaler.step(optimizer)")
    training = make.process(sites=sites_of(source, backward="backward()", step="scaler.step")).optimizations[0]
    repaired = statements(applied(source, edits.scale_the_loss(training)))
    assert "scaler.scale(loss).backward()" in repaired
    assert (above in repaired) == kept


@pytest.mark.parametrize(
    ("above", "expected"),
    [
        ("scaled = scaler.scale(loss)", "scaled.backward()"),
        ("scaled = scaler.scale(loss)  # for float16\n        print(1)", "scaled.backward()"),
        ("scaled = scaler.scale(other)", "scaler.scale(loss).backward()"),
        ("scaled = scaler.scale(loss)\n        loss = loss + other", "scaler.scale(loss).backward()"),
        ("if other:\n            scaled = scaler.scale(loss)", "scaler.scale(loss).backward()"),
    ],
)
def test_a_scaled_loss_that_has_a_name_is_the_one_of_the_backward(make: Any, above: str, expected: str) -> None:
    backward = f"{above}\n        loss.backward()"
    source = LOOP.format(backward=backward, middle="pass", step="scaler.step(optimizer)")
    training = make.process(sites=sites_of(source, backward="loss.backward()", step="scaler.step")).optimizations[0]
    repaired = statements(applied(source, edits.scale_the_loss(training)))
    assert expected in repaired
    assert "loss.backward()" not in repaired


@pytest.mark.parametrize(
    ("call", "repaired"),
    [
        ("DataLoader(data, batch_size=8)", "DataLoader(data, batch_size=8, num_workers=4)"),
        ("DataLoader(data, num_workers=0, shuffle=True)", "DataLoader(data, num_workers=4, shuffle=True)"),
        ("u.DataLoader(Data('a'), batch_size=8,)", "u.DataLoader(Data('a'), batch_size=8, num_workers=4)"),
        ("DataLoader(data, num_workers=count())", None),
        ("DataLoader(data, **options)", None),
        ("DataLoader(data,", None),
        ("[DataLoader(data) for data in parts]", None),  # nor here
        ("DataLoader(Data(',', (8, 8)), 8)", "DataLoader(Data(',', (8, 8)), 8, num_workers=4)"),
        ("DataLoader(data, 8, False, None, None, 2)", "DataLoader(data, 8, False, None, None, 4)"),
        ("DataLoader(*parts)", None),
        ("DataLoader(data)  # slow", "DataLoader(data, num_workers=4)  # slow"),
        ("DataLoader(data), DataLoader(held_out)", None),  # which of the two is meant is not known
    ],
)
def test_arguments_of_a_loader(make, call: str, repaired: str | None) -> None:
    source = f"import torch\ndef make():\n    loader = {call}\n"
    process = make.process(sites=sites_of(source, dataloader="loader ="))
    diff = loader_arguments.with_arguments(process, process.site(1), {"num_workers": "4"})
    if repaired is None:
        assert diff is None
    else:
        assert statements(applied(source, diff))[2] == f"loader = {repaired}"


@pytest.mark.parametrize("step", ["optimizer.step(closure)", "if ready: optimizer.step()", "optimizer.step()  # now"])
def test_lines_that_are_no_plain_statement_are_left_alone(make, step: str) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step=step)
    process = make.process(sites=sites_of(source, backward="backward()", step=".step("))
    assert edits.clear_after_step(process.optimizations[0]) is None


def test_what_may_not_be_the_place_is_left_alone(make) -> None:
    source = LOOP.format(backward="loss.backward()", middle="pass", step="optimizer.step()")
    rows = sites_of(source, backward="backward()", step="optimizer.step()")
    twice = [*rows, rows[1] | {"site": 9, "line": 20}]
    assert edits.clear_after_step(make.process(sites=twice).optimizations[0]) is None
    bare = [{key: value for key, value in row.items() if not re.match("excerpt", key)} for row in rows]
    assert edits.clear_after_step(make.process(sites=bare).optimizations[0]) is None
    changed = [row | {"source": "other.step()"} for row in rows]
    assert edits.clear_after_step(make.process(sites=changed).optimizations[0]) is None
    scaled = LOOP.format(backward="scaler.scale(loss).backward()", middle="pass", step="optimizer.step()")
    apart = sites_of(scaled, backward="backward()", step="optimizer.step()")
    apart[1]["function"] = "update"
    assert edits.step_by_scaler(make.process(sites=apart).optimizations[0]) is None


@pytest.mark.parametrize(
    ("line", "repaired"),
    [
        (
            "self.best = model.state_dict()",
            "self.best = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}",
        ),
        (
            "best, at = model.state_dict(), epoch",
            "best, at = {name: tensor.detach().clone() for name, tensor in model.state_dict().items()}, epoch",
        ),
        (
            "best = dict(model.state_dict())",
            "best = dict({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})",
        ),
        (
            "self.best = {k: v.detach().cpu() for k, v in model.state_dict().items()}",
            "self.best = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}",
        ),
        (
            "best = {k: v for k, v in model.state_dict().items()}",
            "best = {k: v.clone() for k, v in model.state_dict().items()}",
        ),
        ("best = {k: v.half() for k, v in model.state_dict().items()}", None),
        ("best = {k: v.clone() for k, v in model.state_dict().items()}", None),
        (
            "self.kept.append(model.state_dict())",
            "self.kept.append({name: tensor.detach().clone() for name, tensor in model.state_dict().items()})",
        ),
        ("target.load_state_dict(model.state_dict())", None),
        ("best = [model.state_dict(), ema.state_dict()]", None),
        ("names = list(model.state_dict().keys())", None),
    ],
)
def test_kept_weights_are_copied(make, line: str, repaired: str | None) -> None:
    source = f"def keep(self, model, epoch):\n    {line}\n"
    process = make.process(sites=sites_of(source, state_dict="state_dict()"))
    diff = kept_copies.edit(process, process.site(1))
    if repaired is None:
        assert diff is None
    else:
        assert statements(applied(source, diff))[1] == repaired


def test_weights_that_a_library_hands_on_are_copied(make) -> None:
    def repaired(line: str) -> str | None:
        process = make.process(sites=sites_of(f"def keep(self, model):\n    {line}\n", state_dict="state_dict(model)"))
        diff = kept_copies.edit(process, process.site(1))
        return diff.added[0].strip() if diff is not None else None

    copied = "best = {name: tensor.detach().clone() for name, tensor in accelerator.get_state_dict(model).items()}"
    assert repaired("best = accelerator.get_state_dict(model)") == copied
    assert repaired("best = copy.deepcopy(accelerator.get_state_dict(model))") is None
    assert repaired("best = set_peft_model_state_dict(model)") is None


def test_why_kept_weights_are_no_copies(make) -> None:
    def said(line: str) -> str:
        process = make.process(sites=sites_of(f"def keep(self, model):\n    {line}\n", state_dict="state_dict()"))
        return kept_copies.why(process, process.site(1))

    assert said("best = {k: v.detach().cpu() for k, v in model.state_dict().items()}") == (
        " Line 2 makes no copy: .detach() shares the memory of the tensor and .cpu() does not copy "
        "a tensor that is there already."
    )
    assert "dict() copies the dictionary, not its tensors" in said("best = dict(model.state_dict())")
    assert said("best = model.state_dict()") == ""
    assert (
        said("best = {\n        k: v.cpu()\n        for k, v in model.state_dict().items()\n    }")
        == " Line 3 makes no copy: .cpu() does not copy a tensor that is there already."
    )
    assert said("best = {\n        k: v\n        for k, v in model.state_dict().items()\n    }") == ""


OF_ALL_GROUPS = """# right below the line that makes the optimizer, above that of a scheduler:
for group in optimizer.param_groups:
    group["lr"] *= 3"""  # the run's own rate is 0.01


@pytest.mark.parametrize(
    ("line", "example"),
    [
        (
            "opt = torch.optim.SGD(net.parameters(), lr=0.3, momentum=0.9)",
            "opt = torch.optim.SGD(net.parameters(), lr=0.03, momentum=0.9)",
        ),
        ("opt = torch.optim.SGD(net.parameters(), lr = 3e-1)", "opt = torch.optim.SGD(net.parameters(), lr = 0.03)"),
        (
            "self.o = torch.optim.SGD(net.parameters(), 0.3, 0.9)",
            "self.o = torch.optim.SGD(net.parameters(), 0.03, 0.9)",
        ),
        ("return torch.optim.SGD(net.parameters(), lr=lr)", "return torch.optim.SGD(net.parameters(), lr=0.03)"),
        ("opt = make(net, lr=base_lr)", "opt = make(net, lr=0.03)"),
        ("opt = make(net, lr=cfg.scaled_lr())", "opt = make(net, lr=0.03)"),
        ("opt = make(net, lr=base * batch)", "opt = make(net, lr=0.03)"),
        ("opt = make(net, lr=torch.tensor(0.3))", OF_ALL_GROUPS),
        ("opt = make([{'lr': 1}], lr=10 * base)", OF_ALL_GROUPS),
        ("opt = torch.optim.SGD([{'params': net.parameters(), 'lr': 1}], lr=0.3)", OF_ALL_GROUPS),
    ],
)
def test_an_example_with_another_rate_keeps_the_users_line(make, line: str, example: str) -> None:
    sites = sites_of(f"def train():\n    {line}\n", optimizer="lr" if "lr" in line else "SGD")
    process = make.process(sites=sites, optimizers=[{"optimizer": 0, "name": "SGD", "made_at": 1}])
    assert schedulers.with_rate(process.optimizations[0], 0.03) == example


@pytest.mark.parametrize(
    ("removed", "added", "line", "left"),
    [
        (["f(", "  a,", "  b,", ")"], ["f(", "  a,", "  c,", ")"], 7, (["  b,"], ["  c,"])),
        (["f(", "  a,", ")"], ["f(", "  a,", "  c,", ")"], 6, (["  a,"], ["  a,", "  c,"])),  # where it goes is seen
        (["f(", "  a,", "  b,", ")"], ["f(", "  a,", ")"], 7, (["  b,"], [])),
        (["a", "b"], ["b", "a"], 5, (["a", "b"], ["b", "a"])),
        (["  a", "  a"], ["  a", "  a", "  a"], 6, (["  a"], ["  a", "  a"])),
        (["for x in xs:"], ["for x in xs:", "    told(x)"], 5, (["for x in xs:"], ["for x in xs:", "    told(x)"])),
        ([], ["a"], 5, ([], ["a"])),
    ],
)
def test_an_edit_of_a_long_statement_shows_the_lines_that_change(
    removed: list[str], added: list[str], line: int, left: tuple[list[str], list[str]]
) -> None:
    edit = Diff("train.py", 5, removed, added)
    narrow = context.narrowed(edit)
    assert narrow is not None
    assert (narrow.line, narrow.removed, narrow.added) == (line, *left)
    source = "\n".join(["pass"] * 4 + removed) + "\n"
    assert applied(source, narrow) == applied(source, edit)

"""Lines that assign, drop or replace what others go on to use, and what only looks like it."""

from __future__ import annotations

import sys
from types import CodeType
from typing import Any

import pytest

from tests.collectors.conftest import codes
from tracelyze.collectors.program.lines import script_text
from tracelyze.collectors.program.lines.assigned import averages, dropped, ignored, rebinding, replaced_parts, unread

PARTS = """
def build(path, model, heads):
    model.head = nn.Linear(4, 5)  # part
    model.backbone.fc = Head(4)  # part
    model.width = 5
    model.loss = F.relu
    heads["a"] = nn.Linear(4, 5)
    return model

class Model(nn.Module):
    def __init__(self):
        self.head = nn.Linear(4, 5)
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels.masked_fill(m, -100)", "call"),
        ("torch.where(m, labels, -100)", "call"),
        ("p.data.mul(0.9).add(q, alpha=0.1)", "call"),
        ("frame.fillna(0)", "call"),
        ("rows.shuffle(seed=3)", "call"),
        ("self.x.clamp(min=0)", "call"),
        ("(labels\n        .masked_fill(m, f(copy=1)))", "call"),
        ("labels.masked_fill_(m, -100)", ""),
        ("labels = labels.masked_fill(m, -100)", ""),
        ("print(labels.masked_fill(m, -100))", ""),
        ("return labels.masked_fill(m, -100)", ""),
        ("seen.add(3)", ""),
        ("random.shuffle(rows)", ""),
        ("self.normalize(x)", ""),
        ("np.nan_to_num(x, copy=False)", ""),
        ("frame.fillna(0, inplace=True)", ""),
        ("torch.clamp(x, 0, 1, out=y)", ""),
        ("model.state_dict()['w'] = x", "state"),
        ("model.state_dict().update(x)", "state"),
        ("model.state_dict()['w'][0] = x", ""),
        ("model.state_dict()['w'].data[0] = x", ""),
        ("state = model.state_dict(); state['w'] = x", ""),
        ("seen.update(x)", ""),
    ],
)
def test_results_that_nothing_is_done_with(text: str, found: str) -> None:
    *_, function = codes(f"def f(self, labels, m, x, y, p, q, rows, seen, model, frame):\n    {text}\n    return x")
    places = dropped.lines(function)
    assert [role for role, _ in places] == {"call": ["dropped"], "state": ["dropped-state"]}.get(found, [])
    assert [line for _, line in places] in ([], [2], [3])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("labels = [-100] * n + ids", True),
        ("labels[ids == 0] = -100", True),
        ("labels = ids.masked_fill(ids == 0, -100)", True),
        ("labels = ids - 100", False),
        ("labels = [-100.0] * n", False),
    ],
)
def test_targets_that_losses_ignore(text: str, found: bool) -> None:
    *_, function = codes(f"def f(labels, ids, n):\n    {text}\n    return labels")
    assert ignored.lines(function) == [2] * found


def test_lines_that_put_a_part_into_something_else() -> None:
    wanted = [number for number, text in enumerate(PARTS.splitlines(), start=1) if "# part" in text]
    assert [line for code in codes(PARTS) for line in replaced_parts.lines(code)] == wanted


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p.data.reshape(-1), p.grad.reshape(-1)", True),
        ("p.flatten(), p.grad.flatten()", True),
        ("p.view(-1), p.grad.reshape(-1)", False),
        ("p.reshape(-1), k.sum()", False),  # of no gradient: nothing that a step is about to change
    ],
)
def test_a_parameter_that_is_handed_out_in_another_shape(text: str, found: bool) -> None:
    *_, function = codes(f"def flat_views(p, k):\n    return {text}")
    assert rebinding.handed_out(function) == [2] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.data.mul_(self.d).add_(b.data, alpha=1 - self.d)", True),
        ("a.copy_(self.d * a + (1 - self.d) * b)", True),
        ("a = a.mul(self.d).add_(b, alpha=1 - self.d)", True),
        ("a = self.d * a + (1 - self.d) * b", True),
        ("a.mul_(0.9).sub_(b.grad, alpha=self.d)", False),  # a step
        ("print(a.shape == b.shape)", False),
    ],
)
def test_what_mixes_weights_into_others(text: str, found: bool) -> None:
    loop = "for a, b in zip(self.ema.parameters(), model.parameters()):"
    *_, function = codes(f"def update(self, model):\n    {loop}\n        {text}")
    assert averages.mixing(function) == [3] * found


@pytest.mark.parametrize(
    ("text", "made", "updated"),
    [
        ("ema = EMAHandler(model, momentum=1e-4)", True, False),
        ("self.shadow = ExponentialMovingAverage(weights, 0.99)", True, False),
        ("teacher = timm.utils.ModelEmaV3(model)", True, False),
        ("x = Schema(EMA_DECAY)", False, False),
        ("self.ema.update(model)", False, True),
        ("model_ema.step()", False, True),
        ("avg_model.update_parameters(model)", False, True),
        ("loss_avg.update(loss.item()); schema.update(row)", False, False),
    ],
)
def test_what_makes_and_updates_averages_of_weights(text: str, made: bool, updated: bool) -> None:
    *_, function = codes(f"def train(self, model):\n    pass\n    {text}")
    assert averages.making(function) == [3] * made
    assert averages.updating(function) == [3] * updated


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a.copy_(b.lerp(a, decay))", True),
        ("a.copy_(torch.lerp(a, b, 1 - decay))", True),
        ("a.copy_(b.mul(decay))", False),  # of a training nothing else is known to be an average
        ("b.grad.mul_(decay)", False),
    ],
)
def test_an_average_within_a_training(text: str, found: bool) -> None:
    loop = "    for a, b in zip(ema.parameters(), net.parameters()):"
    *_, function = codes(f"def train(net, ema, x, y):\n    x.lerp(y, 0.5).backward()\n{loop}\n        {text}")
    assert averages.mixing(function) == [4] * found


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("slow = slow.mul(d).add_(new[name], alpha=1 - d)", [4]),
        ("slow = slow.lerp(new[name], 1 - d)", [4]),
        ("slow.mul_(d).add_(new[name], alpha=1 - d)", []),  # as before: only pairs of weights tell
        ("mine[name] = slow.mul(d)", []),
    ],
)
def test_an_average_that_is_made_anew(text: str, line: list[int]) -> None:
    body = "    for name, slow in self.net.state_dict().items():\n        if slow.is_floating_point():\n"
    source = (
        f"def track(self, new, d, mine):\n{body}            {text}\n        else:\n            slow.copy_(new[name])"
    )
    *_, function = codes(source)
    assert averages.mixing(function) == line


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("p.reshape(p.shape[0], -1).add_(update, alpha=-group['lr'] * ratio)", True),
        ("p.data.flatten().sub_(update)", True),
        ("p.float().add_(update)", True),
        ("flat = p.reshape(len(p), -1); flat.mul_(0.9); flat.add_(update)", True),
        ("flat = p.data.flatten(); flat -= update", True),
        ("wide = p.float().detach(); wide.sub_(update)", True),
        ("p = p.float(); p.sub_(update)", True),
        ("flat = p.reshape(-1); flat.add_(update); p.copy_(flat.view_as(p))", False),
        ("flat = p.reshape(-1); flat.add_(update); p.data = flat.view_as(p)", False),
        ("old = p.clone(); change = old - update", False),
        ("norm = p.float().norm(); norm.clamp_(min=1)", False),
        ("flat = p.grad.reshape(-1); flat.mul_(0.9)", False),
        ("p.view(p.shape[0], -1).add_(update)", False),  # which never copies
        ("buf = p.clone().mul_(0.9)", False),
        ("update.reshape(-1).mul_(0.9)", False),
        ("p.add_(update.reshape(p.shape))", False),
        ("p.copy_(p.reshape(-1) - update)", False),
        ("p.sub(group['lr'] * p.grad)", True),
        ("p.data.add(update, alpha=-group['lr'])", True),
        ("p = p.sub(update.mul(ratio))", True),
        ("p = p.addcdiv(update, ratio, value=-1)", True),
        ("print(p.sub(update).norm())", False),
        ("away = p.sub(update)", False),
        ("p.copy_(p.sub(update))", False),
    ],
)
def test_steps_that_change_what_may_be_a_copy(text: str, found: bool) -> None:
    source = (
        f"def step(self, update, ratio):\n    for group in self.groups:\n        for p in group:\n            {text}"
    )
    *_, function = codes(source)
    assert rebinding.rebound(function) == [4] * found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a = scaler.fit_transform(x); print(a.mean()); train(x, y)", True),
        ("a = (x - mean) / std; logger.info('%s', a); train(x, y)", True),
        ("a = torch.tensor(scaler.transform(x['k'][c])); train(x['k'][c], y)", True),
        ("a = scaler.transform(x); train(a, y); train(x, y)", False),
        ("a = scaler.transform(x); return a, train(x)", False),
        ("a = scaler.transform(x); b = lambda: a; train(x)", False),
        ("a = scaler.transform(x); train(y)", False),
        ("a = scaler.transform(x); a = other; train(x)", False),
        ("a = scaler.transform(x); b = log(a); train(x)", False),
        ("a = scaler.transform(x); train(x); send(locals())", False),
        ("x = (x - mean) / std; train(x)", False),
        ("a, b = scaler.transform(x), scaler.transform(y); train(x)", False),
        ("a = scaler.transform(x); scaler.fit(x)", False),
        ("a = scaler.transform(x); train(c['x'])", False),
        ("a = scaler.transform(x); train(c.x)", False),
        ("a = scaler.transform(x); print(evaluate(a)); train(x)", False),
        ("a = scaler.transform(x); print(round(float(a.mean()), 3)); train(x)", True),
        ("a = scaler.transform(x); x = other.transform(x); train(x)", False),
        ("_ = scaler.fit_transform(x); train(x)", False),
        ("global a; a = scaler.transform(x); train(x)", False),
    ],
)
def test_scaled_values_that_nothing_reads(text: str, found: bool) -> None:
    parts = text.split("; ")
    source = "def main(x, y, mean, std, c, other):\n" + "".join(f"    {part}\n" for part in parts)
    function = next(one for one in codes(source) if one.co_name == "main")
    rows = unread.lines(function)
    assert [role for role, _ in rows if role == "raw"] == ["raw"] * found
    assert not found or rows == [("unread", 2), ("raw", 1 + len(parts))]


def _is_file(code: CodeType) -> bool:
    return code.co_name == "<module>"


def test_scaled_values_outside_of_functions_may_be_read_in_one() -> None:
    source = "a = (x - mean) / std\nprint(a)\ntrain(x)\n"
    *_, whole = codes(source)
    assert unread.lines(whole) == [("unread", 1), ("raw", 3)]
    whole, _ = codes(source + "def evaluate():\n    return model(a)\n")
    assert unread.lines(whole) == []
    *_, whole = sorted(codes(source + "class Data:\n    def get(self):\n        return a\n"), key=_is_file)
    assert unread.lines(whole) == [], "a method reads it"
    body, _ = sorted(codes("class Data:\n    a = scaler.transform(x)\n    train(x)\n"), key=_is_file)
    assert unread.lines(body) == [], "an attribute, which anything may read"


FILES = """
def save(model, average, epoch):
    store({"model": model, "average": average, "epoch": epoch, "loss": 1, "rate": 2})

def load(state):
    state["rate"] = 3
    return state["model"], state.get("epoch", 0), "loss" in state
"""


def test_keys_that_are_written_and_never_read() -> None:
    space: dict[str, Any] = {}
    exec(FILES, space)
    codes = [space[name].__code__ for name in ("save", "load")]
    keys = {"model", "average", "epoch", "loss", "rate", "other"}
    expected = {"average", "rate"} if sys.version_info < (3, 14) else set()  # which makes no dictionary of one tuple
    assert script_text.unread(keys, codes) == expected

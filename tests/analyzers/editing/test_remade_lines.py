"""Examples that mend the script's own line: divisors, graphs that are cut, products, windows, averages, names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.sites import placed, sites_of
from tracelyze.analyzers.rules.evaluation.ema_not_updated import copies
from tracelyze.analyzers.rules.nonfinite.nonfinite_input import given_up_batches
from tracelyze.analyzers.rules.precision.autocast_not_applied import products
from tracelyze.analyzers.rules.updates.frozen_parameters import frozen_in_vain
from tracelyze.analyzers.rules.updates.shared_parameter_two_optimizers import shared_tensors
from tracelyze.analyzers.script.editing import own_names, own_statement, unknown_names
from tracelyze.analyzers.script.editing.remade import crashed, finite, graphs, lines, signs, windows
from tracelyze.diagnosis import Location
from tracelyze.testing import SITES


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("spread = x.std(dim=0)", "spread = (x.std(dim=0) + 1e-6)"),
        ("return (x - x.mean(0)) / x.std(0)", "return (x - x.mean(0)) / (x.std(0) + 1e-6)"),
        ("x = (x - mean) / spread", "x = (x - mean) / (spread + 1e-6)"),
        ("yield (a - m) / s, (b - m) / s", "yield (a - m) / (s + 1e-6), (b - m) / (s + 1e-6)"),
        ("x = x / 255", ""),
        ("for x in loader:", ""),
    ],
)
def test_what_is_divided_by_has_an_epsilon(make: Any, line: str, example: str) -> None:
    process, place = placed(make, f"def scale(x):\n    {line}\n        pass\n", "singular", line)
    assert finite.divided(process, place) == example


@pytest.mark.parametrize(
    ("line", "logarithm", "quotient"),
    [
        ("return (r - c * torch.log(r)).mean()", "return (r - c * torch.log(r.clamp_min(1e-8))).mean()", ""),
        ("loss = -(p + q).log().sum()", "loss = -((p + q).clamp_min(1e-8)).log().sum()", ""),
        ("loss = (v * m).sum() / m.sum()", "", "loss = (v * m).sum() / m.sum().clamp_min(1)"),
        ("y = a / b.norm()", "", "y = a / b.norm().clamp_min(1e-8)"),
        ("y = a / b", "", ""),  # which may be negative
        ("y = math.log(n)", "", ""),
    ],
)
def test_what_makes_a_loss_infinite_is_bounded(make: Any, line: str, logarithm: str, quotient: str) -> None:
    process, place = placed(make, f"def f():\n    {line}\n", "singular", line)
    own = own_statement.at(process, place)
    assert own is not None
    assert (finite.logarithms(own), finite.counted(own)) == (logarithm, quotient)


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("std = torch.sqrt(a - b)", "std = torch.sqrt((a - b).clamp_min(1e-8))"),
        ("loss = mse(a[0].sqrt(), b.sqrt())", "loss = mse(a[0].clamp_min(1e-8).sqrt(), b.clamp_min(1e-8).sqrt())"),
        ("n = math.sqrt(d)", ""),
        ("y = torch.log(p)", ""),
    ],
)
def test_what_a_root_is_taken_of_is_bounded(make: Any, line: str, example: str) -> None:
    process, place = placed(make, f"def f():\n    {line}\n", "singular", line)
    own = own_statement.at(process, place)
    assert own is not None
    assert finite.roots(own) == example


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("loss = torch.tensor(terms, requires_grad=True).mean()", "loss = torch.stack(terms).mean()"),
        ("loss = torch.tensor([a.item(), b.item()], requires_grad=True).sum()", "loss = torch.stack([a, b]).sum()"),
        ("loss = torch.tensor(0.5 * a.item() + b.item(), requires_grad=True)", "loss = 0.5 * a + b"),
        ("loss = torch.tensor(loss.item(), requires_grad=True)", ""),
        ("loss = torch.tensor(a.item() + b.item()) * 2", "loss = (a + b) * 2"),
        (
            "loss = torch.tensor(list(d.values()), requires_grad=True).sum()",
            "loss = torch.stack(list(d.values())).sum()",
        ),
    ],
)
def test_numbers_become_the_tensors_that_they_were(make: Any, line: str, example: str) -> None:
    process, place = placed(make, f"def train():\n    {line}\n", "anew", line)
    fix, code = graphs.of_tensors(process, place)
    assert code == example
    assert ("Leave out line 2" in fix) is (not example)


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("h = self.item(x).detach()", "h = self.item(x)"),
        ("loss = measure(out.detach(), y)", "loss = measure(out, y)"),
        ("h = h.detach()", ""),
        ("with torch.no_grad():", ""),
    ],
)
def test_a_graph_that_is_cut_is_left_whole(make: Any, line: str, example: str) -> None:
    process, place = placed(make, f"def score():\n    {line}\n        pass\n", "cut", line)
    fix, code = graphs.uncut(process, place)
    assert code == example
    assert "ine 2" in fix


def test_an_update_is_written_into_the_parameter(make: Any) -> None:
    process, place = placed(make, "def train():\n    w = w - 0.1 * w.grad\n", "step", "w = w")
    assert graphs.updated_in_place(process, place).startswith(
        "with torch.no_grad():\n    w -= 0.1 * w.grad\nw.grad = None"
    )
    process, place = placed(make, "def train():\n    w = 0.1 * w.grad\n", "step", "w = 0.1")
    assert graphs.updated_in_place(process, place) == ""


@pytest.mark.parametrize(
    ("loop", "left"),
    [
        ("for (x,) in loader:", "x = x[good]"),
        ("for step, (a, b) in enumerate(loader):", "a, b = a[good], b[good]"),
        ("for xb, yb in loader:", "xb, yb = xb[good], yb[good]"),
        ("for batch in loader:", "inputs, targets = inputs[good], targets[good]"),
        ("for a, b, c in loader:", "inputs, targets = inputs[good], targets[good]"),
    ],
)
def test_samples_that_are_no_numbers_are_left_out_of_what_the_loop_names(make: Any, loop: str, left: str) -> None:
    row = {"loader": None, "field": "0"}
    code = given_up_batches.left_out(make.process(), Location("train.py", 3, "train", loop), row)
    assert code.endswith(left)
    assert ("good &=" in code) is ("," in left)


def test_a_region_reaches_the_model_and_its_products(make: Any) -> None:
    source = """\
def train():
    out = net(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = measure(out, y)
"""
    process = make.process(sites=sites_of(source, **{"training-call": "out = net", "loss": "loss = "}))
    region = 'with torch.autocast("cpu", dtype=torch.bfloat16):\n    out = net(x)\n    loss = measure(out, y)'
    assert products.within(process, process.location("loss")) == region
    process, place = placed(
        make, "def forward(self, x):\n    out.addmm_(x, self.w.t())\n", "in-place-product", "addmm_"
    )
    assert products.anew(process, place) == "out = out.addmm(x, self.w.t())"


@pytest.mark.parametrize(
    ("loss", "backward", "divided"),
    [
        ("loss = measure(net(x), y) / parts", "loss.backward()", "loss = measure(net(x), y) / size"),
        ("loss = measure(net(x), y)", "(loss / 4).backward()", "(loss / size).backward()"),
        ("loss = measure(net(x), y)", "loss.backward()", "# the loss is divided by size, in place of 4"),
    ],
)
def test_a_loss_is_divided_once(make: Any, loss: str, backward: str, divided: str) -> None:
    source = f"def train():\n    {loss}\n    {backward}\n"
    process = make.process(sites=sites_of(source, loss="loss = ", backward="backward()"))
    _, _, code = windows.long(process.optimizations[0], 4.0, begin_epochs=True)
    assert code.splitlines()[1] == divided


def test_names_that_are_known_elsewhere_alone_are_not_the_places_own(make: Any) -> None:
    assert unknown_names.foreign("loss = measure(D(real), ones)") == ["measure", "D", "real", "ones", "loss"]
    assert unknown_names.foreign("loader = DataLoader(rows)") == ["rows", "loader"]
    made = "opt = Adam(chain(*(part.parameters() for part in parts)))"
    process, place = placed(make, f"def main():\n    {made}\n", "optimizer", made)
    noted = unknown_names.noted("print(part, parts)", process, place)
    assert noted.startswith(f"{unknown_names.NOTE}part\n"), "a variable of the comprehension alone"
    assert own_names.trained(process) == set()
    wrapped = "class Slow:\n    def step(self):\n        self.fast.step()\n"
    rows = sites_of(wrapped, step="self.fast.step()")
    rows += [
        {**one, "site": 7} for one in sites_of("def main():\n    loss.backward()\n    opt.step()\n", backward="loss.")
    ]
    rows[1] |= {"function": "main", "line": 42, "excerpt_line": 41}
    process = make.process(sites=rows)
    assert own_names.in_example("optimizer.zero_grad()", process, process.site(7)) == "optimizer.zero_grad()"
    assert own_names.in_example("optimizer.zero_grad()", process, process.site(1)) == "self.fast.zero_grad()"


def test_an_average_that_is_mixed_by_hand_is_found(make: Any) -> None:
    source = (
        "def main():\n    for slow, new in pairs:\n        slow.mul_(d).add_(new, alpha=1 - d)\n    held = net(x)\n"
    )
    process, _ = placed(make, source, "forward", "held = ")
    line = copies.mixing(process)
    assert line is not None
    assert line.line == 3
    fix, code = copies.remedy(process, line, updated=False)
    assert (code, fix.startswith("Line 3 is to update it")) == ("", True)


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("if epoch >= self.begin:", "It runs only where `epoch >= self.begin` (line 2): print both sides."),
        ("if slow.dtype.is_floating_point:", ""),  # of each tensor
        ("for slow, new in pairs:", ""),
    ],
)
def test_the_condition_under_which_an_average_is_updated(make: Any, condition: str, said: str) -> None:
    update = "slow.mul_(d).add_(new, alpha=1 - d)"
    process, line = placed(
        make, f"def main():\n    {condition}\n        {update}\n    held = net(x)\n", "average", update
    )
    assert line is not None
    fix = copies.remedy(process, line, updated=False)[0]
    assert (said in fix, "It runs only where" in fix) == (True, bool(said))


def test_what_does_not_freeze_is_written_as_what_does(make: Any) -> None:
    event = {"text": "require_grad", "value": 4, "name": "0.weight", "file": "/home/me/a.py", "line": 3, "step": 1}
    found = frozen_in_vain.finding(make.process(), event | {"source": "p.require_grad = False"}, "frozen-parameters")
    assert found.fix_code == "p.requires_grad_(False)"
    assert (found.location.file, found.diff) == ("/home/me/a.py", None), "the line as it stands is not known"
    without = frozen_in_vain.finding(make.process(), event | {"source": ""}, "frozen-parameters")
    assert without.fix_code.startswith("backbone.")
    text = "def prepare(net):\n    for p in net.parameters():\n        p.require_grad = False\n    net.head = Head()"
    site = {"site": 50, "role": "part-text", "file": "a.py", "function": "prepare", "line": 4,
            "source": "net.head = Head()", "excerpt": text, "excerpt_line": 1}  # fmt: skip
    process = make.process(sites=[*SITES, site])
    found = frozen_in_vain.finding(process, event | {"source": "p.require_grad = False"}, "frozen-parameters")
    assert (found.location.file, found.location.function) == ("a.py", "prepare")
    assert found.diff.added == ["        p.requires_grad_(False)"]


@pytest.mark.parametrize(
    ("family", "line", "example"),
    [
        ("leaf-inplace", "p.clamp_(-1, 1)", "with torch.no_grad():\n    p.clamp_(-1, 1)"),
        ("label-out-of-range", "loss = criterion(net(x), tags)", "assert 0 <= tags.min() and tags.max() < num_classes"),
        ("label-out-of-range", "loss = criterion(net(x), one_hot(tags))", ""),
        ("shape-mismatch", "h = torch.cat([a, b]) @ w", 'print([getattr(one, "shape", one) for one in (w,)])'),
        ("shape-mismatch", "h = self.gru(x, self.h0)", 'print([getattr(one, "shape", one) for one in (x, self.h0)])'),
        ("key-error", "print(batch['x'])", ""),
    ],
)  # fmt: skip
def test_a_crash_is_looked_at_in_its_own_words(make: Any, family: str, line: str, example: str) -> None:
    process, place = placed(make, f"def forward(self, x):\n    {line}\n", "loss", line)
    code = crashed.example(family, process, place)
    assert code.startswith(example) if example else code == ""
    assert crashed.example(family, process, None) == ""


@pytest.mark.parametrize(
    ("line", "dimension", "example"),
    [
        ("w = s.softmax(self.dim)", -1, "w = s.softmax(-1)"),
        ("w = F.softmax(s, self.dim)", 1, "w = F.softmax(s, 1)"),
        ("layers.append(nn.LogSoftmax(dim=-1))", 1, "layers.append(nn.LogSoftmax(dim=1))"),
        ("w = F.softmax(F.softmax(s, 1), 1)", 1, ""),
    ],
)
def test_a_softmax_runs_along_another_dimension(make: Any, line: str, dimension: int, example: str) -> None:
    process, place = placed(make, f"def f():\n    {line}\n", "softmax", line)
    assert lines.softmax_along(process, place, dimension) == example


def test_lines_with_one_call_changed(make: Any) -> None:
    process, place = placed(make, "def f():\n    x, y = (torch.from_numpy(one) for one in rows)\n", "loss", "x, y")
    assert lines.copied(process, place) == "x, y = (torch.from_numpy(one).clone() for one in rows)"
    process, place = placed(make, "def f():\n    loss = error + weight * rough - kept\n", "loss", "loss =")
    assert lines.terms(process, place).startswith("print(error.item(), (weight * rough).item(), kept.item())")
    process, place = placed(make, "def f():\n    loss = error * 2\n", "loss", "loss =")
    assert lines.terms(process, place) == ""
    branch = "def f(h):\n    if h.max().item() > 2:\n        h = h / 2\n    return h\n"
    process, place = placed(make, branch, "loss", "if h")
    assert lines.chosen_by_where(process, place).startswith("h = torch.where(h.max() > 2, h / 2, h)")
    process, place = placed(make, branch.replace("    return", "    else:\n        return"), "loss", "if h")
    assert lines.chosen_by_where(process, place) == ""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("row = torch.from_numpy(row)", "row"),
        ("for images, kinds in loader:", "images"),
        ("rows = torch.randint(0, 9, (4,))", "x"),  # indices
        ("yield a[rows]", "x"),
    ],
)
def test_what_is_normalised_has_its_own_name(make: Any, line: str, name: str) -> None:
    process, place = placed(make, f"def f():\n    {line}\n        pass\n", "loss", line)
    code = lines.named("mean = x_train.mean(0)\nx = (x - mean)", process, place)
    assert code == f"mean = x_train.mean(0)\n{name} = ({name} - mean)"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("[*trunk, *head.parameters()]", True),
        ("list(a) + list(b)", True),
        ("groups", False),
        ('[{"params": a}]', False),
    ],
)
def test_parameters_that_are_put_together_are_kept_together(make: Any, given: str, kept: bool) -> None:
    line = f"second = Adam({given}, lr=3)"
    rows = sites_of(f"def main():\n    first = Adam(a, lr=1)\n    {line}\n", optimizer="first =", loss="second =")
    optimizers = [{"optimizer": 0, "name": "Adam", "made_at": 1}, {"optimizer": 1, "name": "Adam", "made_at": 2}]
    steps = make.steps() | {"optimizer": [0, 1] * 200}
    earlier, later = make.process(steps, sites=rows, optimizers=optimizers).optimizations
    code, edit = shared_tensors.left_out(later, earlier, 2)
    assert edit is None
    assert (f"second = Adam([p for p in {given} if id(p) not in held], lr=3)" in code) is kept


@pytest.mark.parametrize(
    ("made", "kept"),
    [
        ('[p for n, p in net.named_parameters() if not n.startswith("songs")]', "rest"),
        ("[p for p in net.head.parameters()]", "rest"),
        ("list(net.head.parameters())", "rest"),
        ('[{"params": net.parameters()}]', "model.parameters()"),  # groups, whose entries are no tensors
        ("groups_of(net)", "model.parameters()"),
        ("[n for n, p in net.named_parameters()]", "model.parameters()"),
    ],
)
def test_an_optimizer_of_named_tensors_keeps_its_other_arguments(make: Any, made: str, kept: str) -> None:
    text = (
        f"def main():\n    first = Adam(a, lr=1)\n    rest = {made}\n    second = AdamW(rest, lr=3, weight_decay=0.3)\n"
    )
    rows = sites_of(text, optimizer="first =", loss="second =")
    optimizers = [{"optimizer": 0, "name": "Adam", "made_at": 1}, {"optimizer": 1, "name": "AdamW", "made_at": 2}]
    steps = make.steps() | {"optimizer": [0, 1] * 200}
    earlier, later = make.process(steps, sites=rows, optimizers=optimizers).optimizations
    code, edit = shared_tensors.left_out(later, earlier, 2)
    assert edit is None
    assert "in first.param_groups" in code
    assert f"second = AdamW([p for p in {kept} if id(p) not in held], lr=3, weight_decay=0.3)" in code


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("self.songs.weight = self.scores.weight", " scores.weight is also songs.weight: line 2 ties them."),
        ("self.scores.weight = self.songs.weight", " scores.weight is also songs.weight: line 2 ties them."),
        ("if tie:\n        self.songs.weight = self.scores.weight", ""),  # may not have run
        ("self.songs.weight = self.others.weight", ""),
        ("self.bias.weight = self.scores.weight", ""),  # both are tensors of their own
    ],
)
def test_a_shared_tensor_with_two_names_is_tied(make: Any, lines: str, told: str) -> None:
    rows = sites_of(f"def __init__(self):\n    {lines}\n", module=lines.split("\n", maxsplit=1)[0])
    own = [{"step": 1, "optimizer": 0, "parameter": name} for name in ("scores.weight", "bias.weight")]
    process = make.process(sites=rows, more={"parameters": own})
    assert shared_tensors.tied(process.optimizations[0], "scores.weight") == told


@pytest.mark.parametrize(
    ("gain", "loss", "example"),
    [
        ("gain = torch.min(r * a, r.clamp(0.8, 1.2) * a)", "loss = gain.mean()", "loss = -gain.mean()"),
        ("pass", "loss = torch.minimum(r * a, torch.clip(r, 1 - e, 1 + e) * a).mean()", "loss = -torch.minimum("),
        ("gain = torch.min(r * a, r.clamp(0.8, 1.2) * a)", "loss = torch.mean(gain)", "loss = -torch.mean(gain)"),
        ("gain = torch.min(r * a, r.clamp(0.8, 1.2) * a)", "loss = -gain.mean()", ""),
        ("gain = torch.max(-r * a, -r.clamp(0.8, 1.2) * a)", "loss = gain.mean()", ""),
        ("gain = -torch.min(r * a, r.clamp(0.8, 1.2) * a)", "loss = gain.mean()", ""),
        ("gain = torch.min(first, second)", "loss = gain.mean()", ""),
    ],
)
def test_an_objective_that_is_minimised_has_a_minus(make: Any, gain: str, loss: str, example: str) -> None:
    process, place = placed(make, f"def f(r, a):\n    {gain}\n    {loss}\n", "loss", loss)
    mended = signs.with_minus(process, place)
    assert mended.startswith(example)
    assert bool(mended) == bool(example)


def test_a_new_head_that_is_frozen_beside_adapters(make: Any) -> None:
    event = {"time": 1.0, "step": 1, "kind": "random-and-frozen", "name": "x"}
    reach = {"reach": [{"step": 20, "optimizer": 0, "steps": 20, "held": 4, "held_elements": 90, "missed": 0}]}
    config = ["lora = LoraConfig(", "    r=4,", '    target_modules=["query"],', ")"]
    site = {"site": 50, "role": "adapters-text", "file": "a.py", "function": "build", "line": 9, "source": config[0],
            "excerpt": "\n".join(config), "excerpt_line": 9}  # fmt: skip
    wrapped = event | {"text": "base_model.model.classifier.weight"}
    finding = make.check("frozen-parameters", make.process(events=[wrapped], sites=[*SITES, site], more=reach))[2]
    assert (finding.severity, finding.confidence) == ("warning", "likely")
    assert finding.title == "classifier.weight is frozen at its random values: nothing trains it"
    assert 'modules_to_save=["classifier"]' in "\n".join(finding.diff.added)
    freezes = {"site": 51, "role": "freeze", "file": "a.py", "function": "build", "line": 12,
               "source": "p.requires_grad_(False)"}  # fmt: skip
    two = event | {"text": "head.0.weight head.2.weight"}
    finding = make.check("frozen-parameters", make.process(events=[two], sites=[*SITES, freezes], more=reach))[2]
    assert "head.0.weight and head.2.weight, filled with random numbers, are frozen" in finding.summary
    assert (finding.location.line, finding.diff) == (12, None)
    assert 'get_submodule("head.0").requires_grad_(True)' in finding.fix_code

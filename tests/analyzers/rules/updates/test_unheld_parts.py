"""frozen-parameters: parts of a model that no optimizer was given, and the line that is to give them."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.rules.updates.reach import ALL, COUNT, CUT, FREE, RAN
from tests.analyzers.sites import sites_of
from tracelyze.analyzers.computed.gradients.trainable import tensor_names
from tracelyze.testing import SITES


@pytest.mark.parametrize(
    ("names", "count", "title"),
    [
        ("a tensor [3, 4]", 1, "a tensor [3, 4] is in no optimizer and never trains"),
        ("a tensor [3, 4], a tensor [5]", 2, "a tensor [3, 4] and a tensor [5] are in no optimizer and never train"),
        ("head.weight, head.bias", 2, "head.weight and head.bias are in no optimizer and never train"),
        ("a tensor [3, 4]", 2, "2 tensors with gradients are in no optimizer and never train"),
        ("", 1, "1 tensor with gradients is in no optimizer and never trains"),
    ],
)
def test_a_title_names_one_or_two_tensors(make, names: str, count: int, title: str) -> None:
    """A comma within a shape parts no names."""
    process = make.process(more={"reach": [ALL, FREE | {"names": names, "missed": count}], "activations": RAN})
    assert make.check("frozen-parameters", process)[2].title == title


@pytest.mark.parametrize(
    ("made", "names", "more", "later"),
    [
        ("self.opt = torch.optim.Adam(model.parameters(), lr=lr)", "heads.b.weight, heads.b.bias", {}, True),
        ("opt = torch.optim.Adam(model.parameters())", "heads.b.weight", {"shared_model": 0}, False),  # another model
        ("opt = torch.optim.Adam(model.trunk.parameters())", "heads.b.weight", {}, False),  # a part was meant
        ("opt = torch.optim.Adam([p for p in model.parameters() if p.ndim > 1])", "heads.b.weight", {}, False),
        ("opt = torch.optim.Adam(groups)", "heads.b.weight", {}, False),
        ("opt = torch.optim.Adam(model.parameters())", "heads.b.parametrizations.weight.original0", {}, True),
        ("opt = torch.optim.Adam(model.parameters())", "other.weight", {}, False),  # registered nowhere
        ("opt = torch.optim.Adam(model.parameters())", "a tensor [8, 8]", {}, False),
    ],
)
def test_layers_that_came_behind_the_optimizer(make, made: str, names: str, more: dict[str, Any], later: bool) -> None:
    """It was given all that the model held: what it does not hold was no part of it then."""
    site = {"role": "optimizer", "file": "a.py", "function": "__init__", "line": 50, "source": made}
    sites = [{"site": 4, **site, "excerpt": f"    {made}", "excerpt_line": 50}]
    sites.append({"site": 9, **site, "role": "module", "line": 39, "source": "self.heads[name] = nn.Linear(8, n)"})
    models = [{"model": 0, "name": "Net", "called_as": "self.model", "parameters": 6, "elements": 600}]
    modules = [{"model": 0, "module": name, "kind": "Linear", "made_at": 9} for name in ("", "trunk", "heads.b")]
    optimizer = {"optimizer": 0, "name": "Adam", "made_at": 4, "parameters": 4, "groups": 1}
    row = FREE | {"names": names, "missed": 2, "shared_model": 2, "fed_by_trained": 0} | more
    process = make.process(
        sites=sites, models=models, optimizers=[optimizer], more={"reach": [ALL, row], "modules": modules}
    )
    finding = make.check("frozen-parameters", process)[2]
    assert ("Line 50 makes the optimizer of `model.parameters()`" in finding.summary) is later
    assert ("Line 39 makes their layers." in finding.summary) is (later and "parametrizations" not in names)
    assert ("weight_norm" in finding.fix) is ("parametrizations" in names)
    assert ("Python list" in finding.summary + finding.fix_code) is names.startswith("a tensor")


@pytest.mark.parametrize(
    ("line", "function", "indent", "below"),
    [
        (55, "main", "    ", True),
        (45, "main", "    ", False),  # above it: the optimizer was not given these
        (55, "main", "        ", False),  # in a loop or a branch
        (55, "wrapped", "    ", False),  # called from anywhere
    ],
)
def test_layers_that_are_made_below_the_optimizer(make, line: int, function: str, indent: str, below: bool) -> None:
    """As adapters that are put into a model whose parameters were sorted into groups before."""
    site = {"role": "optimizer", "file": "a.py", "function": "main", "line": 50, "source": "opt = torch.optim.AdamW("}
    sites = [
        {"site": 4, **site, "excerpt": "    opt = torch.optim.AdamW(\n        [decay, plain])", "excerpt_line": 50}
    ]
    wrap = {"role": "module", "function": function, "line": line, "source": "net = get_peft_model(net, lora)"}
    sites.append({"site": 9, **site, **wrap, "excerpt": f"{indent}{wrap['source']}", "excerpt_line": line})
    modules = [{"model": 0, "module": name, "kind": "Linear", "made_at": 9} for name in ("", "q", "k")]
    row = FREE | {"names": "q.lora_A.weight, k.lora_A.weight", "missed": 2, "shared_model": 2, "fed_by_trained": 0}
    optimizer = {"optimizer": 0, "name": "AdamW", "made_at": 4, "parameters": 4, "groups": 2}
    process = make.process(sites=sites, optimizers=[optimizer], more={"reach": [ALL, row], "modules": modules})
    finding = make.check("frozen-parameters", process)[2]
    assert ("Line 55 makes their layers only after line 50 made the optimizer." in finding.summary) is below
    assert ("# right below line 55;" in finding.fix_code) is below
    assert finding.location.line == 50
    assert ("opt.add_param_group" in finding.fix_code and "in net.parameters()" in finding.fix_code) is below


@pytest.mark.parametrize(
    ("given", "shared", "moved", "said"),
    [
        ("net.parameters()", 2, True, True),
        ("[p for p in net.parameters() if p.ndim > 1]", 2, True, True),
        ("net.trunk.parameters()", 2, False, True),  # moved, it would leave them out again
        ("net.parameters()", 0, False, False),  # of another model, which it was not to hold
    ],
)
def test_an_optimizer_is_moved_below_layers_that_it_then_holds(
    make, given: str, shared: int, moved: bool, said: bool
) -> None:
    lines = ["def main():", f"    opt = torch.optim.AdamW({given})", "    net = get_peft_model(net, lora)"]
    text = {"file": "a.py", "function": "main", "excerpt": "\n".join(lines), "excerpt_line": 49}
    sites = [{"site": 4, "role": "optimizer", "line": 50, "source": lines[1].strip(), **text}]
    sites.append({"site": 9, "role": "module", "line": 51, "source": lines[2].strip(), **text})
    row = FREE | {"names": "q.lora_A.weight", "missed": 2, "shared_model": shared, "fed_by_trained": 0}
    optimizer = {"optimizer": 0, "name": "AdamW", "made_at": 4, "parameters": 4, "groups": 1}
    modules = [{"model": 0, "module": name, "kind": "Linear", "made_at": 9} for name in ("", "q")]
    process = make.process(sites=sites, optimizers=[optimizer], more={"reach": [ALL, row], "modules": modules})
    finding = make.check("frozen-parameters", process)[2]
    assert ("Line 51 makes their layers only after line 50" in finding.summary) is said
    assert ("# below line 51, in place of line 50:" in finding.fix_code) is moved
    assert ("opt.add_param_group" in finding.fix_code) is (said and not moved)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("0.weight, 0.bias, 1.weight, 1.bias, 2.weight and 3 more", "0.weight, 0.bias, 1.weight, 1.bias and 4 more"),
        ("a tensor [3, 4], a tensor [3]", "tensors of shape [3, 4] and [3]"),
        ("a tensor [3, 4], 2.bias", "a tensor [3, 4], 2.bias"),
    ],
)
def test_tensors_of_a_sequential_are_named_one_by_one(names: str, said: str) -> None:
    """Their names begin with a number, as what follows a comma within a shape does."""
    assert tensor_names.in_a_sentence(names) == said


def test_the_line_that_puts_in_a_part_whose_tensors_no_optimizer_holds(make) -> None:
    line = {"site": 70, "role": "part-text", "file": "t.py", "line": 118, "function": "main"}
    sites = [line | {"source": "model.head = nn.Linear(64, 5)"}]
    free = FREE | {"names": "head.weight, head.bias"}
    for reach, told in (([CUT | {"names": "a tensor [3, 4]"}, free], True), ([ALL, free], False)):
        process = make.process(sites=[*SITES, *sites], more={"reach": reach, "activations": RAN})
        finding = make.check("frozen-parameters", process)[2]
        assert (finding.location.line == 118, "Line 118 inserts this part" in finding.summary) == (told, told)


@pytest.mark.parametrize(
    ("names", "groups", "divided"),
    [
        ("place, summary", 2, True),
        ("net.place", 3, True),
        ("place, net.cls and 3 more", 2, True),
        ("place, head.weight", 2, False),  # a layer: it may have come later
        ("place, summary", 1, False),
        ("a tensor [3, 4]", 2, False),
    ],
)
def test_parameters_that_no_group_takes_in(make, names: str, groups: int, divided: bool) -> None:
    """Groups that are chosen by the names weight and bias leave out a position table."""
    optimizers = [{"optimizer": 0, "name": "AdamW", "groups": groups}]
    process = make.process(optimizers=optimizers, more={"reach": [ALL, FREE | {"names": names}], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    assert ("neither weight nor bias" in finding.summary, "an else" in finding.fix) == (divided, divided)
    assert ("nn.ModuleList" in finding.fix_code) is names.startswith("a tensor")


@pytest.mark.parametrize(
    ("groups", "listed", "rate"),
    [
        (('{"params": a.parameters(), "lr": lr},', '{"params": b.parameters(), "lr": lr},'), "", "lr"),
        (('{"params": a.parameters(), "lr": 0.1},', '{"params": b.parameters(), "lr": 0.2},'), "", ""),
        (("a.parameters(),", "lr=0.1,"), "", ""),
        (("a.parameters(),", "lr=0.1,"), "self.blocks = [nn.Linear(8, 8)]", ""),
    ],
)
def test_layers_with_names_that_no_optimizer_was_given(make, groups, listed: str, rate: str) -> None:
    """Of lists only where the script has one; a new group with the rate of the others."""
    text = "\n".join(f"    {line}" for line in ("opt = torch.optim.AdamW(", *groups, ")", listed))
    site = {"site": 4, "role": "optimizer", "file": "a.py", "function": "main", "line": 50, "excerpt_line": 50}
    sites = [site | {"source": "opt = torch.optim.AdamW(", "excerpt": text}]
    optimizer = {"optimizer": 0, "name": "AdamW", "made_at": 4, "parameters": 4, "groups": 2}
    free = FREE | {"names": "station.weight, gate.bias"}
    process = make.process(sites=sites, optimizers=[optimizer], more={"reach": [ALL, free], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    told = finding.summary + finding.fix + finding.fix_code
    assert ("ModuleList" in told, "Python list" in told) == (bool(listed), bool(listed))
    assert ('not in held], "lr": lr})' in finding.fix_code) is bool(rate)
    assert ("rates of their own" in finding.fix_code) is not bool(rate)


@pytest.mark.parametrize("above", [True, False])
def test_an_optimizer_of_a_part_that_another_one_replaced(make, above: bool) -> None:
    """All that it holds belongs to no module any more: the line that puts the new part in is the one to change."""
    made = {"site": 90, "file": "train.py", "line": 30 if above else 50, "function": "main", "role": "optimizer"}
    made |= {"source": "opt = torch.optim.AdamW(model.head.parameters())"}
    put_in = {"site": 91, "file": "train.py", "line": 40, "function": "main", "role": "part-text"}
    put_in |= {"source": "model.head = nn.Linear(model.dim, 5)"}
    old = ALL | {"held": 2, "missed": 2, "names": "a tensor [6, 432], a tensor [6]"}
    new = FREE | {"held": 2, "missed": 2, "missed_elements": 4330, "names": "head.weight, head.bias"}
    optimizers = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "made_at": 90}]

    def zero(reach: list[dict[str, Any]]) -> Any:
        steps = make.steps() | {"grads_none": [8] * COUNT}
        more = {"reach": reach, "activations": RAN}
        process = make.process(steps, sites=[made, put_in], optimizers=optimizers, more=more)
        orphans = make.check("frozen-parameters", process)[2]
        return make.check("zero-gradients", process)[2], orphans

    dead, orphans = zero([old, new])
    assert "Line 40 puts model.head into the model" in dead.summary
    assert (dead.location.line, orphans.location.line, orphans.severity) == (40, 40, "warning")
    assert f"{'opt' if above else 'optimizer'}.add_param_group" in dead.fix_code
    assert ("(line 30)" in dead.fix) == above
    for reach in ([old | {"names": "head.weight, head.bias"}, new], [old, new | {"names": "neck.weight"}]):
        assert "cut off from these parameters" in zero(reach)[0].summary


TRAINABLE = "trainable = [p for p in model.parameters() if p.requires_grad]"


COSINE = "scheduler = CosineAnnealingLR(optimizer, T_max=100)"


@pytest.mark.parametrize(
    ("above", "moved"),
    [
        (["optimizer = AdamW(model.parameters())", "", COSINE], [0, 2]),
        ([TRAINABLE, "optimizer = AdamW(trainable, lr=1e-3)", "", COSINE], [0, 1, 3]),
        (["optimizer = make_optimizer(model)", "steps = 100", "warmup = LinearLR(optimizer)"], [0, 2]),
        (["optimizer = AdamW(", "    model.parameters(),", ")", "total = 3"], [0, 1, 2]),
        (["optimizer = AdamW(model.parameters())", "if warm:", "    warmup = LinearLR(optimizer)"], []),
        (["for p in model.parameters():", "    some.append(p)", "optimizer = AdamW(some)"], []),
    ],
)
def test_an_optimizer_that_is_made_above_a_new_part_is_moved_below_it(make, above: list[str], moved: list[int]) -> None:
    """With what it is given of the old part, and with its schedulers, some of which break with groups that come later:
    if all of that stands side by side."""
    text = [*above, "model.head = nn.Linear(model.dim, 5)", "model.head.bias.data.zero_()"]
    excerpt = "\n".join(f"    {line}" if line else "" for line in text)
    end = 20 + len(above)
    site = {"file": "train.py", "function": "main", "excerpt": excerpt, "excerpt_line": 20}
    own = next((at for at, line in enumerate(above) if "= AdamW(" in line), None)
    made = {"site": 90, "role": "optimizer", **site, "line": 20 + (own or 0), "source": above[own or 0]}
    if own is None:
        made = {"site": 90, "role": "optimizer", "file": "train.py", "function": "make_optimizer", "line": 5}
        made |= {"source": "return AdamW(model.parameters())"}
    put_in = {"site": 91, "role": "part-text", **site, "line": end, "source": text[-2]}
    old = ALL | {"held": 8, "missed": 2, "names": "a tensor [6, 432], a tensor [6]"}
    new = FREE | {"held": 8, "missed": 2, "missed_elements": 4330, "names": "head.weight, head.bias"}
    optimizers = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "made_at": 90}]
    schedules = [{"scheduler": 0, "name": "CosineAnnealingLR", "optimizer": 0, "inner": False}]
    more = {"reach": [old, new], "activations": RAN, "schedules": schedules}
    found = make.check("frozen-parameters", make.process(sites=[made, put_in], optimizers=optimizers, more=more))[2]
    assert "Found besides" not in found.summary, "the tensors without gradients are those of the old part"
    if moved:
        first, *example = found.fix_code.split("\n")
        assert first.startswith(f"# below line {end}, in place of line")
        assert example == [above[at] for at in moved]
        assert found.location.line < end
        assert f"Make the optimizer below line {end}" in found.fix
    else:
        assert found.location.line == end
        assert "above the line that makes the scheduler" in found.fix_code


@pytest.mark.parametrize(
    ("above", "line", "added"),
    [
        ("self.embed = nn.Linear(8, 8)", "self.convs = [GraphConv(h, h) for _ in range(n)]",
         "self.convs = nn.ModuleList([GraphConv(h, h) for _ in range(n)])"),
        ("", "self.pair = [torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)]",
         "self.pair = torch.nn.ModuleList([torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)])"),
        ("super().__init__()", 'self.heads = {"a": nn.Linear(8, 1), "b": nn.Linear(8, 2)}',
         'self.heads = nn.ModuleDict({"a": nn.Linear(8, 1), "b": nn.Linear(8, 2)})'),
        ("self.embed = nn.Linear(8, 8)", "self.heads = {1: nn.Linear(8, 1), 2: nn.Linear(8, 2)}", None),
        ("self.embed = nn.Linear(8, 8)", "self.heads = {k: nn.Linear(8, 1) for k in sizes}", None),  # numbers?
        ("self.embed = nn.Linear(8, 8)", "self.convs = [(Conv(h), nn.LayerNorm(h)) for _ in range(n)]", None),  # pairs
        ("self.embed = nn.Linear(8, 8)", "self.convs = [block(h) for _ in range(n)]", None),  # which may make pairs
        ("self.embed = nn.Linear(8, 8)", "self.convs.append(GraphConv(h, h))", None),
        ("", "self.convs = [GraphConv(h, h) for _ in range(n)]", None),  # nothing says how the file calls torch.nn
        ("nn.Linear(8, 8); torch.nn.ReLU()", "self.convs = [GraphConv(h, h) for _ in range(n)]", None),
    ],
)  # fmt: skip
@pytest.mark.parametrize("below", ["self.out = None", "super().__init__()"])
def test_layers_of_a_python_list_are_registered_in_their_line(
    make: Any, above: str, line: str, added: str | None, below: str
) -> None:
    text = "\n".join(f"        {one}" for one in (above or "self.width = h", line, below))
    site = {"site": 6, "role": "unregistered", "file": "a.py", "function": "__init__", "line": 21, "source": line,
            "excerpt": text, "excerpt_line": 20}  # fmt: skip
    free = FREE | {"names": "a tensor [3, 4]"}
    process = make.process(sites=[site], more={"reach": [ALL, free], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    expected = [f"        {added}"] if added is not None and below != "super().__init__()" else None
    assert (finding.diff.added if finding.diff else None) == expected
    assert (finding.location.line, "ModuleList" in finding.fix_code or "ModuleDict" in finding.fix_code) == (21, True)


@pytest.mark.parametrize(
    ("kept", "line", "added"),
    [
        ("self.experts = [self.expert(h) for _ in range(n)]", 22, "nn.ModuleList([self.expert(h) for _ in range(n)])"),
        ('self.experts: dict = {"a": expert(h)}', 22, None),
        ("self.experts.append(expert(h))", 22, None),
        ("experts = [expert(h) for _ in range(n)]", 30, None),  # it may be kept in several
        ("self.experts = [other(h) for _ in range(n)]", 30, None),
    ],
)
def test_layers_that_a_function_makes_for_a_python_list(make: Any, kept: str, line: int, added: str | None) -> None:
    text = f"        super().__init__()\n        self.head = nn.Linear(8, 1)\n        {kept}"
    made = {"site": 6, "role": "unregistered", "file": "a.py", "function": "expert", "line": 30,
            "source": "return nn.Sequential(nn.Linear(8, 8), nn.ReLU())", "excerpt_line": 30,
            "excerpt": "        return nn.Sequential(nn.Linear(8, 8), nn.ReLU())"}  # fmt: skip
    head = {"site": 7, "role": "module", "file": "a.py", "function": "__init__", "line": 21,
            "source": "self.head = nn.Linear(8, 1)", "excerpt_line": 20, "excerpt": text}  # fmt: skip
    free = FREE | {"names": "a tensor [3, 4]"}
    process = make.process(sites=[made, head], more={"reach": [ALL, free], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    assert finding.location.line == line
    assert (finding.diff.added[0].strip() if finding.diff else None) == (added and f"self.experts = {added}")
    assert ("Line 22 puts layers into a Python list" in finding.summary) == (line == 22)
    assert ("Line 30 makes layers that a Python list or dictionary keeps" in finding.summary) == (line == 30)


@pytest.mark.parametrize(
    ("test", "names", "told"),
    [
        ('if name.startswith("head."):  # tied', "head.weight, head.bias", 'begin with "head."'),
        ('if "head" in n:', "head.weight, head.bias", 'contain "head"'),
        ("if name.endswith('.bias'):", "head.bias, norm.bias", 'end with ".bias"'),
        ('if name.startswith("head."):', "head.weight, norm.bias", ""),  # one is left out for another reason
        ('if not name.startswith("head."):', "head.weight, head.bias", ""),
        ('if kind.startswith("head."):', "head.weight, head.bias", ""),
    ],
)
@pytest.mark.parametrize("then", ["continue", "decay.append(p)"])
def test_parameters_that_a_line_passes_over_by_their_names(make, test: str, names: str, told: str, then: str) -> None:
    lines = ["def groups(model):", "    for name, p in model.named_parameters():", f"        {test}"]
    lines += [f"            {then}", "        decay.append(p)", "    return torch.optim.AdamW(decay)"]
    made = {
        "site": 7,
        "role": "optimizer",
        "file": "t.py",
        "line": 6,
        "function": "groups",
        "source": lines[-1].strip(),
    }
    optimizers = [{"optimizer": 0, "name": "AdamW", "made_at": 7}]
    row = FREE | {"optimizer": None, "missed": 2, "names": names, "shared_model": 2, "fed_by_trained": 2}
    process = make.process(
        sites=[made | {"excerpt": "\n".join(lines), "excerpt_line": 1}],
        more={"reach": [ALL, row], "optimizers": optimizers},
    )
    finding = make.check("frozen-parameters", process)[2]
    named = bool(told) and then == "continue"
    assert (f"Line 3 passes over parameters whose names {told}." in finding.summary) is named
    assert ((finding.location.line, finding.diff is not None) == (3, True)) is named
    if named:
        assert (finding.diff.removed, finding.diff.added) == (lines[2:4], [])
    else:
        assert "# give the optimizer of line 6 a name, and return it below this" in finding.fix_code


TIED = """\
class Net(nn.Module):
    def __init__(self):
        self.head = nn.Linear(8, 40)
        self.head.weight = self.embed.weight
    def extend(self, rows):
        {anew}
        self.head.weight.data.copy_(rows)"""
GROUPS = """\
def groups(model):
    for name, p in model.named_parameters():
        if name.startswith("head."):
            continue
        decay.append(p)
    return torch.optim.AdamW(decay)"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (TIED.format(anew="self.head = nn.Linear(8, 56)"), 106),
        (TIED.format(anew="self.tail = nn.Linear(8, 56)"), 3),  # another layer
        (TIED.format(anew="self.head = nn.Linear(8, 56)").replace("    self.head.weight = self.embed.weight\n", ""), 3),
        (TIED.format(anew="self.head = nn.Linear(8, 56)").replace("    def extend(self, rows):\n", ""), 3),
    ],
)
def test_a_tie_that_a_new_layer_breaks(make, text: str, line: int) -> None:
    """A layer that is made anew in a function below the one that tied it, and is left out as if it still were."""
    place = {"site": 7, "role": "optimizer", "file": "t.py", "line": 6, "function": "groups"}
    place |= {"source": "return torch.optim.AdamW(decay)", "excerpt": GROUPS, "excerpt_line": 1}
    model = {"site": 8, "role": "module", "file": "t.py", "line": 103, "function": "__init__"}
    model |= {"source": "self.head = nn.Linear(8, 40)", "excerpt": text, "excerpt_line": 101}
    row = FREE | {"optimizer": None, "missed": 1, "names": "head.weight", "shared_model": 1, "fed_by_trained": 1}
    more = {"reach": [ALL, row], "optimizers": [{"optimizer": 0, "name": "AdamW", "made_at": 7}]}
    finding = make.check("frozen-parameters", make.process(sites=[place, model], more=more))[2]
    assert finding.location.line == line
    assert ("but line 106 makes the layer anew, and nothing ties the two again" in finding.summary) == (line == 106)
    assert ("self.head.weight = self.embed.weight  # below line 106" in finding.fix_code) == (line == 106)
    assert "Line 3 passes over parameters" in finding.summary


PARTS = """def main():
    model = Net()
    optimizer = torch.optim.Adam({given})
    for x, y in loader:
        loss = f(model(x), y)
"""


IN_LIGHTNING = """def configure_optimizers(self):
    return torch.optim.Adam({given})

def training_step(self, batch):
    loss = self(batch).mean()
"""


@pytest.mark.parametrize(
    ("script", "given", "held", "told"),
    [
        (PARTS, "model.encoder.parameters(), lr=1e-3", "encoder", "of model.encoder; these are in model.decoder."),
        (
            PARTS,
            '[{"params": model.encoder.parameters()}, {"params": model.head.parameters()}]',
            "head",
            "of model.encoder and model.head; these are in model.decoder.",
        ),
        (IN_LIGHTNING, "self.encoder.parameters()", "encoder", "of self.encoder; these are in self.decoder."),
        (PARTS, "model.parameters()", "encoder", ""),
        (PARTS, "other.encoder.parameters()", "encoder", ""),  # nothing calls what holds it
        (PARTS, "[*model.encoder.parameters(), *extra.parameters()]", "encoder", ""),
        (PARTS, "model.encoder.parameters()", "net", ""),  # other names than those of the line
        (PARTS, "model.decoder.parameters()", "decoder", ""),  # a part of it came later
    ],
)
def test_an_optimizer_that_is_given_some_parts_of_a_model(make, script: str, given: str, held: str, told: str) -> None:
    rows = sites_of(script.format(given=given), optimizer="torch.optim.Adam(", loss="loss =")
    rows[0]["function"] = "configure_optimizers" if script == IN_LIGHTNING else "train"
    reach = FREE | {"missed": 2, "names": "decoder.weight, decoder.bias", "shared_model": 2, "fed_by_trained": 2}
    process = make.process(
        sites=rows,
        optimizers=[{"optimizer": 0, "name": "Adam", "made_at": 1}],
        more={"reach": [ALL, reach], "parameters": [{"optimizer": 0, "step": 0, "parameter": f"{held}.weight"}]},
    )
    finding = make.check("frozen-parameters", process)[2]
    assert (told in finding.summary) if told else ("This happens when" in finding.summary), finding.summary
    assert finding.fix.startswith("Give the optimizer the parameters of") == bool(told)


def test_long_names_leave_room_for_the_sentence() -> None:
    long = [f"base_model.model.encoder.layer.{at}.attention.self.query.lora_A.default.weight" for at in range(3)]
    assert tensor_names.in_a_sentence(f"{', '.join(long)} and 13 more") == f"{long[0]} and 15 more"
    assert tensor_names.in_a_sentence("0.weight, 0.bias and 2 more") == "0.weight, 0.bias and 2 more"
    assert tensor_names.in_a_sentence("0.weight, 0.bias") == "0.weight, 0.bias"

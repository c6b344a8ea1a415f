"""Rules about parameters in no optimizer, or that never train, and the healthy look-alikes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.computed.gradients.trainable import unheld
from tracelyze.testing import SITES

COUNT = 400


ALL = {
    "optimizer": 0,
    "step": COUNT,
    "steps": COUNT,
    "held": 8,
    "held_elements": 1000,
    "missed": 0,
    "missed_elements": 0,
}


CUT = ALL | {"missed": 4, "missed_elements": 400, "names": "item.first.weight, item.first.bias and 2 more"}


FREE = {
    "step": 300, "steps": 300, "held": 8, "missed": 4, "missed_elements": 400, "names": "item.first.weight",
    "shared_model": 0, "fed_by_trained": 0, "short_lived": 0,
}  # fmt: skip


RAN = [{"module": "item.first"}, {"module": ""}]
OTHERS = [{"module": "other"}]


@pytest.mark.parametrize(
    ("reach", "ran", "severity"),
    [
        ([CUT], RAN, "warning"),
        ([CUT], [{"module": "other"}], "info"),  # a branch that is not taken
        ([CUT], [], "info"),
        ([CUT | {"missed_elements": 50}], RAN, "info"),  # a pooler
        ([ALL, FREE], RAN, "warning"),
        ([ALL, FREE | {"fed_by_trained": 4}], RAN, "info"),  # a network that only measures
        ([ALL, FREE | {"fed_by_trained": 4, "shared_model": 4}], RAN, "warning"),
        ([CUT | {"names": "a tensor [3, 4]"}, FREE | {"fed_by_trained": 4}], RAN, "warning"),  # a head replaced
        ([ALL, FREE | {"missed": 0, "short_lived": 2}], RAN, "warning"),
    ],
)
def test_frozen_parameters(make, reach: list[dict[str, Any]], ran: list[dict[str, Any]], severity: str) -> None:
    status, _, finding = make.check("frozen-parameters", make.process(more={"reach": reach, "activations": ran}))
    assert status == "fired"
    assert finding.severity == severity
    if "No sampled forward ran" in finding.summary:
        assert finding.fix.startswith("If they should train, have forward call them"), "there is nothing to cut off"
    if "backward reaches" in finding.summary.lower():
        assert not any("no backward reached" in line for line in finding.excluded)


PATTERN = """\
self.layer = nn.TransformerEncoderLayer(32, 4)
self.encoder = nn.TransformerEncoder(self.layer, 2)
self.head = nn.Linear(32, 1)"""


@pytest.mark.parametrize(
    ("missed", "kind", "known"),
    [
        (12, "TransformerEncoder", True),
        (12, "Encoder", False),  # which may call it
        (14, "TransformerEncoder", False),  # others are not trained either
    ],
)
def test_a_layer_that_is_only_copied(make, missed: int, kind: str, known: bool) -> None:
    names = f"layer.self_attn.in_proj_weight, layer.self_attn.in_proj_bias and {missed - 2} more"
    reach = [CUT | {"missed": missed, "held": 40, "names": names}]
    modules = [{"model": 0, "module": "layer", "kind": "TransformerEncoderLayer", "made_at": 4}]
    modules += [{"model": 0, "module": "encoder", "kind": kind, "made_at": None}]
    site = {"site": 4, "role": "module", "file": "a.py", "function": "__init__", "line": 5, "excerpt_line": 5}
    sites = [site | {"excerpt": PATTERN, "source": PATTERN.split("\n", maxsplit=1)[0]}]
    process = make.process(sites=sites, more={"reach": reach, "activations": OTHERS, "modules": modules})
    finding = make.check("frozen-parameters", process)[2]
    assert (finding.severity, finding.location.line) == ("info", 5)
    assert ("TransformerEncoder calls copies of layer" in finding.summary) == known
    alone = "layer = nn.TransformerEncoderLayer(32, 4)\nself.encoder = nn.TransformerEncoder(layer, 2)"
    assert finding.fix_code == (alone if known else "")
    assert ("unused part" in finding.summary) != known


LOSS_OF_NUMBERS = """\
def policy_loss(self, gains):
    chosen = torch.tensor(self.chosen)
    spread = torch.as_tensor([one.item() for one in self.spreads], dtype=torch.float32)
    return -(chosen * gains + 0.01 * spread).mean()"""


def of_numbers(make, *read: tuple[int, str], detach: bool = True) -> Any:
    """Few tensors without a gradient, lines of a loss that read tensors with graphs, and a detach() elsewhere."""
    text = LOSS_OF_NUMBERS.split("\n")
    place = {"file": "a.py", "function": "policy_loss", "excerpt_line": 1, "excerpt": LOSS_OF_NUMBERS}
    sites = [
        place
        | {"site": 20 + at, "role": "read-graph", "line": at, "function": function, "source": text[at - 1].strip()}
        for at, function in read
    ]
    away = {"site": 9, "role": "cut", "file": "a.py", "line": 30, "function": "gains", "source": "gains = x.detach()"}
    reach = {"reach": [CUT | {"missed_elements": 50}], "activations": RAN}
    process = make.process(sites=[*sites, *([away] if detach else [])], more=reach)
    return make.check("frozen-parameters", process)[2]


def test_a_loss_of_numbers_that_were_read_from_tensors_with_graphs(make) -> None:
    both = of_numbers(make, (2, "policy_loss"), (3, "policy_loss"))
    assert (both.severity, both.location.line) == ("warning", 2), "however few the parameters are, their path is cut"
    assert "Lines 2 and 3 make tensors of the numbers in tensors with a graph, and leave the graph" in both.summary
    assert "only place" not in both.summary
    assert both.fix_code == "chosen = torch.stack(self.chosen)\nspread = torch.stack([one for one in self.spreads])"
    one = of_numbers(make, (2, "policy_loss"))
    assert "Line 2 makes a tensor of the numbers in tensors with a graph, and leaves the graph" in one.summary
    apart = of_numbers(make, (2, "policy_loss"), (3, "log"))
    assert (apart.severity, "Line" in apart.summary, "only place" in apart.summary) == ("info", False, False)
    assert "Line 30 is the only place" in of_numbers(make).summary
    shown = of_numbers(make, (4, "policy_loss"))
    assert (shown.severity, "only place" in shown.summary) == ("info", False), "values were read there as well"


@pytest.mark.parametrize(("missed", "named"), [(400, True), (50, False)])  # the few may be an unused extra
def test_reentrant_checkpointing_behind_frozen_layers(make, missed: int, named: bool) -> None:
    line = "hidden = checkpoint(layer, hidden, use_reentrant=True)"
    place = {"file": "a.py", "function": "forward", "line": 7, "source": line, "excerpt_line": 7, "excerpt": line}
    freezes = {
        "site": 5,
        "role": "freeze",
        "file": "a.py",
        "line": 30,
        "function": "f",
        "source": "p.requires_grad = 0",
    }
    reach = {"reach": [CUT | {"missed_elements": missed}], "activations": RAN}
    process = make.process(sites=[place | {"site": 4, "role": "checkpointing"}, freezes], more=reach)
    finding = make.check("frozen-parameters", process)[2]
    assert ("line 7 checkpoints with use_reentrant=True" in finding.summary) == named
    assert finding.fix_code.endswith("use_reentrant=False)") == named


@pytest.mark.parametrize(
    ("line", "role", "edited"),
    [
        ("checkpointing = {'use_reentrant': True}", "reentrant", "checkpointing = {'use_reentrant': False}"),
        (
            "hidden = checkpoint(layer, hidden)",
            "checkpointed",
            "hidden = checkpoint(layer, hidden, use_reentrant=False)",
        ),
        ("hidden = checkpoint(layer, hidden, **settings)", "checkpointed", ""),
        (
            "model.gradient_checkpointing_enable()",
            "reentrant",
            'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',
        ),
    ],
)
@pytest.mark.parametrize("sampled", [True, False])
def test_checkpointing_that_was_given_nothing_with_a_gradient(
    make, line: str, role: str, edited: str, sampled: bool
) -> None:
    place = {"file": "a.py", "function": "forward", "line": 7, "source": line, "excerpt_line": 7, "excerpt": line}
    place |= {"site": 4, "role": role}
    events = [{"kind": "checkpointed-in-vain", "step": 0}]
    more = {"reach": [CUT], "activations": RAN if sampled else [], "events": events}
    finding = make.check("frozen-parameters", make.process(sites=[place], more=more))[2]
    assert "Activations are checkpointed in the reentrant way" in finding.summary
    assert "the path is cut" not in finding.summary
    assert "No forward" not in finding.summary
    assert (finding.severity, finding.location.line, finding.fix_code) == ("warning", 7, edited)
    unused = {"reach": [CUT], "activations": [{"module": "other"}], "events": events}
    assert "checkpointed" not in make.check("frozen-parameters", make.process(sites=[place], more=unused))[2].summary


def test_samples_of_an_earlier_training_say_nothing(make) -> None:
    steps = {"optimizer": np.repeat([0.0, 1.0], COUNT // 2), "time": np.arange(1.0, COUNT + 1)}
    reach = [CUT | {"optimizer": 1, "steps": COUNT // 2}]
    for time, said in (
        (50.0, "No forward of this training was sampled"),
        (300.0, "No sampled forward ran these layers"),
    ):
        sampled = [{"module": "other", "time": time}]
        optimizers = [{"optimizer": one, "site": None, "backward_site": None} for one in (0, 1)]
        process = make.process(steps, more={"reach": reach, "activations": sampled, "optimizers": optimizers})
        finding = make.check("frozen-parameters", process)[2]
        assert said in finding.summary


@pytest.mark.parametrize(
    ("names", "missed", "kinds", "severity"),
    [
        ("5.bias, 5.weight", 2, {"5": "BatchNorm2d"}, "info"),  # Lightning's train_bn=False
        ("5.bias, 5.weight", 2, {"5": "LayerNorm"}, "warning"),
        ("5.bias, 5.weight", 2, {}, "warning"),
        ("5.bias, 5.weight, 6.bias", 3, {"5": "BatchNorm2d", "6": "Conv2d"}, "warning"),
        ("5.bias, 5.weight and 3 more", 5, {"5": "BatchNorm2d"}, "warning"),  # what the others are is not known
    ],
)
def test_batch_normalisations_may_be_left_out(
    make, names: str, missed: int, kinds: dict[str, str], severity: str
) -> None:
    row = FREE | {"names": names, "missed": missed, "shared_model": missed}
    modules = [{"model": 0, "module": name, "kind": kind} for name, kind in kinds.items()]
    process = make.process(more={"reach": [ALL, row], "activations": RAN, "modules": modules})
    finding = make.check("frozen-parameters", process)[2]
    assert finding.severity == severity
    assert ("train_bn=False" in finding.summary) is (severity == "info")


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
    assert unheld.named(names) == said


def test_one_tensor_gets_no_gradient(make) -> None:
    one = CUT | {"missed": 1, "names": "item.first.scale"}
    finding = make.check("frozen-parameters", make.process(more={"reach": [one], "activations": RAN}))[2]
    assert finding.title == "1 of 8 tensors in the optimizer never gets a gradient"
    assert "forward does not use them" in finding.summary, "a parameter of a module that runs need not be used there"


def test_layers_that_forward_makes_anew_are_not_put_down_to_a_list(make) -> None:
    """Neither a ModuleList nor an optimizer that is made later would keep them."""
    anew = FREE | {"missed": 0, "short_lived": 2, "names": "a tensor [8, 8], a tensor [8]"}
    finding = make.check("frozen-parameters", make.process(more={"reach": [ALL, anew]}))[2]
    assert "made anew for every backward" in finding.summary
    assert "Python list" not in finding.summary + finding.fix + finding.fix_code
    assert "in __init__" in finding.fix


def test_what_is_not_frozen_need_not_train(make) -> None:
    """Beside an optimizer that does not hold it, a part only gets gradients."""
    event = {
        "kind": "frozen-in-vain",
        "name": "Backbone",
        "text": "requires_grad",
        "value": 2.0,
        "time": 1.0,
        "step": 0,
    }
    finding = make.check("frozen-parameters", make.process(events=[event], more={"reach": [ALL]}))[2]
    assert "2 tensors that should be frozen still require a gradient" in finding.summary
    assert "still train" not in finding.summary


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


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        ([ALL], "passed"),
        ([CUT, ALL], "passed"),  # reached later
        ([FREE, ALL, FREE | {"steps": 400, "missed": 0}], "passed"),  # added to the optimizer later
        ([ALL | {"missed": 8}], "passed"),  # zero-gradients
        ([CUT | {"steps": 9}], "skipped"),
    ],
)
def test_frozen_parameters_stays_silent(make, reach: list[dict[str, Any]], expected: str) -> None:
    assert make.check("frozen-parameters", make.process(more={"reach": reach, "activations": RAN}))[0] == expected


def mostly_frozen(make: Any, name: str = "norm.weight", held: int = 40, varies: float = 0.1, **more: Any) -> Any:
    calls = [
        {"function": "cross_entropy", "site": 3, "training": True, "step": step, "input_shape": "32x4",
         "target_shape": "32", "varies": varies, "target_varies": 0.8}
        for step in range(0, COUNT, 20)
    ]  # fmt: skip
    tables = {
        "reach": [
            ALL | {"optimizer": 0, "steps": 100, "held": 1, "held_elements": held, "missed": 0, "missed_elements": 0}
        ],
        "activations": [{"module": "norm", "kind": "LayerNorm"}, {"module": "last", "kind": "Linear"}],
        "parameters": [{"step": step, "optimizer": 0, "parameter": name, "elements": held} for step in (1, 100)],
        "loss_calls": calls,
    }
    loss = more.pop("loss", [1.4] * COUNT)
    models = [{"model": 0, "name": "Net", "elements": 5000}]
    return make.check(
        "frozen-parameters", make.process(make.steps() | {"loss": loss}, models=models, more=tables | more)
    )


def test_a_model_of_which_only_shifts_can_learn(make) -> None:
    for name in ("norm.weight", "last.bias"):
        status, reason, finding = mostly_frozen(make, name)
        assert status == "fired", reason
        assert (finding.severity, finding.confidence) == ("warning", "likely")
        assert finding.title.startswith("Only 40 of the model's 5,000 weights can learn")


def test_a_model_that_is_frozen_for_a_reason(make) -> None:
    assert mostly_frozen(make, varies=0.7)[0] == "passed", "biases of a model that knows its task"
    assert mostly_frozen(make, loss=[2.0 - index / COUNT for index in range(COUNT)])[0] == "passed", "it learns"
    assert mostly_frozen(make, "last.weight")[0] == "passed", "a probe"
    assert mostly_frozen(make, held=500)[0] == "passed"
    loads = [{"time": 0.1, "step": 0, "module": 0, "name": "Net", "given": 6, "expected": 6, "missing": 0}]
    assert mostly_frozen(make, loads=loads)[0] == "passed", "pretrained weights"


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

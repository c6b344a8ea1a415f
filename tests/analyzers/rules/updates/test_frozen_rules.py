"""frozen-parameters: what is frozen, or gets no gradient, by mistake, and the healthy look-alikes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.rules.updates.reach import ALL, COUNT, CUT, FREE, RAN

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


@pytest.mark.parametrize(("made_at", "runs"), [(34, True), (35, False)])
def test_a_model_that_became_a_part_of_another_runs_under_both_names(make, made_at: int, runs: bool) -> None:
    """Parameters go by the names of the encoder, which was trained by itself; forwards by those of the classifier."""
    modules = [
        {"model": 0, "module": "", "kind": "Encoder", "made_at": 34},
        {"model": 1, "module": "", "kind": "Classifier", "made_at": 40},
        {"model": 1, "module": "enc", "kind": "Encoder", "made_at": made_at},  # else another one of its kind
    ]
    for name, sampled in (("item.first", "enc.item.first"), ("enc.item.first", "item.first")):
        reach = [CUT | {"names": f"{name}.weight, {name}.bias and 2 more"}]
        rows = [{"module": sampled}, {"module": ""}]
        events = [{"kind": "checkpointed-in-vain", "step": 0}]
        more = {"reach": reach, "activations": rows, "modules": modules, "events": events}
        finding = make.check("frozen-parameters", make.process(more=more))[2]
        assert ("Activations are checkpointed in the reentrant way" in finding.summary) is runs
        assert ("No sampled forward ran" in finding.summary) is not runs
        assert finding.severity == ("warning" if runs else "info")


@pytest.mark.parametrize("count", [1, 2])
def test_what_another_optimizer_holds_is_given_to_no_second_one(make, count: int) -> None:
    steps = {"optimizer": np.repeat(np.arange(count, dtype=float), COUNT // count)}
    optimizers = [{"optimizer": one, "site": None, "backward_site": None} for one in range(count)]
    links = [{"optimizer": one, "model": 0} for one in range(count)]
    row = FREE | {"missed": 4, "shared_model": 4}
    more = {"reach": [row], "optimizers": optimizers, "links": links}
    code = make.check("frozen-parameters", make.process(steps, more=more))[2].fix_code
    assert ("for one in every for group in one.param_groups" in code) is (count == 2)


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

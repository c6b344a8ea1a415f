"""Rules about layers that do not learn: what they fire on, and what looks the same and is healthy."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pytest

from tracelyze.analyzers import diagnose

COUNT = 400  # steps
SAMPLED_STEPS = [1, 2, 11, 16, 24, 36, 54, 81, 121, 181, 271, 391]


def stuck(make: Any, low: float = 2.3) -> dict[str, Any]:
    """A training whose loss stays where it is."""
    steps = make.steps(COUNT)
    return steps | {"loss": [low + 0.02 * (index % 5) for index in range(COUNT)]}


def layers(decades: Sequence[float], at: Sequence[int] = SAMPLED_STEPS, **more: Any) -> list[dict[str, Any]]:
    """Looks at one layer for each number: its gradient per element is that power of ten."""
    return [
        {"time": 0.05 * step, "step": step, "optimizer": 0, "parameter": f"layer{index}.{name}", "dtype": "float32",
         "elements": elements, "lr": 0.01, "weight_norm": 8.0, "update_norm": 10.0**decade, "grad_finite": True,
         "grad_norm": 10.0**decade * elements**0.5, "grad_zeros": 0.0, "closure": False} | more
        for step in at
        for index, decade in enumerate(decades)
        for name, elements in (("weight", 4096), ("bias", 64))
    ]  # fmt: skip


DEEP = [-10.0, -9.0, -8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0]


def test_gradients_that_thin_out_through_the_depth(make) -> None:
    status, _, finding = make.check("vanishing-gradients", make.process(stuck(make), more={"parameters": layers(DEEP)}))
    assert status == "fired"
    assert (finding.severity, finding.confidence, finding.first_step) == ("warning", "certain", 1)
    assert "layer8" in finding.summary
    assert finding.location.line == 41
    moving = layers(DEEP, update_norm=0.1)  # Adam scales the small gradients up
    _, _, finding = make.check("vanishing-gradients", make.process(stuck(make), more={"parameters": moving}))
    assert finding.confidence == "likely"


def test_the_layers_that_are_named_get_what_the_title_says(make) -> None:
    """The thirds of the network are what the rule compares: their ratio is not that of the first and the last layer."""
    rows = layers([-12.0, -9.0, -8.0, -7.5, -7.0, -6.0, -5.0, -4.0, -3.5, -1.0])
    _, _, finding = make.check("vanishing-gradients", make.process(stuck(make), more={"parameters": rows}))
    assert finding.title == "Gradients vanish: layer layer0 gets 1e-11 of what layer layer9 gets"
    assert "0.1 at the last and 1e-12 at the first" in finding.summary
    assert "There the first 3 layers get 3e-06 of what the last 3 get." in finding.summary
    assert "2.34 in the second fifth of the run, 2.34 in the last" in finding.summary


@pytest.mark.parametrize(("second", "told"), [(7, False), (8, True)])
def test_one_line_that_makes_all_layers_needs_no_others(make, second: int, told: bool) -> None:
    line = {"role": "module", "file": "train.py", "line": 12, "function": "__init__"}
    sites = [line | {"site": site, "source": "layers += [nn.Linear(width, width), nn.Sigmoid()]"} for site in (7, 8)]
    modules = [
        {"model": 0, "module": f"layer{at}", "kind": "Sigmoid", "made_at": made} for at, made in enumerate((7, second))
    ]
    process = make.process(stuck(make), sites=sites, more={"parameters": layers(DEEP), "modules": modules})
    _, _, finding = make.check("vanishing-gradients", process)
    assert "nn.LayerNorm(width), nn.GELU()" in finding.fix_code
    assert ("the other layers likewise" in finding.fix_code) == told


@pytest.mark.parametrize(
    ("lines", "norm", "kind", "example"),
    [
        (["nn.init.normal_(module.weight, mean=0.0, std=0.02)"], 1.28, "Tanh", "nn.init.xavier_normal_(module.weight)"),
        (["m.weight.data.normal_(0, 0.02)"], 1.28, "GELU", 'kaiming_normal_(m.weight, nonlinearity="relu")'),
        (["torch.nn.init.trunc_normal_(p, std=init_std)"], 1.28, "Tanh", "if p.dim() > 1:"),
        (["init.uniform_(layer.weight, -0.035, 0.035)"], 1.28, "Tanh", "xavier_normal_(layer.weight)"),
        (
            ["nn.init.normal_(head.weight, std=0.5)", "nn.init.normal_(lin.weight, std=0.02)"],
            1.28,
            "Tanh",
            "lin.weight",
        ),
        (["nn.init.normal_(a.weight, std=0.02)", "x = torch.randn(8, 4).normal_(0, 0.02)"], 1.28, "Tanh", "a.weight"),
        (["nn.init.normal_(module.weight, std=0.02)"], 1.28, "Sigmoid", ""),  # it thins out however it begins
        (["nn.init.normal_(module.weight, std=0.125)"], 8.0, "Tanh", ""),  # as large as Xavier's
        (["nn.init.normal_(module.weight, std=0.5)"], 1.28, "Tanh", ""),  # another layer's
        (["noise = torch.empty(8).normal_(0, 0.02)"], 1.28, "Tanh", ""),
        (["nn.init.xavier_normal_(module.weight)"], 1.28, "Tanh", ""),
    ],
)
def test_the_line_that_fills_the_weights_too_small(
    make, lines: list[str], norm: float, kind: str, example: str
) -> None:
    line = {"role": "refill", "file": "net.py", "function": "_init_weights"}
    sites = [
        line | {"site": at, "line": at, "source": one, "excerpt": f"    {one}", "excerpt_line": at}
        for at, one in zip((60, 70), lines, strict=False)
    ]
    modules = [{"model": 0, "module": "act", "kind": kind, "made_at": None}]
    rows = {"parameters": layers(DEEP, weight_norm=norm), "modules": modules}
    _, _, finding = make.check("vanishing-gradients", make.process(stuck(make), sites=sites, more=rows))
    assert ("fills the weights" in finding.summary, finding.location is not None) == (bool(example),) * 2
    assert example in finding.fix_code
    if example:
        assert "of size 0.02: at first, each layer hands on about 0.16" in finding.summary


def test_the_title_and_the_numbers_below_it_are_of_one_measurement(make) -> None:
    rows = [
        one
        for at, step in enumerate(SAMPLED_STEPS)
        for one in layers([exponent - at % 3 * (index == 0) for index, exponent in enumerate(DEEP)], [step])
    ]
    _, _, finding = make.check("vanishing-gradients", make.process(stuck(make), more={"parameters": rows}))
    last, first = re.search(r"per element (\S+) at the last and (\S+) at the first", finding.summary).groups()
    assert f"gets {float(first) / float(last):.1g} of what" in finding.title
    assert "if the updates of all" in finding.summary.lower()


def test_gradients_that_vanish_from_some_step_on(make) -> None:
    rows = layers([-2.0] * 9, SAMPLED_STEPS[:6]) + layers(DEEP, SAMPLED_STEPS[6:])
    status, _, finding = make.check("vanishing-gradients", make.process(stuck(make), more={"parameters": rows}))
    assert (status, finding.first_step) == ("fired", 54)


@pytest.mark.parametrize(
    "rows",
    [
        layers([-2.0] * 9),
        layers([-3.0, -2.5, -3.0, -2.0, -2.6, -2.2, -2.0, -1.8, -2.0]),  # two orders of magnitude, as is usual
        layers([-8.0, -8.1, -8.2, -8.3, -8.1, -8.2, -8.1, -8.3, -8.2]),  # converged: small everywhere
        layers([-9.0, -9.1, -8.9, -9.0, -2.0, -2.1, -1.9, -2.0, -2.0]),  # one small weight between two parts
        layers([-2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -8.0, -9.0, -10.0]),  # the other way round
        layers([-7.0, -2.0, -2.0, -2.1, -1.9, -2.0, -2.0, -1.8, -2.0]),  # a large embedding that few batches touch
        layers(DEEP, SAMPLED_STEPS[:6]) + layers([-2.0] * 9, SAMPLED_STEPS[6:]),  # it got going
        layers(DEEP, SAMPLED_STEPS[:-1]) + layers([-2.0] * 9, SAMPLED_STEPS[-1:]),
    ],
)
def test_gradients_that_reach_the_first_layers(rows: list[dict[str, Any]], make) -> None:
    process = make.process(stuck(make), more={"parameters": rows})
    assert make.check("vanishing-gradients", process)[0] == "passed"


def test_small_gradients_while_the_loss_falls_or_is_low(make) -> None:
    rows = layers(DEEP)
    assert make.check("vanishing-gradients", make.process(more={"parameters": rows}))[0] == "passed"
    steps = stuck(make, 0.1)
    low = steps | {"loss": [2.0] * 30 + steps["loss"][30:]}
    assert make.check("vanishing-gradients", make.process(low, more={"parameters": rows}))[0] == "passed"
    negative = steps | {"loss": [-1.0] * COUNT}
    assert make.check("vanishing-gradients", make.process(negative, more={"parameters": rows}))[0] == "passed"


@pytest.mark.parametrize(
    "rows",
    [
        layers(DEEP[:5]),
        layers(DEEP, SAMPLED_STEPS[:4]),
        layers(DEEP, [1, 2, 3, 4, 5, 6, 7]),
        layers(DEEP, closure=True),
        layers(DEEP, grad_finite=False),
        layers(DEEP[:4], lr=0.0) + layers([-2.0] * 4, lr=0.01),  # frozen by their rate
        [],
    ],
)
def test_too_few_layers_or_looks(rows: list[dict[str, Any]], make) -> None:
    process = make.process(stuck(make), more={"parameters": rows})
    assert make.check("vanishing-gradients", process)[0] == "skipped"


def test_a_loss_that_is_not_known(make) -> None:
    lost = stuck(make) | {"loss": [float("nan")] * COUNT}
    process = make.process(lost, more={"parameters": layers(DEEP)})
    assert make.check("vanishing-gradients", process)[0] == "skipped"


def test_what_saturates_the_layers_is_the_root(make) -> None:
    steps = stuck(make) | {"grads_carried": [0] + [8] * (COUNT - 1), "grad_norm": [float(s) for s in range(COUNT)]}
    rows = layers([-2.0] * 9, SAMPLED_STEPS[:6]) + layers(DEEP, SAMPLED_STEPS[6:])
    found = {one.rule: one for one in diagnose(make.run(make.process(steps, more={"parameters": rows}))).findings}
    assert found["vanishing-gradients"].caused_by == "missing-zero-grad"


def outputs(zeros: Sequence[float], at: Sequence[int] = SAMPLED_STEPS, kind: str = "ReLU") -> list[dict[str, Any]]:
    """Looks at a hidden layer, its ReLU with that share of zeros, the last layer, and the model."""
    return [
        {
            "time": 0.05 * step + 0.001 * order,
            "step": step - 1,
            "order": order,
            "module": name,
            "kind": what,
            "zeros": share if name == "relu" else 0.0,
            "nonfinite": 0,
        }
        for step, share in zip(at, zeros, strict=True)
        for order, (name, what) in enumerate(
            [("layer0", "Linear"), ("relu", kind), ("layer1", "Linear"), ("", "Net")], 1
        )
    ]


def of_hidden(norms: Sequence[float], at: Sequence[int] = SAMPLED_STEPS, **more: Any) -> list[dict[str, Any]]:
    """Looks at the gradients of the hidden layer, and of the last one, whose bias always has some."""
    hidden = [layers([0.0], [step], grad_norm=norm, **more) for step, norm in zip(at, norms, strict=True)]
    last = [row | {"parameter": row["parameter"].replace("0", "1")} for row in layers([-2.0], at)]
    return [row for rows in hidden for row in rows] + last


def dead(make: Any, zeros: Sequence[float], norms: Sequence[float], **more: Any) -> tuple[str, str, Any]:
    """What the rule says of a training whose loss stays where it is."""
    rows = {"activations": outputs(zeros, **more), "parameters": of_hidden(norms)}
    return make.check("dead-relu", make.process(stuck(make), more=rows))


def test_a_relu_that_never_fires(make) -> None:
    status, _, finding = dead(make, [1.0] * 12, [0.0] * 12)
    assert status == "fired"
    assert (finding.severity, finding.first_step) == ("warning", 1)
    assert "relu (after layer0)" in finding.summary
    assert "zeros_(layer.bias)" in finding.fix_code, "weights drawn anew do not help beside a bias far below zero"
    assert "learning rate" not in finding.fix, "it was dead before any step"
    assert "The input of relu is negative" in finding.summary


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([], True),
        (["x[i, 0].diagonal(3).fill_(1)", "mask.fill_(-1e9)"], True),  # makes up data
        (["nn.init.constant_(m.bias, 0.0)", "norm.weight.data.fill_(1)", "self.out.bias.data.fill_(0)"], True),
        (["self.head.bias.data.fill_(-4.6)"], False),  # which of the two is not known
    ],
)
def test_the_line_that_fills_the_layer_is_named(make, others: list[str], named: bool) -> None:
    """And an example stands behind it: before it, at the layer, it would be overwritten."""
    lines = [*others, "nn.init.constant_(m.bias, -14.0)"]
    fills = [
        {
            "site": 80 + at,
            "role": "fill",
            "file": "train.py",
            "line": 200 + 20 * at,
            "function": f"f{at}",
            "source": one,
        }
        for at, one in enumerate(lines)
    ]
    rows = {"activations": outputs([1.0] * 12), "parameters": of_hidden([0.0] * 12)}
    finding = make.check("dead-relu", make.process(stuck(make), more=rows, sites=fills))[2]
    assert (finding.location is not None and finding.location.source == lines[-1]) is named
    assert (f"what line {180 + 20 * len(lines)} fills them with" in finding.fix) is named
    assert finding.fix_code.startswith("nn.init.zeros_(m.bias)" if named else "# right before the optimizer is made")


@pytest.mark.parametrize(
    ("line", "size", "named"),
    [
        ("nn.init.constant_(m.bias, prior)", 4.6, True),
        ("self.score.bias.data.fill_(prior)", 4.6, True),
        ("nn.init.constant_(self.score.bias, prior)", 0.05, False),  # those of the layer are as torch draws them
        ("nn.init.constant_(m.bias, 0.01)", 0.01, False),
        ("nn.init.constant_(m.bias, -9.0)", None, False),  # not measured
        ("nn.init.uniform_(m.weight, -9, -8)", 0.05, True),
    ],
)
def test_a_line_that_fills_biases_is_named_for_a_layer_whose_biases_are_large(make, line, size, named) -> None:
    place = {"site": 80, "role": "fill", "file": "train.py", "line": 200, "function": "f", "source": line}
    gradients = [
        row | {"weight_norm": size and size * 8} if row["parameter"].endswith("bias") else row
        for row in of_hidden([0.0] * 12)
    ]
    rows = {"activations": outputs([1.0] * 12), "parameters": gradients}
    finding = make.check("dead-relu", make.process(stuck(make), more=rows, sites=[place]))[2]
    assert (finding.location is not None and finding.location.line == 200) is named
    assert ("Line 200" in finding.summary) is named
    assert (f"those of layer0 are about {size} away from 0" in finding.summary) is (named and "bias" in line)


def test_a_relu_behind_weights_that_are_zero(make) -> None:
    rows = {"activations": outputs([1.0] * 12), "parameters": of_hidden([0.0] * 12, weight_norm=0.0)}
    status, _, finding = make.check("dead-relu", make.process(stuck(make), more=rows))
    assert status == "fired"
    assert "zero for every sample, as the weights of layer0 are" in finding.summary
    assert finding.fix.startswith("Initialise the weights at random")


def test_a_relu_that_dies_on_the_way(make) -> None:
    status, _, finding = dead(make, [0.5] * 6 + [1.0] * 6, [0.1] * 6 + [0.0] * 6)
    assert (status, finding.first_step) == ("fired", 54)
    assert "learning rate" in finding.fix


def test_relus_that_die_one_after_the_other(make) -> None:
    """Each since a step of its own: none of them since the first."""
    second = {"layer0": "layer2", "relu": "relu2"}
    early, late = outputs([1.0] * 12), outputs([0.5] * 6 + [1.0] * 6)
    late = [row | {"module": second[row["module"]], "time": row["time"] + 0.01} for row in late if row["order"] < 3]
    silent = [row | {"parameter": row["parameter"].replace("0", "2")} for row in of_hidden([0.1] * 6 + [0.0] * 6)]
    silent = [row for row in silent if row["parameter"].startswith("layer2")]
    rows = {"activations": early + late, "parameters": of_hidden([0.0] * 12) + silent}
    finding = make.check("dead-relu", make.process(stuck(make), more=rows))[2]
    assert finding.title == "2 of 2 ReLUs died: nothing but zeros, the first since step 1"
    said = "From step 1 to the end (the last of them from step 54 on), relu (after layer0) and relu2 (after layer2)"
    assert finding.summary.startswith(said)


@pytest.mark.parametrize(("kind", "code"), [("BatchNorm1d", "nn.init.ones_(layer.weight)"), ("Linear", "kaiming")])
def test_a_normalisation_before_a_relu_has_no_fan(make, kind: str, code: str) -> None:
    """Kaiming's initialisation raises where a weight has one dimension."""
    looks = [row | ({"kind": kind} if row["module"] == "layer0" else {}) for row in outputs([1.0] * 12)]
    rows = {"activations": looks, "parameters": of_hidden([0.0] * 12)}
    finding = make.check("dead-relu", make.process(stuck(make), more=rows))[2]
    assert code in finding.fix_code
    assert ("kaiming" in finding.fix_code) == (kind == "Linear")


@pytest.mark.parametrize(
    ("zeros", "norms"),
    [
        ([0.5] * 12, [0.1] * 12),
        ([0.98] * 12, [0.01] * 12),  # sparse and alive
        ([0.9995] * 12, [1e-4] * 12),  # a few units of very many fire
        ([1.0] * 12, [1e-4] * 12),  # units fire between the elements that are looked at
        ([1.0] * 6 + [0.5] * 6, [0.0] * 6 + [0.1] * 6),  # woken again
        ([1.0] * 11 + [0.7], [0.0] * 11 + [0.1]),
        ([0.5] * 9 + [1.0] * 3, [0.1] * 9 + [0.0] * 3),  # too few looks to know
        ([0.5] * 12, [0.0] * 12),  # what is dead lies behind it
    ],
)
def test_a_relu_that_is_alive(zeros: list[float], norms: list[float], make) -> None:
    assert dead(make, zeros, norms)[0] == "passed"


def test_zeros_that_are_wanted_or_not_a_relus(make) -> None:
    rows = {"activations": outputs([1.0] * 12), "parameters": of_hidden([0.0] * 12)}
    steps = stuck(make)
    low = steps | {"loss": [2.0] * 30 + [0.0] * (COUNT - 30)}  # a hinge that is satisfied
    assert make.check("dead-relu", make.process(low, more=rows))[0] == "passed"
    assert dead(make, [1.0] * 12, [0.0] * 12, kind="Dropout")[0] == "skipped"


def test_too_little_to_tell_that_a_relu_is_dead(make) -> None:
    frozen = {"activations": outputs([1.0] * 12), "parameters": of_hidden([0.0] * 12, lr=0.0)[:24]}
    assert make.check("dead-relu", make.process(stuck(make), more=frozen))[0] == "skipped"
    assert make.check("dead-relu", make.process(stuck(make)))[0] == "skipped"
    rows = {"activations": outputs([1.0] * 12), "parameters": of_hidden([0.0] * 12)}
    two = stuck(make) | {"optimizer": [index % 2 for index in range(COUNT)]}
    assert make.check("dead-relu", make.process(two, more=rows))[0] == "skipped"


def test_units_that_a_high_rate_kills_and_gradients_that_end_with_them(make) -> None:
    steps = stuck(make) | {"grads_zero": [8] * COUNT}
    rows = {"activations": outputs([1.0] * 12), "parameters": of_hidden([0.0] * 12)}
    found = {one.rule: one for one in diagnose(make.run(make.process(steps, more=rows))).findings}
    assert found["zero-gradients"].caused_by == "dead-relu"


def coder(
    zeros: Sequence[int], at: Sequence[int] = SAMPLED_STEPS, order: Sequence[int] = (0, 1, 2, 3), code: int = 16
) -> dict[str, list[dict[str, Any]]]:
    """Looks at four layers that feed each other, some of them without gradient; `code` goes into the third one."""
    sizes = [(50, 64), (64, 16), (code, 64), (64, 50)]
    gradients = [
        row | ({"grad_norm": 0.0, "grad_largest": 0.0} if index in zeros else {"grad_largest": 1e-2})
        for index in range(4)
        for row in [one | {"parameter": one["parameter"].replace("0", str(index))} for one in layers([-2.0], at)]
    ]
    calls = [
        {"step": 0, "order": place, "module": f"layer{index}", "kind": "Linear", "inputs": sizes[index][0],
         "outputs": sizes[index][1]}
        for place, index in enumerate(order)
    ]  # fmt: skip
    reach = {"optimizer": 0, "step": COUNT, "steps": COUNT, "held": 8, "held_elements": 9, "missed": 0,
             "missed_elements": 0}  # fmt: skip
    return {"parameters": gradients, "activations": calls, "reach": [reach]}


def test_a_front_behind_a_derivative_of_zero(make) -> None:
    status, _, finding = make.check("frozen-parameters", make.process(more=coder([0, 1])))
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert "before layer2: 4 of 8" in finding.title


@pytest.mark.parametrize(
    "tables",
    [
        coder([]),
        coder([3]),  # a head whose loss has no weight
        coder([0], order=(1, 0, 2, 3)),  # a side branch
        coder([0, 1], code=20),  # called before, but feeds nobody
        coder([0, 1], at=[1, 2, 3, 4]),  # layers that begin at zero
        coder([0, 1, 2, 3]),  # zero-gradients speaks of it
    ],
    ids=["none", "head", "side", "apart", "early", "all"],
)
def test_zero_gradients_that_are_no_cut(make, tables: dict[str, Any]) -> None:
    assert make.check("frozen-parameters", make.process(more=tables))[0] == "passed"


def test_a_front_whose_gradients_underflow(make) -> None:
    steps = make.steps(COUNT) | {"autocast": [1] * COUNT}
    assert make.check("frozen-parameters", make.process(steps, more=coder([0, 1])))[0] == "passed"

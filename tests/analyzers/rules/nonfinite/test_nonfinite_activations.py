"""Modules that put out what is not finite first, and the look-alikes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.rules.nonfinite.broken_batches import COUNT, batch, broken_at


def forward(index: int, broken: str | None = None, kind: int = 1, weights: bool | None = None) -> list[dict[str, Any]]:
    """The forward of step `index` + 1 through three modules; from `broken` on they put out NaN."""
    rows = []
    names = ["embed", "attention", "head", ""]
    for order, name in enumerate(names, 1):
        bad = broken is not None and order > names.index(broken)
        rows.append(
            {
                "time": 0.05 * (index + 0.5),
                "step": index,
                "order": order,
                "module": name,
                "kind": "Linear",
                "dtype": "float16",
                "nonfinite": kind if bad else 0,
                "alert": weights is not None,
                "weights_finite": weights,
            }
        )
    return rows


@pytest.mark.parametrize(
    ("largest", "dtype", "status"),
    [(3e4, "float32", "fired"), (1e33, "float32", "passed"), (1e33, "bfloat16", "passed"), (6e4, "float16", "fired")],
)
def test_numbers_that_grew_before_overflow_in_any_module(make, largest: float, dtype: str, status: str) -> None:
    """Weights that are too large: the module in which the numbers leave float32 did not make them so."""
    looks = [row | {"largest": largest, "dtype": dtype} for row in forward(100, "attention", weights=True)]
    process = make.process(broken_at(make, 100), more={"activations": looks})
    seen, reason, _ = make.check("nonfinite-activations", process)
    assert seen == status
    assert status == "fired" or "had grown to 1e+33" in reason


def test_the_module_that_breaks_first_is_named(make) -> None:
    looks = forward(50) + forward(100, "attention", weights=True)
    process = make.process(broken_at(make, 100), more={"activations": looks})
    status, _, finding = make.check("nonfinite-activations", process)
    assert status == "fired"
    assert finding.title.startswith("attention (Linear) is the first module to output NaN, at step 101")
    assert "float16" in finding.summary


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_table_of_embeddings_is_given_no_numbers(make, dtype: str) -> None:
    """What it puts out stands in its weight; ids are finite, and neither products nor other precision matter."""
    looks = [row | {"kind": "Embedding", "dtype": dtype} for row in forward(100, "embed", kind=1)]
    process = make.process(broken_at(make, 100), more={"activations": looks})
    finding = make.check("nonfinite-activations", process)[2]
    assert "only looks up rows of its weight" in finding.fix
    assert "given" not in finding.fix


def in_the_forward(*lines: str) -> list[dict[str, Any]]:
    """Sites of the forward of the module attention: where it begins, and these lines of it."""
    source = ["    def forward(self, x):", *(f"        {line}" for line in lines)]
    place = {"file": "train.py", "function": "forward", "excerpt": "\n".join(source), "excerpt_line": 20}
    return [
        {**place, "site": 50 + at, "role": "powers" if at else "broken-forward", "name": "attention", "line": 20 + at}
        | {"source": text.strip()}
        for at, text in enumerate(source)
    ]


@pytest.mark.parametrize(
    ("lines", "line", "said", "example"),
    [
        (
            ["power = x * x + y * y"],
            21,
            "takes a square, which float16 holds of numbers up to 255",
            "power = x.float() *",
        ),
        (["z = self.a * x", "return z.pow(2).sum()"], 22, "takes a square", "return z.float().pow(2).sum()"),
        (["return torch.exp(x) + 1"], 21, "takes an exponential, which float16", "return torch.exp(x.float()) + 1"),
        (
            ["return torch.exp2(x)"],
            21,
            "takes a power of two, which float16 holds up to an exponent of 15",
            "exp2(x.float())",
        ),
        (["return torch.exp2(-x)"], 20, "", "with torch.autocast("),
        (["k = torch.exp(-x * x.detach())", "s = 2 ** x", "w = x ** -0.5"], 20, "", "with torch.autocast("),
        (["a = x * x", "b = a.exp()"], 20, "", "with torch.autocast("),  # either of the two
        (["return (x ** 2).exp()"], 21, "", "with torch.autocast("),  # one within the other
        (["h = math.exp(self.rate) * x"], 20, "", "with torch.autocast("),
    ],
)
def test_where_numbers_outgrow_float16_in_the_forward(make, lines, line: int, said: str, example: str) -> None:
    looks = forward(100, "attention", kind=2, weights=True)
    process = make.process(broken_at(make, 100), sites=in_the_forward(*lines), more={"activations": looks})
    finding = make.check("nonfinite-activations", process)[2]
    assert (finding.location.line, said in finding.summary) == (line, True)
    assert ("there takes" in finding.summary) == bool(said)
    assert example in finding.fix_code
    other = make.process(
        broken_at(make, 100), sites=in_the_forward(*lines), more={"activations": forward(100, "head", 2, True)}
    )
    assert make.check("nonfinite-activations", other)[2].location is None, "the lines are of another module"


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["scores = q @ k.transpose(-1, -2)", "share = scores.softmax(-1)", "y = self.out(share @ v)"], 21),
        (["scores = torch.matmul(q, k)", "y = self.out(F.softmax(scores, -1) @ v)"], 21),
        (["scores = q @ k", "y = self.out(scores @ v)"], 20),  # either
        (["scores = q @ self.weight", "y = self.out(scores)"], 20),
    ],
)
def test_a_product_in_the_forward_that_calls_the_layer_which_is_given_nan(make, lines: list[str], line: int) -> None:
    """A linear layer makes no NaN of finite numbers; what its holder computes does."""
    looks = forward(100, "attention", kind=1, weights=True)
    process = make.process(broken_at(make, 100), sites=in_the_forward(*lines), more={"activations": looks})
    finding = make.check("nonfinite-activations", process)[2]
    assert finding.location.line == line
    assert ("Line 21, in the forward that calls it, takes a matrix product." in finding.summary) == (line == 21)
    assert "what it was given was not finite" in finding.fix
    if line == 21 and "@ k" in lines[0]:
        assert finding.fix_code.endswith("\n    scores = q.float() @ k.transpose(-1, -2).float()")


def test_an_overflow_in_the_forward_is_put_down_to_the_module_that_has_it(make) -> None:
    steps = broken_at(make, 100) | {"autocast": [1] * COUNT}
    steps |= {"scale": [2.0**-19] * COUNT, "skipped": [False] * 100 + [True] * (COUNT - 100)}
    looks = forward(100, "attention", kind=2, weights=True)
    sites = in_the_forward("power = x * x")
    finding = make.check("fp16-overflow", make.process(steps, sites=sites, more={"activations": looks}))[2]
    assert (
        "attention (Linear) is the first module that puts out Inf or NaN there. Line 21 there takes a"
        in finding.summary
    )
    assert (finding.location.line, finding.fix_code) == (21, "power = x.float() * x.float()")
    assert "take the square of float32 numbers" in finding.fix
    finite = dict(steps) | {"loss": make.steps()["loss"]}
    finding = make.check("fp16-overflow", make.process(finite, sites=sites, more={"activations": looks}))[2]
    assert "first module" not in finding.summary, "the gradients overflow, and not the forward"


@pytest.mark.parametrize(("elements", "status"), [(1, "passed"), (1200, "fired")])
def test_the_loss_that_a_model_puts_out_is_no_activation(make, elements: int, status: str) -> None:
    """A model of transformers returns its loss before its scores: NaN, where no target of the batch counts."""
    looks = [row | {"elements": elements if row["module"] == "" else 4096} for row in forward(100, "", weights=True)]
    process = make.process(broken_at(make, 100), more={"activations": looks})
    assert make.check("nonfinite-activations", process)[0] == status
    assert make.check("nonfinite-activations", process)[2] is None or (
        make.check("nonfinite-activations", process)[2].title.startswith("The model itself (")
    )


@pytest.mark.parametrize(
    ("looks", "status"),
    [
        (forward(100, "attention", kind=3, weights=True), "passed"),  # masked with minus infinity
        (forward(50, "attention", weights=True) + forward(100), "passed"),  # masked: the loss of that step is finite
        (forward(120, "embed", weights=False), "skipped"),  # the weights are NaN already
        (forward(120, "embed"), "skipped"),  # the loss has been NaN before
        (forward(50, "attention", weights=True), "skipped"),  # and where the loss breaks nobody looked
    ],
)
def test_modules_that_may_put_out_what_is_not_finite(looks: list[dict[str, Any]], status: str, make) -> None:
    process = make.process(broken_at(make, 100), more={"activations": looks})
    assert make.check("nonfinite-activations", process)[0] == status


GIVEN = {
    "kind": "nonfinite-taken-in",
    "step": 100,
    "name": "attention.weight",
    "text": "-Inf",
    "value": 0.0,
    "time": 5.1,
}


@pytest.mark.parametrize(
    ("event", "trained", "more", "title"),
    [
        ({}, "head.weight", {}, "embed (Linear) outputs -Inf at step 101"),
        ({}, "embed.weight", {}, "attention is given -Inf at step 101"),  # a branch of its own, perhaps
        ({"name": "embed.weight", "text": "NaN"}, "embed.weight", {}, "embed is given NaN at step 101"),
        ({"step": 130}, "head.weight", {}, None),
        ({}, "head.weight", {"batches": [{**batch(100, nonfinite=True), "step": 100}]}, None),
        (
            {"name": "embed.gain", "text": "NaN"},
            "embed.gain",
            {"modules": [{"model": 0, "module": "embed", "kind": "WindowScale"}]},
            "embed meets NaN at step 101",  # or computes it itself
        ),
    ],
)
def test_a_layer_that_was_given_what_is_not_finite(
    make, event: Any, trained: str, more: Any, title: str | None
) -> None:
    process = make.process(
        broken_at(make, 100),
        more={"activations": forward(0), "parameters": [look(1, None, trained)], **more},
        events=[GIVEN | event],
    )
    status, _, finding = make.check("nonfinite-activations", process)
    assert status == ("fired" if title else "passed")
    assert finding is None or finding.title == f"{title}, and the loss is lost"


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        (["z = (x - centre) / scale * self.gain"], "z = (x - centre) / (scale + 1e-6) * self.gain"),
        (["z = x / y", "w = q / r"], "z = (x - mean) / (std + 1e-6)"),
        (["z = x / (scale + 1e-5)"], "z = (x - mean) / (std + 1e-6)"),
    ],
)
def test_the_only_division_of_a_forward_that_nothing_bounds(make, lines: list[str], code: str) -> None:
    sites = [
        {"site": number, "role": "singular", "file": "net.py", "line": 10 * number, "function": "forward"}
        | {"source": line, "excerpt": f"        {line}", "excerpt_line": 10 * number}
        for number, line in enumerate(lines, 1)
    ]
    event, process = GIVEN | {"name": "embed.gain", "text": "NaN"}, make.process
    more = {"activations": forward(0), "parameters": [look(1, None, "embed.gain")]}
    finding = make.check(
        "nonfinite-activations", process(broken_at(make, 100), more=more, events=[event], sites=sites)
    )[2]
    assert finding.fix_code == code
    assert ("Line 10 holds the only division" in finding.summary) is (finding.location is not None)


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("return power.log()", "return power.clamp_min(1e-8).log()"),
        ("x = torch.log10(self.bank @ power)", "x = torch.log10((self.bank @ power).clamp_min(1e-8))"),
        ("x = np.log(power)", "features = torch.log(power.clamp_min(1e-8))"),
    ],
)
def test_the_only_logarithm_of_a_step_is_bounded_in_its_own_words(make, line: str, code: str) -> None:
    site = {"site": 9, "role": "nonfinite", "file": "net.py", "line": 30, "function": "forward", "source": line}
    sites = [site | {"excerpt": f"        {line}", "excerpt_line": 30}]
    more = {"activations": forward(0), "parameters": [look(1, None, "head.weight")]}
    process = make.process(broken_at(make, 100), more=more, events=[GIVEN], sites=sites)
    finding = make.check("nonfinite-activations", process)[2]
    assert finding.location.line == 30
    assert finding.fix_code.endswith(code)


def test_weights_that_a_step_with_such_gradients_wrote_are_no_root(make) -> None:
    """The sample of a forward does not say whether weights are finite; the gradients of the step before do."""
    steps = broken_at(make, 100)
    bad = steps | {"grads_nonfinite": [4 if index >= 99 else 0 for index in range(400)]}
    plain = {"activations": forward(100, "embed")}
    assert make.check("nonfinite-activations", make.process(bad, more=plain))[0] == "passed"
    both = {"activations": forward(100, "embed") + forward(100, "embed", weights=False)}
    assert make.check("nonfinite-activations", make.process(steps, more=both))[0] != "fired"
    status, _, finding = make.check("nonfinite-activations", make.process(steps, more=plain))
    assert (status, finding.confidence, "its own weights" in finding.summary) == ("fired", "certain", False)
    unseen = steps | {name: [None if index == 99 else value for index, value in enumerate(steps[name])]
                      for name in ("grad_norm", "grads_nonfinite")}  # fmt: skip
    assert make.check("nonfinite-activations", make.process(unseen, more=plain))[2].confidence == "likely"


def look(step: int, since: int | None, parameter: str = "layer.weight", **more: Any) -> dict[str, Any]:
    """One look at one tensor; by default a step changed all of it."""
    row = {"time": 0.05 * step, "step": step, "optimizer": 0, "parameter": parameter, "dtype": "float32"}
    row |= {"elements": 4096, "lr": 0.01, "weight_norm": 10.0, "update_norm": 0.01, "unchanged": 0.0}
    row |= {"unchanged_reached": 0.0, "since": since, "unchanged_since": None if since is None else 0.0}
    return row | {"grad_norm": 1.0, "grad_finite": True, "closure": False} | more


@pytest.mark.parametrize(("kind", "said"), [("Linear", "only multiplies and adds"), ("Norm", "divides by")])
def test_a_linear_layer_divides_by_nothing(make, kind: str, said: str) -> None:
    row = {"step": COUNT - 1, "time": 0.05 * (COUNT - 0.5), "module": "body.2", "kind": kind, "order": 4}
    row |= {"nonfinite": 1, "weights_finite": True, "dtype": "float32"}
    process = make.process(broken_at(make, COUNT - 1), more={"activations": [row]})
    finding = make.check("nonfinite-activations", process)[2]
    assert said in finding.fix
    assert "The loss of the step was lost with it. It computes" in finding.summary, "no other was"

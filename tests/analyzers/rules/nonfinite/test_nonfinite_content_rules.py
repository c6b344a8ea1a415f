"""Rules about what is not finite in batches and modules: what they fire on, and what looks the same and is healthy."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers import diagnose

COUNT = 400  # steps, of 0.05 s each


def broken_at(make: Any, index: int) -> dict[str, Any]:
    """A training whose loss is NaN from row `index` on."""
    steps = make.steps(COUNT)
    return steps | {"loss": steps["loss"][:index] + [math.nan] * (COUNT - index)}


def batch(index: int, **more: Any) -> dict[str, Any]:
    """A float field of the batch that step `index` + 1 uses."""
    row = {"time": 0.05 * (index + 0.2), "step": index, "loader": 0, "epoch": 0, "batch": index, "trained": True}
    return row | {"field": "0", "dtype": "float32", "shape": "32x8", "nonfinite": False} | more


def test_a_batch_with_nan_that_breaks_the_loss(make) -> None:
    batches = [batch(index, nonfinite=index == 100) for index in range(0, 200, 4)]
    process = make.process(broken_at(make, 100), more={"batches": batches})
    status, _, finding = make.check("nonfinite-input", process)
    assert status == "fired"
    assert (finding.severity, finding.first_step) == ("critical", 101)
    assert "batch 101 of pass 1" in finding.summary
    assert finding.location.line == 30
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    own = make.process(broken_at(make, 100), loaders=[loader], more={"batches": batches})
    _, _, finding = make.check("nonfinite-input", own)
    assert (finding.location.line, finding.seen_at.line) == (60, 30), "the line that defines how a sample is read"
    everything = {finding.rule: finding for finding in diagnose(make.run(process)).findings}
    assert everything["loss-nonfinite"].caused_by == "nonfinite-input"


def test_a_loader_that_is_a_batch_ahead(make) -> None:
    batches = [batch(index, nonfinite=index == 99) for index in range(90, 110)]
    assert make.check("nonfinite-input", make.process(broken_at(make, 100), more={"batches": batches}))[0] == "fired"


@pytest.mark.parametrize(
    "batches",
    [
        [batch(100)],
        [batch(index, nonfinite=True) for index in range(0, 200, 10)],  # filled by the script, all along
        [batch(100, nonfinite=True, trained=False)],  # evaluated
        [batch(150, nonfinite=True)],  # after the loss broke
    ],
)
def test_batches_that_did_not_break_the_loss(batches: list[dict[str, Any]], make) -> None:
    process = make.process(broken_at(make, 100), more={"batches": batches})
    assert make.check("nonfinite-input", process)[0] == "passed"


def test_an_attention_mask_that_a_model_is_given_is_no_broken_batch(make) -> None:
    """In a loop without a loader, of which the mask of the first steps is looked at, and the loss breaks at once."""
    given: dict[str, Any] = {"nonfinite": True, "loader": None, "field": "1", "max": 0.0, "min": -math.inf}
    masks = [batch(index, **given) for index in range(3)]
    assert make.check("nonfinite-input", make.process(broken_at(make, 2), more={"batches": masks}))[0] == "passed"
    values = [row | {"max": 3.0, "nonfinite": row["step"] == 2} for row in masks]
    assert make.check("nonfinite-input", make.process(broken_at(make, 2), more={"batches": values}))[0] == "fired"


def test_an_input_that_the_script_makes_of_a_finite_batch(make) -> None:
    made = batch(100, loader=None, nonfinite=True, min=math.nan, max=math.nan)
    process = make.process(broken_at(make, 100), more={"batches": [batch(100), made]})
    status, _, finding = make.check("nonfinite-input", process)
    assert (status, finding.confidence, finding.first_step) == ("fired", "likely", 101)
    assert "finite batch" in finding.title
    both = make.process(broken_at(make, 100), more={"batches": [made, batch(100, nonfinite=True)]})
    assert make.check("nonfinite-input", both)[2].confidence == "certain", "the batch held it already"
    bias = made | {"min": -math.inf, "max": 2.0}
    masked = make.process(broken_at(make, 100), more={"batches": [batch(100), bias]})
    assert make.check("nonfinite-input", masked)[0] == "passed", "a bias of attention, with a mask in it"


def test_missing_values_without_harm_and_runs_without_batches(make) -> None:
    batches = [batch(index, nonfinite=True) for index in range(0, 200, 10)]
    assert make.check("nonfinite-input", make.process(more={"batches": batches}))[0] == "passed"
    assert make.check("nonfinite-input", make.process())[0] == "skipped"


GIVEN_UP = [{"kind": "loss-given-up", "step": step, "name": "NaN", "time": 0.05 * step} for step in range(10, 60)]


def skipped(index: int, **more: Any) -> dict[str, Any]:
    return batch(index, trained=False, nonfinite=True, min=math.nan, max=math.nan, **more)


@pytest.mark.parametrize("loader", [0, None])
def test_batches_with_nan_that_the_loop_gives_up(make, loader) -> None:
    rows = [one | {"loader": loader} for step in range(0, 60, 2) for one in (skipped(step + 400), batch(step))]
    rows = [row | {"step": row["step"] % 400} for row in rows]
    process = make.process(make.steps(COUNT), more={"batches": rows}, events=GIVEN_UP)
    status, _, finding = make.check("nonfinite-input", process)
    assert (status, finding.severity, finding.confidence, finding.first_step) == ("fired", "warning", "certain", 11)
    assert "25 held NaN or Inf" in finding.summary
    everything = {finding.rule: finding for finding in diagnose(make.run(process)).findings}
    assert everything["loss-nonfinite"].caused_by == "nonfinite-input"
    one = make.process(make.steps(COUNT), more={"batches": [batch(3), skipped(10)]}, events=GIVEN_UP[:1])
    finding = make.check("nonfinite-input", one)[2]
    assert (finding.severity, finding.confidence) == ("info", "likely"), "one stray sample"


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([10, 13, 17, 24, 30], "fired"),
        ([10, 20, 30, 40, 50], "passed"),  # a validation that is called as in training
        ([10, 13], "passed"),
    ],
)
def test_batches_that_are_given_up_beside_a_loss_that_is_written_out(make, steps: list[int], status: str) -> None:
    """No loss was seen: the model was called as in training, and no backward followed."""
    count = len(steps)
    evals = make.evals(count) | {"after_step": steps, "grad_mode": [2] * count, "model_in_train": [True] * count}
    rows = [*(batch(at) for at in range(9)), *(skipped(at, batch=50 + n) for n, at in enumerate(steps))]
    answer = make.check("nonfinite-input", make.process(make.steps(COUNT), evals=evals, more={"batches": rows}))
    assert answer[0] == status
    if status == "fired":
        assert answer[2].confidence == "likely"
        assert "no number" not in answer[2].summary


@pytest.mark.parametrize(
    ("rows", "events"),
    [
        ([batch(3), skipped(10)], []),  # evaluated
        ([batch(3), skipped(10, shape="64x8")], GIVEN_UP),  # evaluated, in a loop that gives batches up
        ([batch(3), skipped(5)], GIVEN_UP),  # after another step
        ([batch(3, nonfinite=True), batch(4), skipped(10)], GIVEN_UP),  # the script copes with it
        ([batch(3), skipped(10), *(skipped(i) | {"nonfinite": False} for i in (11, 12))], GIVEN_UP),  # another cause
    ],
)
def test_nan_in_batches_that_is_not_why_losses_are_given_up(make, rows, events) -> None:
    process = make.process(make.steps(COUNT), more={"batches": rows}, events=events)
    assert make.check("nonfinite-input", process)[0] == "passed"


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


def test_what_is_said_of_the_losses_around_a_broken_batch(make) -> None:
    """The first of all has none before it, and the last none after it."""
    row = {"time": 0.01, "step": 0, "batch": 0, "nonfinite": True}
    first = make.check("nonfinite-input", make.process(broken_at(make, 0), more={"batches": [batch(0) | row]}))[2]
    assert "The losses before were" not in first.summary
    assert "400 losses have not been finite since, this one included." in first.summary
    last = batch(COUNT - 1, nonfinite=True)
    last = make.check("nonfinite-input", make.process(broken_at(make, COUNT - 1), more={"batches": [last]}))[2]
    assert last.summary.endswith("was not finite. The losses before were.")


@pytest.mark.parametrize(
    ("fields", "loop", "shown"),
    [
        (("0", "1"), "for x, y in loader:", "torch.isfinite(x).reshape(len(x), -1)"),
        (("0", "1"), "for batch in loader:", "dataset[at][0]"),
        (("image", "label"), "for batch in loader:", 'dataset[at]["image"]'),
        (("image", "label"), "trainer.train()", 'dataset[at]["image"]'),
        (("0",), "trainer.train()", "torch.isfinite(inputs)"),  # a tensor, or a tuple of one
    ],
)
def test_samples_are_left_out_of_what_the_loop_names(make, fields: tuple[str, ...], loop: str, shown: str) -> None:
    """A batch that is a mapping, or a tuple under one name, is no tensor; a trainer has no loop to change."""
    rows = [batch(100, field=field, nonfinite=field == fields[0]) for field in fields]
    sites = [{"site": 2, "role": "step" if "train()" in loop else "loader", "file": "t.py", "line": 30,
              "function": "main", "source": loop}]  # fmt: skip
    loaders = [{"loader": 0, "dataset": "Curves", "site": 2}]
    process = make.process(broken_at(make, 100), sites=sites, loaders=loaders, more={"batches": rows})
    assert shown in make.check("nonfinite-input", process)[2].fix_code


def test_losses_are_counted_as_far_as_they_were_measured(make) -> None:
    """Of one in ten the first bad one may have come earlier, and nothing is said of the others."""
    losses = make.steps()["loss"][:200] + [math.nan] * 200
    seldom = [value if index % 10 == 0 else None for index, value in enumerate(losses)]
    finding = make.check("loss-nonfinite", make.process(make.steps() | {"loss": seldom}))[2]
    assert finding.title == "The loss became NaN by step 201"
    assert "At step 191 the loss was" in finding.summary
    assert "All 20 losses from step 201 on are not finite" in finding.summary
    last = make.check("loss-nonfinite", make.process(broken_at(make, COUNT - 1)))[2]
    assert last.title == "The loss became NaN at step 400"
    assert "No loss was measured after step 400" in last.summary
    one = make.check("loss-nonfinite", make.process(make.steps() | {"loss": [math.nan, *make.steps()["loss"][1:]]}))[2]
    assert "in between" not in one.summary


@pytest.mark.parametrize("case", ["skipped", "evaluated", "ended"])
def test_a_loss_without_a_backward_need_not_be_one_that_the_loop_gives_up(make, case: str) -> None:
    """An evaluation in train mode with autograd on looks the same; a loop may end there without an exception."""
    step = COUNT if case == "ended" else 100
    events = [GIVEN_UP[0] | {"step": step}]
    evals = make.evals(4) | {"grad_mode": [2] * 4, "model_in_train": [True] * 4} if case == "evaluated" else None
    finding = make.check("loss-nonfinite", make.process(make.steps(COUNT), evals=evals, events=events))[2]
    ends = {"skipped": "the loop skipped the step", "evaluated": "no backward followed",
            "ended": "no step came after that"}  # fmt: skip
    assert finding.title == f"1 loss was NaN, and {ends[case]}"
    assert finding.confidence == ("likely" if case == "evaluated" else "certain")
    assert ("later steps kept training" in finding.summary) == (case == "skipped")


@pytest.mark.parametrize(("kind", "said"), [("Linear", "only multiplies and adds"), ("Norm", "divides by")])
def test_a_linear_layer_divides_by_nothing(make, kind: str, said: str) -> None:
    row = {"step": COUNT - 1, "time": 0.05 * (COUNT - 0.5), "module": "body.2", "kind": kind, "order": 4}
    row |= {"nonfinite": 1, "weights_finite": True, "dtype": "float32"}
    process = make.process(broken_at(make, COUNT - 1), more={"activations": [row]})
    finding = make.check("nonfinite-activations", process)[2]
    assert said in finding.fix
    assert "The loss of the step was lost with it. It computes" in finding.summary, "no other was"


def test_losses_that_are_finite_in_between_were_not_lost(make) -> None:
    """The title says in how many steps, and the cost is theirs; where none is finite later, the rest is lost."""
    odd = [math.nan if index % 4 == 2 else math.inf if index % 4 == 1 else 1.0 for index in range(COUNT)]
    finding = make.check("loss-nonfinite", make.process(make.steps() | {"loss": odd}))[2]
    assert finding.title == "The loss was NaN or Inf in 200 steps, first at step 2"
    assert "finite ones come in between" in finding.summary
    assert finding.cost.share == pytest.approx(0.5, abs=0.02)
    lost = make.check("loss-nonfinite", make.process(broken_at(make, 100)))[2]
    assert lost.title == "The loss became NaN at step 101"
    assert lost.cost.share == pytest.approx(0.75, abs=0.02)


@pytest.mark.parametrize("evaluates", [True, False])
def test_the_loss_of_a_validation_is_not_where_a_training_broke(make, evaluates: bool) -> None:
    """A framework calls the backward, and only the validation calls a loss function of torch."""
    where = {"file": "t.py", "function": "validation_step" if evaluates else "training_step"}
    sites = [
        {"site": 1, "role": "backward", "file": "t.py", "line": 22, "function": "main", "source": "trainer.fit(net)"},
        {"site": 2, "role": "loss", "line": 17, "source": "F.mse_loss(self.net(x), y)", **where},
        {"site": 3, "role": "evaluation" if evaluates else "training-call", "line": 16, "source": "x, y = b", **where},
    ]
    finding = make.check("loss-nonfinite", make.process(broken_at(make, 100), sites=sites))[2]
    assert finding.location.line == (22 if evaluates else 17)


def prepared_by(
    sites: list[dict[str, Any]], name: str, call: str = "train", role: str = "data"
) -> list[dict[str, Any]]:
    """A line in a function, which another line calls: by default the one that makes the data."""
    source = f"{call} = {name}(x)"
    called = {"site": 8, "role": role, "file": "train.py", "line": 40, "function": "main", "source": source}
    return [sites[0] | {"function": name}, called | {"excerpt": f"    {source}", "excerpt_line": 40}]


LOGGED = """def prepared(kwh):
    # {before}
    {line}
    return logged"""


@pytest.mark.parametrize(
    ("line", "least", "code"),
    [
        ("logged = torch.log(kwh)", -math.inf, "logged = torch.log(kwh.clamp_min(1e-6))"),
        ("logged = np.log10(a * kwh)", -math.inf, "logged = np.log10(np.maximum(a * kwh, 1e-6))"),
        ("logged = (kwh.log() - mean) / std", -math.inf, "logged = (kwh.clamp_min(1e-6).log() - mean) / std"),
        ("logged = torch.log(kwh)", math.nan, ""),  # of what is below 0, or of another origin
        ("logged = torch.log(kwh + 1e-6)", -math.inf, ""),
        ("logged = kwh / total", -math.inf, ""),
        ("logged = math.log(kwh)", -math.inf, ""),  # raises an error at 0
        ("self.log('kwh', kwh)", -math.inf, ""),
    ],
)
def test_minus_infinity_in_a_batch_comes_out_of_a_logarithm(make, line: str, least: float, code: str) -> None:
    rows = [batch(index, nonfinite=index == 100, min=least if index == 100 else 0.0, max=3.0) for index in (96, 100)]
    sites = prepared_by(sites_of(LOGGED.format(before="", line=line), singular=line), "prepared")
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    read = own | {"site": 3, "role": "dataset", "line": 60, "function": "__getitem__", "source": "return self.x[i]"}
    process = make.process(broken_at(make, 100), sites=[*sites, own, read], loaders=[loader], more={"batches": rows})
    finding = make.check("nonfinite-input", process)[2]
    assert finding.location.line == (3 if code else 60)
    assert ("which is minus infinity where that is 0" in finding.fix) == bool(code)
    assert finding.fix_code.endswith(code or "x, y = x[good], y[good]")
    assert ("# right below line 30" in finding.fix_code) == (not code)
    assert ("All that is not finite in it is minus infinity" in finding.summary) == bool(code)


@pytest.mark.parametrize("called", [{}, {"call": "loss", "role": "loss"}, {"call": "z", "role": "training-call"}, None])
def test_a_spread_or_a_logarithm_in_what_a_step_calls_prepares_no_batch(make, called: dict[str, str] | None) -> None:
    """As a loss that scales its vectors does. Of a function that nothing calls it is not known."""
    rows = [batch(100, nonfinite=True, min=math.nan)]
    line = "z / z.norm(dim=1, keepdim=True)"
    sites = sites_of(SPREAD.format(std="z", line=line), singular=line)
    sites = [sites[0] | {"function": "contrast"}] if called is None else prepared_by(sites, "contrast", **called)
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    read = own | {"site": 3, "role": "dataset", "line": 60, "function": "__getitem__", "source": "return self.x[i]"}
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    process = make.process(broken_at(make, 100), sites=[*sites, own, read], loaders=[loader], more={"batches": rows})
    assert make.check("nonfinite-input", process)[2].location.line == (3 if called == {} else 60)


def test_the_logarithm_of_a_model_or_of_the_loop_prepares_no_batch(make) -> None:
    row = batch(100, nonfinite=True, min=-math.inf, max=3.0)
    line = "scale = torch.log(base)"
    sites = sites_of(f"class Net(nn.Module):\n    def __init__(self, base):\n        {line}", singular=line)
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    process = make.process(broken_at(make, 100), sites=sites, loaders=[loader], more={"batches": [row]})
    assert "minus infinity" not in make.check("nonfinite-input", process)[2].fix


READ = """class Windows(Dataset):
    def __getitem__(self, i):
        window = self.series[i : i + 54]
        past = {past}
        z = (window - past.mean()) / past.std()
        return z[:48], z[48:]"""


@pytest.mark.parametrize(
    ("past", "other", "said"),
    [
        ("window[:48]", math.nan, "add an epsilon"),
        ("window[:48]", -math.inf, "an epsilon would make these values huge"),
        ("window[:48]", 0.1, ""),  # what is not finite in this field is its largest value alone, or came otherwise
        ("self", math.nan, ""),  # of all samples
    ],
)
def test_a_sample_that_is_read_is_divided_by_its_own_spread(make, past: str, other: float, said: str) -> None:
    rows = [batch(100, nonfinite=True, min=one, max=one, field=str(at)) for at, one in enumerate((math.nan, other))]
    sites = sites_of(READ.format(past=past), singular="z = (window", dataset="def __getitem__")
    sites = [row | {"function": "__getitem__", "site": row["site"] + 10} for row in sites]
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    loader = {"loader": 0, "dataset": "Windows", "site": 2, "read_by": 12}
    process = make.process(broken_at(make, 100), sites=[*sites, own], loaders=[loader], more={"batches": rows})
    finding = make.check("nonfinite-input", process)[2]
    assert ("divides by each sample's own std" in finding.fix) is bool(said)
    assert said in finding.fix
    assert ("(past.std() + 1e-6)" in finding.fix_code) is ("add" in said)


def test_steps_between_two_broken_batches_that_the_weights_survived_are_not_lost(make) -> None:
    losses = make.steps(COUNT)
    losses |= {"loss": [math.nan if index == 100 or index >= 300 else one for index, one in enumerate(losses["loss"])]}
    process = make.process(losses, more={"batches": [batch(100, nonfinite=True)]})
    assert make.check("nonfinite-input", process)[2].cost.share == pytest.approx(0.25, abs=0.02)


SPREAD = """def standardised(x):
    std = {std}
    return {line}"""


@pytest.mark.parametrize(
    ("std", "line", "said"),
    [
        (
            "x.std(axis=1, keepdims=True)",
            "(x - mean) / std",
            "sample's own std, which is 0 where all values that it is taken of are eq",
        ),
        ("x", "x / x.sum(-1, keepdim=True)", "sample's own sum, which is 0 where all values that it is taken of are 0"),
        ("x.std(axis=0, keepdims=True)", "(x - mean) / std", ""),  # of each column, and so of all samples
        ("x.std()", "(x - mean) / std", ""),
        ("x.std(axis=1, keepdims=True)", "(x - mean) / (std + 1e-6)", ""),
        ("x.std(axis=1, keepdims=True)", "np.sqrt(x) / std", ""),  # which of the two is not known
    ],
)
def test_a_few_samples_that_are_nan_were_divided_by_a_spread_of_their_own(make, std: str, line: str, said: str) -> None:
    rows = [batch(index, nonfinite=index == 100, min=math.nan if index == 100 else 0.0) for index in (96, 100)]
    sites = prepared_by(sites_of(SPREAD.format(std=std, line=line), **{"singular-array": line}), "standardised")
    loader = {"loader": 0, "dataset": "Curves", "site": 2, "read_by": 3}
    own = {"site": 2, "role": "loader", "file": "t.py", "line": 30, "function": "main", "source": "for x, y in loader:"}
    read = own | {"site": 3, "role": "dataset", "line": 60, "function": "__getitem__", "source": "return self.x[i]"}
    process = make.process(broken_at(make, 100), sites=[*sites, own, read], loaders=[loader], more={"batches": rows})
    finding = make.check("nonfinite-input", process)[2]
    assert finding.location.line == (3 if said else 60)
    assert said in finding.fix
    assert ("+ 1e-6)" in finding.fix_code) == bool(said)

"""Rules about what goes into loss functions: the fault, its look-alike, and what cannot be told."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.loss_calls import calls


def elementwise(given: str, target: str, **columns: Any) -> list[dict[str, Any]]:
    return calls(function="mse_loss", input_shape=given, target_shape=target, target_integer=False, **columns)


PROBABILITIES = {"lowest": 0.01, "highest": 0.6, "sum_error": 1e-6, "log_sum_error": 2.3}


LOG_PROBABILITIES = {"lowest": -5.0, "highest": -0.1, "sum_error": 30.0, "log_sum_error": 1e-6}


SIGMOIDS = {"function": "binary_cross_entropy_with_logits", "input_shape": "32x7", "target_shape": "32x7"}


LOG_LOSS = "the written-out log loss"


MADE_COMPILED = {"made_by": "CompiledFunction"}


@pytest.mark.parametrize(
    ("rule", "rows", "confidence"),
    [
        ("double-softmax", calls(made_by="Softmax", made_dim=1, **PROBABILITIES), "certain"),
        ("double-softmax", calls(made_by="Softmax", made_dim=0), "certain"),
        ("double-softmax", calls(**MADE_COMPILED, **PROBABILITIES), "certain"),
        ("double-softmax", calls(made_by="Softmax", **PROBABILITIES | {"sum_error": 0.01}), "certain"),
        ("nll-of-probabilities", calls(function="nll_loss", made_by="Softmax", **PROBABILITIES), "certain"),
        ("nll-of-probabilities", calls(function="kl_div", **MADE_COMPILED, **PROBABILITIES), "certain"),
        ("double-sigmoid", calls(made_by="Sigmoid", lowest=0.4, highest=0.6, **SIGMOIDS), "certain"),
        ("double-sigmoid", calls(made_by="Relu", lowest=0.0, highest=3.0, target_varies=0.4, **SIGMOIDS), "certain"),
        ("double-sigmoid", calls(**MADE_COMPILED, lowest=0.02, highest=0.97, **SIGMOIDS), "likely"),
        ("double-sigmoid", calls(function="binary_cross_entropy", made_by="Sigmoid", made_from="Sigmoid"), "certain"),
        ("double-sigmoid", calls(function=LOG_LOSS, made_by="LogSigmoid", made_from="Sigmoid"), "certain"),
        ("double-softmax", calls(function="nll_loss", made_by="LogSoftmax", made_from="Softmax"), "certain"),
        ("double-softmax", calls(function=LOG_LOSS, made_by="Softmax", made_from="Softmax"), "certain"),
        ("softmax-wrong-dim", calls(function="nll_loss", made_by="LogSoftmax", made_dim=0), "certain"),
        ("softmax-wrong-dim", calls(function="nll_loss", made_by="LogSoftmax"), "certain"),
        ("softmax-wrong-dim", calls(function="nll_loss", made_by="Log", made_dim=0), "certain"),
        ("softmax-wrong-dim", elementwise("32x10", "32x10", made_by="Softmax", made_dim=0), "likely"),
        ("loss-broadcast", elementwise("32x1", "32"), "certain"),
        ("loss-broadcast", elementwise("32", "32x1"), "certain"),
        ("loss-broadcast", elementwise("8x5x1", "8x5"), "certain"),
        ("loss-broadcast", elementwise("32x1", "32", reduction="none"), "likely"),
    ],
)
def test_the_fault_is_found(make, rule: str, rows: list[dict[str, Any]], confidence: str) -> None:
    status, reason, finding = make.check(rule, make.process(more={"loss_calls": rows}))
    assert status == "fired", reason
    assert finding.confidence == confidence
    assert finding.location.line == 60
    assert finding.first_step == 1
    assert finding.fix_code
    lost = (rule, confidence) == ("loss-broadcast", "certain")  # the others learn something of their task
    assert (finding.cost and finding.cost.share) == (pytest.approx(1.0) if lost else None)


def test_smoothed_labels_do_not_make_a_second_loss_of_the_one_that_is_called(make) -> None:
    """The graph of such a cross_entropy is that of a loss which a script writes out."""
    given = calls(made_by="Softmax", made_dim=1, **PROBABILITIES)
    inside = calls(function=LOG_LOSS, made_by="LogSoftmax", made_from="Softmax")
    finding = make.check("double-softmax", make.process(more={"loss_calls": given + inside}))[2]
    assert finding.title == "Softmax is applied twice: cross_entropy gets probabilities instead of scores"
    assert "Found besides" not in finding.summary


@pytest.mark.parametrize("kind", ["Sigmoid", "Softmax"])
def test_a_softmax_before_the_sigmoid_of_a_loss_is_called_so(make, kind: str) -> None:
    rows = calls(made_by=kind, lowest=0.1, highest=0.6, **SIGMOIDS)
    finding = make.check("double-sigmoid", make.process(more={"loss_calls": rows}))[2]
    assert ("The sigmoid is applied twice" in finding.title) == (kind == "Sigmoid")
    assert (
        (f"without a {kind.lower()}" in finding.fix_code) is (f"Apply the {kind.lower()} only" in finding.fix) is True
    )
    assert ("first sigmoid" in finding.fix) == (kind == "Sigmoid")


@pytest.mark.parametrize(
    ("function", "given", "target", "flat", "warns"),
    [
        ("mse_loss", "2x1", "2", True, True),
        ("mse_loss", "8x1x5x5", "8x5x5", False, True),
        ("poisson_nll_loss", "32x1", "32", True, False),
    ],
)
def test_what_a_broadcast_loss_compares(make, function: str, given: str, target: str, flat: bool, warns: bool) -> None:
    """Pictures meet those of other samples place by place; torch warns in four of its functions."""
    rows = [row | {"function": function} for row in elementwise(given, target)]
    finding = make.check("loss-broadcast", make.process(more={"loss_calls": rows}))[2]
    assert ("every prediction meets every target" in finding.title) == flat
    assert ("at each place" in finding.summary) == (not flat)
    assert ("torch warns" in finding.summary) == warns
    if flat and warns:
        assert "4 differences instead of 2, of which 2 compare a prediction with its own target" in finding.summary


@pytest.mark.parametrize(("given", "factor", "side"), [("32x1", "32", "[32, 1]"), ("32", "32x1", "[32, 1]")])
def test_terms_that_meet_the_factors_of_all_samples(make, given: str, factor: str, side: str) -> None:
    """A product compares nothing with a target."""
    rows = [row | {"function": "written out", "meet_in": "Mul"} for row in elementwise(given, factor)]
    finding = make.check("loss-broadcast", make.process(more={"loss_calls": rows}))[2]
    assert finding.title.startswith("The loss multiplies [32")
    assert "1,024 products instead of 32" in finding.summary
    assert "prediction" not in finding.summary + finding.fix + finding.fix_code
    assert f"each side of shape {side}" in finding.fix_code
    alike = [row | {"function": "written out", "meet_in": "Mul"} for row in elementwise("32x1", "32x1")]
    assert make.check("loss-broadcast", make.process(more={"loss_calls": alike}))[0] == "passed"
    unknown = [row | {"function": "written out"} for row in elementwise(given, factor)]
    assert make.check("loss-broadcast", make.process(more={"loss_calls": unknown}))[0] == "skipped", (
        "an older recording"
    )
    compared = [row | {"meet_in": "Sub"} for row in unknown]
    assert "differences" in make.check("loss-broadcast", make.process(more={"loss_calls": compared}))[2].summary


@pytest.mark.parametrize(
    ("source", "edited"),
    [
        (
            "loss = -(dist.log_prob(acts) * advantage).mean()",
            "loss = -(dist.log_prob(acts) * advantage.squeeze(-1)).mean()",
        ),
        ("loss = -torch.mean(self.adv * logp)", "loss = -torch.mean(self.adv.squeeze(-1) * logp)"),
        ("loss = -(logp * advantage * keep).mean()", None),  # either may have the shape
        ("loss = -(logp * (returns - values)).mean()", None),
        ("loss = -(score * advantage).mean()", None),  # which of the two the model made is not known
    ],
)
def test_the_factors_are_squeezed_in_the_line_of_their_product(make, source: str, edited: str | None) -> None:
    site = {"site": 60, "role": "loss", "file": "a2c.py", "line": 7, "function": "update", "source": source}
    site |= {"excerpt_line": 7, "excerpt": f"    {source}"}
    rows = [row | {"function": "written out", "meet_in": "Mul", "site": 60} for row in elementwise("32", "32x1")]
    finding = make.check("loss-broadcast", make.process(sites=[site], more={"loss_calls": rows}))[2]
    assert (finding.diff.added[0].strip() if finding.diff else None) == edited


def test_a_likelihood_with_a_variance_gets_another_target(make) -> None:
    """Of a flat prediction beside a variance of [B, 1] gaussian_nll_loss raises."""
    rows = [row | {"function": "gaussian_nll_loss"} for row in elementwise("32x1", "32")]
    finding = make.check("loss-broadcast", make.process(more={"loss_calls": rows}))[2]
    assert finding.fix_code == "target = target.unsqueeze(-1)  # [32] -> [32, 1]"
    finding = make.check("loss-broadcast", make.process(more={"loss_calls": elementwise("32x1", "32")}))[2]
    assert finding.fix_code.startswith("prediction = prediction.squeeze(-1)  # [32, 1] -> [32]")


@pytest.mark.parametrize(("source", "named"), [("y = F.log_softmax(x, dim=0)", True), ("y = F.log_softmax(x)", False)])
def test_a_softmax_over_the_batch_says_what_it_does(make, source: str, named: bool) -> None:
    """Other batches of the same size give as good answers; a sample that is alone gives none."""
    site = {"site": 70, "role": "softmax", "file": "a.py", "line": 9, "function": "forward", "source": source}
    rows = calls(function="nll_loss", made_by="LogSoftmax", made_dim=0)
    finding = make.check("softmax-wrong-dim", make.process(sites=[site], more={"loss_calls": rows}))[2]
    assert "one that is alone there gets the same score for every class" in finding.summary
    assert ("without dim" in finding.fix) is not named
    other = make.check("softmax-wrong-dim", make.process(more={"loss_calls": [r | {"made_dim": 2} for r in rows]}))[2]
    assert "alone" not in other.summary


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("double-softmax", calls()),
        ("double-softmax", calls(lowest=0.0001, highest=0.002, sum_error=0.99)),  # small scores, all positive
        ("double-softmax", calls(made_by="LogSoftmax", **LOG_PROBABILITIES)),
        ("double-softmax", calls(made_by="Mul", lowest=0.0, highest=20.0, sum_error=19.0)),  # a temperature
        ("double-softmax", [*calls(23), *calls(2, **PROBABILITIES)]),
        ("nll-of-probabilities", calls(function="nll_loss", made_by="LogSoftmax", **LOG_PROBABILITIES)),
        ("double-sigmoid", calls(lowest=0.3, highest=0.5, **SIGMOIDS)),
        ("double-sigmoid", calls(made_by="Relu", lowest=0.0, highest=3.0, target_varies=0.0, **SIGMOIDS)),  # all yes
        ("double-sigmoid", calls(made_by="Add", lowest=0.0, highest=3.0, target_varies=0.4, **SIGMOIDS)),
        ("double-softmax", calls(made_by="Relu", lowest=0.0, highest=3.0)),  # classes are told apart all the same
        ("double-sigmoid", calls(function="binary_cross_entropy", made_by="Sigmoid", made_from="")),
        ("double-softmax", calls(function="nll_loss", made_by="LogSoftmax", made_from="")),
        ("double-sigmoid", calls(**MADE_COMPILED, lowest=-0.1, highest=0.9, **SIGMOIDS)),
        ("softmax-wrong-dim", calls(function="nll_loss", made_by="LogSoftmax", made_dim=1, **LOG_PROBABILITIES)),
        ("softmax-wrong-dim", calls(function="nll_loss", **MADE_COMPILED, **LOG_PROBABILITIES)),
        ("softmax-wrong-dim", calls(function="nll_loss", made_by="Log", made_dim=1, **LOG_PROBABILITIES)),
        ("softmax-wrong-dim", elementwise("32x10", "32x10", made_by="Softmax", made_dim=1)),
        ("loss-broadcast", elementwise("32x1", "32x1")),
        ("loss-broadcast", elementwise("32x4", "")),
        ("loss-broadcast", elementwise("32x4", "4")),
        ("loss-broadcast", elementwise("20x16x1", "20x1x16")),
        ("loss-broadcast", [*elementwise("32", "32"), *elementwise("1x1", "1")]),
    ],
)
def test_the_look_alike_is_not(make, rule: str, rows: list[dict[str, Any]]) -> None:
    assert make.check(rule, make.process(more={"loss_calls": rows}))[0] == "passed"


@pytest.mark.parametrize(
    ("rule", "rows"),
    [
        ("softmax-wrong-dim", calls(**MADE_COMPILED)),
        ("softmax-wrong-dim", calls(function="nll_loss", input_shape="20x20", made_by="LogSoftmax", made_dim=0)),
        ("double-sigmoid", calls(**MADE_COMPILED, lowest=0.3, highest=0.5, **SIGMOIDS)),
        ("double-sigmoid", calls()),
        ("double-softmax", calls(training=False)),
        ("loss-broadcast", elementwise("1x1", "1")),
    ],
)
def test_what_cannot_be_told_is_skipped(make, rule: str, rows: list[dict[str, Any]]) -> None:
    status, reason, _ = make.check(rule, make.process(more={"loss_calls": rows}))
    assert status == "skipped"
    assert reason


def test_probabilities_that_no_softmax_made_keep_it(make) -> None:
    """The parts of a mixture are to be probabilities, and cross_entropy has a softmax of its own."""
    for made_by, mixed in (("Add", True), ("Div", True), ("Softmax", False), ("CompiledFunction", False)):
        rows = calls(function="nll_loss", made_by=made_by, **PROBABILITIES)
        _, _, finding = make.check("nll-of-probabilities", make.process(more={"loss_calls": rows}))
        assert ("clamp_min(1e-12).log()" in finding.fix_code) == mixed
        assert ("log_softmax" in finding.fix_code + finding.fix) != mixed
        assert ("cross_entropy" in finding.fix_code + finding.fix) != mixed
        assert ("from a softmax" in finding.summary) != mixed


@pytest.mark.parametrize("source", ["loss = F.cross_entropy(p, y) + penalty(w)", "loss = criterion(p, y)"])
def test_a_mixture_of_softmaxes_is_given_by_its_logarithm(make, source: str) -> None:
    """No layer has the scores of a mixture: what the log-softmax of cross_entropy leaves as it is, is its logarithm."""
    place = {"site": 3, "role": "loss", "file": "train.py", "line": 61, "function": "main", "source": source}
    sites = [place | {"excerpt": f"    {source}", "excerpt_line": 61}]
    for made_by, mixed in (("Sum", True), ("Mean", True), ("Softmax", False), (None, False)):
        rows = calls(made_by=made_by, **PROBABILITIES)
        finding = make.check("double-softmax", make.process(sites=sites, more={"loss_calls": rows}))[2]
        assert ("log-softmax leaves log-probabilities" in finding.fix) == mixed
        assert (".clamp_min(1e-12).log()" in finding.fix_code) == mixed
        added = ["    loss = F.cross_entropy(p.clamp_min(1e-12).log(), y) + penalty(w)"]
        assert (finding.diff is not None and finding.diff.added == added) == (mixed and "F." in source)


def test_a_validation_is_given_what_the_training_is_given(make) -> None:
    """Without autograd nothing shows that the probabilities are a mixture: no line but that of the loss is accused."""
    names = ("site", "role", "file", "line", "function", "source", "excerpt", "excerpt_line")
    lines = [
        (3, "loss", "train.py", 61, "clip_loss", "return F.nll_loss(probs, target)", None, None),
        (4, "softmax", "train.py", 56, "forward", "votes = self.head(parts).softmax(dim=-1)", None, None),
    ]
    sites = [dict(zip(names, line, strict=True)) for line in lines]
    for made_by, fixed in (("Mean", "clamp_min(1e-12).log()"), ("Softmax", "log_softmax")):
        trained = calls(function="nll_loss", made_by=made_by, **PROBABILITIES)
        validated = calls(4, function="nll_loss", made_by=None, training=False, **PROBABILITIES)
        process = make.process(sites=sites, more={"loss_calls": trained + validated})
        status, _, finding = make.check("nll-of-probabilities", process)
        assert status == "fired"
        assert "elsewhere" not in finding.summary
        assert fixed in finding.fix_code


@pytest.mark.parametrize(
    ("loss", "shape", "added", "example"),
    [
        ("loss = nll(scores(x).flatten(0, 1), y)", "32x10", "    return F.log_softmax(h, dim=-1)", "dim=-1"),
        ("loss = nll(scores(x).transpose(1, 2), y)", "32x10x7", None, "return F.log_softmax(h, dim=-1)  # -1"),
        ("loss = nll(scores(x), y)", "32x10x7", None, "return F.log_softmax(h, dim=1)"),
    ],
)
def test_a_softmax_without_dim(make, loss: str, shape: str, added: str | None, example: str) -> None:
    """In what the softmax is given the classes need not stand where the loss has them."""
    lines = {"softmax": (12, "return F.log_softmax(h)", "scores"), "loss": (41, loss, "main")}
    sites = [
        {"site": 3 if role == "loss" else 7, "role": role, "file": "train.py", "line": at, "function": function}
        | {"source": source, "excerpt": f"    {source}", "excerpt_line": at}
        for role, (at, source, function) in lines.items()
    ]
    rows = calls(function="nll_loss", made_by="LogSoftmax", input_shape=shape, target_shape="32")
    finding = make.check("softmax-wrong-dim", make.process(sites=sites, more={"loss_calls": rows}))[2]
    assert finding.location.line == 12
    assert (finding.diff and finding.diff.added) == ([added] if added else None)
    assert example in finding.fix_code
    assert ("count in what the softmax is given" in finding.fix) == ("transpose" in loss)


def test_a_wrong_validation_loss_harms_no_weights(make) -> None:
    rows = [*calls(), *calls(training=False, made_by=None, site=1, **PROBABILITIES)]
    _, _, finding = make.check("double-softmax", make.process(more={"loss_calls": rows}))
    assert (finding.severity, finding.cost, finding.location.line) == ("warning", None, 41)


def test_a_validation_repeats_no_more_than_the_training_says(make) -> None:
    """Without autograd nothing tells what made the input of its loss: the training does."""
    place = {"site": 33, "role": "sigmoid", "file": "net.py", "line": 33, "function": "forward"}
    site = place | {"source": "return torch.sigmoid(self.out(x))"}
    trained = calls(made_by="Sigmoid", lowest=0.0, highest=1.0, **SIGMOIDS)
    held_out = calls(made_by=None, lowest=0.0, highest=1.0, **SIGMOIDS | {"training": False})
    held_out = [row | {"step": 8 * at} for at, row in enumerate(held_out * 10)]
    finding = make.check("double-sigmoid", make.process(sites=[site], more={"loss_calls": trained + held_out}))[2]
    assert "at line 33 and" in finding.title
    assert "besides" not in finding.summary


def test_the_line_of_the_first_sigmoid(make) -> None:
    """The module's where the model ends with one, else that of the only function in the text."""

    def at(line: int, role: str, source: str, function: str = "forward") -> dict[str, Any]:
        return {"site": line, "role": role, "file": "net.py", "line": line, "function": function, "source": source}

    def line_of(layers: list[tuple[str, str]], *sites: dict[str, Any], modules: Any = ()) -> tuple[int | None, str]:
        rows = [
            {"time": 1.0, "step": 1, "order": n, "module": name, "kind": kind} for n, (name, kind) in enumerate(layers)
        ]
        given = calls(made_by="Sigmoid", lowest=0.4, highest=0.6, **SIGMOIDS)
        more = {"loss_calls": given, "activations": rows, "modules": list(modules)}
        process = make.process(sites=list(sites), more=more)
        finding = make.check("double-sigmoid", process)[2]
        return (finding.location.line if finding.location else None), finding.title.partition(":")[2]

    gate, text = at(21, "module", "self.gate = nn.Sigmoid()"), at(33, "sigmoid", "return torch.sigmoid(self.out(x))")
    made = [{"model": 0, "module": "gate", "kind": "Sigmoid", "made_at": 21}]
    assert line_of([("out", "Linear"), ("gate", "Sigmoid")], gate, modules=made)[0] == 21
    functional = [("gate", "Sigmoid"), ("out", "Linear"), ("Sigmoid after out", "Sigmoid")]
    line, title = line_of(functional, gate, text, modules=made)
    assert (line, title.startswith(" at line 33 and in ")) == (33, True)
    elsewhere = at(90, "sigmoid", "shown = torch.sigmoid(scores)", "show")
    line, title = line_of(functional, text, elsewhere)
    assert (line, title.startswith(" before the loss and in ")) == (None, True)


@pytest.mark.parametrize(
    ("loss", "edited"),
    [("loss = bce(net(x), y)", True), ('loss = bce(net(x)["probs"], y)', False)],
)
@pytest.mark.parametrize(
    ("rule", "function", "kind", "columns"),
    [
        ("double-sigmoid", "sigmoid", "Sigmoid", {"lowest": 0.4, "highest": 0.6, **SIGMOIDS}),
        ("double-softmax", "softmax", "Softmax", {"lowest": 0.1, "highest": 0.9}),
    ],
)
def test_a_model_without_its_squashing_returns_scores(
    make, rule: str, function: str, kind: str, columns: dict[str, Any], loss: str, edited: bool
) -> None:
    """Whoever took its output for probabilities has to change as well: the report says who calls it besides."""
    source = f"self.verdict = nn.Sequential(nn.Linear(64, 3), nn.{kind}())"
    made = {"site": 5, "role": "module", "line": 23, "source": source, "function": "__init__"}
    shown = {"site": 6, "role": "evaluation", "line": 59, "source": "print(net(x))", "function": "main"}
    called = {"site": 3, "role": "loss", "line": 47, "source": loss, "function": "main"}
    lines = [
        one | {"file": "train.py", "excerpt": f"        {one['source']}", "excerpt_line": one["line"]}
        for one in (made, shown, called)
    ]
    layers = [{"step": 1, "order": 0, "module": "verdict.1", "kind": kind}]
    modules = [{"model": 0, "module": "verdict.1", "kind": kind, "made_at": 5}]
    more = {"loss_calls": calls(made_by=kind, **columns), "activations": layers, "modules": modules}
    evals = make.evals() | {"site": [6] * 4, "model": [0] * 4}
    finding = make.check(rule, make.process(sites=lines, evals=evals, more=more))[2]
    assert (finding.diff is not None) == edited
    if edited:
        assert [one.strip() for one in finding.diff.added] == [source.replace(f"nn.{kind}()", "nn.Identity()")]
        assert f"(line 59 called it outside of training), take {'a ' * (function == 'softmax')}" in finding.fix
        assert finding.fix.count("The model returns scores then.") == 1
        again = {"site": 7, "role": "forward", "file": "train.py", "line": 70, "source": "share = net(z)"}
        for merged in ({"sites": [*lines, again]}, {"evals": evals | {"forwards": [4] * 4, "losses": [3] * 4}}):
            several = make.process(**{"sites": lines, "evals": evals, "more": more, **merged})
            assert "outside of training" not in make.check(rule, several)[2].fix, "a pass may hold both lines' calls"
    else:
        assert "The model returns scores then." not in finding.fix


@pytest.mark.parametrize(
    ("shown", "behind", "evaluated", "named"),
    [
        ("p = net(x)", "print(p > 0.5)", False, True),
        ("p = net(x)", "loss = link_loss(p, y).item()", False, False),
        ("val = criterion(net(x), y)", "print(val)", False, False),
        ("p = net(x)", "val = measure(p, y)", True, False),  # a call of the same loss, further in
    ],
)
def test_a_validation_whose_result_goes_to_the_loss_reads_no_probabilities(
    make, shown: str, behind: str, evaluated: bool, named: bool
) -> None:
    texts = [
        (5, "sigmoid", 23, "decode", "return torch.sigmoid(score)", ""),
        (6, "evaluation", 59, "validate", shown, f"\n        {behind}"),
        (3, "loss", 47, "main", "loss = bce(net(x), y)", ""),
    ]
    lines = [
        {"site": site, "role": role, "file": "train.py", "line": line, "function": function, "source": source}
        | {"excerpt": f"        {source}{more}", "excerpt_line": line}
        for site, role, line, function, source, more in texts
    ]
    given: dict[str, Any] = {"lowest": 0.4, "highest": 0.6, **SIGMOIDS}
    found = calls(made_by="Sigmoid", **given) + calls(2, **given | {"training": False, "made_by": None}) * evaluated
    evals = make.evals() | {"site": [6] * 4, "model": [0] * 4}
    process = make.process(sites=lines, evals=evals, more={"loss_calls": found})
    finding = make.check("double-sigmoid", process)[2]
    assert finding.fix.startswith(
        "Remove the first sigmoid, and pass the scores before it (`score` in line 23) to the loss. The model returns"
    )
    assert ("line 59" in finding.fix) == named


def test_a_relu_at_the_end_of_the_model_is_taken_out(make) -> None:
    """Negative scores are what a sigmoid makes a no of."""
    place = {"file": "train.py", "function": "__init__"}
    site = place | {
        "site": 5,
        "role": "module",
        "line": 9,
        "source": "self.out = nn.Sequential(nn.Linear(8, 1), nn.ReLU())",
    }
    site |= {"excerpt_line": 9, "excerpt": "        " + site["source"]}
    layers = [
        {"step": 1, "order": at, "module": f"out.{at}", "kind": kind} for at, kind in enumerate(("Linear", "ReLU"))
    ]
    modules = [{"model": 0, "module": "out.1", "kind": "ReLU", "made_at": 5}]
    rows = calls(made_by="Relu", lowest=0.0, highest=3.0, target_varies=0.4, **SIGMOIDS)
    more = {"loss_calls": rows, "activations": layers, "modules": modules}
    finding = make.check("double-sigmoid", make.process(sites=[site], more=more))[2]
    assert finding.title == "A ReLU stands before binary_cross_entropy_with_logits: no prediction is below 0.5"
    assert finding.location.line == 9
    assert finding.diff.added[0].endswith("nn.Sequential(nn.Linear(8, 1), nn.Identity())")
    assert "applied twice" not in finding.title + finding.summary


@pytest.mark.parametrize(
    ("branch", "made", "place", "added", "said"),
    [
        (
            [
                "if head is None:",
                "    self.act = nn.Identity()",
                'elif head == "softmax":',
                "    self.act = nn.Softmax(dim=1)",
            ],
            'net = Net(3, head="softmax")',
            40,
            "net = Net(3, head=None)",
            'Line 40 asks for it with "softmax". Ask for None there.',
        ),
        (
            ['if head == "softmax":', "    self.act = nn.Softmax(dim=1)"],
            'net = Net(3, "softmax")',
            40,
            None,
            "no activation there",
        ),
        (
            ['if head == "softmax":', "    self.act = nn.Softmax(dim=1)"],
            "net = Net(3, kind)",
            23,
            None,
            "where the model is made",
        ),
        (
            ["if head is None:", "    pass", "else:", "    self.act = nn.Softmax(dim=1)"],
            "net = Net(3)",
            23,
            None,
            "Leave line 23",
        ),
        (
            ['self.act = nn.Softmax(dim=1) if head == "softmax" else nn.Identity()'],
            'net = Net(3, "softmax")',
            40,
            None,
            "Line 40",
        ),
        (
            ['self.act = {"softmax": nn.Softmax(1), "": nn.Identity()}[head]'],
            'net = Net(3, "softmax")',
            40,
            None,
            "Line 40",
        ),
        (
            ["for _ in range(1):", "    self.act = nn.Softmax(dim=1)"],
            'net = Net(3, "softmax")',
            23,
            "self.act = nn.Identity()",
            "",
        ),
    ],
)
def test_a_softmax_that_an_argument_asks_for_stays_for_other_callers(
    make, branch: list[str], made: str, place: int, added: str | None, said: str
) -> None:
    """The call asks for none of it; the branch is left as it is, whether or not the call is known."""
    first = 23 - len(branch) + 1
    text = "\n".join(["    def __init__(self, classes, head):", *(f"        {one}" for one in branch)])
    own = {"site": 5, "role": "module", "line": 23, "source": branch[-1].strip(), "function": "__init__"}
    call = {"site": 6, "role": "module", "line": 40, "source": made, "function": "main"}
    sites = [
        own | {"file": "train.py", "excerpt": text, "excerpt_line": first - 1},
        call | {"file": "train.py", "excerpt": f"    {made}", "excerpt_line": 40},
    ]
    layers = [{"step": 1, "order": 0, "module": "act", "kind": "Softmax"}]
    modules = [
        {"model": 0, "module": "", "kind": "Net", "made_at": 6},
        {"model": 0, "module": "act", "kind": "Softmax", "made_at": 5},
    ]
    rows = calls(made_by="Softmax", lowest=0.1, highest=0.9)
    more = {"loss_calls": rows, "activations": layers, "modules": modules}
    finding = make.check("double-softmax", make.process(sites=sites, more=more))[2]
    assert finding.location.line == place
    assert (finding.diff.added[0].strip() if finding.diff else None) == added
    assert said in finding.fix


ENGINES = """\
model = Net()
trainer = create_supervised_trainer(model, optimizer, nn.MSELoss())
evaluator = create_supervised_evaluator(model, metrics={"loss": Loss(nn.MSELoss())})
trainer.run(loader, max_epochs=9)
"""


def by_engines(make: Any, text: str, called: str, given: str, target: str, training: bool = True) -> Any:
    """The finding where a line of the script runs an engine of Ignite, which computes the loss."""
    shared = {"file": "t.py", "function": "main", "excerpt_line": 1, "excerpt": text}
    ran = {"site": 3, "role": "loss", "line": 4, "source": called} | shared
    step = {"site": 4, "role": "step", "line": 1, "source": "model = Net()"} | shared
    rows = elementwise(given, target, site=3, training=training)
    return make.check("loss-broadcast", make.process(more={"loss_calls": rows}, sites=[ran, step]))[2]


@pytest.mark.parametrize(
    ("called", "given", "target", "edited"),
    [
        ("trainer.run(loader, max_epochs=9)", "32x1", "32", "nn.MSELoss(), model_transform={}.squeeze(-1))"),
        ("trainer.run(loader, max_epochs=9)", "32", "32x1", "nn.MSELoss(), model_transform={}.unsqueeze(-1))"),
        ("evaluator.run(loader)", "32x1", "32", "Loss(nn.MSELoss())}}, model_transform={}.squeeze(-1))"),
    ],
)
def test_an_engine_gives_its_loss_what_model_transform_makes(make, called, given, target, edited) -> None:
    finding = by_engines(make, ENGINES, called, given, target, training=called.startswith("trainer"))
    assert finding.diff.added[0].endswith(edited.format("lambda output: output"))
    assert finding.location.line == finding.diff.line == (2 if called.startswith("trainer") else 3)


@pytest.mark.parametrize(
    "text",
    [
        ENGINES.replace("nn.MSELoss())\n", "nn.MSELoss(), model_transform=whole)\n"),
        ENGINES.replace("trainer =", "pretrainer ="),  # another one than runs
        ENGINES + "other = create_supervised_trainer(model, optimizer, nn.MSELoss())\n",
        ENGINES.replace("create_supervised_trainer(model, optimizer, nn.MSELoss())", "Engine(update)"),
    ],
)
def test_an_engine_that_is_not_known_is_not_edited(make, text: str) -> None:
    finding = by_engines(make, text, "trainer.run(loader, max_epochs=9)", "32x1", "32")
    assert finding.diff is None
    assert "model_transform" not in finding.fix

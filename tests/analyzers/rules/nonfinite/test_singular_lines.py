"""The line of a dataset that can make NaN of finite numbers, where it is the only one that was recorded."""

from __future__ import annotations

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.candidates.attended_rows import MASKED


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["def __getitem__(self, i):", "    w = self.x[i]", "    w = (w - w.mean()) / w.std()", "    return w"], 2),
        (["def __getitem__(self, i):", "    return np.log(self.x[i])"], 1),
        (["def __getitem__(self, i):", "    return self.x[i] / 255.0"], None),
        (["def __getitem__(self, i):", "    a = self.x[i] / self.scale", "    return torch.sqrt(a)"], None),
        (["def __getitem__(self, i):", "    return open(f'{self.root}/{i}.npy')"], None),
    ],
)
def test_the_only_one(make, lines: list[str], expected: int | None) -> None:
    site = {"site": 1, "role": "reader", "file": "train.py", "line": 20, "function": "__getitem__",
            "source": lines[0], "excerpt_line": 20, "excerpt": "\n".join(lines)}  # fmt: skip
    process = make.process(make.steps(), sites=[site])
    found = script_lines.singular_beside(process, process.location("reader"))
    assert (None if found is None else found.line - 20) == expected


LAYER = """\
def forward(self, x, padding):
    h = self.embed(x)
    h, _ = self.attention(h, h, h,
                          key_padding_mask=padding)
    return h.masked_fill(padding[..., None], 0.0)"""


def test_rows_that_are_masked_everywhere(make) -> None:
    rows = sites_of(LAYER, **{"attending-layer": "self.attention("})
    broken = {"step": 12, "kind": "nonfinite-gradient", "name": "l.weight", "value": 2.0}
    steps = make.steps(40) | {"grads_nonfinite": [0] * 12 + [2] * 28, "grad_norm": [1.0] * 12 + [float("nan")] * 28}
    found = make.check("nonfinite-gradients", make.process(steps, sites=rows, events=[broken | {"text": MASKED}]))[2]
    assert (found.location.line, found.location.function) == (3, "train")
    assert "a mask hid a NaN of the forward from the loss" in found.summary
    assert found.fix_code.endswith("padding = padding & ~padding.all(-1, keepdim=True)")
    own = sites_of("weights = scores.softmax(-1)", attention="softmax")
    found = make.check("nonfinite-gradients", make.process(steps, sites=own, events=[broken | {"text": MASKED}]))[2]
    assert "torch.finfo(scores.dtype).min" in found.fix_code
    both = make.process(
        steps, sites=[*rows, own[0] | {"site": 7, "function": "other"}], events=[broken | {"text": MASKED}]
    )
    assert make.check("nonfinite-gradients", both)[2].location != found.location, "which of them is not known"
    other = make.check("nonfinite-gradients", make.process(steps, sites=rows, events=[broken | {"text": ""}]))[2]
    assert other.location is None or other.location.line != 3
    assert "or a mask hid a NaN" in other.summary, "which is not excluded"


POOL = """\
def forward(self, x, valid):
    scores = self.query(x)
    {fill}
    {softmax}
    return weights @ x"""


@pytest.mark.parametrize(
    ("fill", "softmax", "line", "code"),
    [
        (
            'scores = scores.masked_fill(~valid, float("-inf"))',
            "weights = scores.softmax(dim=-1)",
            3,
            """# in place of lines 3 and 4:
scores = scores.masked_fill(~valid & valid.any(-1, keepdim=True), float("-inf"))
weights = scores.softmax(dim=-1) * valid""",
        ),
        (
            "scores.masked_fill_(valid == 0, -torch.inf)",
            "weights = self.drop(F.softmax(scores, -2))",
            3,
            """# in place of lines 3 and 4:
scores.masked_fill_((valid == 0) & (~(valid == 0)).any(-2, keepdim=True), -torch.inf)
weights = self.drop((F.softmax(scores, -2) * (~(valid == 0))))""",
        ),
        ("scores[~valid] = -math.inf", "weights = torch.softmax(scores, 1)", 3, None),
        ("scores = torch.where(valid, scores, -torch.inf)", "weights = scores.softmax(-1)", 3, None),
        ("scores = scores.masked_fill(~valid, -1e9)", "weights = scores.softmax(-1)", 4, None),
        ("x = x.masked_fill(~valid, float('-inf'))", "weights = scores.softmax(-1)", 4, None),
        ("pass", 'weights = scores.masked_fill(~valid, float("-inf")).softmax(-1)', 4, None),
    ],
)
def test_rows_that_a_mask_fills_throughout(make, fill: str, softmax: str, line: int, code: str | None) -> None:
    """The line to change is the one that fills; else that of the softmax."""
    sites = sites_of(POOL.format(fill=fill, softmax=softmax), nonfinite="softmax(")
    text = "softmax of a row that is masked throughout"
    event = {"kind": "nonfinite-loss", "step": 100, "name": "", "text": text, "value": 1.0, "time": 1.0}
    steps = make.steps(200) | {"loss": [0.7] * 100 + [float("nan")] * 100}
    finding = make.check("loss-nonfinite", make.process(steps, events=[event], sites=sites))[2]
    assert finding.location.line == line
    if code is not None:
        assert finding.fix_code == code
    else:
        assert "in place of the fill and the softmax; mask: True where" in finding.fix_code


CTC = "ctc_loss of a target that needs 7 time steps where 6 are given"
BOXES = """\
def encode(self, boxes, anchors):
    sizes = boxes[:, 2:] - boxes[:, :2]
    dw = torch.log(sizes[:, 0] / anchors[:, 0])
    dh = torch.log(sizes[:, 1] / anchors[:, 1])
    return torch.stack([dw, dh], 1)"""


def broken_at(make, event: dict[str, object], sites: list[dict[str, object]]):
    loss = {"kind": "nonfinite-loss", "step": 100, "name": "", "text": "", "value": 1.0, "time": 1.0}
    steps = make.steps(200) | {"loss": [0.7] * 100 + [float("nan")] * 100}
    events = [loss | event] if event["kind"] == "nonfinite-loss" else [loss, loss | event]
    return make.check("loss-nonfinite", make.process(steps, events=events, sites=sites))[2]


def test_a_ctc_loss_shows_the_script_s_own_call(make) -> None:
    event = {"kind": "nonfinite-loss", "text": CTC}
    called = "loss = F.ctc_loss(scores, target, lengths, target_lengths)"
    found = broken_at(make, event, sites_of(called, nonfinite="ctc_loss("))
    assert found.fix_code == f"{called[:-1]}, zero_infinity=True)"
    assert "A ctc_loss of a target that needs 7 time steps where 6 are given made it." in found.summary
    made = "criterion = nn.CTCLoss(blank=0)\nloss = criterion(scores, target, lengths, target_lengths)"
    found = broken_at(make, event, sites_of(made, nonfinite="criterion(scores"))
    assert found.fix_code == "criterion = nn.CTCLoss(blank=0, zero_infinity=True)"
    other = broken_at(make, event, sites_of("loss = self.compute(batch)", nonfinite="compute("))
    assert "F.ctc_loss(log_probs, targets" in other.fix_code


def test_a_target_that_is_the_logarithm_of_0(make) -> None:
    """Of a few lines that stand together the first is shown, and all are named; of NaN nobody knows what made it."""
    event = {"kind": "nonfinite-target", "text": "-Inf"}
    lines = sites_of(BOXES, nonfinite="torch.log(")
    both = [*lines, lines[-1] | {"site": 90, "line": lines[-1]["line"] + 1, "source": BOXES.split("\n")[3].strip()}]
    found = broken_at(make, event, both)
    assert found.location.line == lines[-1]["line"]
    assert f"Lines {found.location.line} and {found.location.line + 1} take the only logarithms" in found.summary
    assert found.summary.startswith("A target held -Inf, which made it; no gradient passes through what computed it.")
    assert found.fix_code == "dw = torch.log((sizes[:, 0] / anchors[:, 0]).clamp_min(1e-8))"
    one = broken_at(make, event | {"value": 0.0}, lines)
    assert "takes the only logarithm of a step" in one.summary
    assert "which can have made it" in one.summary
    other = broken_at(make, event | {"text": "NaN"}, [])
    assert "logarithm" not in other.summary + other.fix
    assert "isfinite(target)" in other.fix_code


def test_a_mask_that_leaves_rows_alone_which_it_would_fill_throughout() -> None:
    torch = pytest.importorskip("torch")
    valid = torch.tensor([[True, True, False], [False, False, False]])
    scores = torch.randn(2, 3, requires_grad=True)
    filled = scores.masked_fill(~valid & valid.any(-1, keepdim=True), float("-inf"))
    weights = filled.softmax(dim=-1) * valid
    weights.square().sum().backward()
    assert weights.sum(-1).tolist() == pytest.approx([1.0, 0.0])
    assert bool(scores.grad.isfinite().all())


CONV = """\
def forward(self, x, edges, weights):
    degree = summed(weights, edges[0])
    {line}
    {other}
    return summed(norm[:, None] * x[edges[0]], edges[1])"""


@pytest.mark.parametrize(
    ("line", "other", "taken"),
    [
        ("inverse = degree.pow(-0.5)", "norm = inverse[edges[0]] * weights", "degree"),
        ("norm = torch.rsqrt(self.degree[0])", "norm = norm[edges[0]]", "self.degree[0]"),
        ("norm = weights / degree ** 0.5", "norm = norm[edges[0]]", "degree"),
        ("inverse = degree.pow(-1)", "norm = inverse[edges[0]] * weights", None),  # no root
        ("inverse = degree.pow(-0.5)", "norm = inverse / weights.std()", None),  # which of both?
        ("inverse = degree.pow(self.exponent)", "norm = inverse[edges[0]]", None),
    ],
)
def test_the_only_root_of_what_has_no_gradient(make, line: str, other: str, taken: str | None) -> None:
    text = CONV.format(line=line, other=other)
    rows = sites_of(text, singular=line)
    if "std" in other:
        rows += [one | {"site": 9} for one in sites_of(text, singular=other)]
    rows = [one | {"function": "forward"} for one in rows]
    steps = make.steps(40) | {"loss": [float("nan")] * 40}
    events = [{"step": 0, "kind": "nonfinite-loss", "name": "", "text": "", "value": 0.0}]
    finding = make.check("loss-nonfinite", make.process(steps, sites=rows, events=events))[2]
    assert ("Line 3 can have made it" in finding.summary) == (taken is not None)
    if taken is not None:
        assert finding.location.line == 3
        assert finding.fix_code == f"assert bool(({taken} >= 0).all()), {taken}.min()  # above line 3"
        known = [events[0] | {"text": "log of 0"}]
        other_cause = make.check("loss-nonfinite", make.process(steps, sites=rows, events=known))[2]
        assert "Line 3 can have made it" not in other_cause.summary
        later = steps | {"loss": [1.0] * 20 + [float("nan")] * 20}
        assert "Line 3 can" not in make.check("loss-nonfinite", make.process(later, sites=rows))[2].summary


DISTANCES = """\
def straight_line(self, codes):
    ends = self.codes.weight.data
    {first}
    {second}
    return (a + b).mean()"""


@pytest.mark.parametrize(
    ("first", "second", "added"),
    [
        (
            "a = ((ends[0] - codes) ** 2).sum(1).sqrt()",
            "b = ((ends[1] - codes) ** 2).sum(1).sqrt()",
            ["((ends[0] - codes) ** 2).sum(1).add(1e-8).sqrt()", "((ends[1] - codes) ** 2).sum(1).add(1e-8).sqrt()"],
        ),
        (
            "a = (((ends[0] - codes) ** 2).sum(1) + 1e-8).sqrt()",  # nothing is to be changed about this one
            "b = ((ends[1] - codes) ** 2).sum(1).sqrt()",
            ["((ends[1] - codes) ** 2).sum(1).add(1e-8).sqrt()"],
        ),
        ("a = codes.norm(dim=1)", "b = torch.sqrt(self.squares(codes))", ["torch.sqrt(self.squares(codes) + 1e-8)"]),
        ("a = (ends * codes).sum(1).sqrt().sqrt()", "b = ((ends[1] - codes) ** 2).sum(1).sqrt()", None),  # no edit
    ],
)
def test_each_of_several_roots_that_stand_together_is_kept_from_zero(make, first: str, second: str, added) -> None:
    text = DISTANCES.format(first=first, second=second)
    rows = [*sites_of(text, singular="a = "), *[one | {"site": 9} for one in sites_of(text, singular="b = ")]]
    event = {"step": 13, "kind": "nonfinite-gradient", "name": "codes.weight", "value": 1.0, "text": "sqrt at 0"}
    steps = make.steps(40) | {"grads_nonfinite": [0] * 12 + [2] * 28, "grad_norm": [1.0] * 12 + [float("nan")] * 28}
    finding = make.check("nonfinite-gradients", make.process(steps, sites=rows, events=[event]))[2]
    if added is None:
        assert finding.diff is None
        assert "The same operation stands in line 4, too." in finding.fix
        return
    assert [line.split(" = ")[1] for line in finding.diff.added] == added
    assert finding.location.line == finding.diff.line == 5 - len(added)
    assert "too." not in finding.fix


def test_what_broke_the_loss_of_the_second_of_two_trainings(make) -> None:
    """Events count the steps of the process: 203 were done before the fourth of the second training."""
    numbers = [float(step) for step in range(1, 201)]
    lost = [0.7] * 203 + [float("inf")] * 197
    steps = make.steps() | {"optimizer": [0] * 200 + [1] * 200, "step": numbers + numbers, "loss": lost}
    links = [{"optimizer": number, "model": number, "step": 0} for number in (0, 1)]
    optimizers = [{"optimizer": number, "name": "SGD"} for number in (0, 1)]
    event = {"kind": "nonfinite-loss", "name": "", "text": "exp of too large a number", "value": 1.0, "time": 1.0}
    text = "def update(model):\n    {line}\n    {backward}"
    for line, backward, example in (
        ("loss = torch.exp(criterion(x, y) / eta)", "loss.backward()", "loss = criterion(x, y) / eta"),
        ("loss = (criterion(x, y) / eta).exp()", "scaler.scale(loss).backward()", None),
        ("loss = criterion(x, y) / eta", "loss.backward()", None),
        ("loss = torch.exp(scores).mean()", "loss.backward()", None),  # of many numbers: another minimum
        ("weights = torch.exp(criterion(x, y))", "loss.backward()", None),
    ):
        whole = text.format(line=line, backward=backward)
        rows = [*sites_of(whole, nonfinite=line), *[one | {"site": 9} for one in sites_of(whole, backward=backward)]]
        process = make.process(
            steps, sites=rows, events=[event | {"step": 203}], optimizers=optimizers, more={"links": links}
        )
        finding = make.check("loss-nonfinite", process)[2]
        assert (finding.title, finding.location.line) == ("The loss of training 2 of 2 became Inf at step 4", 2)
        assert "An exp of too large a number made it." in finding.summary
        assert finding.fix_code == example or (example is None and "log_scale.clamp" in finding.fix_code)
    other = make.process(steps, events=[event | {"step": 3}], optimizers=optimizers, more={"links": links})
    assert "exp" not in make.check("loss-nonfinite", other)[2].summary


COSINE = """\
def forward(self, x):
    h = self.encoder(x)
    length = h.pow(2).sum(1, keepdim=True).sqrt()
    unit = torch.where(length > 0, h / length, 0.0)
    return unit @ self.proxies.T"""


@pytest.mark.parametrize(
    ("step", "text", "line"),
    [
        (14, "sqrt at 0 in a branch that where() hides, log at 0", 3),
        (14, "sqrt at 0, log at 0", None),  # by then every weight is NaN, and so is what any operation gives
        (14, MASKED, None),
        (40, "sqrt at 0 in a branch that where() hides", None),
    ],
)
def test_where_a_relu_keeps_some_gradients_finite_the_next_step_names_the_hidden_branch(make, step, text, line) -> None:
    first = {"step": 13, "kind": "nonfinite-gradient", "name": "encoder.3.weight", "value": 1.0, "text": ""}
    events = [first, first | {"step": step, "text": text, "value": 2.0}]
    steps = make.steps(40) | {"grads_nonfinite": [0] * 12 + [2] * 28, "grad_norm": [1.0] * 12 + [float("nan")] * 28}
    rows = sites_of(COSINE, singular="length = ")
    finding = make.check("nonfinite-gradients", make.process(steps, sites=rows, events=events))[2]
    assert (finding.diff.line if finding.diff else None) == line
    assert ("sqrt at 0 in a branch of where()." in finding.summary) == (line is not None)
    assert "log" not in finding.summary or line is None

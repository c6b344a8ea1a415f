"""Edits of one line: what they change, and that they leave lines alone of which they are not sure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tracelyze.analyzers.script import line_edits
from tracelyze.diagnosis import Diff, Location


def edited(make: Any, line: str, edit: Callable[..., Diff | None], *arguments: Any, above: str = "") -> str | None:
    """What becomes of a line of the script."""
    excerpt = "\n".join(["def f(x):", f"    {above or 'pass'}", f"    {line}"])
    row = {"site": 1, "role": "loss", "file": "train.py", "line": 3, "function": "f", "source": line}
    process = make.process(sites=[{**row, "excerpt": excerpt, "excerpt_line": 1}])
    diff = edit(process, process.location("loss"), *arguments)
    if diff is None:
        return None
    assert diff.removed in ([], [f"    {line}"])
    assert all(added.startswith("    ") for added in diff.added)
    return diff.added[0].strip()


@pytest.mark.parametrize(
    ("edit", "arguments", "line", "added"),
    [
        (line_edits.log_softmax, (), "return F.softmax(x, dim=1)", "return F.log_softmax(x, dim=1)"),
        (
            line_edits.logarithm_of_input,
            ("nll_loss",),
            "loss = F.nll_loss(a * p + b * q, y)",
            "loss = F.nll_loss((a * p + b * q).clamp_min(1e-12).log(), y)",
        ),
        (line_edits.logarithm_of_input, ("nll_loss",), "loss = criterion(p, y)", None),
        (line_edits.log_softmax, (), "self.end = nn.Softmax(dim=1)", "self.end = nn.LogSoftmax(dim=1)"),
        (line_edits.log_softmax, (), "loss = F.kl_div(F.softmax(a, 1), F.softmax(b, 1))", None),
        (line_edits.softmax_dimension, (-1,), "y = log_softmax(f(x), dim=0)", "y = log_softmax(f(x), dim=-1)"),
        (line_edits.softmax_dimension, (-1,), "y = x.softmax(0)", "y = x.softmax(-1)"),
        (line_edits.softmax_dimension, (-1,), "self.last = nn.LogSoftmax()", "self.last = nn.LogSoftmax(dim=-1)"),
        (line_edits.softmax_dimension, (-1,), "y = F.log_softmax(f(x))", "y = F.log_softmax(f(x), dim=-1)"),
        (line_edits.softmax_dimension, (-1,), "y = nn.Softmax()(x)", "y = nn.Softmax(dim=-1)(x)"),
        (line_edits.softmax_dimension, (-1,), "y = nn.Softmax(**kind)(x)", None),
        (line_edits.without_activation, ("Softmax",), "self.end = nn.Softmax(dim=-1)", "self.end = nn.Identity()"),
        (line_edits.without_activation, ("Softmax",), "return F.softmax(f(x), dim=1)", "return f(x)"),
        (line_edits.without_activation, ("Softmax",), "return F.softmax(a + b, dim=1) * c", None),
        (line_edits.without_activation, ("Softmax",), "return self.net(x).softmax(dim=-1)", "return self.net(x)"),
        (line_edits.without_activation, ("Softmax",), "return (a + b).softmax(-1)", "return a + b"),
        (line_edits.without_activation, ("Softmax",), "return (a + b).softmax(-1) * c", None),
        (line_edits.without_activation, ("Softmax",), "return self.softmax(x)", None),
        (line_edits.without_activation, ("Softmax",), "return self.softmax()", None),
        (line_edits.without_activation, ("Sigmoid",), "return self.net(x).sigmoid()", "return self.net(x)"),
        (line_edits.without_retained_graph, (), "loss.backward(retain_graph=True)", "loss.backward()"),
        (line_edits.without_retained_graph, (), "loss.backward(retain_graph=True, create_graph=True)", None),
        (
            line_edits.without_retained_graph,
            (),
            "out['loss'].backward(create_graph=False, retain_graph=True)",
            "out['loss'].backward(create_graph=False)",
        ),
        (line_edits.without_retained_graph, (), "loss.backward(retain_graph=True, **more)", None),
        (
            line_edits.clipped_at,
            ("7",),
            "norm = clip_grad_norm_(chain(a.parameters(), b), max_norm=c[0])",
            "norm = clip_grad_norm_(chain(a.parameters(), b), max_norm=7)",
        ),
        (line_edits.clipped_at, ("7",), "clip_grad_norm_(p, 0.1, norm_type=2)", "clip_grad_norm_(p, 7, norm_type=2)"),
        (
            line_edits.clipped_at,
            ("7",),
            "clip_grad_norm_(p, norm_type=2, max_norm=1)",
            "clip_grad_norm_(p, norm_type=2, max_norm=7)",
        ),
        (line_edits.clipped_at, ("7",), 'clip_grad_norm_(of("a, b)"), 1)', 'clip_grad_norm_(of("a, b)"), 7)'),
        (line_edits.clipped_at, ("7",), "clip_grad_norm_(*all_of_it)", None),
        (line_edits.without_activation, ("Sigmoid",), "q = Ü(torch.sigmoid(Ü(x)))", "q = Ü(Ü(x))"),
        (line_edits.kept_from_zero, (), "d = torch.sqrt(((a - b)).sum(1))", "d = torch.sqrt(((a - b)).sum(1) + 1e-8)"),
        (line_edits.kept_from_zero, (), "d = a.pow(2).sum(1).sqrt()", "d = a.pow(2).sum(1).add(1e-8).sqrt()"),
        (line_edits.kept_from_zero, (), "d = torch.sqrt(a) / b.sqrt()", None),
        (line_edits.kept_from_zero, (), "s = q @ k.mT / math.sqrt(d)", None),
        (line_edits.kept_from_zero, (), "s = q / np.sqrt(d)", None),
        (
            line_edits.logarithm_above_zero,
            (),
            "z = torch.where(r > 0, torch.log(r), torch.zeros_like(r))",
            "z = torch.where(r > 0, torch.log(r.clamp(min=1e-6)), torch.zeros_like(r))",
        ),
        (line_edits.logarithm_above_zero, (), "z = (1 - p).log().mean()", "z = ((1 - p).clamp(min=1e-6)).log().mean()"),
        (line_edits.logarithm_above_zero, (), "z = torch.log(1 - p)", "z = torch.log((1 - p).clamp(min=1e-6))"),
        (line_edits.logarithm_above_zero, (), "z = torch.log(a) - torch.log(b)", None),
        (line_edits.logarithm_above_zero, (), "z = math.log(a)", None),
        (line_edits.logarithm_above_zero, (), 'self.log("loss", loss)', None),
        (line_edits.kept_from_zero, (), "d = (s + self.eps).sqrt()", "d = (s + self.eps).add(1e-8).sqrt()"),
        (line_edits.log_softmax, (), "return (x @ w).softmax(-1)", "return (x @ w).log_softmax(-1)"),
        (line_edits.called_whole, (), "y = net.forward(x)", "y = net(x)"),
        (line_edits.called_whole, (), "y = super().forward(x)", None),
        (line_edits.drawn_below, ("500",), "t = torch.randint(0, x.size(0), (n,))", "t = torch.randint(0, 500, (n,))"),
        (line_edits.drawn_below, ("500",), "t = torch.randint(10, (n,))", "t = torch.randint(500, (n,))"),
        (line_edits.drawn_below, ("500",), "t = torch.randint(k, size=(n,)).to(d)",
         "t = torch.randint(500, size=(n,)).to(d)"),
        (line_edits.drawn_below, ("500",), "t = ts[torch.randint(0, len(ts), (n,))]", None),
        (line_edits.drawn_below, ("500",), "t = torch.randint(100, 200, (n,))", None),
        (line_edits.dropping_by_mode, (), "x = F.dropout(x, 0.5)", "x = F.dropout(x, 0.5, training=self.training)"),
        (line_edits.dropping_by_mode, (), "x = F.dropout(x, 0.5, self.training)", None),
        (line_edits.dropping_by_mode, (), "F.dropout(x, p=0.5, )", "F.dropout(x, p=0.5, training=self.training)"),
        (
            line_edits.dropping_by_mode,
            (),
            "y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p)",
            "y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0)",
        ),
        (line_edits.line_before, ("net.train()",), "out = net(x)", "net.train()"),
        (line_edits.line_before, ("net.train()",), "net(x), y)", None),
    ],
)  # fmt: skip
def test_a_line_changes_where_it_is_clear(make, edit, arguments, line, added) -> None:
    assert edited(make, line, edit, *arguments) == added


def test_nothing_goes_into_the_middle_of_a_statement(make) -> None:
    assert edited(make, "out = net(x)", line_edits.line_before, "net.train()", above="losses = [") is None


def test_targets_are_those_of_the_next_position(make) -> None:
    row = {"site": 1, "role": "loss", "file": "train.py", "line": 3, "function": "f"}
    line = "loss = ce(logits.view(-1, V), y.reshape(-1))"
    process = make.process(sites=[{**row, "source": line, "excerpt": line, "excerpt_line": 3}])
    example = line_edits.shifted(process, process.location("loss"))
    assert example.startswith("loss = ce(logits[:, :-1].reshape(-1, V), y[:, 1:].reshape(-1))")
    assert line_edits.shifted(process, None).startswith("inputs, targets = ")


def test_a_loss_on_several_lines_is_shifted_as_a_whole(make) -> None:
    row = {"site": 1, "role": "loss", "file": "train.py", "line": 3, "function": "f", "excerpt_line": 3}
    lines = ["    total = ce(z.view(-1, V), y.view(-1),", '               reduction="sum")']
    process = make.process(sites=[{**row, "source": lines[0].strip(), "excerpt": "\n".join(lines)}])
    example = line_edits.shifted(process, process.location("loss"))
    assert example.startswith("total = ce(z[:, :-1].reshape(-1, V), y[:, 1:].reshape(-1),\n")
    assert 'reduction="sum")  # ' in example


@pytest.mark.parametrize(
    ("line", "below", "added"),
    [
        ("return F.softmax(z, dim=1)", "", "return z"),
        ("probs = F.softmax(z, dim=1)", "return probs", "probs = z"),
        ("probs = F.softmax(z, dim=1)", "return {'logits': z, 'probs': probs}", None),
        ("probs = F.softmax(z, dim=1)", "", None),  # what becomes of it was not recorded
        ("return {'logits': z, 'probs': F.softmax(z, dim=1)}", "", None),
        ("return z, F.softmax(z, dim=1)", "", None),
        ("return Output(probs=F.softmax(z, dim=1))", "", None),
    ],
)
@pytest.mark.parametrize("edit", ["without_activation", "log_softmax"])
def test_what_a_model_gives_away_by_name_stays_what_it_is_called(
    make, edit: str, line: str, below: str, added: str | None
) -> None:
    text = "\n".join(["def forward(self, z):", f"    {line}", f"    {below}"])
    row = {"site": 1, "role": "softmax", "file": "train.py", "line": 2, "function": "forward", "source": line}
    process = make.process(sites=[{**row, "excerpt": text, "excerpt_line": 1}])
    if edit == "log_softmax":
        diff = line_edits.log_softmax(process, process.site(1))
        added = line.replace("softmax", "log_softmax") if added else None
    else:
        diff = line_edits.without_activation(process, process.site(1), "Softmax")
    assert (diff.added[0].strip() if diff else None) == added


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('loss = F.cross_entropy(out["probs"], y)', True),
        ("loss = criterion(out[1], y)", True),
        ("loss = F.cross_entropy(output.probs, y)", True),
        ("loss = F.cross_entropy(model(x), y)", False),
        ("loss = F.cross_entropy(scores[:, -1], y)", False),
        ("loss = F.cross_entropy(self.scores, y)", False),
    ],
)
def test_a_loss_of_a_part_of_what_the_model_returns(line: str, part: bool) -> None:
    assert line_edits.of_a_part(Location("train.py", 9, "main", line)) is part


@pytest.mark.parametrize("name", ["self", "this"])
def test_a_method_calls_its_object_by_its_own_name(make, name: str) -> None:
    text = f"def forward({name}, x):\n    x = F.dropout(x, 0.5)"
    row = {"site": 1, "role": "dropout", "file": "m.py", "line": 2, "function": "forward", "excerpt_line": 1}
    process = make.process(sites=[{**row, "source": "x = F.dropout(x, 0.5)", "excerpt": text}])
    diff = line_edits.dropping_by_mode(process, process.site(1))
    assert diff is not None
    assert diff.added == [f"    x = F.dropout(x, 0.5, training={name}.training)"]


@pytest.mark.parametrize(
    ("below", "edited"),
    [
        ("loss = F.cross_entropy(p, y)", True),
        ("right = p.argmax(1) == y", True),
        ("sure = p.max(1).values > 0.9", False),
        ("log(probability=p)", False),
    ],
)
def test_probabilities_that_the_loop_uses_stay_what_they_are(make, below: str, edited: bool) -> None:
    lines = ["p = F.softmax(model(x), dim=1)", "loss = criterion(p, y)", below]
    row = {"site": 1, "role": "softmax", "file": "train.py", "line": 1, "function": "main", "excerpt_line": 1}
    process = make.process(sites=[{**row, "source": lines[0], "excerpt": "\n".join(lines)}])
    assert (line_edits.without_activation(process, process.site(1), "Softmax") is not None) is edited


@pytest.mark.parametrize(
    ("line", "added"),
    [
        ("loss = self.criterion(pred, y_batch)", "loss = self.criterion(pred.squeeze(-1), y_batch)"),
        ("loss = F.mse_loss(a + b, y)", "loss = F.mse_loss((a + b).squeeze(-1), y)"),
        ("loss = step(pred, y)", None),  # which may do more than compare
        ("loss = F.mse_loss(*pair)", None),
        ("loss = F.mse_loss(a, y) + F.l1_loss(a, y)", None),
    ],
)
def test_the_loss_of_the_line_compares_equal_shapes(make, line: str, added: str | None) -> None:
    assert edited(make, line, line_edits.squeezed, 0, -1) == added


@pytest.mark.parametrize(
    ("function", "line", "added"),
    [
        (
            "forward",
            "return F.batch_norm(x, m, v, training=True)",
            "return F.batch_norm(x, m, v, training=self.training)",
        ),
        ("forward", "return F.batch_norm(x, m, v, w, b, True)", "return F.batch_norm(x, m, v, w, b, self.training)"),
        ("forward", "return F.batch_norm(x, m, v, training=always)", None),
        ("normalise", "return F.batch_norm(x, m, v, training=True)", None),
    ],
)
def test_batch_norm_by_the_mode_of_its_module(make, function: str, line: str, added: str | None) -> None:
    row = {"site": 1, "role": "batch-norm", "file": "m.py", "line": 2, "function": function, "excerpt_line": 1}
    excerpt = f"def {function}(self, x):\n    {line}"
    process = make.process(sites=[{**row, "source": line, "excerpt": excerpt}])
    diff = line_edits.normalising_by_mode(process, process.location("batch-norm"))
    assert (diff.added[0].strip() if diff else None) == added


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("loss = f(z.view(-1, v), y.view(-1))", "loss = f(z[:, :-1].reshape(-1, v), y[:, 1:].reshape(-1))"),
        ("loss = f(z.flatten(0, 1), y.flatten())", "loss = f(z[:, :-1].flatten(0, 1), y[:, 1:].flatten())"),
        ("loss = f(z.flatten(1), y.flatten())", None),  # classes are joined with positions
    ],
)
def test_targets_are_shifted_where_scores_and_targets_are_flattened(make, line: str, example: str | None) -> None:
    shifted = line_edits.shifted(make.process(), Location("a.py", 3, "f", line))
    assert shifted.startswith(f"{example}  # ") is (example is not None)

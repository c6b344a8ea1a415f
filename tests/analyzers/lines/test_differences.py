"""The line with the difference that a loss is made of, and the side of it that has a dimension too many."""

from __future__ import annotations

import pytest

from tests.analyzers.sites import sites_of
from tracelyze.analyzers.rules.objective.loss_broadcast import differences

UPDATE = """\
def update(net, states, returns):
    {first}
    {second}
    {third}
    with torch.no_grad():
        adv = returns - value.view(-1)
    actor = -(dist.log_prob(acts) * adv).mean()
    loss = actor + 0.5 * critic - 0.01 * dist.entropy().mean()
    loss.backward()"""


@pytest.mark.parametrize(
    ("first", "second", "third", "line"),
    [
        ("dist, value = net(states)", "error = returns - value", "critic = error.pow(2).mean()", 3),
        ("dist, value = net(states)", "critic = ((returns - value) ** 2).mean()", "log(critic)", 3),
        ("dist, value = net(states)", "error = value - returns", "critic = (error * error).mean()", 3),
        ("self.error = net(states) - returns", "log(value)", "critic = torch.square(self.error).mean()", 2),
        ("error = returns - value", "error = weigh(error)", "critic = error.pow(2).mean()", 8),
        ("dist, value = net(states)", "rest = (a - b) ** 2 + rest", "critic = (rest + (c - value) ** 2).mean()", 8),
        ("dist, value = net(states)", "critic = smooth(returns, value)", "log(critic)", 8),
    ],
)
def test_the_difference_above_a_sum_of_losses(make, first: str, second: str, third: str, line: int) -> None:
    text = UPDATE.format(first=first, second=second, third=third)
    loss = next(one.strip() for one in text.split("\n") if "loss = " in one)
    process = make.process(sites=sites_of(text, loss=loss, cut=first))
    found = differences.of(process, process.site(1))
    assert found is not None
    assert (found.line, found.source) == (line, text.split("\n")[line - 1].strip())


@pytest.mark.parametrize(
    ("ratio", "policy", "loss", "line"),
    [
        ("ratio = new / old", "policy = -torch.min(ratio * adv, kept * adv).mean()", "policy + 0.5 * value", 4),
        ("ratio = new * adv", "policy = -ratio.mean()", "policy + cfg.coef * value", 3),
        ("ratio = new * adv", "policy = -ratio.mean()", "policy + (value * mask).sum()", None),  # which of both?
        ("ratio = 2 * new", "policy = -ratio.mean()", "policy + cfg.coef * value", None),
        ("ratio = new / old", "policy = (ratio * ratio).mean()", "policy + value", None),  # a square
    ],
)
def test_the_product_above_a_sum_of_losses(make, ratio: str, policy: str, loss: str, line: int | None) -> None:
    text = f"def step(net, new, old, adv):\n    value = net(old)\n    {ratio}\n    {policy}\n    loss = {loss}"
    text += "\n    loss.backward()"
    process = make.process(sites=sites_of(text, loss=f"loss = {loss}", cut=ratio))
    found = differences.of_product(process, process.site(1))
    assert (found.place.line if found else None) == line


@pytest.mark.parametrize(
    ("first", "second", "line", "shared"),
    [
        ("one = ratio * adv", "two = torch.clamp(ratio, 0.8, 1.2) * adv", 3, "adv"),
        ("one = adv * ratio", "two = kept * adv", 3, "adv"),
        ("one = probs * gain", "two = probs * cost", None, ""),  # which side is the same says nothing then
        ("one = ratio * adv", "two = kept * adv_old", None, ""),
    ],
)
def test_the_products_of_a_clipped_surrogate(make, first: str, second: str, line: int | None, shared: str) -> None:
    text = f"def step(net, ratio, adv):\n    kept = torch.clamp(ratio, 0.8, 1.2)\n    {first}\n    {second}"
    text += "\n    loss = -torch.min(one, two).mean()\n    loss.backward()"
    process = make.process(sites=sites_of(text, loss="loss = -torch.min(one, two).mean()", cut=first))
    found = differences.of_product(process, process.site(1))
    assert (found and found.place.line) == line
    assert (found.shared if found else "") == shared


@pytest.mark.parametrize(
    ("error", "loss", "line"),
    [
        ("error = y - net(x)", "loss = torch.maximum(q * error, (q - 1) * error).mean()", 2),
        ("error = y - net(x)", "loss = error.cosh().log().mean()", 2),
        ("error = y - net(x)", "loss = pinball(error, net(x), y)", 5),  # may compare by itself
        ("error = 1 - net(x)", "loss = error.exp().mean()", 5),
        ("error = y - net(x)", "loss = (error.exp() + rest).mean()", 5),  # which of both is it?
    ],
)
def test_a_difference_of_which_no_distance_is_taken(make, error: str, loss: str, line: int) -> None:
    text = f"def step(net, x, y):\n    {error}\n    rest = a - b\n    {loss}\n    loss.backward()"
    process = make.process(sites=sites_of(text, loss="loss.backward()", cut=error))
    found = differences.of(process, process.site(1))
    assert found is not None
    assert found.line == line


def test_what_the_model_returned_under_another_name_is_the_prediction(make) -> None:
    text = UPDATE.format(first="dist, value = net(states)", second="error = returns - value", third="log(error)")
    call, error = "dist, value = net(states)", "error = returns - value"
    rows = sites_of(text, loss=error)
    called = rows[0] | {"site": 7, "role": "training-call", "line": 2, "source": call}
    process = make.process(sites=[*rows, called])
    diff = differences.squeezed(process, process.site(1), True, -1)
    assert diff is not None
    assert diff.added == ["    error = returns - value.squeeze(-1)"]
    assert differences.squeezed(make.process(sites=rows), process.site(1), True, -1) is None, "which of both is it?"


@pytest.mark.parametrize(
    ("line", "prediction", "edited"),
    [
        ("return torch.mean((model(x) - y) ** 2)", True, "return torch.mean((model(x).squeeze(-1) - y) ** 2)"),
        ("loss = (self.net(x) - y).abs().mean()", True, "loss = (self.net(x).squeeze(-1) - y).abs().mean()"),
        ("loss = (y - model(x)).square().mean()", True, "loss = (y - model(x).squeeze(-1)).square().mean()"),
        ("loss = (model(x) - y).square().mean()", False, "loss = (model(x) - y.squeeze(-1)).square().mean()"),
        (
            "loss = (model(x) - (a + b)).square().mean()",
            False,
            "loss = (model(x) - ((a + b).squeeze(-1))).square().mean()",
        ),
        ("loss = (out - y).square().mean()", True, None),  # which of both is the model's?
        ("loss = (model(x)[:, 0] - y).square().mean()", True, None),
        ("loss = (model(x) - y).square().mean() + (1 - w).abs()", True, None),
    ],
)
def test_a_side_of_a_difference_loses_a_dimension(make, line: str, prediction: bool, edited: str | None) -> None:
    models = [{"model": at, "name": "Net", "called_as": name} for at, name in enumerate(("model", "self.net"))]
    process = make.process(sites=sites_of(f"def f(x, y):\n    {line}\n", backward=line), models=models)
    diff = differences.squeezed(process, process.site(1), prediction, -1)
    assert (diff and diff.added) == (edited and [f"    {edited}"])


@pytest.mark.parametrize(
    ("model", "loss", "example"),
    [
        ("mu, spread = net(x)", "loss = nll(mu, spread, y)", "loss = nll(mu, spread, y.unsqueeze(-1))"),
        (
            "a, b = net(x)",
            "loss = nll(y=self.y, mean=a, scale=b)",
            "loss = nll(y=self.y.unsqueeze(-1), mean=a, scale=b)",
        ),
        ("mu, spread = net(x)", "loss = nll(mu, spread, y, weights)", ""),  # which of both?
        ("mu, spread = parts(x)", "loss = nll(mu, spread, y)", ""),  # of the model?
        ("mu = net(x)", "loss = distance(mu, y)", ""),
    ],
)
def test_a_target_that_meets_several_parts_of_what_the_model_says(make, model: str, loss: str, example: str) -> None:
    rows = sites_of(f"def train(net, x, y):\n    {model}\n    {loss}\n    loss.backward()", loss=loss)
    called = rows[0] | {"site": 7, "role": "training-call", "line": 2, "source": model}
    process = make.process(sites=[*rows, called] if "net" in model else rows)
    assert differences.with_dimension(process, process.site(1), -1) == example

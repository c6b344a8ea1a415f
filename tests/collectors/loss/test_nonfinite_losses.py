"""Which operation made a loss that is not finite, and its line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tracelyze.analyzers import diagnose  # noqa: E402
from tracelyze.collectors.signals.loss.nonfinite_operations import (  # noqa: E402
    broken_target,
    broken_weight,
    first_broken,
    spoiled_by,
    taken_in,
)


def made(loss: Any) -> list[tuple[str, bool]]:
    assert not bool(loss.isfinite())
    return [(one.what, one.reaches) for one in first_broken(torch, loss.grad_fn)]


def leaf(*values: float) -> Any:
    return torch.tensor(values, requires_grad=True)


def test_operations_whose_input_shows_it() -> None:
    x = leaf(-800.0, -900.0)
    assert made(-(x.exp().sum() * 2.0).log() + (x / 3.0).mean()) == [("log of exponentials that shrank to 0", True)]
    assert made((leaf(1.0) - 2.0).log().mean()) == [("log of a number below 0", True)]
    assert made((x * torch.zeros(2)).sum() / (x * 0.0).sum()) == [("division by 0", True)]
    assert made((x * -1.0).exp().mean()) == [("exp of too large a number", True)]
    assert made(((x - 5.0) * 1.0).sqrt().sum()) == [("sqrt of a number below 0", True)]
    assert made((x * 0.0).rsqrt().mean()) == [("rsqrt of 0", True)]


def test_a_logarithm_of_exponentials_that_shrank_to_0() -> None:
    """And its look-alike: exponentials that are not all tiny, of which a weight of 0 makes the 0."""
    weights, far = leaf(0.5, 0.5), torch.tensor([[-3.0, -4.0], [-95.0, -300.0]], requires_grad=True)
    mixed = (weights * far.exp() / 1e7).sum(-1).log()
    assert made(-mixed.mean()) == [("log of exponentials that shrank to 0", True)]
    assert made(((weights * torch.tensor([[0.0, 0.0], [1.0, 1.0]])) * (far * 0.1).exp()).sum(-1).log().mean()) == [
        ("log of 0", True)
    ]


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_a_deviation_of_a_single_value() -> None:
    """A batch of one: of any value, as that is divided by the number of values less one."""
    x = leaf(1.0, 2.0, 3.0)[None]
    assert made(((x - x.mean(0)) / x.std(0)).pow(2).sum()) == [("std of a single value", True)]
    assert made(x.var(0).mean()) == made(torch.var_mean(x, 0)[0].mean()) == [("var of a single value", True)]
    assert made(torch.std_mean(x, 0)[0].mean()) == [("std of a single value", True)]
    assert made(x[:, :1].std()) == [("std of a single value", True)]
    assert made((x.std(1) / (x * 0.0).sum()).mean()) == [("division by 0", True)]
    assert made(((x * float("nan")).std(1)).mean()) == [], "what came in was no number"
    assert made((x / x.std(0, unbiased=False)).mean()) == [("division by 0", True)]


def spelled(targets: list[int], lengths: tuple[int, ...], steps: int = 6, **options: Any) -> Any:
    scores = torch.zeros(steps, len(lengths), 11, requires_grad=True).log_softmax(-1)
    given = (steps,) * len(lengths)
    return torch.nn.functional.ctc_loss(scores, torch.tensor(targets), given, lengths, **options)


def test_a_target_that_its_time_steps_cannot_spell() -> None:
    """Equal labels need a blank between them."""
    said = "ctc_loss of a target that needs 7 time steps where 6 are given"
    assert made(spelled([3, 3, 3, 3], (4,))) == [(said, True)]
    assert made(spelled([1, 2, 3, 4, 3, 3, 3, 3], (4, 4), reduction="sum")) == [(said, True)]
    long = spelled([1, 2, 3], (3,), steps=2)
    assert made(long) == [("ctc_loss of a target that needs 3 time steps where 2 are given", True)]
    padded = torch.tensor([[1, 2, 0], [5, 5, 5]])
    scores = torch.zeros(4, 2, 11, requires_grad=True).log_softmax(-1)
    loss = torch.nn.functional.ctc_loss(scores, padded, (4, 4), (2, 3))
    assert made(loss) == [("ctc_loss of a target that needs 5 time steps where 4 are given", True)]
    assert bool(spelled([1, 2, 1, 2], (4,)).isfinite())
    assert bool(spelled([3, 3, 3, 3], (4,), zero_infinity=True).isfinite())
    assert made(spelled([1, 2], (2,)) + (leaf(1.0) * 0.0).log().mean()) == [("log of 0", True)]


def test_targets_that_are_not_finite() -> None:
    """Of torch's own losses and of differences that a script writes, where the answers can be seen to be finite."""
    functional, answers = torch.nn.functional, leaf(1.0, 2.0, 3.0) * 1.0
    target = torch.tensor([0.5, float("-inf"), 2.0])
    nan = target.where(target > 0, torch.nan)
    for loss in (functional.mse_loss, functional.l1_loss, functional.smooth_l1_loss, functional.huber_loss):
        assert broken_target(torch, loss(answers, target).grad_fn) == ("-Inf", True)
        assert broken_target(torch, loss(answers, -target).grad_fn) == ("Inf", True)
        assert broken_target(torch, loss(answers, nan).grad_fn) == ("NaN", True)
    assert broken_target(torch, (target - answers).pow(2).mean().grad_fn) == ("-Inf", True)
    apart = (answers - target).abs()
    chosen = torch.where(apart < 1.0, 0.5 * apart**2, apart - 0.5).sum()
    assert broken_target(torch, chosen.grad_fn) == ("-Inf", False)
    huge = leaf(3e38, 1e38) * 10.0
    assert broken_target(torch, (huge - torch.ones(2)).abs().mean().grad_fn) is None, "the answers themselves"
    assert broken_target(torch, functional.mse_loss(huge, torch.ones(2)).grad_fn) is None
    assert broken_target(torch, (answers - leaf(1.0, 2.0, 3.0) * target).abs().mean().grad_fn) is None, "trained"


def test_the_first_of_several_is_named() -> None:
    p = torch.softmax(leaf(0.0, 200.0), 0)
    assert made((p * p.log()).sum() / 2.0) == [("log of 0", True)]
    assert (
        made((leaf(800.0).exp() - leaf(900.0).exp()).square().sqrt().mean())
        == [("exp of too large a number", True)] * 2
    )


def test_what_is_chosen_from_only_can_have_made_it() -> None:
    p = torch.softmax(leaf(0.0, 200.0), 0)
    assert made(torch.where(p > 0.5, p, p.log()).sum()) == [("log of 0", False)]
    both = torch.where(p > 0.5, p, p.log()).sum() + (p.log() * p).sum()
    assert made(both) == [("log of 0", True)]


def test_what_came_in_is_not_blamed_on_the_operation() -> None:
    """Neither a matrix product that overflowed, nor NaN in the data, is an operation's own."""
    x, weight = torch.full((2, 2), 1e30), leaf(1e30, 1e30)
    assert made(((x * weight) @ weight).exp().sum()) == []
    assert made((torch.full((2,), float("nan")) * weight).relu().sqrt().sum()) == []
    broken = torch.nn.Parameter(torch.tensor([1.0, float("nan")]))
    assert broken_weight(torch, (broken * 2.0).sum().grad_fn) is broken
    assert broken_weight(torch, (leaf(3e38, 3e38) * 2.0).sum().grad_fn) is None, "finite, though their sum is not"


def test_what_can_have_broken_weights_while_the_loss_was_a_number() -> None:
    broken, whole = leaf(float("nan"), 1.0), leaf(1.0, 2.0)
    assert spoiled_by(torch, broken.square().sum().sqrt().grad_fn) == ["sqrt at 0"]
    assert spoiled_by(torch, broken.clamp(-1, 1).acos().mean().grad_fn) == ["acos at 1"]
    assert spoiled_by(torch, (broken.square().sum().sqrt() * whole.sum()).grad_fn) == ["sqrt at 0"]
    assert spoiled_by(torch, (whole.square().sum().sqrt() + broken.sum()).grad_fn) == [], "of other weights"
    assert spoiled_by(torch, (whole * broken).square().sum().sqrt().grad_fn) == [], "its other weights are whole"
    for loss in (
        broken.log().mean(),
        (1 / broken).mean(),
        torch.softmax(broken, 0).log().mean(),
        broken.square().sum(),
    ):
        assert spoiled_by(torch, loss.grad_fn) == [], "there the loss itself would have been none before"
    kept = broken.square().sum()
    for loss in ((kept + 1e-8).sqrt(), kept.clamp_min(1e-12).sqrt(), kept.view(1).add(1e-6).sqrt().sum()):
        assert spoiled_by(torch, loss.grad_fn) == [], "kept away from 0"
    assert spoiled_by(torch, (kept + whole.square().sum() * 0).sqrt().grad_fn) == [], "its other weights are whole"
    assert spoiled_by(torch, (kept + broken.sum()).sqrt().grad_fn) == ["sqrt at 0"]
    assert spoiled_by(torch, torch.where(broken > 0, broken.log(), broken).sum().grad_fn) == [
        "log at 0 in a branch that where() hides"
    ]


SCRIPT = """
import sys
import torch
from torch import nn
torch.manual_seed(0)
net = nn.Linear(4, 3)
opt = torch.optim.Adam(net.parameters(), 1e-2)
x, y = torch.randn(64, 4), torch.randint(0, 3, (64,))
def entropy(p):
    return -(p * torch.log(p + 1e-6)).sum(1)
def likelihood(p, y):
    p = p.gather(1, y[:, None])
    return torch.log(p)
for step in range(40):
    p = torch.softmax(net(x), 1)
    if step == 25:
        p = p * (torch.arange(64) != 9)[:, None]
    loss = -likelihood(p, y).mean() - 0.01 * entropy(p).mean()
    if "raise" in sys.argv and not torch.isfinite(loss):
        loss.backward()
        raise SystemExit("not finite")
    opt.zero_grad()
    loss.backward()
    opt.step()
print(sys.getprofile(), float(net.weight.sum()))
"""


@pytest.mark.starts_programs
def test_the_line_of_the_operation_is_told_from_others_like_it(collect: Any, tmp_path: Path) -> None:
    script = tmp_path / "ranked.py"
    script.write_text(SCRIPT, encoding="utf-8")
    collected = collect(sys.executable, str(script))
    assert collected.process.stdout.split() == ["None", "nan"]
    (finding,) = [one for one in diagnose(collected.run).findings if one.rule == "loss-nonfinite"]
    assert finding.summary.startswith("A log of 0 made it. One step earlier the loss was ")
    assert finding.first_step == 26
    assert finding.location.source == "return torch.log(p)"
    assert "logsumexp" in finding.fix
    events = [row for row in collected.run.processes[0].events.records() if row["kind"] == "nonfinite-loss"]
    assert [row["step"] for row in events] == [25, 26, 27]
    assert [bool(row["name"]) for row in events] == [False, True, True], "afterwards it is the weights"


@pytest.mark.starts_programs
def test_a_program_that_ends_there(collect: Any, tmp_path: Path) -> None:
    """No step follows whose calls could be noted, and two lines take a logarithm: none of them is named."""
    script = tmp_path / "ranked.py"
    script.write_text(SCRIPT, encoding="utf-8")
    diagnosis = diagnose(collect(sys.executable, str(script), "raise").run)
    found = [one for one in diagnosis.findings if one.location is not None and "torch.log" in one.location.source]
    assert found == []


NOTHING = """
import sys
import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
model = nn.Linear(4, 2)
opt = torch.optim.SGD(model.parameters(), 0.05)
def criterion(out, has, where):
    found = has > 0.5
    if sys.argv[1] == "mean":
        place = F.smooth_l1_loss(out[found, 1], where[found])
    else:
        place = F.smooth_l1_loss(out[found, 1], where[found], reduction="sum") / found.sum().clamp(min=1)
    return F.binary_cross_entropy_with_logits(out[:, 0], has) + place
for step in range(60):
    x = torch.randn(32, 4)
    loss = criterion(model(x), (x[:, 0] > 0).float(), x[:, 1])
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 20 == 19:
        with torch.no_grad():
            x = torch.randn(8, 4).abs() * torch.tensor([-1.0, 1, 1, 1])
            print(criterion(model(x), (x[:, 0] > 0).float(), x[:, 1]).item())
"""


@pytest.mark.starts_programs
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_a_mean_over_no_elements_is_named(collect: Any, tmp_path: Path, reduction: str) -> None:
    """A term over the found objects of a batch without any; divided by their number, or by 1, it is 0 there."""
    script = tmp_path / "train.py"
    script.write_text(NOTHING, encoding="utf-8")
    found = {one.rule: one for one in diagnose(collect(sys.executable, str(script), reduction).run).findings}
    finding = found.get("validation-nonfinite")
    assert (finding is not None) == (reduction == "mean")
    if finding is not None:
        assert finding.location is not None
        assert "smooth_l1_loss(out[found, 1], where[found])" in finding.location.source
        assert "smooth_l1_loss at line 12 was called with no elements" in finding.summary


def given(layer: Any, value: float, *size: int, grad: bool = False) -> tuple[str, str] | None:
    """What a layer is told to have been given: the name of its weight, and what was not finite."""
    x = torch.ones(size)
    x.view(-1)[0] = value
    out = layer(x.requires_grad_(grad))
    found = taken_in(torch, (out[0] if isinstance(out, tuple) else out).relu().square().mean().grad_fn)
    names = {id(weight): name for name, weight in layer.named_parameters()}
    return found and (names[id(found[0])].split("_")[0], found[1])


def test_what_a_layer_was_given_without_a_gradient() -> None:
    inf, nan = float("inf"), float("nan")
    assert given(torch.nn.BatchNorm1d(3), -inf, 8, 3) == ("weight", "-Inf")
    assert given(torch.nn.Linear(3, 2), inf, 8, 4, 3) == ("bias", "Inf")
    assert given(torch.nn.Conv1d(3, 2, 1), nan, 8, 3, 5) == ("weight", "NaN")
    assert given(torch.nn.GRU(3, 4), -inf, 8, 2, 3) == ("bias", "-Inf")
    assert given(torch.nn.Linear(3, 2), 1.0, 8, 3) is None
    late = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 2))
    assert given(late, 3e38, 8, 3) is None, "what trained weights have made is not computed of the data alone"
    x = torch.tensor([[float("nan"), 1.0]])
    chosen = torch.where(torch.tensor([[False, True]]), x * leaf(1.0, 1.0), torch.zeros(1))
    assert taken_in(torch, chosen.sum().grad_fn) is None, "it was left out"


FEATURES = """
import math, sys
import torch
from torch import nn
class Features(nn.Module):
    def forward(self, x):
        power = x.square()
        return torch.log(power)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.norm, self.head = Features(), nn.BatchNorm1d(6), nn.Linear(6, 3)
    def forward(self, x):
        return self.head(self.norm(self.features(x)))
torch.manual_seed(0)
net = Net()
opt = torch.optim.Adam(net.parameters(), 1e-2)
for step in range(60):
    x = torch.randn(32, 6)
    if step == 25:
        x[3] = 0.0 if sys.argv[1] == "silence" else float("nan")
    loss = nn.functional.cross_entropy(net(x), (x[:, 0].nan_to_num() > 0).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
    math.log(step + 1)
"""


@pytest.mark.starts_programs
@pytest.mark.parametrize("data", ["silence", "missing"])
def test_features_that_no_gradient_passes(collect: Any, tmp_path: Path, data: str) -> None:
    """A logarithm of silence stands in no graph of autograd; data that hold NaN are another matter."""
    script = tmp_path / "train.py"
    script.write_text(FEATURES, encoding="utf-8")
    first = diagnose(collect(sys.executable, str(script), data).run).findings[0]
    if data == "missing":
        assert first.rule == "nonfinite-input"
        return
    assert (first.rule, first.confidence, first.first_step) == ("nonfinite-activations", "likely", 26)
    assert first.title == "features (Features) outputs -Inf at step 26, and the loss is lost"
    assert first.location.source == "return torch.log(power)"


def test_a_softmax_that_a_mask_left_no_score() -> None:
    inf, scores = float("inf"), torch.randn(3, 4) @ torch.randn(4, 4, requires_grad=True)
    shown = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    expected = [("softmax of a row that is masked throughout", True)]
    written = scores.clone()
    written[~shown] = -inf
    filled = (
        scores.masked_fill(~shown, -inf) / 2.0,
        torch.where(shown, scores, torch.tensor(-inf)),
        torch.where(~shown, -inf, scores),
        written,
    )
    for one in filled:
        assert made((one.softmax(1) * scores).sum()) == expected
    heads = scores.view(3, 1, 1, 4).expand(3, 2, 5, 4) * 1.0
    assert made((heads.masked_fill(~shown[:, None, None], -inf).softmax(-1) * heads).sum()) == expected


def test_a_softmax_that_no_mask_explains() -> None:
    scores = torch.randn(3, 4) @ torch.randn(4, 4, requires_grad=True)
    shown = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 1, 1, 1]]).bool()
    data = torch.tensor([[0.0], [0.0], [float("nan")]])
    assert made(((scores + data).softmax(1) * scores).sum()) == []
    assert made(((scores + data).masked_fill(~shown, -1e9).softmax(1) * scores).sum()) == [], "an even softmax"
    assert made(((scores + data).masked_fill(~shown, -float("inf")).softmax(1) * scores).sum()) == [], "two rows"

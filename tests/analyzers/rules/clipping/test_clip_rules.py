"""Rules about clipping and unscaling gradients, and the healthy look-alikes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

COUNT = 400


def test_clipping_after_the_step_bounds_nothing(make) -> None:
    norm = np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    norm[[150, 220, 310]] = 80
    norm[1] = norm[0]  # the clip before the second step met what the first had used
    late = {"clips": [None] + [1] * (COUNT - 1), "grad_norm_source": [1] + [2] * (COUNT - 1)}
    clips = {"grad_norm": norm.tolist(), "clip_max_norm": [None] + [90.0] * (COUNT - 1)}
    _, _, finding = make.check("gradient-spikes", make.process(make.steps() | clips | late))
    assert (finding.severity, "only after the step" in finding.summary) == ("warning", True)
    assert "between backward and step" in finding.fix
    before = {"clips": [1] * COUNT, "grad_norm_source": [2] * COUNT, "clip_max_norm": [90.0] * COUNT}
    loss = [*(0.4 + 2 * np.exp(-np.arange(200) / 50)), *np.geomspace(0.45, 60, 200)]
    grown = {"grad_norm": np.append(norm[:200], np.full(200, 1e5)).tolist(), "loss": loss}
    for told, how in ((True, late), (False, before), (False, late | {"grad_norm_source": [1] * COUNT})):
        for rule in ("exploding-gradients", "loss-divergence"):
            _, _, finding = make.check(rule, make.process(make.steps() | clips | grown | how))
            assert ("only after the step" in finding.summary) == told
    norm[1] = 2 * norm[0]  # the first step was made without a clip, for a reason of its own
    process = make.process(make.steps() | clips | late | {"grad_norm": norm.tolist()})
    assert "only after" not in make.check("gradient-spikes", process)[2].summary


def test_clipping_before_the_backward_bounds_nothing(make) -> None:
    norm = np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    norm[[150, 220, 310]] = 80
    clips = {"grad_norm": norm.tolist(), "clips": [1] * COUNT, "clip_max_norm": [1.0] * COUNT}
    _, _, finding = make.check(
        "gradient-spikes", make.process(make.steps() | clips | {"grad_norm_source": [1] * COUNT})
    )
    assert "before the backward" in finding.summary
    from_clips = make.process(make.steps() | clips | {"grad_norm_source": [2] * COUNT, "clip_max_norm": [90.0] * COUNT})
    assert "before the backward" not in make.check("gradient-spikes", from_clips)[2].summary


@pytest.mark.parametrize(("clips", "edited"), [(1, True), (4, False)])
def test_gradients_are_unscaled_once_a_step(make, clips: int, edited: bool) -> None:
    """A scaler that is asked to unscale at each of several clips raises."""
    lines = {"clip": "clip_grad_norm_(model.parameters(), 1.0)", "step": "scaler.step(optimizer)"}
    sites = [
        {"site": number, "role": role, "file": "train.py", "line": number, "function": "f", "source": line}
        | {"excerpt": line, "excerpt_line": number}
        for number, (role, line) in enumerate(lines.items(), 1)
    ]
    steps = make.steps() | {"clipped_scaled": [True] * COUNT, "scale": [1024.0] * COUNT, "clips": [clips] * COUNT}
    finding = make.check("clip-before-unscale", make.process(steps, sites=sites))[2]
    assert (finding.diff is not None) is edited
    assert finding.fix_code.endswith(lines["clip"]), "with the script's own limit and names"


@pytest.mark.parametrize(
    ("backward", "step", "code"),
    [
        (
            "accelerator.backward(loss)",
            "opt.step()",
            "if accelerator.sync_gradients:\n    accelerator.clip_grad_norm_(net.parameters(), 1.0)",
        ),
        (
            "self.fabric.backward(loss)",
            "self.opt.step()",
            "self.fabric.clip_gradients(net, self.opt, max_norm=1.0)",
        ),
        (
            "trainer.fit(net)",
            "trainer.fit(net)",
            "def on_before_optimizer_step(self, optimizer):\n    nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
        ),
        (
            "self.manual_backward(loss)",
            "opt.step()",
            "def on_before_optimizer_step(self, optimizer):\n    nn.utils.clip_grad_norm_(net.parameters(), 1.0)",
        ),
        ("trainer.train()", "trainer.train()", "TrainingArguments(output_dir, max_grad_norm=1.0)"),
    ],
)
def test_where_a_library_holds_the_scaler_the_script_is_not_told_to_call_it(
    make, backward: str, step: str, code: str
) -> None:
    shared = {"file": "a.py", "function": "f"}
    lines = {"backward": backward, "clip": "nn.utils.clip_grad_norm_(net.parameters(), 1.0)", "step": step}
    sites = [
        shared | {"site": number, "role": role, "line": number, "source": line, "excerpt_line": number, "excerpt": line}
        for number, (role, line) in enumerate(lines.items(), 1)
    ]
    steps = make.steps() | {"clips": [1] * COUNT, "clipped_scaled": [True] * COUNT, "scale": [65536.0] * COUNT}
    finding = make.check("clip-before-unscale", make.process(steps, sites=sites))[2]
    assert "scaler" not in finding.fix + finding.fix_code
    assert code in finding.fix_code


def test_a_line_that_unscales_behind_the_clip_moves(make) -> None:
    """A second call of unscale_ in the same step raises: the first one is moved, and none is added."""
    lines = {
        "clip": ("clip_grad_norm_(model.parameters(), 1.0)", 8),
        "unscale": ("scaler.unscale_(optimizer)", 9),
        "step": ("scaler.step(optimizer)", 10),
    }
    sites = [
        {"site": number, "role": role, "file": "t.py", "line": line, "function": "main", "source": source}
        for number, (role, (source, line)) in enumerate(lines.items(), 1)
    ]
    steps = make.steps() | {"clipped_scaled": [True] * COUNT, "scale": [1024.0] * COUNT, "clips": [1] * COUNT}
    finding = make.check("clip-before-unscale", make.process(steps, sites=sites))[2]
    assert finding.diff is None
    assert "Move line 9" in finding.fix
    assert finding.fix_code.startswith("scaler.unscale_(optimizer)  # from line 9")
    sites[1] |= {"source": "scaler.step(optimizer)", "line": 10}  # the scaler's own, within its step
    finding = make.check("clip-before-unscale", make.process(steps, sites=sites))[2]
    assert "Call scaler.unscale_(optimizer) right before clipping" in finding.fix


def two_optimizers(make: Any, first: dict[str, Any], second: dict[str, Any], indent: str = "") -> Any:
    """A scaler steps a trunk and a head, which one line clips before."""
    lines = [("clip", "clip_grad_norm_(both, 2.0)"), ("step", "scaler.step(trunk)"), ("step", "scaler.step(head)")]
    sites = [
        {"site": number, "role": role, "file": "train.py", "line": number, "function": "f", "source": line}
        | {"excerpt": (indent if role == "step" else "") + line, "excerpt_line": number}
        for number, (role, line) in enumerate(lines, 1)
    ]
    one = make.steps() | {"scale": [4096.0] * COUNT, "clips": [1] * COUNT}
    nothing = [None] * COUNT
    rows = {"optimizer": [0, 1] * COUNT}
    for name in {*one, *first, *second} - {"optimizer"}:
        both = zip(first.get(name, one.get(name, nothing)), second.get(name, one.get(name, nothing)), strict=True)
        rows[name] = [value for pair in both for value in pair]
    optimizers = [{"optimizer": number, "name": "SGD", "site": number + 2} for number in (0, 1)]
    return make.process(rows, sites=sites, optimizers=optimizers)


def test_one_of_two_optimizers_is_unscaled(make) -> None:
    """Both are clipped by their common norm: nearly all of it is that of the trunk, which still has the loss scale."""
    norm = {"grad_norm": [4000.0] * COUNT, "grad_norm_source": [2] * COUNT, "clip_max_norm": [2.0] * COUNT}
    late = two_optimizers(make, norm | {"clipped_scaled": [True] * COUNT}, {"clips": [0] * COUNT})
    status, _, finding = make.check("clip-before-unscale", late)
    assert (status, finding.confidence) == ("fired", "certain")
    assert finding.diff.added == ["scaler.unscale_(trunk)"]
    assert "for SGD (optimizer 0) as well" in finding.fix
    assert "It left 0.0005 of all gradients" in finding.summary
    assert make.check("clipping-always-active", late)[0] == "skipped"
    second = two_optimizers(make, norm | {"clipped_scaled": [False] * COUNT}, {"clipped_scaled": [True] * COUNT})
    assert make.check("clip-before-unscale", second)[2].diff.added == ["scaler.unscale_(head)"]
    assert make.check("clipping-always-active", second)[0] == "skipped"
    unknown = two_optimizers(make, {"clipped_scaled": [True] * COUNT}, {"clips": [0] * COUNT})
    summary = make.check("clip-before-unscale", unknown)[2].summary
    assert summary.endswith("it cut all that it took, also what was unscaled before."), "the norm was not recorded"
    timely = two_optimizers(make, norm | {"clipped_scaled": [False] * COUNT}, {"clips": [0] * COUNT})
    assert make.check("clip-before-unscale", timely)[0] == "passed"
    in_loop = two_optimizers(make, norm | {"clipped_scaled": [True] * COUNT}, {"clips": [0] * COUNT}, indent="    ")
    assert make.check("clip-before-unscale", in_loop)[2].diff is None, "the loop's variable is not known at the clip"


def test_clip_before_unscale(make) -> None:
    steps = make.steps() | {"clipped_scaled": [True] * COUNT, "scale": [1024.0] * COUNT, "clips": [1] * COUNT}
    status, _, finding = make.check("clip-before-unscale", make.process(steps))
    assert status == "fired"
    assert "saw them 1,024 times too large" in finding.summary
    halved = steps | {"scale": [1024.0] * (COUNT // 4) + [512.0] * (COUNT - COUNT // 4)}
    finding = make.check("clip-before-unscale", make.process(halved))[2]
    assert "saw them 512 to 1,024 times too large" in finding.summary, "a scale that a scaler halved or doubled"
    assert finding.title.endswith("sees them 512 to 1,024 times too large")
    right = make.steps() | {"clipped_scaled": [False] * COUNT}
    assert make.check("clip-before-unscale", make.process(right))[0] == "passed"
    once = make.steps() | {"clipped_scaled": [True] + [False] * (COUNT - 1)}
    assert make.check("clip-before-unscale", make.process(once))[0] == "passed"
    assert make.check("clip-before-unscale", make.process())[0] == "skipped"


@pytest.mark.parametrize(
    ("norm", "said"),
    [
        (6144.0, "should have left them as they are, but multiplied them by 0.000326"),
        (1e5, "should have multiplied them by 0.328, but multiplied them by"),
    ],
)
def test_what_a_clip_of_scaled_gradients_leaves(make, norm: float, said: str) -> None:
    """The scale is what the limit is wrong by; what is left of a gradient goes by its norm as well."""
    scaled = {"clipped_scaled": [True] * COUNT, "scale": [16384.0] * COUNT, "clips": [1] * COUNT}
    returned = {"grad_norm": [norm] * COUNT, "grad_norm_source": [2] * COUNT, "clip_max_norm": [2.0] * COUNT}
    finding = make.check("clip-before-unscale", make.process(make.steps() | scaled | returned))[2]
    assert said in finding.summary
    assert "learning rate" not in finding.summary


def clipped(make, times: float = 12.0, bound: float = 0.5, **columns):
    """Steps whose norm before clipping is about `times` the bound, and whose loss falls no more at the end."""
    steps = make.steps()
    norms = [bound * times * (1 + 0.3 * ((index * 7) % 11 - 5) / 5) for index in range(len(steps["step"]))]
    count = len(norms)
    usual = {"grad_norm": norms, "grad_norm_source": [2] * count, "clip_max_norm": [bound] * count}
    usual["loss"] = [2 - min(index, count // 2) / count for index in range(count)]
    return steps | usual | {"clips": [None] + [1] * (count - 1)} | columns


def test_clipping_that_is_always_active(make) -> None:
    status, _, finding = make.check("clipping-always-active", make.process(clipped(make)))
    assert (status, finding.severity) == ("fired", "info")
    assert "12 times the limit" in finding.title
    assert "SGD gets these gradients with norm 0.5" in finding.summary
    assert "max_norm=7.4" in finding.fix_code
    assert "raise the rate from there" in finding.fix, "steps may have been too short all along"
    adam = make.process(clipped(make), optimizers=[{"optimizer": 0, "name": "Adam", "device": "cpu"}])
    assert "divides the common factor out" in make.check("clipping-always-active", adam)[2].summary
    own = make.process(clipped(make), optimizers=[{"optimizer": 0, "name": "MySGD", "device": "cpu"}])
    assert "MySGD" not in make.check("clipping-always-active", own)[2].summary, "what it does is not known"
    rarely = clipped(make)
    rarely["grad_norm"] = [0.9 if index % 25 == 0 else norm for index, norm in enumerate(rarely["grad_norm"])]
    title = make.check("clipping-always-active", make.process(rarely))[2].title
    assert title.startswith("Clipping acts on all steps"), "those aside whose norm is five times the limit"


@pytest.mark.parametrize(("last", "tried"), [(4.0, True), (5.9, False)])
def test_a_clip_that_holds_back_a_loss_that_still_falls(make, last: float, tried: bool) -> None:
    """Steps of SGD were short: with the limit raised and the rate lowered by the same factor they would stay so."""
    count = len(clipped(make)["loss"])
    falling = np.linspace(10, last, count) if tried else np.concatenate([np.linspace(10, 6, count // 2), [last] * 999])
    steps = clipped(make) | {"loss": list(falling[:count])}
    sgd = [{"optimizer": 0, "name": "SGD", "device": "cpu"}]
    finding = make.check("clipping-always-active", make.process(steps, optimizers=sgd))[2]
    assert ("The loss still fell at the end of this run" in finding.fix) is tried
    assert ("raise the rate from there" in finding.fix) is not tried


@pytest.mark.parametrize("recorded", [True, False])
def test_a_clip_that_lets_more_through_goes_with_the_rate_that_the_script_gives(make, recorded: bool) -> None:
    """Not with what a schedule made of it: the schedule goes on. Norms are 14.8 times the limit in the tenth decile."""
    source = "opt = torch.optim.SGD(net.parameters(), lr=LR)"
    sites = [{"site": 9, "role": "optimizer", "file": "a.py", "line": 5, "function": "main", "source": source}]
    sgd = {"optimizer": 0, "name": "SGD", "device": "cpu", "made_at": 9}
    row = {"scheduler": 0, "name": "CosineAnnealingLR", "optimizer": 0, "inner": False, "base_lr": 1.0, "step": 400}
    steps = clipped(make, lr=[1.0 - index / 500 for index in range(400)])
    process = make.process(steps, sites=sites, optimizers=[sgd], more={"schedules": [row] * recorded})
    code = make.check("clipping-always-active", process)[2].fix_code
    assert code.endswith(f"opt = torch.optim.SGD(net.parameters(), lr={'0.067' if recorded else '0.04'})")
    unknown = make.process(steps, optimizers=[sgd | {"made_at": None}], more={"schedules": [row] * recorded})
    assert make.check("clipping-always-active", unknown)[2].fix_code.endswith('group["lr"] *= 0.067')


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"grad_norm": [0.9] * 400}, "passed"),  # a little above
        ({"grad_norm": [0.1] * 390 + [50.0] * 10}, "passed"),  # outliers
        ({"grad_norm": [6.0] * 200 + [0.4] * 200}, "passed"),  # warm-up
        ({"grad_norm": [6.0] * 385 + [0.4] * 15}, "passed"),  # it ends to be active in the end
        ({"grad_norm_source": [1] * 400}, "skipped"),  # after clipping, perhaps
        ({"clipped_scaled": [True] * 400}, "skipped"),  # still multiplied by the loss scale
        ({"clips": [2] * 400}, "skipped"),  # parts of the gradients
        ({"clip_max_norm": [float("inf")] * 400}, "skipped"),  # only to learn the norm
        ({"clip_max_norm": [None] * 400}, "skipped"),
        ({"clip_max_norm": [0.5] * 80 + [None] * 320}, "skipped"),
    ],
)
def test_clipping_of_outliers_and_norms_that_are_not_known(make, columns, status) -> None:
    assert make.check("clipping-always-active", make.process(clipped(make, **columns)))[0] == status


def test_a_clip_of_the_gradients_of_a_sum_by_the_second_of_two_optimizers(make: Any) -> None:
    """Calls of loss functions are counted by the steps of both, and steps by those of their own optimizer."""
    columns = clipped(make) | {"step": [*range(1, 6), *range(1, COUNT - 4)]}
    columns |= {"optimizer": [0 if index < 5 else 1 for index in range(COUNT)]}
    rows = [
        {"step": step, "training": True, "reduction": "sum", "value": columns["loss"][step], "function": "mse_loss"}
        for step in range(5, 10)
    ]
    both = [{"optimizer": 0, "name": "SGD"}, {"optimizer": 1, "name": "SGD"}]
    process = make.process(columns, optimizers=both, more={"loss_calls": rows})
    assert " The loss is a sum" in make.check("clipping-always-active", process)[2].fix


@pytest.mark.parametrize(
    ("reduction", "part", "said"),
    [("sum", 1, "The loss is a sum"), ("sum", 64, "If the loss is a sum"), ("mean", 1, "If the loss is a sum")],
)
def test_a_clip_of_the_gradients_of_a_sum(make: Any, reduction: str, part: float, said: str) -> None:
    """A sum that the script divides by the batch is none."""
    columns = clipped(make)
    rows = [
        {"step": step, "function": "mse_loss", "training": True, "reduction": reduction}
        | {"value": part * columns["loss"][step], "input_shape": "64x1", "target_shape": "64x1"}
        for step in range(5)
    ]
    finding = make.check("clipping-always-active", make.process(columns, more={"loss_calls": rows}))[2]
    assert f" {said}" in finding.fix
    means = make.process(columns | {"loss_is_mean": [True] * len(columns["loss"])}, more={"loss_calls": rows[:1]})
    assert "sum" not in make.check("clipping-always-active", means)[2].fix

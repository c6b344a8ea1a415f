"""Gradients that are zero or never arrive, and the healthy look-alikes."""

from __future__ import annotations

import math

import pytest

COUNT = 400


def test_zero_gradients_when_none_arrives(make) -> None:
    status, _, finding = make.check("zero-gradients", make.process(make.steps() | {"grads_none": [8] * COUNT}))
    assert status == "fired"
    assert "None" in finding.title


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("loss = loss.requires_grad_(True)", True),
        ("loss.requires_grad_()", True),
        ("return dice_loss.requires_grad_()", True),
        ("loss.requires_grad = True  # else backward fails", True),
        ("loss = loss.requires_grad_(False)", False),
        ("x = x.requires_grad_(True)", False),
        ("loss = crit(x.requires_grad_(True), y)", False),
    ],
)
def test_a_loss_that_is_told_to_require_a_gradient(make, line: str, named: bool) -> None:
    call = "return (torch.sigmoid(self(x)) > 0.5).float()"
    sites = [
        {"site": 9, "role": "freeze", "file": "t.py", "line": 69, "function": "training_step", "source": line},
        {"site": 10, "role": "training-call", "file": "t.py", "line": 64, "function": "masks", "source": call},
    ]
    finding = make.check("zero-gradients", make.process(make.steps() | {"grads_none": [8] * COUNT}, sites=sites))[2]
    assert ("Line 69 has " in finding.summary) is named
    assert ("Line 64 calls the model and compares its answer" in finding.summary) is named
    assert (finding.location is not None and finding.location.line == 69) is named
    assert ("Compute the loss from `torch.sigmoid(self(x))` of line 64 without" in finding.fix) is named
    apart = make.process(make.steps() | {"grads_none": [8] * COUNT}, sites=sites[:1])
    assert ("look for what has no gradient" in make.check("zero-gradients", apart)[2].fix) is named
    cut = {"site": 11, "role": "cut", "file": "t.py", "line": 68, "function": "training_step", "source": "z.detach()"}
    dead = make.steps() | {"grads_none": [8] * COUNT}
    cuts = make.check("zero-gradients", make.process(dead, sites=[*sites, cut]))[2]
    assert cuts.location.line == 68, "what cuts the graph is nearer to the cause"
    some = make.steps() | {"grads_none": [0] * 100 + [8] * (COUNT - 100)}
    assert "Line 69" not in make.check("zero-gradients", make.process(some, sites=sites))[2].summary


@pytest.mark.parametrize(
    ("elements", "title"),
    [(500, "other tensors than the model that backward reaches: all 8 tensors"), (700, "Every gradient is None")],
    ids=["copy", "another-part"],
)
def test_an_optimizer_of_another_model(make, elements: int, title: str) -> None:
    """A copy is trained, or a model that was built again: as many tensors, of the same sizes, in no optimizer."""
    own = {"optimizer": 0, "step": COUNT, "steps": COUNT, "held": 8, "held_elements": 500, "missed": 8,
           "missed_elements": 500, "names": "a tensor [3, 4]"}  # fmt: skip
    free = own | {"optimizer": None, "held_elements": None, "missed_elements": elements, "names": "0.weight"}
    process = make.process(make.steps() | {"grads_none": [8] * COUNT}, more={"reach": [own, free]})
    _, _, finding = make.check("zero-gradients", process)
    assert title in finding.title


def test_zero_gradients_when_all_are_zero_in_sampled_steps(make) -> None:
    zero = [8 if index % 4 == 0 else None for index in range(COUNT)]
    status, _, finding = make.check("zero-gradients", make.process(make.steps() | {"grads_zero": zero}))
    assert status == "fired"
    assert "exactly zero in all 100 steps looked at:" in finding.title
    assert finding.summary.startswith("At all 100 steps that were looked at from step 1 to 397, all gradients were")


@pytest.mark.parametrize(
    ("looked_at", "said"),
    [(4, "in all 75 steps looked at, from step 101 to 397"), (1, "in 300 steps in a row")],
)
def test_zero_gradients_of_which_only_some_steps_were_looked_at_are_not_in_a_row(make, looked_at, said) -> None:
    zero = [(8 if index >= 100 else 0) if index % looked_at == 0 else None for index in range(COUNT)]
    _, _, finding = make.check("zero-gradients", make.process(make.steps() | {"grads_zero": zero}))
    assert said in finding.title
    assert "on, all gradients" not in finding.summary


def test_zero_gradients_is_silent(make) -> None:
    skipped = make.steps() | {"grads_none": [8] * COUNT, "skipped": [True] * COUNT}
    assert make.check("zero-gradients", make.process(skipped))[0] == "skipped"
    satisfied = make.steps() | {"grads_zero": [0] + [8] * (COUNT - 1), "loss": [0.5] + [0.0] * (COUNT - 1)}
    _, said, _ = make.check("zero-gradients", make.process(satisfied))
    assert said.endswith(f"not zero; {COUNT - 1} more had none, at a loss of 0."), "what is left out is said"
    assert make.check("zero-gradients", make.process(satisfied))[0] == "passed"
    now_and_then = make.steps() | {"grads_none": [8 if index % 7 == 0 else 0 for index in range(COUNT)]}
    assert make.check("zero-gradients", make.process(now_and_then))[0] == "passed"


def test_zero_gradients_of_losses_that_are_no_number_are_not_counted(make) -> None:
    """A mean over no target is NaN and has a gradient of zero; such a loss alone makes a step be looked at."""
    lost = [index % 3 != 0 for index in range(COUNT)]
    steps = make.steps() | {"grads_zero": [8 if bad else None for bad in lost]}
    steps["loss"] = [math.nan if bad else 0.5 for bad in lost]
    assert make.check("zero-gradients", make.process(steps))[0] == "skipped"
    steps["grads_zero"] = [8] * COUNT
    _, _, finding = make.check("zero-gradients", make.process(steps))
    assert "in all 134 steps looked at" in finding.title, "of losses that are numbers"


def test_zero_gradients_of_an_optimizer_that_holds_nothing_trainable(make) -> None:
    steps = make.steps() | {"parameters": [0] * COUNT}
    held = [{"optimizer": 0, "name": "AdamW", "parameters": 2}]
    _, _, finding = make.check("zero-gradients", make.process(steps, optimizers=held))
    assert (finding.severity, finding.first_step) == ("critical", 1)
    assert "none of the 2 tensors" in finding.summary
    assert "or an input" in finding.summary, "of adversarial training, or of a frozen model under checkpointing"
    sampled = steps | {"grads_none": [0 if index % 50 == 0 else None for index in range(COUNT)]}
    assert "all 400 steps" in make.check("zero-gradients", make.process(sampled, optimizers=held))[2].title
    later = steps | {"parameters": [0] * 200 + [8] * 200}  # thawed by a schedule
    assert make.check("zero-gradients", make.process(later))[0] == "passed"
    beside = steps | {"optimizer": [index % 2 for index in range(COUNT)]}
    assert make.check("zero-gradients", make.process(beside))[0] == "skipped"
    without = steps | {"backwards": [0] * COUNT}
    assert make.check("zero-gradients", make.process(without))[0] == "skipped"


@pytest.mark.parametrize(
    ("wraps", "line", "function", "told"),
    [
        ("net = get_peft_model(net, lora)", 8, "main", True),
        ("net = get_peft_model(net, lora)", 2, "main", False),  # above the optimizer: something else freezes
        ("net = get_peft_model(net, lora)", 8, "wrapped", False),  # which may be called before
        ("net = Net(lora)", 8, "main", False),
    ],
)
def test_adapters_that_are_put_in_after_the_optimizer_was_made(
    make, wraps: str, line: int, function: str, told: bool
) -> None:
    """PEFT freezes what the optimizer holds, and the optimizer never gets the adapters."""
    source = "optimizer = AdamW(net.head.parameters(), lr=4e-3)"
    made = {"site": 1, "role": "optimizer", "file": "a.py", "line": 4, "function": "main", "source": source}
    module = {"site": 2, "role": "module", "file": "a.py", "line": line, "function": function, "source": wraps}
    called = made | {"site": 3, "role": "training-call", "line": 20, "function": "fit", "source": "loss = net(x)"}
    steps = make.steps() | {"parameters": [0] * COUNT}
    held = [{"optimizer": 0, "name": "AdamW", "parameters": 2, "made_at": 1}]
    sites = [one | {"excerpt": one["source"], "excerpt_line": one["line"]} for one in (made, module, called)]
    _, _, finding = make.check("zero-gradients", make.process(steps, optimizers=held, sites=sites))
    assert ("Line 8 calls get_peft_model after the optimizer was made" in finding.summary) is told
    assert ("(line 4), and what is made of it, below line 8" in finding.fix) is told
    example = "optimizer = AdamW([p for p in net.parameters() if p.requires_grad], lr=4e-3)"
    assert (example in finding.fix_code) is told
    assert finding.location.line == 4


def test_zero_gradients_lets_one_of_two_optimizers_rest(make) -> None:
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_none": [8 if index % 2 and index < 200 else 0 for index in range(COUNT)],
    }
    assert make.check("zero-gradients", make.process(steps))[0] == "passed"

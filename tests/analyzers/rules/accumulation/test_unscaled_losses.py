"""Losses that are not divided by the micro-batches of a step, or twice, and the healthy look-alikes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.analyzers.sites import lines_of

COUNT = 400


def test_unscaled_accumulation(make) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    _, _, finding = make.check("unscaled-accumulation", make.process(steps))
    assert (finding.severity, finding.confidence) == ("warning", "possible")
    assert "4 times" in finding.summary
    assert "If each loss is a mean over its batch" in finding.summary
    seen = make.check("unscaled-accumulation", make.process(steps | {"loss_is_mean": [True] * COUNT}))[2]
    assert ("divided by anything. Each loss is a mean" in seen.summary, seen.confidence) == (True, "possible")
    adam = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "dtype": "float32"}]
    count = len(steps["backwards"])
    cut = steps | {"clips": [1] * count, "grad_norm": [0.5, 2.0] * (count // 2), "clip_max_norm": [1.0] * count}
    said = make.check("unscaled-accumulation", make.process(cut))[2].summary
    assert "is up to 4 times as large" in said
    assert "clipping cut it in 50% of the steps" in said
    assert make.check("unscaled-accumulation", make.process(steps, optimizers=adam))[2].severity == "info"
    divided = steps | {"loss_divisor": [4.0] * COUNT}
    assert make.check("unscaled-accumulation", make.process(divided))[0] == "passed"
    weighted = steps | {"loss_divisor": [300.0 + index for index in range(COUNT)]}
    assert make.check("unscaled-accumulation", make.process(weighted))[0] == "passed"
    two_losses = steps | {"loader_batches": [1] * COUNT}
    assert make.check("unscaled-accumulation", make.process(two_losses))[0] == "skipped"
    two_optimizers = steps | {"optimizer": [index % 2 for index in range(COUNT)]}
    assert make.check("unscaled-accumulation", make.process(two_optimizers))[0] == "skipped"
    assert make.check("unscaled-accumulation", make.process())[0] == "skipped"  # no divisor is known


@pytest.mark.parametrize(
    ("columns", "status"),
    [
        ({"loss_is_mean": [True] * COUNT}, "fired"),  # a compute_loss that ignores num_items_in_batch
        ({"loss_is_mean": [True] * COUNT, "loss_divisor": [4.0] * COUNT}, "passed"),
        ({"loss_is_mean": [True] * COUNT, "grads_changes": [2] * COUNT, "clips": [1] * COUNT}, "passed"),
        ({"loss_is_mean": [False] * COUNT}, "skipped"),  # a divided loss to which another term was added
        ({}, "skipped"),
    ],
)
def test_unscaled_accumulation_where_a_framework_calls_backward(make, columns, status) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    called = [{"site": 0, "role": "backward", "file": "/home/me/train.py", "line": 7, "source": "trainer.train()"}]
    process = make.process(steps | columns, sites=called)
    assert make.check("unscaled-accumulation", process)[0] == status


def test_a_loop_that_pre_trains_says_nothing_of_the_losses_of_a_framework(make) -> None:
    """The Trainer of transformers sums losses that it divided by the tokens of all batches of a step."""
    alone = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    lines = {1: ("backward", "loss.backward()"), 2: ("step", "opt.step()")}
    lines |= {7: ("backward", "trainer.train()"), 8: ("step", "trainer.train()")}
    sites = [
        {"site": at, "role": role, "file": "train.py", "line": min(at, 7), "function": "f", "source": source}
        for at, (role, source) in lines.items()
    ]
    adam = {"name": "AdamW", "device": "cpu", "dtype": "float32"}
    for backward, status in ((7, "skipped"), (1, "fired")):
        optimizers = [adam | {"optimizer": 0, "backward_site": backward, "site": backward + 1}]
        process = replace(make.process(alone, sites=sites, optimizers=optimizers), training="training 2 of 2")
        assert make.check("unscaled-accumulation", process)[0] == status


@pytest.mark.parametrize(
    ("divisor", "reduction", "looks", "status"),
    [
        (1.0, "mean", 6, "fired"),  # with label smoothing, whose graph adds two terms
        (4.0, "mean", 6, "skipped"),  # divided on its way to the backward
        (1.0, "sum", 6, "skipped"),
        (1.0, "mean", 2, "skipped"),
    ],
)
def test_losses_that_reach_a_frameworks_backward_as_they_were(make, divisor, reduction, looks, status) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    steps |= {"loss_is_mean": [False] * COUNT}
    row = {"function": "cross_entropy", "site": 1, "training": True, "reduction": reduction}
    spread = (0.9, 1.1, 0.95, 1.05)
    rows = [row | {"step": n, "value": divisor * steps["loss"][n] * part} for n in range(looks) for part in spread]
    called = [{"site": 0, "role": "backward", "file": "/home/me/train.py", "line": 7, "source": "trainer.train()"}]
    process = make.process(steps, sites=called, more={"loss_calls": rows})
    assert make.check("unscaled-accumulation", process)[0] == status


@pytest.mark.parametrize(("function", "code"), [("Own.compute_loss", "loss_is_scaled_for_ga"), ("step", "(loss / 4)")])
def test_a_mean_that_a_trainer_takes_to_be_divided(make, function, code) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    steps |= {"loss_is_mean": [True] * COUNT, "clips": [1] * COUNT}
    at = {"file": "/home/me/train.py"}
    sites = [
        {"site": 0, "role": "backward", "line": 7, "source": "trainer.train()", **at},
        {"site": 1, "role": "loss", "line": 3, "source": "loss = f(x)", "function": function, **at},
    ]
    adam = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "dtype": "float32"}]
    _, _, finding = make.check("unscaled-accumulation", make.process(steps, optimizers=adam, sites=sites))
    assert (finding.severity, finding.confidence, finding.location.line) == ("warning", "likely", 3)
    assert code in finding.fix_code
    assert "gradient clipping" in finding.summary
    measured = {"clip_max_norm": [float("inf")] * COUNT}  # as under max_grad_norm=0
    for unclipped in ({"clips": [0] * COUNT}, measured):
        process = make.process(steps | unclipped, optimizers=adam, sites=sites)
        finding = make.check("unscaled-accumulation", process)[2]
        assert (finding.severity, "gradient clipping" in finding.summary) == ("info", False)


@pytest.mark.parametrize(
    ("backward", "severity"), [("self.manual_backward(loss)", "warning"), ("trainer.train()", "info")]
)
def test_a_loop_that_asks_a_framework_for_each_backward_has_a_loss_of_its_own(
    make, backward: str, severity: str
) -> None:
    """What computes the loss within trainer.train() may be a library's."""
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    steps |= {"loss_is_mean": [True] * COUNT}
    site = {"site": 0, "role": "backward", "file": "t.py", "line": 58, "function": "training_step", "source": backward}
    sgd = [{"optimizer": 0, "name": "SGD", "device": "cpu", "dtype": "float32", "backward_site": 0}]
    finding = make.check("unscaled-accumulation", make.process(steps, sites=[site], optimizers=sgd))[2]
    assert (finding.severity, finding.confidence, finding.location.line) == (severity, "likely", 58)


@pytest.mark.parametrize(
    ("condition", "function", "example"),
    [
        ("if (i + 1) % self.every == 0:", "fit", "(loss / self.every).backward()"),
        ("if i % accumulate == accumulate - 1:  # a whole one", "fit", "(loss / accumulate).backward()"),
        ("if (i + 1) % every == 0 or i + 1 == len(loader):", "fit", "(loss / 4).backward()"),
        ("if (i + 1) % 4 == 0:", "fit", "(loss / 4).backward()"),
        ("if (i + 1) % self.every == 0:", "on_batch_end", "(loss / 4).backward()"),  # where the name may be unknown
    ],
)
def test_the_loss_is_divided_by_what_the_script_counts_to(make, condition: str, function: str, example: str) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    text = f"    loss.backward()\n    {condition}\n        optimizer.step()"
    at = {"file": "t.py", "function": "fit"}
    stepping = at | {"function": function, "excerpt": text, "excerpt_line": 7}
    sites = [
        at | {"site": 0, "role": "backward", "line": 7, "source": "loss.backward()"},
        stepping | {"site": 1, "role": "step", "line": 9, "source": "optimizer.step()"},
    ]
    own = [{"optimizer": 0, "name": "SGD", "site": 1, "backward_site": 0}]
    finding = make.check("unscaled-accumulation", make.process(steps, sites=sites, optimizers=own))[2]
    assert finding.fix_code == example


def test_a_mean_that_a_compute_loss_func_returns(make) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    steps |= {"loss_is_mean": [True] * COUNT}
    line = "return F.cross_entropy(out.logits, labels, label_smoothing=0.1)"
    above = "def criterion(out, labels, num_items_in_batch=None):"
    at = {"file": "/home/me/train.py"}
    sites = [
        {"site": 0, "role": "backward", "line": 7, "source": "trainer.train()", **at},
        {"site": 1, "role": "loss", "line": 3, "source": line, "function": "criterion", **at}
        | {"excerpt": f"{above}\n    {line}\n", "excerpt_line": 2},
    ]
    finding = make.check("unscaled-accumulation", make.process(steps, sites=sites))[2]
    assert finding.fix_code == line[:-1] + ', reduction="sum") / num_items_in_batch'
    assert "backward" not in finding.fix


def divided_by(make, divisor: float, count: int, backward: str, text: str, **columns):
    """What is said of micro-batches with these recorded divisors, by lines of one function of which the last two
    compute the loss and call backward."""
    lines = text.split("\n")
    steps = make.steps() | {"backwards": [count] * COUNT, "loader_batches": [count] * COUNT}
    steps |= {"loss_divisor": [divisor] * COUNT, "loss_is_mean": [True] * COUNT} | columns
    sites = [
        {
            "site": number,
            "role": role,
            "file": "/home/me/train.py",
            "line": at,
            "function": "fit",
            "source": line.strip(),
        }
        | {"excerpt": text, "excerpt_line": 1}
        for number, (role, at, line) in enumerate((("loss", 1, lines[0]), ("backward", len(lines), lines[-1])))
    ]
    assert lines[-1].strip() == backward
    return make.check("unscaled-accumulation", make.process(steps, sites=sites))


BY_HAND = "loss = f(model(x), y) / every\n(loss / every).backward()"


OF_ACCELERATE = "loss = f(model(x), y)\naccelerator.backward(loss / args.accumulate)"


ALONE = "loss = f(model(x), y)\nif args.accumulate:\n    loss /= args.accumulate\naccelerator.backward(loss)"
BEFORE = "loss = f(model(x), y)\nloss = loss / args.accumulate\naccelerator.backward(loss)"


@pytest.mark.parametrize(
    ("divisor", "count", "text", "line", "added"),
    [
        (64.0, 8, OF_ACCELERATE, 2, ["accelerator.backward(loss)"]),
        (4.0, 2, OF_ACCELERATE, 2, ["accelerator.backward(loss)"]),
        (16.0, 4, BEFORE, 2, []),  # the line goes
        (16.0, 4, ALONE, 3, None),  # which leaves nothing of its block
        (16.0, 4, "loss = f(model(x), y) / 4\naccelerator.backward(loss)", 1, ["loss = f(model(x), y)"]),
        (16.0, 4, "loss = f(model(x), y) / 4\ntrainer.fit(net)", 1, ["loss = f(model(x), y)"]),
        (16.0, 4, BY_HAND, 2, None),  # which of the two is to go is not known
    ],
)
def test_losses_that_are_divided_twice(make, divisor, count, text, line, added) -> None:
    status, _, finding = divided_by(make, divisor, count, text.split("\n")[-1], text)
    assert status == "fired"
    assert finding.traits == {"too-small"}
    assert "twice" in finding.title
    assert (finding.location.line, finding.diff.added if finding.diff else None) == (line, added)
    assert f"{count} times smaller" in finding.summary


@pytest.mark.parametrize(
    ("divisor", "count", "text", "columns"),
    [
        (8.0, 8, OF_ACCELERATE, {}),  # the accelerator was not told to accumulate
        (4.0, 2, "loss = 0.5 * f(model(x), y)\naccelerator.backward(loss)", {}),  # a weight of the loss
        (16.0, 4, "loss = 0.25 * f(model(x), y)\n(loss / 4).backward()", {}),
        (64.0, 8, OF_ACCELERATE, {"loss_is_mean": [False] * COUNT}),  # a sum over eight samples
        (64.0, 8, OF_ACCELERATE, {"grads_changes": [2] * COUNT, "clips": [1] * COUNT}),  # multiplied again by hand
        (64.0, 8, "loss = f(model(x), y)\nlogged = loss.item() / 8\naccelerator.backward(loss)", {}),
    ],
)
def test_losses_that_are_divided_once(make, divisor, count, text, columns) -> None:
    assert divided_by(make, divisor, count, text.split("\n")[-1], text, **columns)[0] == "passed"


NAMED = """\
for i, (x, y) in enumerate(loader, start=1):
    {named}
    loss = criterion(model(x), y)
    loss.backward()
    {asked}
        optimizer.step()
        optimizer.zero_grad()"""


@pytest.mark.parametrize(
    ("named", "asked", "by"),
    [
        ("accumulating = i % ACCUMULATE != 0", "if not accumulating:", "ACCUMULATE"),
        ("last = (i + 1) % cfg.every == 0", "if last:", "cfg.every"),
        ("last = (i + 1) % cfg.every == cfg.every - 1", "if last:", "4"),  # what it is compared with is no number
        ("shown = i % LOG == 0", "if due(i):", "4"),
        ("last = i % 4 == 0", "if last:", "4"),
    ],
)
def test_a_loss_is_divided_by_what_the_condition_of_the_step_counts_by(make, named: str, asked: str, by: str) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    sites = lines_of(NAMED.format(named=named, asked=asked), backward="backward()", step=".step()", loss="loss =")
    finding = make.check("unscaled-accumulation", make.process(steps, sites=sites))[2]
    assert finding.fix_code == f"(loss / {by}).backward()"

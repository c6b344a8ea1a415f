"""Rules about gradients: what they fire on, and the healthy look-alikes that they must not fire on."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.analyzers.test_edits import sites_of
from tracelyze.analyzers.evidence.loss import singular_gradients

COUNT = 400


def test_missing_zero_grad_direct(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}
    status, _, finding = make.check("missing-zero-grad", make.process(steps))
    assert status == "fired"
    assert (finding.confidence, finding.severity, finding.first_step) == ("certain", "critical", 2)
    assert finding.location.line == 41
    assert finding.charts


def test_of_several_optimizers_the_own_line_is_named(make) -> None:
    sites = [{"site": 7, "role": "backward", "line": 46}, {"site": 8, "role": "step", "line": 47}]
    sites += [{"site": 9, "role": "backward", "line": 54}, {"site": 10, "role": "step", "line": 55}]
    both = [
        {"optimizer": 0, "name": "Adam", "backward_site": 7, "site": 8},
        {"optimizer": 1, "name": "Adam", "backward_site": 9, "site": 10},
    ]
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_carried": [0, 0] + [8 * (index % 2) for index in range(COUNT - 2)],
    }
    process = make.process(steps, optimizers=both, sites=sites)
    one = make.check("partial-zero-grad", process)[2]
    assert one.location.line == 55
    assert "Adam (optimizer 1)" in one.title
    assert one.title.startswith("The gradients of ")
    assert "while the others" not in one.summary, "this optimizer has no others"
    assert "Another optimizer's gradients are cleared" in one.summary
    assert one.diff is None, "the first loss's backward may fill its gradients as well"
    made = [dict(row, made_at=11 + row["optimizer"]) for row in both]
    lines = [
        {"site": 11 + index, "role": "optimizer", "line": 9, "source": f"opt_{index} = Adam(p)"} for index in (0, 1)
    ]
    known = make.check("partial-zero-grad", make.process(steps, optimizers=made, sites=[*sites, *lines]))[2]
    assert known.fix_code.startswith("opt_1.zero_grad()")
    assert make.check("missing-zero-grad", process)[0] == "passed"
    assert [training.backward_location.line for training in process.optimizations] == [46, 54]
    unknown = make.process(steps, optimizers=[{"optimizer": 0}, {"optimizer": 1}], sites=sites)
    assert [training.step_location.line for training in unknown.optimizations] == [47, 47]
    partial = steps | {"grads_carried": [0, 0] + [3 * (index % 2) for index in range(COUNT - 2)]}
    found = make.check("partial-zero-grad", make.process(partial, optimizers=both, sites=sites))[2]
    assert found.location.line == 55


def test_one_of_two_optimizers_behind_one_backward_is_cleared_after_its_step(make) -> None:
    text = "    loss.backward()\n    opt_net.step()\n    opt_centers.step()"
    sites = [
        {"site": 7, "role": "backward", "line": 46, "source": "loss.backward()"},
        {"site": 8, "role": "step", "line": 47, "source": "opt_net.step()"},
        {"site": 9, "role": "step", "line": 48, "source": "opt_centers.step()"},
    ]
    sites = [one | {"file": "train.py", "excerpt": text, "excerpt_line": 46} for one in sites]
    both = [{"optimizer": index, "name": "SGD", "backward_site": 7, "site": 8 + index} for index in (0, 1)]
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_carried": [0, 0] + [8 * (index % 2) for index in range(COUNT - 2)],
    }
    diff = make.check("partial-zero-grad", make.process(steps, optimizers=both, sites=sites))[2].diff
    assert (diff.line, diff.removed, diff.added) == (49, [], ["    opt_centers.zero_grad()"])


BESIDE = [  # lines of a loop, from line 40 on, and that behind which opt_b is cleared, which never is
    (["opt_a.zero_grad()", "loss.backward()", "opt_b.step()", "opt_a.step()"], 40),
    (["loss.backward()", "opt_b.step()", "opt_a.step()", "opt_a.zero_grad(set_to_none=True)"], 43),
    (["loss.backward()", "opt_a.step()", "opt_a.zero_grad()", "opt_b.step()"], 43),  # it still has to use them
    (["if step % 4 == 0:", "    opt_a.zero_grad()", "loss.backward()", "opt_b.step()", "opt_a.step()"], 43),
]


@pytest.mark.parametrize(("lines", "behind"), BESIDE)
def test_an_optimizer_is_cleared_beside_the_other_one(make, lines: list[str], behind: int) -> None:
    text = "\n".join(f"    {line}" for line in lines)
    roles = {"zero_grad": "zero_grad(", "backward": "backward(", "step": ".step("}
    sites = [
        {"site": at, "role": role, "line": at, "source": line.strip(), "file": "train.py", "excerpt": text,
         "excerpt_line": 40}
        for at, line in enumerate(lines, 40) for role, call in roles.items() if call in line
    ]  # fmt: skip
    at = {one["source"]: one["site"] for one in sites}
    both = [
        {"optimizer": index, "name": "SGD", "backward_site": at["loss.backward()"], "site": at[f"opt_{name}.step()"]}
        for index, name in enumerate("ab")
    ]
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_carried": [0, 0] + [8 * (index % 2) for index in range(COUNT - 2)],
    }
    finding = make.check("partial-zero-grad", make.process(steps, optimizers=both, sites=sites))[2]
    assert (finding.location.line, finding.diff.line) == (behind, behind + 1)
    arguments = "set_to_none=True" if "set_to_none=True" in text else ""
    assert finding.diff.added == [f"    opt_b.zero_grad({arguments})"]


ROUNDS = {  # lines of a loop in which opt_d is never cleared, and the line to clear it before, where it is known
    "real_loss.backward(); x = 1; fake_loss.backward(); opt_d.step(); loss_g.backward(); opt_g.step()": 40,
    "loss_g.backward(); opt_g.step(); loss_d.backward(); opt_d.step()": 42,
    "for one in parts:;     loss_d.backward(); opt_d.step(); loss_g.backward(); opt_g.step()": None,
    "loss_d.backward(); opt_d.step(); loss_g.backward(); opt_g.step(); loss_d.backward()": 40,
}


@pytest.mark.parametrize("lines", ROUNDS)
@pytest.mark.parametrize("rule", ["grads_carried", "grads_mixed"])
def test_one_of_several_optimizers_is_cleared_before_its_first_backward(make, lines: str, rule: str) -> None:
    """Not right behind its step, where the generator's backward fills its gradients, nor before its last backward."""
    text = lines.split("; ")
    part = {
        "file": "train.py",
        "function": "main",
        "excerpt": "\n".join(f"        {one}" for one in text),
        "excerpt_line": 40,
    }
    sites = [
        {"site": 7 + at, "role": role, "line": 40 + at, "source": one.strip(), **part}
        for at, one in enumerate(text)
        for role in ("backward", "step")
        if f"{role}(" in one
    ]
    own = {
        name: next(site["site"] for site in sites if f"{name}.step" in site["source"]) for name in ("opt_d", "opt_g")
    }
    both = [{"optimizer": at, "name": "Adam", "site": own[name]} for at, name in enumerate(("opt_d", "opt_g"))]
    count = sum("real" in one or "fake" in one for one in text) or 1
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "backwards": [1 if index % 2 else count for index in range(COUNT)],
        rule: [0, 0] + [8 * (1 - index % 2) for index in range(COUNT - 2)],
    }
    found = make.check("partial-zero-grad", make.process(steps, optimizers=both, sites=sites))[2]
    before = ROUNDS[lines]
    assert (f"right before line {before}" in found.fix_code) == (before is not None)
    if rule == "grads_carried" and before is not None:
        assert (found.location.line, found.diff.line, found.diff.removed) == (before, before, [])
        assert found.diff.added == ["        opt_d.zero_grad()"]


TWICE = {  # lines of a loop, and at which of them (from line 40 on) the one is cleared that never is: opt_b
    "side by side": "opt_a.zero_grad(); opt_a.zero_grad(); loss.backward(); opt_a.step(); opt_b.step()",
    "behind the steps": "loss.backward(); opt_a.step(); opt_b.step(); opt_a.zero_grad(); opt_a.zero_grad()",
    "in turns": "opt_a.zero_grad(set_to_none=True); loss_a.backward(); opt_a.step(); "
    "opt_a.zero_grad(set_to_none=True); loss_b.backward(); opt_b.step()",
    "scaled": "opt_a.zero_grad(); opt_a.zero_grad(); scaler.scale(loss).backward(); scaler.step(opt_a); "
    "scaler.step(opt_b)",
}
MEANT = {
    "cleared as well": "opt_a.zero_grad(); opt_a.zero_grad(); if late: opt_b.zero_grad(); loss.backward(); "
    "opt_a.step(); opt_b.step()",
    "two losses": "opt_a.zero_grad(); loss_a.backward(); opt_a.zero_grad(); loss_b.backward(); opt_a.step(); "
    "opt_b.step()",
    "no backward in between": "loss.backward(); opt_a.zero_grad(); opt_a.zero_grad(); opt_a.step(); opt_b.step()",
}


@pytest.mark.parametrize("lines", [*TWICE, *MEANT])
def test_a_clearing_that_was_copied_is_the_line_to_change(make, lines) -> None:
    text = (TWICE | MEANT)[lines].split("; ")
    part = {"file": "train.py", "excerpt": "\n".join(f"        {one}" for one in text), "excerpt_line": 40}
    roles = {"zero_grad": "zero_grad", "backward": "backward", "step": "step"}
    sites = [
        {"site": 7 + at, "role": role, "line": 40 + at, "source": one, **part}
        for at, one in enumerate(text)
        for name, role in roles.items()
        if f"{name}(" in one
    ]
    steps = [row["site"] for row in sites if row["role"] == "step"]
    backwards = [row["site"] for row in sites if row["role"] == "backward"]
    both = [
        {"optimizer": at, "name": "SGD", "backward_site": backwards[-1 if at else 0], "site": steps[at]}
        for at in (0, 1)
    ]
    columns = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_carried": [0, 0] + [8 * (index % 2) for index in range(COUNT - 2)],
    }
    found = make.check("partial-zero-grad", make.process(columns, optimizers=both, sites=sites))[2]
    if lines in MEANT:
        assert found.location.line == 40 + text.index("opt_b.step()")
        return
    twice = next(one for one in text if text.count(one) > 1)
    line = 40 + len(text) - 1 - text[::-1].index(twice)
    assert (found.location.line, found.diff.line) == (line, line)
    assert (found.diff.removed, found.diff.added) == ([f"        {twice}"], [f"        {twice.replace('_a', '_b')}"])
    other = next(40 + at for at, one in enumerate(text) if one == twice and 40 + at != line)
    assert f"Line {line} clears what line {other} clears already." in found.summary
    assert found.title.startswith("The gradients of ")
    apart = make.process(
        make.steps() | {"optimizer": [1] * COUNT, "grads_carried": [0] + [8] * (COUNT - 1)},
        optimizers=both[1:],
        sites=sites,
    )
    apart.training = "training 2 of 2"  # where the losses of the two have no model in common
    alone = make.check("missing-zero-grad", apart)[2]
    assert (alone.location.line, alone.diff.added) == (line, found.diff.added)
    assert f"Line {line} clears what line {other} clears already." in alone.summary


def test_without_an_optimizer_the_fix_names_none(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [8] * (COUNT - 1)}
    process = make.process(steps, optimizers=[{"optimizer": 0, "name": "ByHand", "device": "cpu"}])
    assert "optimizer" not in make.check("missing-zero-grad", process)[2].fix_code


@pytest.mark.parametrize("backward", ["self.manual_backward(loss)", "loss.backward()"])
def test_missing_zero_grad_of_lightning_by_hand(make, backward: str) -> None:
    """It clears before each validation, which nobody who reads the script sees."""
    steps = make.steps() | {"grads_carried": [8 if index % 79 else 0 for index in range(COUNT)]}
    site = {"site": 1, "role": "backward", "file": "a.py", "line": 52, "function": "training_step", "source": backward}
    finding = make.check("missing-zero-grad", make.process(steps, sites=[site]))[2]
    assert ("before it validates" in finding.fix) == ("manual" in backward)


def test_missing_zero_grad_from_the_middle_of_the_run(make) -> None:
    steps = make.steps() | {"grads_carried": [0] * 200 + [8] * 200}
    _, _, finding = make.check("missing-zero-grad", make.process(steps))
    assert finding.first_step == 201
    assert finding.cost.share == pytest.approx(0.5, abs=0.02)
    assert finding.title == "Gradients are no longer cleared: 200 of 400 steps reused old ones"
    assert "since the start" not in finding.summary, "they were cleared until then"
    looked = [value if step % 5 == 0 else None for step, value in enumerate([0] * 200 + [8] * 200)]
    _, _, sampled = make.check("missing-zero-grad", make.process(steps | {"grads_carried": looked}))
    assert "40 of 80 steps looked at reused" in sampled.title
    assert sampled.cost.share == pytest.approx(0.5, abs=0.02), "the steps between were no better"
    assert sampled.last_step == 400, "the last look, at step 396, saw it still"
    steps["grads_carried"] = [8] * 380 + [0] * 20
    assert make.check("missing-zero-grad", make.process(steps))[2].last_step == 380
    steps["grads_carried"] = [8 if step % 60 else 0 for step in range(301)] + [None] * 99
    assert make.check("missing-zero-grad", make.process(steps))[2].last_step == 400, "one clear is no end of it"


@pytest.mark.parametrize(("second", "line"), [("finetune", 25), ("warm_up", 15)])
def test_a_second_phase_that_clears_nothing_is_the_one_to_change(make, second: str, line: int) -> None:
    text = "            loss.backward()\n            self.opt.step()"
    shared = {"file": "a.py", "excerpt": text, "excerpt_line": 24}
    sites = [
        shared | {"site": 1, "role": "zero_grad", "line": 15, "function": "warm_up", "source": "self.opt.zero_grad()"},
        shared | {"site": 2, "role": "step", "line": 18, "function": "warm_up", "source": "self.opt.step()"},
        shared | {"site": 3, "role": "step", "line": 25, "function": second, "source": "self.opt.step()"},
    ]
    steps = make.steps() | {"grads_carried": [0] * 200 + [8] * 200}
    finding = make.check("missing-zero-grad", make.process(steps, sites=sites))[2]
    assert finding.location.line == line
    assert ("Nothing in finetune, which steps in line 25" in finding.summary) == (line == 25)
    assert (finding.diff is not None and finding.diff.added == ["            self.opt.zero_grad()"]) == (line == 25)
    assert ("Line 15 is not reached" in finding.fix) == (line == 15)


def test_gradients_that_were_not_there_before_were_not_cleared_before(make) -> None:
    """A loss scaler skips the first steps, or layers are unfrozen later: nothing was to be cleared until then."""
    late = make.steps() | {"grads_carried": [0] * 4 + [8] * 396, "skipped": [True] * 3 + [False] * 397}
    assert "never cleared" in make.check("missing-zero-grad", make.process(late))[2].title
    unfrozen = make.steps() | {"grads_carried": [0] * 200 + [3] * 200, "grads_none": [6] * 200 + [0] * 200}
    assert make.check("partial-zero-grad", make.process(unfrozen))[2].title.endswith("never cleared")
    known = unfrozen | {"grads_none": [0] * 400}
    assert make.check("partial-zero-grad", make.process(known))[2].title.endswith("no longer cleared")


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("model.head.zero_grad()", "opt.zero_grad()  # not: model.head.zero_grad()"),
        ("other.zero_grad(set_to_none=True)", "opt.zero_grad()  # not: other.zero_grad(set_to_none=True)"),
        ("opt.zero_grad()", "opt.zero_grad()"),
        ("for p in body.parameters(): p.grad = None", "opt.zero_grad()"),
    ],
)
def test_the_call_that_misses_gradients_is_the_script_s_own(make, line: str, code: str) -> None:
    shared = {"file": "a.py", "function": "main"}
    sites = [
        shared | {"site": 1, "role": "zero_grad", "line": 5, "source": line},
        shared | {"site": 2, "role": "step", "line": 9, "source": "opt.step()"},
    ]
    steps = make.steps() | {"grads_carried": [0] + [3] * (COUNT - 1)}
    finding = make.check("partial-zero-grad", make.process(steps, sites=sites))[2]
    assert finding.fix_code == code


def test_gradients_that_are_cleared_once_per_epoch(make) -> None:
    """Some line clears them, above the loop over batches: that is the one to move."""
    clear = {"site": 7, "role": "clear-text", "file": "train.py", "line": 20, "function": "begin_epoch"}
    clear["source"] = "self.optimizer.zero_grad()"
    carried = [8 if index % 40 else 0 for index in range(COUNT)]

    def answer(carried: list[int | None], *sites: dict[str, Any]) -> Any:
        return make.check("missing-zero-grad", make.process(make.steps() | {"grads_carried": carried}, sites=sites))[2]

    finding = answer(carried, clear)
    assert finding.title == "Gradients are cleared only every 40 steps: 390 of 400 steps reused old ones"
    assert "all gradients since they were last cleared" in finding.summary
    assert "backward passes added their gradients to the old ones" in finding.summary
    assert "each backward pass" in answer([0] + [8] * (COUNT - 1), clear).summary
    assert (finding.location.line, "Line 20 is not reached in each step" in finding.fix) == (20, True)
    looked = [value if index % 3 == 0 else None for index, value in enumerate(carried)]
    assert "cleared only now and then" in answer(looked, clear).title, "every 120 steps, as far as was looked"
    two = answer(carried, clear, clear | {"site": 8, "line": 30})
    assert "Line" not in two.fix
    assert "never cleared" in answer([0] + [8] * (COUNT - 1), clear).title


@pytest.mark.parametrize(
    "carried",
    [
        [0] * COUNT,  # accumulation that clears, GAN, LBFGS
        [0, 8, 8] + [0] * (COUNT - 3),  # cleared only from the fourth step on
        [8 if index % 20 == 5 else 0 for index in range(COUNT)],  # now and then
        [8 if index % 2 else 0 for index in range(COUNT)],  # every other step
        [0] + [4] * (COUNT - 1),  # half of the tensors: that is partial-zero-grad
    ],
)
def test_missing_zero_grad_is_silent(make, carried) -> None:
    assert make.check("missing-zero-grad", make.process(make.steps() | {"grads_carried": carried}))[0] == "passed"


def test_missing_zero_grad_counts_only_tensors_with_gradients(make) -> None:
    steps = make.steps() | {"grads_none": [6] * COUNT, "grads_carried": [0] + [2] * (COUNT - 1)}
    assert make.check("missing-zero-grad", make.process(steps))[0] == "fired"


def curve(**columns):
    """A log made elsewhere: step, loss, gradient norm, rate, and nothing else."""
    count = len(next(iter(columns.values())))
    return {"step": list(range(1, count + 1)), **{name: list(map(float, values)) for name, values in columns.items()}}


def summed_gradients(count: int = COUNT) -> np.ndarray:
    gradients = np.random.default_rng(0).normal(0.2, 1, (count, 100))
    return np.linalg.norm(np.cumsum(gradients, axis=0), axis=1)


def test_missing_zero_grad_signature(make) -> None:
    loss = np.linspace(2, 1, COUNT)
    process = make.process(curve(loss=loss, grad_norm=summed_gradients()), evals={}, loaders=[], optimizers=[])
    status, _, finding = make.check("missing-zero-grad", process)
    assert status == "fired"
    assert finding.confidence == "likely"
    assert [line.name for chart in finding.charts for line in chart.lines] == ["gradient norm"]


def test_missing_zero_grad_signature_is_silent_on_a_warm_up_and_on_noise(make) -> None:
    norm = summed_gradients()
    warm_up = curve(loss=np.linspace(2, 1, COUNT), grad_norm=norm, lr=np.linspace(1e-5, 1e-3, COUNT))
    assert make.check("missing-zero-grad", make.process(warm_up, optimizers=[]))[0] == "passed"
    noise = curve(grad_norm=np.exp(np.random.default_rng(1).normal(0, 0.4, COUNT)))
    assert make.check("missing-zero-grad", make.process(noise, optimizers=[]))[0] == "passed"
    short = curve(grad_norm=norm[:20])
    assert make.check("missing-zero-grad", make.process(short, optimizers=[]))[0] == "skipped"
    blow_up = curve(grad_norm=np.exp(np.linspace(0, 12, COUNT)))
    assert make.check("missing-zero-grad", make.process(blow_up, optimizers=[]))[0] == "passed"


def test_partial_zero_grad(make) -> None:
    steps = make.steps() | {"grads_carried": [0] + [3] * (COUNT - 1)}
    status, _, finding = make.check("partial-zero-grad", make.process(steps))
    assert status == "fired"
    assert finding.title.startswith("3 of 8")
    assert finding.title.endswith("never cleared")
    by_epoch = make.steps() | {"grads_carried": [0 if i % 50 == 0 else 3 for i in range(COUNT)]}  # by Lightning, say
    seldom = make.check("partial-zero-grad", make.process(by_epoch))[2]
    assert seldom.title.endswith("hardly ever cleared")
    assert "since these were cleared last" in seldom.summary
    for carried in ([0] * COUNT, [0] + [8] * (COUNT - 1), [3 if i % 5 == 0 else 0 for i in range(COUNT)]):
        assert make.check("partial-zero-grad", make.process(make.steps() | {"grads_carried": carried}))[0] == "passed"


def test_gradients_of_another_optimizers_loss(make) -> None:
    both = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "Adam"}]

    def answer(mixed: list[int | None]) -> tuple[str, str, Any]:
        steps = make.steps() | {"optimizer": [index % 2 for index in range(COUNT)], "grads_mixed": mixed}
        return make.check("partial-zero-grad", make.process(steps, optimizers=both))

    status, _, finding = answer([8 * (index % 2) for index in range(COUNT)])
    assert (status, finding.severity, finding.confidence) == ("fired", "critical", "likely")
    assert "Adam (optimizer 1)" in finding.title
    assert answer([8 if index % 10 == 1 else 0 for index in range(COUNT)])[0] == "fired", "a critic that steps often"
    for mixed in (
        [0] * COUNT,
        [None] * COUNT,
        [3] * COUNT,
        [8] * 9 + [0] * (COUNT - 9),
        [8 * (i % 50 == 1) for i in range(COUNT)],
    ):
        assert answer(mixed)[0] == "passed"


def test_zero_grad_after_backward(make) -> None:
    cleared = [None] + [8] * 5 + [None] * (COUNT - 6)  # the first step was not watched yet
    steps = make.steps() | {"grads_cleared": cleared, "grads_none": [8] * COUNT}
    status, _, finding = make.check("zero-grad-after-backward", make.process(steps))
    assert status == "fired"
    assert finding.location.line == 40
    assert make.check("zero-grad-after-backward", make.process())[0] == "passed"
    zeros = steps | {"grads_none": [0] * COUNT, "grads_cleared": [None] + [8] * (COUNT - 1)}
    zeros["grads_zero"] = [8 if index < 20 or index % 10 == 0 else None for index in range(COUNT)]  # seldom looked at
    assert make.check("zero-grad-after-backward", make.process(zeros))[2].first_step == 1


def test_zero_gradients_of_a_clearing_at_the_wrong_place_are_its_consequence(make) -> None:
    from tracelyze.analyzers import diagnose

    cleared = [None] + [8] * 5 + [None] * (COUNT - 6)
    both = make.run(make.process(make.steps() | {"grads_cleared": cleared, "grads_none": [8] * COUNT}))
    found = {finding.rule: finding.caused_by for finding in diagnose(both).findings}
    assert found == {"zero-grad-after-backward": None, "zero-gradients": "zero-grad-after-backward"}


def test_the_only_line_that_clears_is_the_one_to_change(make) -> None:
    """It stands in another function than the step: a handler of an event, a method, a callback."""
    row = {"file": "train.py", "function": "update", "line": 69, "role": "step", "source": "optimizer.step()"}
    clears = {"function": "release", "role": "clear-text", "source": "optimizer.zero_grad()"}
    steps = make.steps() | {"grads_cleared": [8] * COUNT, "grads_none": [8] * COUNT}
    for lines, named in (((79,), 79), ((30, 79), 69)):
        sites = [row | {"site": 1}, *[row | clears | {"site": at, "line": at} for at in lines]]
        finding = make.check("zero-grad-after-backward", make.process(steps, sites=sites, evals={}))[2]
        assert finding.location.line == named
        assert ("Line 79 is the only place" in finding.summary) == (named == 79)


def test_zero_gradients_when_none_arrives(make) -> None:
    status, _, finding = make.check("zero-gradients", make.process(make.steps() | {"grads_none": [8] * COUNT}))
    assert status == "fired"
    assert "None" in finding.title


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


def test_zero_gradients_lets_one_of_two_optimizers_rest(make) -> None:
    steps = make.steps() | {
        "optimizer": [index % 2 for index in range(COUNT)],
        "grads_none": [8 if index % 2 and index < 200 else 0 for index in range(COUNT)],
    }
    assert make.check("zero-gradients", make.process(steps))[0] == "passed"


def test_exploding_gradients(make) -> None:
    norm = np.concatenate([np.ones(200), np.full(200, 1e4)]) * np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    steps = make.steps() | {"grad_norm": norm.tolist(), "loss": [1.0] * 200 + [30.0] * 200}
    status, _, finding = make.check("exploding-gradients", make.process(steps))
    assert status == "fired"
    assert finding.first_step == pytest.approx(201, abs=3)
    assert "clip the gradient norm" in finding.fix
    clips = steps | {"clips": [1] * COUNT, "clip_max_norm": [1.0] * COUNT, "grad_norm_source": [2] * COUNT}
    clipped = make.check("exploding-gradients", make.process(clips))[2]
    assert clipped.fix.endswith("Steps are clipped already, and the norm before the clip grew.")
    assert "clip_grad_norm_" not in clipped.fix_code


@pytest.mark.parametrize(
    ("line", "without"),
    [
        ("loss = torch.exp(criterion(out, y) / eta)", "loss = criterion(out, y) / eta"),
        ("loss = criterion(out, y).exp()", "loss = criterion(out, y)"),
        ("loss = torch.exp(-criterion(out, y))", None),  # never above 1
        ("loss = criterion(torch.exp(out), y)", None),
        ("loss = criterion(out, y)", None),
    ],
)
def test_a_loss_that_is_an_exponential_explodes(make, line: str, without: str | None) -> None:
    norm = [1.0] * 200 + [1e4] * 200
    steps = make.steps() | {"grad_norm": norm, "loss": [1.0] * 200 + [30.0] * 200}
    text = f"for x, y in batches:\n    out = net(x)\n    {line}\n    loss.backward()"
    finding = make.check("exploding-gradients", make.process(steps, sites=sites_of(text, backward="loss.backward()")))[
        2
    ]
    assert finding.location.line == (3 if without else 4)
    assert (finding.fix_code == without) == (without is not None)
    assert ("Line 3 makes the loss an exponential" in finding.summary) == (without is not None)


def test_exploding_gradients_on_the_way_to_infinity(make) -> None:
    norm = np.concatenate([np.ones(300), np.exp(np.linspace(0, 40, 60)), np.full(40, np.inf)])
    steps = make.steps() | {"grad_norm": norm.tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == "fired"


def test_a_loss_that_falls_until_an_operation_of_it_has_no_result(make) -> None:
    """The likelihood of a mixture whose scales shrink: gradients grow, and the log of 0 is the fault."""
    norm = np.concatenate([np.exp(np.linspace(0, 6, 300)), np.full(100, np.nan)]).tolist()
    loss = [2.0 - 0.01 * step for step in range(300)] + [float("inf")] + [float("nan")] * 99
    count = [0] * 300 + [8] * 100
    steps = make.steps() | {"grad_norm": norm, "loss": loss, "grads_nonfinite": count}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "log of 0", "value": 1.0, "time": 1.0}
    line = {"site": 9, "role": "nonfinite", "file": "train.py", "line": 12, "function": "nll"}
    process = make.process(steps, events=[event], sites=[line | {"source": "return -torch.log(p).mean()"}])
    assert make.check("exploding-gradients", process)[0] == "passed"
    _, _, finding = make.check("loss-nonfinite", process)
    assert finding.summary.startswith("A log of 0 made it. One step earlier the loss was -0.99 (median of the ")
    assert finding.location.line == 12
    leaps = steps | {"loss": [*loss[:298], 80.0, 900.0, *loss[300:]]}
    assert make.check("exploding-gradients", make.process(leaps, events=[event]))[0] == "fired"
    unnamed = make.check("loss-nonfinite", make.process(steps))[2].summary
    assert "did not move" not in unnamed
    assert "Neither loss nor gradient norm leapt before" in unnamed
    assert "the loss was -0.99" in unnamed
    weight = make.process(steps, events=[event | {"name": "net.0.bias", "text": "", "value": 0.0}])
    told = make.check("loss-nonfinite", weight)[2].summary
    assert "Net.0.bias" not in told
    assert told.startswith("net.0.bias was not finite any more when this loss was computed.")


def test_a_deviation_of_a_batch_of_one(make) -> None:
    """The last batch of a pass of 101 holds one sample: what to change is the loader, and not the loop."""
    steps = make.steps() | {"loss": [0.7] * 100 + [float("nan")] * 300, "batch_size": [64] * 100 + [1] + [64] * 299}
    steps |= {"loader": [0] * 400, "loader_first": [at % 101 == 0 for at in range(400)], "loader_batches": [1] * 400}
    text = "std of a single value"
    event = {"kind": "nonfinite-loss", "step": 100, "name": "", "text": text, "value": 1.0, "time": 1.0}
    made = "train = DataLoader(data, batch_size=64, shuffle=True)"
    sites = [
        {"site": at, "role": role, "file": "a.py", "line": at, "function": function, "source": source}
        | {"excerpt": source, "excerpt_line": at}
        for at, role, function, source in (
            (81, "dataloader", "main", made),
            (50, "singular", "criterion", "za = (za - za.mean(0)) / za.std(0)"),
        )
    ]
    loader = {"loader": 0, "length": 101, "batch_size": 64, "drop_last": False, "made_at": 81, "dataset": "Windows"}

    def judged(**more: Any) -> Any:
        process = make.process(steps | more, events=[event], sites=sites, loaders=[loader])
        return make.check("loss-nonfinite", process)[2]

    finding = judged()
    assert "A std of a single value made it." in finding.summary
    assert "where the usual one holds 64: it is the last of 101. Line 50 takes the deviation." in finding.summary
    assert finding.location.line == 81
    assert finding.diff.added == [made.replace("True)", "True, drop_last=True)")]
    elsewhere = judged(loader_batches=[2] * 400)
    assert (elsewhere.location.line, elsewhere.diff) == (50, None), "not the last one of its pass"
    assert "drop_last" not in elsewhere.fix
    always = judged(batch_size=[1] * 400)
    assert "This batch holds" not in always.summary, "so do all others"
    assert (always.location.line, "unbiased=False" in always.fix_code) == (50, True)


def test_weights_that_a_root_of_zero_broke_a_step_before(make) -> None:
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    loss = {"kind": "nonfinite-loss", "step": 300, "name": "net.bias", "text": "", "value": 0.0, "time": 1.0}
    event = {"kind": "spoiled-weights", "step": 300, "name": "net.bias", "text": "sqrt at 0", "time": 1.0}
    text = "    d = torch.sqrt((a - b).pow(2).sum(1))"
    line = {"site": 9, "role": "singular", "file": "train.py", "line": 12, "function": "forward"}
    line |= {"source": text.strip(), "excerpt": text, "excerpt_line": 12}
    _, _, finding = make.check("loss-nonfinite", make.process(steps, events=[loss, event], sites=[line]))
    assert "The derivative of sqrt at 0 is not finite, and line 12 takes one." in finding.summary
    assert (finding.location.line, finding.diff.line) == (12, 12)
    assert finding.diff.added == ["    d = torch.sqrt((a - b).pow(2).sum(1) + 1e-8)"]
    twice = [line, line | {"site": 10, "line": 40}]
    _, _, several = make.check("loss-nonfinite", make.process(steps, events=[loss, event], sites=twice))
    assert "The derivative of sqrt at 0 is not finite, and this loss is made with it." in several.summary
    assert several.diff is None
    assert "1e-8" in several.fix_code
    for other in (
        steps | {"loss": [0.7] * 299 + [70.0] + [float("nan")] * 100},
        steps | {"lr": [0.1] * 300 + [0.9] * 100},
    ):
        _, _, blown = make.check("loss-nonfinite", make.process(other, events=[loss, event], sites=[line]))
        assert "derivative" not in blown.summary, "training blew up"


@pytest.mark.parametrize(
    ("source", "complement"),
    [
        ("neg = (1 - self.alpha) * p**2 * (1 - y) * torch.log(1 - p)", True),
        ("return -(y * p.log() + (1 - y) * (1 - p).log()).mean()", True),
        ("loss = -torch.log(1.0 - torch.sigmoid(fake)).mean()", True),
        ("loss = -torch.log1p(-p).mean()", True),
        ("return -torch.log(p).mean()", False),
        ("return -torch.log(1 - p + 1e-7).mean()", False),
        ("log_p = log_p - torch.log(1 - action**2).sum(-1)", False),  # what tanh squashed
        ("log_p = log_p - (1 - action.pow(2)).log().sum(-1)", False),
    ],
)
def test_a_log_of_what_a_clamp_cannot_keep_from_zero(make, source: str, complement: bool) -> None:
    """Next to 1 float32 has no numbers closer than 6e-8: `p.clamp(1e-9, 1 - 1e-9)` leaves a 1 as it is."""
    steps = make.steps() | {"loss": [0.7] * 300 + [float("nan")] * 100}
    event = {"kind": "nonfinite-loss", "step": 300, "name": "", "text": "log of 0", "value": 1.0, "time": 1.0}
    line = {"site": 9, "role": "nonfinite", "file": "train.py", "line": 12, "function": "nll", "source": source}
    _, _, finding = make.check("loss-nonfinite", make.process(steps, events=[event], sites=[line]))
    assert ("float32 holds 1 - 1e-8 as 1" in finding.fix) == complement
    assert ("logsigmoid" in finding.fix_code) == complement
    assert finding.location.line == 12


@pytest.mark.parametrize(
    "norm",
    [
        np.concatenate([np.linspace(1, 9, 100), np.full(300, 9.0)]),  # warm-up
        np.where(np.arange(COUNT) == 300, 1e6, 1.0),  # one spike
        np.exp(np.random.default_rng(5).normal(0, 1, COUNT)),  # heavy tails
    ],
)
def test_exploding_gradients_is_silent(make, norm) -> None:
    assert make.check("exploding-gradients", make.process(make.steps() | {"grad_norm": norm.tolist()}))[0] == "passed"


@pytest.mark.parametrize(("lone", "status"), [(True, "passed"), (False, "fired")])
def test_norms_that_were_measured_where_single_losses_stood_out(make, lone: bool, status: str) -> None:
    """Late steps are looked at seldom, and where the loss stands out: most of the late norms are of such batches."""
    odd = np.arange(COUNT) % 12 == 0
    loss = np.where(odd, 900.0, 1.0) if lone else np.where(np.arange(COUNT) < 300, 1.0, 900.0)
    norm = [float(loss[step]) if step < 100 or odd[step] or step % 40 == 5 else None for step in range(COUNT)]
    norm = [1.0 if step < 100 else value for step, value in enumerate(norm)]
    steps = make.steps() | {"grad_norm": norm, "loss": loss.tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == status


def test_a_loss_that_runs_away_below_zero_is_an_explosion(make) -> None:
    growth = np.exp(np.linspace(0, 14, COUNT))
    steps = make.steps() | {"grad_norm": growth.tolist(), "loss": (1 - growth).tolist()}
    _, _, finding = make.check("exploding-gradients", make.process(steps))
    assert "wrong sign" in finding.summary
    assert "penalties" in finding.fix


def test_exploding_gradients_where_late_steps_are_looked_at_seldom(make) -> None:
    norm = np.exp(np.maximum(0, np.arange(COUNT) - 150) / 25)
    sampled = [float(value) if step < 100 or step % 25 == 24 else None for step, value in enumerate(norm)]
    steps = make.steps() | {"grad_norm": sampled, "loss": np.linspace(1, 30, COUNT).tolist()}
    assert make.check("exploding-gradients", make.process(steps))[0] == "fired"


@pytest.mark.parametrize(
    ("norm", "loss"),
    [
        (np.linspace(1, 400, COUNT), np.linspace(5, -300, COUNT)),  # density on a thin manifold
        (np.exp(np.linspace(0, 9, COUNT)), np.linspace(2, -8, COUNT)),  # flow whose likelihood still improves
        (np.ones(COUNT), -np.exp(np.linspace(0, 14, COUNT))),  # a linear objective
    ],
)
def test_losses_below_zero_are_no_explosion(make, norm, loss) -> None:
    steps = make.steps() | {"grad_norm": norm.tolist(), "loss": loss.tolist()}
    status, reason, _ = make.check("exploding-gradients", make.process(steps))
    assert status == "passed"
    assert ("but the loss improved" in reason) == (norm[-1] > 1000)


@pytest.mark.parametrize(
    ("operations", "lines", "example", "where"),
    [
        (
            "log at 0 in a branch that where() hides",
            ["rate = torch.where(r > 0, torch.log(r), zero)"],
            "rate = torch.where(r > 0, torch.log(r.clamp(min=1e-6)), zero)",
            True,
        ),
        ("sqrt at 0", ["d = s.sqrt()"], "d = s.add(1e-8).sqrt()", False),
        ("log at 0", ["a = torch.log(p)", "b = torch.log(q)"], "logarithm = torch.log(p.clamp(min=1e-6))", False),
        ("division by 0, sqrt at 0", ["d = s.sqrt()"], "d = s.add(1e-8).sqrt()", False),
        (
            "a power below 1 at 0",
            ["loss = -((1 - pt) ** gamma * logpt).mean()", "error = (a - b) ** 2", "rate = base ** epoch"],
            "loss = -((1 - pt).clamp(min=1e-6) ** gamma * logpt).mean()",
            False,
        ),
        ("a power below 1 at 0", ["a = p**g", "b = q.pow(0.5)"], "power = base.clamp(min=1e-6) ** exponent", False),
        ("acos at 1", [], "angle = torch.acos(cosine.clamp(-1 + 1e-6, 1 - 1e-6))", False),
        ("", [], "root = torch.sqrt(square + 1e-8)", False),
    ],
)
def test_the_example_is_of_the_operation_that_broke(
    make, operations: str, lines: list[str], example: str, where: bool
) -> None:
    steps = make.steps() | {"grads_nonfinite": [0] * 250 + [3] * 150, "loss": [1.0] * 251 + [float("nan")] * 149}
    events = [{"kind": "nonfinite-gradient", "name": "w", "step": 250, "time": 12.5, "text": operations}]
    sites = [
        {"site": number, "role": "singular", "file": "a.py", "line": 20 * number, "function": "loss", "source": line}
        | {"excerpt_line": 20 * number, "excerpt": line}
        for number, line in enumerate(lines, 1)
    ]
    finding = make.check("nonfinite-gradients", make.process(steps, events=events, sites=sites))[2]
    assert finding.fix_code == example
    assert ("inside of where()" in finding.fix) == where
    assert "hides" not in finding.summary, "which branch was taken is not known"


def test_exploding_gradients_does_not_judge_two_optimizers(make) -> None:
    steps = make.steps() | {"optimizer": [index % 2 for index in range(COUNT)], "grad_norm": list(range(1, COUNT + 1))}
    assert make.check("exploding-gradients", make.process(steps))[0] == "skipped"


def test_a_critic_that_nothing_bounds(make) -> None:
    """Two networks against each other: a loss below zero, and the gradients of both grow by orders of magnitude."""
    grown, level = np.exp(np.linspace(0, 7, COUNT)), np.exp(np.linspace(0, 2, COUNT))
    turns = [int(index % 5 == 4) for index in range(COUNT)]

    def outcome(norm, loss, samples=256, own_models=True, norm_of_other=None, sites=()):
        other = norm if norm_of_other is None else norm_of_other
        norms = [float((other if turn else norm)[index]) for index, turn in enumerate(turns)]
        losses = [float(np.log1p(norm[index])) if turn else float(loss[index]) for index, turn in enumerate(turns)]
        steps = make.steps() | {"optimizer": turns, "grad_norm": norms, "loss": losses}
        steps |= {"batch_size": [128 if turn else samples for turn in turns]}
        both = [{"optimizer": 0, "name": "Adam"}, {"optimizer": 1, "name": "Adam"}]
        links = [{"optimizer": 0, "model": int(own_models)}, {"optimizer": 1, "model": 0}, {"optimizer": 1, "other": 0}]
        return make.check(
            "exploding-gradients", make.process(steps, optimizers=both, sites=list(sites), more={"links": links})
        )

    status, _, finding = outcome(grown, -grown)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "Nothing bounds the critic" in finding.title
    assert "ends at" in finding.summary
    assert "penalty" in finding.fix
    assert outcome(level, -grown)[0] == "skipped", "a penalty keeps the slope where it is"
    assert outcome(grown, grown)[0] == "skipped", "an error or a cross-entropy, which has a lower end"
    assert outcome(grown, -grown, norm_of_other=level)[0] == "skipped"
    assert outcome(grown, -grown, samples=32)[0] == "skipped", "an actor, trained on as many samples as its critic"
    assert outcome(grown, -grown, own_models=False)[0] == "skipped", "two parts of one model"
    text = "slope = autograd.grad(score, mixed, torch.ones_like(score))[0]"
    slope = {"site": 9, "role": "slope", "file": "t.py", "line": 7, "function": "penalty", "source": text}
    slope |= {"excerpt": f"    {text}", "excerpt_line": 7}
    added = grown - 1.3  # a penalty that nothing lowers is added, and soon outweighs the scores
    assert outcome(grown, added)[0] == "skipped"
    status, _, finding = outcome(grown, added, sites=[slope])
    assert (status, finding.location.line) == ("fired", 7)
    assert finding.diff.added == [f"    {text.replace('))[0]', '), create_graph=True)[0]')}"]
    assert "bounds nothing" in finding.summary
    assert outcome(level, added, sites=[slope])[0] == "skipped", "an image's gradient that is looked at"
    assert outcome(grown, grown, sites=[slope])[0] == "skipped", "no loss below zero"
    some = np.exp(np.linspace(0, 4.2, COUNT))
    bounds = slope | {"role": "dropped", "function": "constrain"}
    for text in ("w.data.clamp(-c, c)", "p.clamp(-0.01, 0.01)"):
        in_vain = bounds | {"source": text, "excerpt": f"    {text}"}
        assert outcome(some, -grown, sites=[in_vain])[0] == "fired", "the bounded weights are dropped"
        assert outcome(level, -grown, sites=[in_vain])[0] == "skipped"
    assert outcome(some, -grown)[0] == "skipped"


def test_nonfinite_gradients_before_the_loss(make) -> None:
    steps = make.steps() | {
        "grads_nonfinite": [0] * 250 + [3] * 150,
        "loss": [1.0] * 251 + [float("nan")] * 149,
    }
    events = [{"kind": "nonfinite-gradient", "name": "head.weight", "step": 250, "time": 12.5}]
    status, _, finding = make.check("nonfinite-gradients", make.process(steps, events=events))
    assert status == "fired"
    assert finding.first_step == 251
    assert "head.weight" in finding.title
    counted = {one.name: one.value for one in finding.evidence}
    assert counted["steps with such gradients"] == 150
    looked = [0] * 250 + [3] + [None, 3, None] * 49 + [3, None]
    sampled = steps | {"grads_nonfinite": looked, "grad_norm": [None] * COUNT}
    _, _, finding = make.check("nonfinite-gradients", make.process(sampled, events=events))
    counted = {one.name: one.value for one in finding.evidence}
    assert "steps with such gradients" not in counted, "nobody looked at all of them"
    assert counted["steps whose gradients were looked at since"] == 51
    assert counted["of those looked at, steps with such gradients"] == 51


def test_a_clip_that_spreads_a_nan_tells_nothing_of_the_first(make) -> None:
    """It multiplies each gradient by a number that is made of the norm of all: which were NaN before is not known."""
    steps = make.steps() | {
        "grads_nonfinite": [8] * COUNT,
        "grad_norm": [float("nan")] * COUNT,
        "clips": [1] * COUNT,
        "loss": [1.0] + [float("nan")] * (COUNT - 1),
    }
    events = [{"kind": "nonfinite-gradient", "name": "stem.weight", "step": 0, "time": 0.1, "text": "sqrt at 0"}]
    for source, known in ((2, False), (1, True)):
        process = make.process(steps | {"grad_norm_source": [source] * COUNT}, events=events)
        finding = make.check("nonfinite-gradients", process)[2]
        assert ("stem.weight" in finding.title) is known
        assert (finding.evidence[0].name == "tensors with NaN or Inf") is known
        assert "grown without bound" not in finding.summary, "there was no step before"
        assert "sqrt at 0" in finding.summary
        assert ("stem.weight" in make.check("loss-nonfinite", process)[2].summary) is known
    later = steps | {"loss": [1.0] * COUNT, "grads_nonfinite": [0] * 9 + [8] * (COUNT - 9)}
    later |= {"grad_norm": [1.0] * 9 + [float("nan")] * (COUNT - 9), "grad_norm_source": [2] * COUNT}
    finding = make.check("nonfinite-gradients", make.process(later, events=[events[0] | {"step": 9}]))[2]
    assert "grown without bound, or one operation" in finding.summary
    assert "Between the loss and the parameters: sqrt at 0" in finding.summary


def test_nonfinite_gradients_is_silent(make) -> None:
    handled = make.steps() | {
        "grads_nonfinite": [3] + [0] * 399,
        "skipped": [True] + [False] * 399,
        "scale": [1.0] * 400,
    }
    assert make.check("nonfinite-gradients", make.process(handled))[0] == "passed"
    lost = make.steps() | {"grads_nonfinite": [0] * 250 + [3] * 150, "loss": [1.0] * 250 + [float("nan")] * 150}
    assert make.check("nonfinite-gradients", make.process(lost))[0] == "passed"


def test_gradients_of_the_step_before_a_nan_loss_that_nobody_looked_at(make) -> None:
    """They may have been NaN already, as those of sqrt(0) are: nothing is said of which broke first."""
    loss = [1.0] * 250 + [float("nan")] * 150
    norm = [1.0 if index % 50 == 0 else None for index in range(250)] + [float("nan")] * 150
    count = [0 if value else None for value in norm[:250]] + [8] * 150
    lost = make.process(make.steps() | {"loss": loss, "grad_norm": norm, "grads_nonfinite": count})
    status, reason, _ = make.check("nonfinite-gradients", lost)
    assert (status, "whether the gradients one step earlier were was not looked at" in reason) == ("skipped", True)
    summary = make.check("loss-nonfinite", lost)[2].summary
    assert "gradients of the step before were not looked at" in summary
    assert "Neither" not in summary
    watched = make.process(make.steps() | {"loss": loss, "grads_nonfinite": [0] * 250 + [8] * 150})
    assert "Neither loss nor gradient norm leapt before" in make.check("loss-nonfinite", watched)[2].summary
    first = make.steps() | {"loss": loss, "grad_norm": [1.0] * 249 + [float("nan")] * 151}
    assert "not finite first, at step 250" in make.check("loss-nonfinite", make.process(first))[2].summary


def test_a_norm_that_leaves_float32(make) -> None:
    """Its squares are added up in float32: an infinite norm is no infinite gradient yet."""
    norm = [float(value) for value in np.geomspace(1.0, 1e18, COUNT - 1)] + [float("inf")]
    grown = make.steps() | {"grad_norm": norm, "grads_nonfinite": [0] * (COUNT - 1) + [4]}
    _, _, finding = make.check("nonfinite-gradients", make.process(grown))
    assert (finding.confidence, finding.first_step) == ("likely", COUNT)
    assert "after it had grown to 1e+18" in finding.summary
    at_once = grown | {"grad_norm": [1.0] * (COUNT - 1) + [float("nan")]}
    assert make.check("nonfinite-gradients", make.process(at_once))[2].confidence == "certain"
    at_once |= {"backwards": [20] * COUNT}
    assert make.check("nonfinite-gradients", make.process(at_once))[2].confidence == "likely", "one loss of 20 is known"


def test_a_function_without_a_derivative_between_loss_and_parameters(make) -> None:
    event = {"time": 1.0, "step": 0, "kind": "flat-loss", "name": "sign", "text": ""}
    sites = [
        {"site": 1 + at, "role": "flat", "file": "train.py", "line": 10 + at, "function": where, "source": source}
        for at, (where, source) in enumerate(
            [("forward", "return torch.sign(h)"), ("make_data", "y = torch.sign(x @ w)"), ("forward", "h.round()")]
        )
    ]
    steps = make.steps() | {"grads_zero": [8] * COUNT}
    process = make.process(steps, sites=sites, evals={}, more={"events": [event]})
    finding = make.check("zero-gradients", process)[2]
    assert "goes through sign(), whose derivative is zero" in finding.summary
    assert "Line 10 calls it." in finding.summary
    assert finding.location.line == 10
    assert "(torch.sign(soft) - soft).detach()" in finding.fix_code
    assert "tanh" in finding.fix
    rounded = make.process(steps, evals={}, more={"events": [event | {"name": "round"}]})
    assert "Train on the input of round(), and" in make.check("zero-gradients", rounded)[2].fix
    assert "Every path from the loss" not in make.check("zero-gradients", make.process(steps, sites=sites))[2].summary


def test_gradient_spikes(make) -> None:
    norm = np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    norm[[150, 220, 310]] = 80
    status, _, finding = make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": norm.tolist()}))
    assert (status, finding.severity) == ("fired", "warning")
    assert "151, 221 and 311" in finding.summary
    for limit, status in ((2.0, "passed"), (50.0, "fired")):
        clipped = {"grad_norm": norm.tolist(), "clip_max_norm": [limit] * COUNT}
        assert make.check("gradient-spikes", make.process(make.steps() | clipped))[0] == status
    finding = make.check("gradient-spikes", make.process(make.steps() | clipped))[2]
    assert (finding.severity, "Clipping at 50 already limits" in finding.summary) == ("info", True)
    healthy = np.abs(1 + 0.3 * np.random.default_rng(0).standard_t(4, COUNT))
    assert make.check("gradient-spikes", make.process(make.steps() | {"grad_norm": healthy.tolist()}))[0] == "passed"
    for begin, end in ((0, 60), (70, 110)):  # large at first, or when a harder stage began
        bore = (np.arange(COUNT) >= begin) & (np.arange(COUNT) < end)
        stages = {"grad_norm": np.where(bore, 90.0, norm).tolist()}
        status, reason, _ = make.check("gradient-spikes", make.process(make.steps() | stages))
        assert (status, "usual earlier in the training" in reason) == ("passed", True)
    few = make.steps(50)
    status, reason, _ = make.check("gradient-spikes", make.process(few, evals={}))
    assert (status, reason) == ("skipped", "45 norms known after the first tenth of the run; 48 are needed.")


def test_gradients_that_leap_with_a_loss_which_stays_up_are_more_than_hard_batches(make) -> None:
    """The weights became worse: the update before was too large, as it is where the state of Adam is set to zero."""
    norm = np.exp(np.random.default_rng(0).normal(0, 0.3, COUNT))
    norm[[150, 220, 290]] = 80
    loss = np.full(COUNT, 0.1)
    single = loss.copy()
    single[[150, 220, 290]] = 5.0
    for at in (150, 220, 290):
        loss[at : at + 30] += 5 * np.exp(-np.arange(30) / 8)
    looks = [
        {"step": step, "optimizer": 0, "elements": 64, "parameter": "w", "weight_norm": 1.0, "update_norm": size}
        for step, size in ((1, 0.01), (2, 0.01), (16, 0.008), (54, 0.009), (150, 0.4))
    ]

    def judged(losses: np.ndarray, **more: Any) -> Any:
        steps = make.steps() | {"grad_norm": norm.tolist(), "loss": losses.tolist()}
        return make.check("gradient-spikes", make.process(steps, more=more))[2]

    found = judged(loss, parameters=looks)
    assert "Single batches do that" not in found.summary
    assert "The update of step 150, right before one of them, changed the weights by 40% of their size" in found.summary
    assert "They come every 70 steps" in found.summary
    assert found.fix.startswith("Check what the script does at the step before")
    assert "The update of step" not in judged(loss, parameters=looks[:-1]).summary
    assert "Single batches do that" in judged(single, parameters=looks).summary


def test_two_gradients_that_tower_above_all_others(make) -> None:
    random = np.random.default_rng(2)
    for count, at in ((90, [40, 70]), (250, [60, 200]), (300, [120, 121])):
        norm = np.exp(random.normal(0, 0.3, count))
        norm[at] = 120
        process = make.process(make.steps(count) | {"grad_norm": norm.tolist()}, evals={})
        status, _, finding = make.check("gradient-spikes", process)
        assert status == ("passed" if at[1] == at[0] + 1 else "fired")  # two in a row are a level
        if finding is not None:
            assert f"steps {at[0] + 1} and {at[1] + 1}" in finding.summary
    norm = np.exp(random.normal(0, 0.3, 250))
    norm[[130, 170, 210]] = 120
    looked = [value if index < 100 or value == 120 else None for index, value in enumerate(norm.tolist())]
    sparse = make.process(make.steps(250) | {"grad_norm": looked}, evals={})
    assert make.check("gradient-spikes", sparse)[0] == "fired", "steps between them were not looked at"
    for height, spread in ((20.0, 0.3), (120.0, 0.7)):  # not so high; amounts that are large by themselves
        norm = np.exp(random.normal(0, spread, 250))
        norm[[60, 200]] = height
        process = make.process(make.steps(250) | {"grad_norm": norm.tolist()}, evals={})
        assert make.check("gradient-spikes", process)[0] == "passed"


def test_an_explosion_that_began_with_one_batch(make) -> None:
    norm = np.exp(np.random.default_rng(3).normal(0, 0.2, COUNT))
    norm[160:] *= 1e5
    loss = np.append(np.linspace(2, 1, 160), np.full(COUNT - 160, 900.0))
    unknown = [None if index == 159 else value for index, value in enumerate(norm.tolist())]
    for known, told in ((norm.tolist(), True), (unknown, False)):
        steps = make.steps() | {"loss": loss.tolist(), "grad_norm": known}
        finding = make.check("exploding-gradients", make.process(steps))[2]
        assert ("It began with one batch: the loss leapt at step 161" in finding.summary) == told
        assert ("Look at the batch of step 161" in finding.fix) == told
    slower = make.steps() | {"loss": [*np.linspace(2, 1, 160), *np.geomspace(1, 900, 240)], "grad_norm": norm.tolist()}
    assert "one batch" not in make.check("exploding-gradients", make.process(slower))[2].summary


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
    timely = two_optimizers(make, norm | {"clipped_scaled": [False] * COUNT}, {"clips": [0] * COUNT})
    assert make.check("clip-before-unscale", timely)[0] == "passed"
    in_loop = two_optimizers(make, norm | {"clipped_scaled": [True] * COUNT}, {"clips": [0] * COUNT}, indent="    ")
    assert make.check("clip-before-unscale", in_loop)[2].diff is None, "the loop's variable is not known at the clip"


def test_clip_before_unscale(make) -> None:
    steps = make.steps() | {"clipped_scaled": [True] * COUNT, "scale": [1024.0] * COUNT, "clips": [1] * COUNT}
    status, _, finding = make.check("clip-before-unscale", make.process(steps))
    assert status == "fired"
    assert "1,024 times" in finding.summary
    right = make.steps() | {"clipped_scaled": [False] * COUNT}
    assert make.check("clip-before-unscale", make.process(right))[0] == "passed"
    once = make.steps() | {"clipped_scaled": [True] + [False] * (COUNT - 1)}
    assert make.check("clip-before-unscale", make.process(once))[0] == "passed"
    assert make.check("clip-before-unscale", make.process())[0] == "skipped"


@pytest.mark.parametrize(
    ("norm", "said"), [(6144.0, "would leave all of them; it left 0.000326"), (1e5, "would leave 0.328 of them")]
)
def test_what_a_clip_of_scaled_gradients_leaves(make, norm: float, said: str) -> None:
    """The scale is what the limit is wrong by; what is left of a gradient goes by its norm as well."""
    scaled = {"clipped_scaled": [True] * COUNT, "scale": [16384.0] * COUNT, "clips": [1] * COUNT}
    returned = {"grad_norm": [norm] * COUNT, "grad_norm_source": [2] * COUNT, "clip_max_norm": [2.0] * COUNT}
    finding = make.check("clip-before-unscale", make.process(make.steps() | scaled | returned))[2]
    assert said in finding.summary
    assert "learning rate" not in finding.summary


def test_unscaled_accumulation(make) -> None:
    steps = make.steps() | {"backwards": [4] * COUNT, "loader_batches": [4] * COUNT, "loss_divisor": [1.0] * COUNT}
    _, _, finding = make.check("unscaled-accumulation", make.process(steps))
    assert (finding.severity, finding.confidence) == ("warning", "possible")
    assert "4 times" in finding.summary
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
    unclipped = make.process(steps | {"clips": [0] * COUNT}, optimizers=adam, sites=sites)
    assert make.check("unscaled-accumulation", unclipped)[2].severity == "info"


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


def clipped(make, times: float = 12.0, bound: float = 0.5, **columns):
    """Steps whose norm before clipping is about `times` the bound."""
    steps = make.steps()
    norms = [bound * times * (1 + 0.3 * ((index * 7) % 11 - 5) / 5) for index in range(len(steps["step"]))]
    count = len(norms)
    usual = {"grad_norm": norms, "grad_norm_source": [2] * count, "clip_max_norm": [bound] * count}
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


def recurrent(make, kind: str = "RNN", varies: float = 9.0, gradient: float = 900.0, late: float | None = None) -> Any:
    spread = [varies] * 5 + [varies if late is None else late] * 5
    calls = [
        {"function": "mse_loss", "site": 3, "training": True, "step": 40 * look, "input_shape": "32x1",
         "target_shape": "32x1", "varies": one, "target_varies": 0.2}
        for look, one in enumerate(spread)
    ]  # fmt: skip
    weights = [
        {"step": step, "optimizer": 0, "parameter": "weight_hh_l0", "elements": 2304, "weight_norm": 1.0,
         "update_norm": 1e-3, "grad_norm": gradient, "lr": 0.01}
        for step in (1, 100, 250, 350)
    ]  # fmt: skip
    looks = [{"step": 1, "module": "layer", "kind": kind}] * (30 if kind == "Cell" else 1)
    more = {"loss_calls": calls, "parameters": weights, "activations": looks}
    return make.check("exploding-gradients", make.process(make.steps(), more=more))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "Cell"])
def test_a_recurrence_that_explodes_from_the_first_step(make, kind: str) -> None:
    status, reason, finding = recurrent(make, kind)
    assert status == "fired", reason
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "likely", 1)
    assert "positions of a sequence" in finding.title


def test_a_recurrence_that_settles(make) -> None:
    assert recurrent(make, late=0.3)[0] == "passed", "out of bounds at first, and trained all the same"
    assert recurrent(make, varies=0.15)[0] == "passed", "large gradients of sound predictions"
    assert recurrent(make, gradient=3.0)[0] == "passed", "targets that hardly differ"
    assert recurrent(make, "Linear")[0] == "passed"


def test_what_is_said_of_gradients_that_are_not_finite(make) -> None:
    """No more of the loss than was measured; of one bad step that the weights survived; of a norm alone."""

    def told(**columns: Any) -> Any:
        return make.check("nonfinite-gradients", make.process(make.steps() | columns))[2]

    once = told(grads_nonfinite=[0] * 250 + [3] + [0] * 149)
    assert once.confidence == "certain"
    assert "although the loss still was" in once.summary
    assert "Later losses are finite all the same" in once.summary
    assert "into the weights" not in once.summary
    for_good = told(grads_nonfinite=[0] * 250 + [3] * 150, loss=[1.0] * 251 + [math.nan] * 149)
    assert "they went into the weights. Either" in for_good.summary
    unknown = told(grads_nonfinite=[0] * 250 + [3] * 150, loss=[1.0] * 250 + [None] * 150)
    assert unknown.confidence == "likely"
    assert "The loss of that step is not known" in unknown.summary
    assert "unless the script drops them" in unknown.summary
    norm = [1.0] * 250 + [math.inf] * 150
    summed = told(grad_norm=norm, grads_nonfinite=[0] * 400)
    assert summed.title == "The gradient norm became Inf at step 251"
    assert "each gradient was a number" in summed.summary
    assert "learning rate" in summed.fix
    sampled = [0 if index % 50 == 0 else None for index in range(250)] + [3] * 150
    seldom = told(grads_nonfinite=sampled, grad_norm=[None] * 400, clips=[1] * 400)
    assert seldom.title == "Gradients became NaN or Inf at step 251", "earlier ones would have broken its loss"
    blind = told(grads_nonfinite=sampled, grad_norm=[None] * 400, loss=[None] * 400)
    assert blind.title == "Gradients became NaN or Inf by step 251"
    assert "Clip gradients" not in seldom.fix, "the script does"


def test_a_clip_of_the_gradients_of_a_sum_by_the_second_of_two_optimizers(make: Any) -> None:
    """Calls of loss functions are counted by the steps of both."""
    columns = clipped(make)
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


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("sqrt at 0 in a branch that where() hides, sqrt at 0", "sqrt at 0 in a branch of where() and outside of it"),
        ("sqrt at 0, log at 0 in a branch that where() hides", "sqrt at 0, log at 0 in a branch of where()"),
        ("division by 0", "division by 0"),
    ],
)
def test_an_operation_in_a_branch_and_elsewhere_is_named_once(recorded: str, told: str) -> None:
    assert singular_gradients.told(recorded) == told


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
BEFORE = "loss = f(model(x), y)\nloss = loss / args.accumulate\naccelerator.backward(loss)"


@pytest.mark.parametrize(
    ("divisor", "count", "text", "line", "added"),
    [
        (64.0, 8, OF_ACCELERATE, 2, ["accelerator.backward(loss)"]),
        (4.0, 2, OF_ACCELERATE, 2, ["accelerator.backward(loss)"]),
        (16.0, 4, BEFORE, 2, None),
        (16.0, 4, "loss = f(model(x), y) / 4\naccelerator.backward(loss)", 1, ["loss = f(model(x), y)"]),
        (16.0, 4, "loss = f(model(x), y) / 4\ntrainer.fit(net)", 1, ["loss = f(model(x), y)"]),
        (16.0, 4, BY_HAND, 2, None),  # which of the two is to go is not known
    ],
)
def test_losses_that_are_divided_twice(make, divisor, count, text, line, added) -> None:
    status, _, finding = divided_by(make, divisor, count, text.split("\n")[-1], text)
    assert status == "fired"
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

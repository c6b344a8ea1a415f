"""Rules about gradients that are not cleared, or at the wrong place, and the healthy look-alikes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

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


@pytest.mark.parametrize("alone", [True, False])
def test_what_is_cleared_around_validations_says_nothing_of_the_loop(make, alone: bool) -> None:
    """As by Lightning, and where mostly the steps behind a validation are looked at."""
    behind = [index for index in range(COUNT) if index % 50 == 0]
    old = [(8 if alone else 3) if index < 40 else None for index in range(COUNT)]
    steps = make.steps() | {"grads_carried": [0 if index in behind else old[index] for index in range(COUNT)]}
    rule = "missing-zero-grad" if alone else "partial-zero-grad"
    evals = {"time_start": [0.05 * index + 0.01 for index in behind[1:]], "after_step": behind[1:]}
    found = make.check(rule, make.process(steps, evals=evals))[2]
    assert (found.first_step, found.evidence[0].value) == (2, 1.0)
    assert found.title.startswith("Gradients are cleared only now and then" if alone else "3 of 8 gradients are hardly")
    if not alone:
        assert "kept their old gradients in all steps but the first behind each validation" in found.summary
    evals["time_start"] = [at + 1.0 for at in evals["time_start"]]
    assert make.check(rule, make.process(steps, evals=evals))[0] == "passed", "what clears them there is not known"


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

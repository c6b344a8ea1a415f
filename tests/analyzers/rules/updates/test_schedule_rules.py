"""Rules about learning-rate schedules, and the schedules that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.analyzers.sites import sites_of
from tracelyze.diagnosis import Exit

COUNT = 400


def scheduler(name: str, **columns: Any) -> dict[str, Any]:
    return {
        "scheduler": 0, "name": name, "optimizer": 0, "shares_parameters": False, "inner": False, "steps": COUNT,
        "optimizer_steps": COUNT, "base_lr": 0.01, "lowest_lr": 0.001, "highest_lr": 0.01, "site": 3, **columns,
    }  # fmt: skip


FALLING = [0.01 * (1 - index / COUNT) for index in range(COUNT)]


CLIMBING = [0.0001 * (1 + index // 100) for index in range(COUNT)]


FLAT = [0.01] * COUNT


@pytest.mark.parametrize(
    ("rates", "source", "fix", "code"),
    [
        ([0.0] * COUNT, {}, "Give the optimizer a rate above zero", "lr=0.001"),
        ([0.01] * 100 + [0.0] * 300, {}, "Look at the line that sets the rate", ""),
        ([0.0] * COUNT, {"source": {"kind": "csv"}}, "Give the schedule the actual number", "T_max"),  # not known
    ],
)
def test_a_rate_of_zero_that_no_scheduler_makes(make, rates: list[float], source: Any, fix: str, code: str) -> None:
    finding = make.check("learning-rate-schedule", make.process(make.steps() | {"lr": rates}, facts=source))[2]
    assert finding.fix.startswith(fix)
    assert code in finding.fix_code
    assert bool(finding.fix_code) == bool(code)


@pytest.mark.parametrize(
    ("rates", "row", "words"),
    [
        ([0.0] * COUNT, scheduler("LambdaLR"), "in the whole run"),
        ([0.01] * 100 + [0.0] * 300, scheduler("LinearLR"), "from step 101 on"),
        ([0.01] * 100 + [1e-10] * 300, scheduler("ExponentialLR"), "from step 101 on"),
        (FALLING, scheduler("CosineAnnealingLR", horizon=4), "stepped after every batch"),
        (FLAT, scheduler("OneCycleLR", horizon=COUNT, steps=4), "is stepped only 4 times"),
        (CLIMBING, scheduler("LambdaLR", steps=4), "is stepped only 4 times"),
        (FLAT, scheduler("CosineAnnealingLR", horizon=4, steps=0), "never stepped"),
        (FALLING, scheduler("StepLR", steps=4, early=1, first_lr=0.01), "before the optimizer"),
        (FLAT, scheduler("StepLR", optimizer=None, shares_parameters=True, steps=4), "never steps"),
        (CLIMBING, scheduler("LambdaLR", steps=COUNT), ""),  # a warm-up that is longer than the run
    ],
)
def test_learning_rate_schedule(make, rates: list[float], row: dict[str, Any], words: str) -> None:
    process = make.process(make.steps() | {"lr": rates}, more={"schedules": [row]})
    status, reason, finding = make.check("learning-rate-schedule", process)
    assert status == "fired", reason
    assert words in finding.title


@pytest.mark.parametrize(
    ("name", "then"),
    [("CosineAnnealingLR", "then rises and falls again, over and over"), ("PolynomialLR", "stays there")],
)
def test_what_a_rate_does_beyond_the_length_of_its_schedule(make: Any, name: str, then: str) -> None:
    rates = (0.01 + 0.009 * np.cos(np.pi * np.arange(COUNT) / 4)).tolist()
    process = make.process(make.steps() | {"lr": rates}, more={"schedules": [scheduler(name, horizon=4)]})
    finding = make.check("learning-rate-schedule", process)[2]
    assert f"reaches its end within 4 batches, and {then}." in finding.summary


@pytest.mark.parametrize(
    ("at", "factor", "steps", "status"),
    [
        ((2, 4), 0.1, COUNT, "fired"),  # of four epochs
        ((4,), 0.1, COUNT, "fired"),
        ((2, 5), 0.1, COUNT, "passed"),  # no epochs: there are fewer
        ((200, 300), 0.1, COUNT, "passed"),  # in batches
        ((200, 300), 0.1, 4, "passed"),  # stepped per epoch
        ((1, 3), 2.0, COUNT, "passed"),  # a warm-up in stairs
    ],
)
def test_milestones_in_epochs_that_batches_pass(
    make: Any, at: tuple[int, ...], factor: float, steps: int, status: str
) -> None:
    rates = [0.01 * factor ** sum(index >= one for one in at) for index in range(COUNT)]
    process = make.process(make.steps() | {"lr": rates}, more={"schedules": [scheduler("MultiStepLR", steps=steps)]})
    got, _, finding = make.check("learning-rate-schedule", process)
    assert got == status
    if finding is not None:
        assert (finding.confidence, finding.first_step) == ("likely", at[0] + 1)
        assert f"after {' and '.join(map(str, at))} of 400 batches" in finding.summary


def test_a_scheduler_that_hardly_begins_is_told_by_what_its_rate_does(make: Any) -> None:
    for rates, row, said in (
        (CLIMBING, scheduler("LambdaLR", steps=4), "the rate climbs"),
        (FLAT, scheduler("OneCycleLR", horizon=COUNT, steps=4), "made for 400 steps of its own: the rate begins at"),
    ):
        process = make.process(make.steps() | {"lr": rates}, more={"schedules": [row]})
        summary = make.check("learning-rate-schedule", process)[2].summary
        assert summary.startswith("It was stepped once every 100 optimizer steps")
        assert said in summary


def test_a_warm_up_that_is_too_long_is_made_shorter_and_not_stepped_otherwise(make) -> None:
    line = [0.01 * (index + 1) / 10_000 for index in range(COUNT)]
    row = scheduler("LambdaLR", steps=COUNT)
    _, _, finding = make.check(
        "learning-rate-schedule", make.process(make.steps() | {"lr": line}, more={"schedules": [row]})
    )
    assert finding.summary.endswith("As it climbs, it would take about 10,000 steps.")
    assert (
        finding.fix_code
        == "total_steps = 400  # all that this training makes\nwarmup_steps = 20  # a twentieth of them"
    )
    stairs = make.process(make.steps() | {"lr": CLIMBING}, more={"schedules": [row]})
    assert "would take" not in make.check("learning-rate-schedule", stairs)[2].summary


@pytest.mark.parametrize(
    ("rates", "backwards", "status"),
    [
        ([0.01 * index / 640 for index in range(COUNT)], 16, "fired"),
        ([0.01 * index / 640 for index in range(COUNT)], 1, "passed"),  # nothing is accumulated: perhaps a trial run
        (
            [0.01 * index / COUNT for index in range(COUNT)],
            16,
            "passed",
        ),  # a test of rates, up to the one that is given
        ([0.01 * (index / 640) ** 2 for index in range(COUNT)], 16, "passed"),  # no line: its length is not known
        ([0.01 * min(1.0, index / 300) for index in range(COUNT)], 16, "passed"),  # warmed up
    ],
)
def test_a_warm_up_that_counts_batches_of_which_a_step_accumulates_several(
    make: Any, rates: list[float], backwards: int, status: str
) -> None:
    steps = make.steps() | {"lr": rates, "backwards": [backwards] * COUNT}
    process = make.process(steps, more={"schedules": [scheduler("LambdaLR", steps=COUNT)]})
    got, _, finding = make.check("learning-rate-schedule", process)
    assert got == status
    if finding is not None:
        assert finding.confidence == "likely"
        assert "accumulates 16 batches: counted in batches, 640 make 40 steps" in finding.summary
        assert "warmup_steps = 40  # 640 batches" in finding.fix_code


def test_a_scheduler_that_is_stepped_for_another_optimizer_is_not_called_idle(make) -> None:
    """A function that makes optimizer and scheduler is called twice: one scheduler waits, the other is stepped."""
    idle = scheduler("LambdaLR", steps=0, lowest_lr=None, highest_lr=None)
    other = scheduler("LambdaLR", optimizer=None, shares_parameters=True, steps=COUNT, optimizer_steps=0)
    process = make.process(
        make.steps() | {"lr": FLAT}, more={"schedules": [idle, other | {"scheduler": 1, "made_at": 3}]}
    )
    finding = make.check("learning-rate-schedule", process)[2]
    assert "an optimizer that never steps" in finding.title
    assert "called twice" in finding.summary
    stepped = make.process(
        make.steps() | {"lr": FLAT}, more={"schedules": [idle | {"steps": COUNT}, other | {"scheduler": 1}]}
    )
    assert "never steps" not in str(make.check("learning-rate-schedule", stepped))


def test_a_function_that_makes_optimizer_and_scheduler_was_called_twice(make) -> None:
    """One optimizer steps, and of the scheduler that is stepped it is the other one that never does."""
    made = {"site": 5, "role": "scheduler", "file": "t.py", "line": 58, "function": "configure_optimizers"}
    waits = scheduler("LambdaLR", steps=0)
    stepped = scheduler("LambdaLR", scheduler=1, optimizer=None, shares_parameters=True, early=1, made_at=5)
    sites = [made | {"source": "scheduler = LambdaLR(optim, warm)"}]
    process = make.process(make.steps() | {"lr": FLAT}, sites=sites, more={"schedules": [waits, stepped]})
    _, _, finding = make.check("learning-rate-schedule", process)
    assert "drives an optimizer that never steps" in finding.title
    assert "as if configure_optimizers had been called twice" in finding.summary
    assert "made = model.configure_optimizers()  # once" in finding.fix_code
    alone = make.process(make.steps() | {"lr": FLAT}, more={"schedules": [waits]})
    assert "never stepped" in make.check("learning-rate-schedule", alone)[2].title


LEAPING = [0.002] * 150 + [0.2] + [0.0004] * 249


SETTLED = [1.0 / (1 + index / 10) for index in range(COUNT)]


THROWN = SETTLED[:151] + [SETTLED[index] + 2.0 for index in range(151, COUNT)]


def test_a_rate_that_leaps_and_throws_the_training_back(make) -> None:
    def judged(rates: list[float], losses: list[float]) -> Any:
        process = make.process(make.steps() | {"lr": rates, "loss": losses})
        return make.check("learning-rate-schedule", process)

    status, _, finding = judged(LEAPING, THROWN)
    assert (status, finding.severity, finding.confidence, finding.first_step) == ("fired", "warning", "likely", 151)
    assert finding.title == "The learning rate jumps from 0.002 to 0.2 at step 151; the loss follows"
    assert "Check what the schedule returns" in finding.fix
    assert judged(LEAPING, SETTLED)[0] == "passed", "it does no harm"
    restarts = [0.02 * (1 - (index % 50) / 50) + 1e-4 for index in range(COUNT)]
    assert judged(restarts, THROWN)[0] == "passed", "restarts come back to a rate that was there before"
    warm_up = [min(0.02, 1e-5 * (index + 1)) for index in range(COUNT)]
    assert judged(warm_up, THROWN)[0] == "passed"
    frozen = [0.0] * 150 + [0.01] * 250
    assert "leaps" not in str(getattr(judged(frozen, THROWN)[2], "title", "")), "a group that rested"


@pytest.mark.parametrize(
    ("sources", "line"),
    [
        (["group['lr'] = 2e-1"], 80),
        (["group['lr'] = 2e-1", "group['lr'] = 4e-4"], 60),  # which of them is not known
        (["rates.append(group['lr'])"], 60),
    ],
)
def test_a_rate_that_leaps_where_one_line_sets_it(make, sources: list[str], line: int) -> None:
    steps = make.steps() | {"lr": LEAPING, "loss": THROWN}
    sites = [{"site": 1, "role": "step", "file": "t.py", "line": 60, "function": "main", "source": "optimizer.step()"}]
    sites += [
        {
            "site": 2 + at,
            "role": "rate-text",
            "file": "t.py",
            "line": 80 + 20 * at,
            "function": "main",
            "source": source,
        }
        for at, source in enumerate(sources)
    ]
    finding = make.check("learning-rate-schedule", make.process(steps, sites=sites))[2]
    assert finding.location.line == line
    assert ("0.002 went well" in finding.fix) == finding.summary.startswith("Line 80 sets a rate") == (line == 80)


def test_a_schedule_of_too_few_steps_is_lengthened_in_the_line_that_makes_it(make) -> None:
    rates = make.steps() | {"lr": [0.01] * 100 + [0.0] * 300}
    for source, expected in (
        ("s = get_linear_schedule_with_warmup(opt, 1, num_training_steps=args.epochs)", "num_training_steps=epochs * "),
        ("s = CosineAnnealingLR(opt, T_max=epochs)", "s = CosineAnnealingLR(opt, T_max=epochs * len("),
        ("num_training_steps=args.epochs)", "T_max=epochs * len("),  # the end of a longer statement
        ("s = get_scheduler(args)", "T_max=epochs * len("),
    ):
        sites = [{"site": 3, "role": "scheduler", "file": "train.py", "line": 28, "source": source}]
        row = scheduler("LambdaLR", steps=COUNT, site=1, made_at=3)
        process = make.process(rates, sites=sites, more={"schedules": [row]})
        assert expected in make.check("learning-rate-schedule", process)[2].fix_code


def test_a_scheduler_that_takes_several_steps_with_each_of_the_optimizer(make) -> None:
    """Accelerate has a prepared one take a step for each process; in a loop that accumulates, it is stepped with each
    micro-batch. Its length, written out by the script, is right for the steps of the optimizer."""
    made = {"site": 3, "role": "scheduler", "file": "train.py", "line": 28, "function": "main"}
    prepared = "s = accelerator.prepare(warm(opt, num_warmup_steps=int(0.1 * n), num_training_steps=n))"
    plain = "s = warm(opt, num_warmup_steps=10, num_training_steps=n)"

    def judged(source: str, times: int, zero_from: int, ranks: int = 1, around: str = "", below: str = "") -> Any:
        rates = make.steps() | {"lr": [0.01] * zero_from + [0.0] * (COUNT - zero_from)}
        row = scheduler("LambdaLR", steps=times * COUNT, site=1, made_at=3)
        facts = {"world_size": ranks}
        step = made | {"site": 1, "role": "schedule", "line": 40, "source": "s.step()"}
        step |= {"excerpt_line": 39, "excerpt": f"    {around}\n        s.step()"} if around else {}
        backward = made | {"site": 4, "role": "backward", "line": 38, "source": "accelerator.backward(loss)"}
        made_at = made | {"source": source, "excerpt_line": 28, "excerpt": f"    {source}\n    {below}"}
        sites = [made_at, step, *([backward] if around else [])]
        process = make.process(rates, sites=sites, facts=facts, more={"schedules": [row]})
        return make.check("learning-rate-schedule", process)[2]

    found = judged(prepared, 2, COUNT // 2, ranks=2)
    assert "takes 2 steps with each step of the optimizer: 800 steps in 400" in found.summary
    assert "for each of the 2 processes" in found.summary
    assert "num_training_steps=n * accelerator.num_processes)" in found.fix_code
    assert "num_warmup_steps=int(0.1 * n) * accelerator.num_processes," in found.fix_code
    assert found.location.line == 28
    accumulated = judged(plain, 4, COUNT // 4)
    assert "takes 4 steps with each step of the optimizer" in accumulated.summary
    assert "processes" not in accumulated.summary
    assert accumulated.location.line == 40
    skipped = judged(plain, 4, COUNT // 4, around="with accelerator.accumulate(model):")
    assert skipped.fix_code == "if accelerator.sync_gradients:\n    s.step()"
    skipped = judged(plain, 4, COUNT // 4, around="with accelerator.accumulate(model):", below="m, opt = f(m, opt)")
    assert skipped.location.line == 40
    prepares = "m, opt = accelerator.prepare(m, opt)"
    left_out = judged(plain, 4, COUNT // 4, around="with accelerator.accumulate(model):", below=prepares)
    assert (left_out.location.line, left_out.seen_at.line) == (29, 40)
    assert left_out.fix_code == "m, opt, s = accelerator.prepare(m, opt, s)"
    assert "only here" in judged(plain, 4, COUNT // 4, around="if accelerator.is_main_process:").fix_code
    for other in (judged(plain, 1, COUNT // 2), judged(plain, 4, COUNT // 2)):  # its length counts something else
        assert "with each step" not in other.summary


@pytest.mark.parametrize(
    ("line", "times", "changed", "fires"),
    [
        ("s = accelerator.prepare(cosine(opt, num_warmup_steps=10, num_training_steps=n))", 2, "", True),
        ("s = accelerator.prepare(cosine(opt, num_warmup_steps=10, num_training_steps=n))", 1, "", False),
        ("s = accelerator.prepare(cosine(opt, num_training_steps=n, num_cycles=1.0))", 2, "", False),  # on purpose
        ("s = accelerator.prepare(cosine(opt, num_warmup_steps=10, num_training_steps=n))", 2, "leaps", False),
        ("s = accelerator.prepare(cosine(opt, num_warmup_steps=10, num_training_steps=n))", 2, "early", False),
        ("s = accelerator.prepare(cosine(opt, num_warmup_steps=10, num_training_steps=n))", 2, "to a tenth", False),
    ],
)
def test_a_cosine_that_is_gone_through_twice_climbs_again(
    make, line: str, times: int, changed: str, fires: bool
) -> None:
    """A scheduler that Accelerate prepared takes a step for each process, and zero comes in the middle."""
    half = COUNT // 5 if changed == "early" else COUNT // 2
    falls = [0.005 * (1 + np.cos(np.pi * at / half)) for at in range(half)]
    climbs = [0.01] * (COUNT - half) if changed == "leaps" else falls[::-1]
    rate = [*falls, *climbs, *[0.01] * COUNT][:COUNT]
    rate = [max(one, 0.001) for one in rate] if changed == "to a tenth" else rate
    sites = [
        {"site": 3, "role": "scheduler", "file": "train.py", "line": 28, "function": "main", "source": line},
        {"site": 1, "role": "schedule", "file": "train.py", "line": 40, "function": "main", "source": "s.step()"},
    ]
    row = scheduler("LambdaLR", steps=times * COUNT, site=1, made_at=3)
    process = make.process(make.steps() | {"lr": rate}, sites=sites, facts={"world_size": 2}, more={"schedules": [row]})
    status, _, finding = make.check("learning-rate-schedule", process)
    assert (status == "fired") is fires
    if fires:
        assert (finding.confidence, finding.location.line, finding.cost) == ("likely", 28, None)
        assert finding.title.endswith("by step 200 of 400 and climbs again") or "by step 201" in finding.title
        assert "takes 2 steps with each step of the optimizer" in finding.summary
        assert "num_training_steps=n * accelerator.num_processes)" in finding.fix_code


def test_a_factor_of_zero_is_what_sets_the_rate_to_zero(make) -> None:
    rates = make.steps() | {"lr": [0.01] * 100 + [0.0] * 300}
    for source, expected in (
        ("self.s = StepLR(opt, step_size=2, gamma=0, last_epoch=-1)", "step_size=2, gamma=0.1, last_epoch=-1)"),
        ("self.s = StepLR(opt, step_size=2, gamma=0.5)", "T_max=epochs * len("),
    ):
        sites = [{"site": 3, "role": "scheduler", "file": "train.py", "line": 28, "source": source}]
        row = scheduler("StepLR", steps=4, site=1, made_at=3)
        finding = make.check("learning-rate-schedule", make.process(rates, sites=sites, more={"schedules": [row]}))[2]
        assert expected in finding.fix_code
        assert ("gamma=0 at" in finding.summary) == ("gamma=0," in source)


def test_a_decay_per_batch_names_the_line_that_steps(make) -> None:
    rates = make.steps() | {"lr": [0.01] * 100 + [1e-10] * 300}
    for name, line in (("ExponentialLR", 41), ("LambdaLR", 60)):  # a schedule with a form of its own: where it is made
        row = scheduler(name, steps=COUNT, site=1, made_at=3)
        _, _, finding = make.check("learning-rate-schedule", make.process(rates, more={"schedules": [row]}))
        assert finding.location.line == line


@pytest.mark.parametrize(
    ("function", "stepped", "line"),
    [
        ("main", "scheduler.step()", 60),
        ("main", "trainer.fit(model, loader)", 9),
        ("configure_optimizers", "self.lr_schedulers().step()", 9),  # what it returns says when it is stepped
    ],
)
@pytest.mark.parametrize(
    ("name", "columns"),
    [("OneCycleLR", {"horizon": COUNT, "steps": 4}), ("CosineAnnealingLR", {"horizon": 4, "steps": COUNT})],
)
def test_a_scheduler_that_is_stepped_in_another_unit_names_the_line_that_steps_it(
    make, function: str, stepped: str, line: int, name: str, columns: dict[str, Any]
) -> None:
    at = {"file": "a.py"}
    sites = [
        {"site": 7, "role": "scheduler", "line": 9, "function": function, "source": f"s = {name}(opt)", **at},
        {"site": 8, "role": "scheduler-step", "line": 60, "function": "main", "source": stepped, **at},
        {"site": 9, "role": "step", "line": 50, "function": "epoch", "source": "opt.step()", **at},
    ]
    row = scheduler(name, site=8, made_at=7, **columns)
    rates = make.steps() | {"lr": FLAT if columns["steps"] == 4 else FALLING}
    finding = make.check("learning-rate-schedule", make.process(rates, more={"schedules": [row]}, sites=sites))[2]
    assert finding.location.line == line
    assert ("after every optimizer step (line 50)" in finding.fix) == (columns["steps"] == 4)
    assert ("its length count epochs (line 9)" in finding.fix) == (columns["steps"] == 4)


@pytest.mark.parametrize(
    ("horizon", "length", "fix"),
    [
        (100, "cfg.updates", "total_iters=cfg.updates * 4)"),
        (100, "cfg.updates + 1", "total_iters=(cfg.updates + 1) * 4)"),
        (110, "cfg.updates", "total_iters=epochs * len(loader))"),  # no whole number of times: another length
    ],
)
def test_a_length_in_another_unit_is_multiplied(make, horizon: int, length: str, fix: str) -> None:
    line = f"sched = LinearLR(opt, 1.0, 0.0, total_iters={length})"
    made = {"site": 7, "role": "scheduler", "file": "a.py", "line": 9, "function": "main", "source": line}
    made |= {"excerpt": f"    {line}", "excerpt_line": 9}
    rates = make.steps() | {"lr": [0.01] * horizon + [0.0] * (COUNT - horizon)}
    row = scheduler("LinearLR", horizon=horizon, made_at=7)
    finding = make.check("learning-rate-schedule", make.process(rates, more={"schedules": [row]}, sites=[made]))[2]
    assert finding.location.line == 9
    assert finding.fix_code.endswith(fix)
    assert ("is stepped 4 times for each step that it counts" in finding.fix) == ("* 4" in fix)


@pytest.mark.parametrize(
    ("rates", "row", "end"),
    [
        ([*FALLING[:-1], 0.0], scheduler("LinearLR", horizon=COUNT), None),
        ([0.01] * 390 + [0.0] * 10, scheduler("LinearLR", horizon=390), None),
        (FALLING, scheduler("CosineAnnealingLR", horizon=COUNT), None),
        (FALLING, scheduler("CosineAnnealingLR", horizon=4, steps=4), None),
        (FALLING, scheduler("CosineAnnealingLR", horizon=80), None),  # restarts on purpose
        (FALLING, scheduler("StepLR", steps=4, early=3, first_lr=0.01), None),  # brought to where it was
        (FLAT, scheduler("MultiStepLR", steps=4), None),  # a milestone that did not come
        (FLAT, scheduler("ReduceLROnPlateau", steps=4), None),
        (CLIMBING, scheduler("LambdaLR", steps=4), Exit("interrupted", 130)),
        (FLAT, scheduler("CosineAnnealingLR", steps=0), Exit("signal", -9)),
        (FLAT, scheduler("SWALR", steps=0), None),  # early stopping came first
        (FLAT, scheduler("StepLR", optimizer=None, steps=4), None),  # another model's
    ],
)
def test_schedules_that_fit(make, rates: list[float], row: dict[str, Any], end: Exit | None) -> None:
    process = make.process(make.steps() | {"lr": rates}, more={"schedules": [row]}, end=end)
    assert make.check("learning-rate-schedule", process)[0] == "passed"


@pytest.mark.parametrize(
    ("steps", "differ", "severity", "fix"),
    [
        (COUNT, 0.0, "info", "end the training there"),  # each step sees all data
        (COUNT, 0.1, "warning", "once per epoch"),
        (8, 0.1, "info", "end the training there"),  # stepped with each epoch, as it is meant
    ],
)
def test_a_rate_that_plateaus_have_cut_to_nothing(make, steps: int, differ: float, severity: str, fix: str) -> None:
    """The scheduler did what it is for; what kept its value up comes first, where that is known."""
    losses = 0.5 + differ * np.sin(np.arange(COUNT))
    rates = make.steps() | {"lr": [0.01] * 100 + [1e-9] * 300, "loss": losses.tolist()}
    row = scheduler(
        "ReduceLROnPlateau", mode="min", watched_first=2.0, watched_last=0.5, steps=steps, site=7, made_at=8
    )
    made = "s = ReduceLROnPlateau(opt)"
    lines = [
        {"site": 7, "role": "schedule", "file": "a.py", "line": 20, "function": "fit", "source": "s.step(value)"},
        {"site": 8, "role": "scheduler", "file": "a.py", "line": 9, "function": "fit", "source": made},
    ]
    process = make.process(rates, more={"schedules": [row]}, sites=lines)
    found, _, finding = make.check("learning-rate-schedule", process)
    assert (found, finding.severity) == ("fired", severity)
    assert fix in finding.fix
    assert finding.traits == {"cut-at-a-plateau"}
    assert "from 2 to 0.5" in finding.summary
    assert "T_max" not in finding.fix_code
    assert finding.fix_code == "s = ReduceLROnPlateau(opt, min_lr=1e-5)" or severity == "warning"


@pytest.mark.parametrize(
    ("first", "last", "stepped", "status"),
    [
        (39 / 210, 88 / 210, 'sched.step(acc["val"])', "fired"),  # of some nodes of a graph
        (3900 / 210, 8800 / 210, "sched.step(accuracy)", "fired"),
        (39 / 210, 88 / 210, "sched.step(error_rate)", "passed"),  # is to fall
        (0.18571, 0.41905, "sched.step(value)", "passed"),  # no whole number of any few samples
        (0.5, 0.81234567, "sched.step(value)", "passed"),  # a half is one of any even number
        (0.0, 88 / 210, "sched.step(value)", "passed"),
        (88 / 210, 39 / 210, "sched.step(value)", "passed"),
        (1.0, 10.0, "sched.step(value)", "passed"),  # a perplexity that rises
    ],
)
def test_a_plateau_of_a_share_that_rises(make, first: float, last: float, stepped: str, status: str) -> None:
    row = scheduler("ReduceLROnPlateau", mode="min", watched_first=first, watched_last=last, site=7, made_at=8)
    lines = [
        {"site": 7, "role": "schedule", "file": "a.py", "line": 20, "function": "fit", "source": stepped},
        {"site": 8, "role": "scheduler", "file": "a.py", "line": 9, "function": "fit", "source": "s = Plateau(opt)"},
    ]
    process = make.process(make.steps() | {"lr": [*FALLING[:-1], 0.001]}, more={"schedules": [row]}, sites=lines)
    found, _, finding = make.check("learning-rate-schedule", process)
    assert found == status
    assert finding is None or (finding.location.line == 9 and 'mode="max"' in finding.fix)


@pytest.mark.parametrize(
    ("first", "last", "stepped", "status"),
    [
        (2.4, 0.9, "plateau.step(val)", "fired"),  # the mean of samples, not of batches
        (2.4, 0.9, "plateau.step(accuracy)", "passed"),
        (2.4, 2.3, "plateau.step(val)", "passed"),
        (0.7, 0.2, "plateau.step(val)", "passed"),  # another value than the loss
        (0.0, -5.0, "plateau.step(val)", "passed"),  # a likelihood
    ],
)
def test_a_plateau_of_what_goes_with_a_loss(make, first: float, last: float, stepped: str, status: str) -> None:
    row = scheduler("ReduceLROnPlateau", mode="max", steps=4, watched_first=first, watched_last=last, site=7, made_at=8)
    lines = [
        {"site": 7, "role": "schedule", "file": "a.py", "line": 20, "function": "fit", "source": stepped},
        {"site": 8, "role": "scheduler", "file": "a.py", "line": 9, "function": "fit", "source": "s = Plateau(opt)"},
    ]
    falling = [loss for loss in (2.0, 1.5, 1.2, 1.0) for _ in range(COUNT // 4)]
    steps = make.steps() | {"lr": [*FALLING[:-1], 0.001], "loss": falling}
    process = make.process(steps, more={"schedules": [row]}, sites=lines)
    assert make.check("learning-rate-schedule", process)[0] == status


HELPERS = """class Trainer:
    def build_optimizer(self):
        return torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def build_scheduler(self, optimizer):
        return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)

    def replace_head(self, classes):
        self.optimizer = self.build_optimizer()

    def train_epoch(self):
        self.scheduler.step()"""


@pytest.mark.parametrize(
    ("change", "line", "code"),
    [
        (("", ""), 9, "# below line 9:\nself.scheduler = self.build_scheduler(self.optimizer)"),
        (("self.optimizer = self.build", "return self.build"), 6, "LambdaLR(optimizer, factor)"),  # nothing names it
        (("(self, optimizer):", "(self, optimizer, steps):"), 6, "LambdaLR(optimizer, factor)"),  # given more
        (
            (
                "self.optimizer = self.build_optimizer()",
                "self.optimizer = self.build_optimizer(); self.build_scheduler(1)",
            ),
            6,
            "LambdaLR(optimizer, factor)",
        ),
    ],
)
def test_a_scheduler_that_a_function_returns_is_made_again_where_the_optimizer_is(make, change, line, code) -> None:
    """Below the line that calls the function of the optimizer, not where the function of the scheduler is defined."""
    text = HELPERS.replace(*change) if change[0] else HELPERS
    lines = text.split("\n")
    sites = [
        {"site": site, "role": role, "file": "t.py", "line": at, "function": function, "source": lines[at - 1].strip()}
        | {"excerpt": text, "excerpt_line": 1}
        for site, role, at, function in (
            (1, "optimizer", 3, "build_optimizer"),
            (2, "scheduler", 6, "build_scheduler"),
            (3, "schedule", 12, "train_epoch"),
        )
    ]
    row = scheduler("LambdaLR", optimizer=None, shares_parameters=True, early=0, made_at=2)
    optimizers = [{"optimizer": 0, "name": "AdamW", "made_at": 1}]
    steps = make.steps() | {"lr": FLAT}
    process = make.process(steps, sites=sites, optimizers=optimizers, more={"schedules": [row]})
    finding = make.check("learning-rate-schedule", process)[2]
    assert finding.location.line == line
    assert code in finding.fix_code


@pytest.mark.parametrize(
    ("columns", "row", "status"),
    [
        ({}, {"horizon": 8 * COUNT}, "fired"),
        ({}, {"horizon": 8 * COUNT + COUNT}, "fired"),  # the last window of each epoch is left out
        ({}, {"horizon": 8 * COUNT, "name": "CosineAnnealingLR"}, "fired"),
        ({}, {"horizon": 8 * COUNT, "name": "OneCycleLR"}, "passed"),  # stops-short says so
        ({}, {"horizon": 3 * COUNT}, "passed"),  # it is longer for another reason
        ({"backwards": [1] * COUNT}, {"horizon": 8 * COUNT}, "passed"),
        ({}, {"horizon": 8 * COUNT, "steps": 8 * COUNT}, "passed"),  # stepped with each batch
        ({}, {"horizon": COUNT}, "passed"),
        ({"lr": [0.01 * (1 - index / COUNT) for index in range(COUNT)]}, {"horizon": 8 * COUNT}, "passed"),  # it ended
    ],
)
def test_a_length_that_counts_batches_of_which_a_step_accumulates_several(make, columns, row, status: str) -> None:
    steps = make.steps() | {"lr": [0.01 * (1 - index / COUNT / 8) for index in range(COUNT)], "backwards": [8] * COUNT}
    rows = [scheduler("LambdaLR", steps=COUNT, made_at=1) | row]
    text = "s = get_linear_schedule_with_warmup(opt, 10 * args.accumulate, num_training_steps=n * args.accumulate)"
    for line, example, factor in (
        (text, "s = get_linear_schedule_with_warmup(opt, 10, num_training_steps=n)", "args.accumulate"),
        (
            "s = warm(opt, num_training_steps=epochs * len(loader))",
            "num_training_steps=(epochs * len(loader)) // 8",
            "",
        ),
        ("s = warm(opt, total)", "total_steps = 400", ""),
    ):
        process = make.process(steps | columns, sites=sites_of(line, scheduler="s = "), more={"schedules": rows})
        got, _, found = make.check("learning-rate-schedule", process)
        assert got == status
        if found is None:
            continue
        assert (found.confidence, found.location.line) == ("likely", 1)
        assert "each of which accumulates 8 batches. So it came to 1" in found.summary
        assert example in (found.diff.added[0] if found.diff else found.fix_code)
        assert (f"leave out the factor {factor}." in found.fix) == bool(found.diff) == bool(factor)
    begun = "s = get_cosine_schedule_with_warmup(\n    opt,\n    10 * accumulation,\n    a,\n    n * accumulation,\n)"
    process = make.process(steps | columns, sites=sites_of(begun, scheduler="s = "), more={"schedules": rows})
    found = make.check("learning-rate-schedule", process)[2]
    assert found is None or (found.diff is None and "leave out the factor accumulation." in found.fix)

"""Rules about parameters in no optimizer, schedules, retained graphs, scalers and modes left on."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers.computed.gradients.trainable import unheld
from tracelyze.analyzers.evidence.editing.remade import group_norms
from tracelyze.diagnosis import Exit
from tracelyze.testing import SITES

COUNT = 400
ALL = {
    "optimizer": 0,
    "step": COUNT,
    "steps": COUNT,
    "held": 8,
    "held_elements": 1000,
    "missed": 0,
    "missed_elements": 0,
}
CUT = ALL | {"missed": 4, "missed_elements": 400, "names": "item.first.weight, item.first.bias and 2 more"}
FREE = {
    "step": 300, "steps": 300, "held": 8, "missed": 4, "missed_elements": 400, "names": "item.first.weight",
    "shared_model": 0, "fed_by_trained": 0, "short_lived": 0,
}  # fmt: skip
RAN = [{"module": "item.first"}, {"module": ""}]


@pytest.mark.parametrize(
    ("reach", "ran", "severity"),
    [
        ([CUT], RAN, "warning"),
        ([CUT], [{"module": "other"}], "info"),  # a branch that is not taken
        ([CUT], [], "info"),
        ([CUT | {"missed_elements": 50}], RAN, "info"),  # a pooler
        ([ALL, FREE], RAN, "warning"),
        ([ALL, FREE | {"fed_by_trained": 4}], RAN, "info"),  # a network that only measures
        ([ALL, FREE | {"fed_by_trained": 4, "shared_model": 4}], RAN, "warning"),
        ([CUT | {"names": "a tensor [3, 4]"}, FREE | {"fed_by_trained": 4}], RAN, "warning"),  # a head replaced
        ([ALL, FREE | {"missed": 0, "short_lived": 2}], RAN, "warning"),
    ],
)
def test_frozen_parameters(make, reach: list[dict[str, Any]], ran: list[dict[str, Any]], severity: str) -> None:
    status, _, finding = make.check("frozen-parameters", make.process(more={"reach": reach, "activations": ran}))
    assert status == "fired"
    assert finding.severity == severity
    if "No sampled forward ran" in finding.summary:
        assert finding.fix.startswith("If they should train, have forward call them"), "there is nothing to cut off"
    if "backward reaches" in finding.summary.lower():
        assert not any("no backward reached" in line for line in finding.excluded)


@pytest.mark.parametrize(
    ("names", "missed", "kinds", "severity"),
    [
        ("5.bias, 5.weight", 2, {"5": "BatchNorm2d"}, "info"),  # Lightning's train_bn=False
        ("5.bias, 5.weight", 2, {"5": "LayerNorm"}, "warning"),
        ("5.bias, 5.weight", 2, {}, "warning"),
        ("5.bias, 5.weight, 6.bias", 3, {"5": "BatchNorm2d", "6": "Conv2d"}, "warning"),
        ("5.bias, 5.weight and 3 more", 5, {"5": "BatchNorm2d"}, "warning"),  # what the others are is not known
    ],
)
def test_batch_normalisations_may_be_left_out(
    make, names: str, missed: int, kinds: dict[str, str], severity: str
) -> None:
    row = FREE | {"names": names, "missed": missed, "shared_model": missed}
    modules = [{"model": 0, "module": name, "kind": kind} for name, kind in kinds.items()]
    process = make.process(more={"reach": [ALL, row], "activations": RAN, "modules": modules})
    finding = make.check("frozen-parameters", process)[2]
    assert finding.severity == severity
    assert ("train_bn=False" in finding.summary) is (severity == "info")


@pytest.mark.parametrize(
    ("names", "count", "title"),
    [
        ("a tensor [3, 4]", 1, "a tensor [3, 4] is in no optimizer and never trains"),
        ("a tensor [3, 4], a tensor [5]", 2, "a tensor [3, 4] and a tensor [5] are in no optimizer and never train"),
        ("head.weight, head.bias", 2, "head.weight and head.bias are in no optimizer and never train"),
        ("a tensor [3, 4]", 2, "2 tensors with gradients are in no optimizer and never train"),
        ("", 1, "1 tensor with gradients is in no optimizer and never trains"),
    ],
)
def test_a_title_names_one_or_two_tensors(make, names: str, count: int, title: str) -> None:
    """A comma within a shape parts no names."""
    process = make.process(more={"reach": [ALL, FREE | {"names": names, "missed": count}], "activations": RAN})
    assert make.check("frozen-parameters", process)[2].title == title


@pytest.mark.parametrize(
    ("made", "names", "more", "later"),
    [
        ("self.opt = torch.optim.Adam(model.parameters(), lr=lr)", "heads.b.weight, heads.b.bias", {}, True),
        ("opt = torch.optim.Adam(model.parameters())", "heads.b.weight", {"shared_model": 0}, False),  # another model
        ("opt = torch.optim.Adam(model.trunk.parameters())", "heads.b.weight", {}, False),  # a part was meant
        ("opt = torch.optim.Adam([p for p in model.parameters() if p.ndim > 1])", "heads.b.weight", {}, False),
        ("opt = torch.optim.Adam(groups)", "heads.b.weight", {}, False),
        ("opt = torch.optim.Adam(model.parameters())", "heads.b.parametrizations.weight.original0", {}, True),
        ("opt = torch.optim.Adam(model.parameters())", "other.weight", {}, False),  # registered nowhere
        ("opt = torch.optim.Adam(model.parameters())", "a tensor [8, 8]", {}, False),
    ],
)
def test_layers_that_came_behind_the_optimizer(make, made: str, names: str, more: dict[str, Any], later: bool) -> None:
    """It was given all that the model held: what it does not hold was no part of it then."""
    site = {"role": "optimizer", "file": "a.py", "function": "__init__", "line": 50, "source": made}
    sites = [{"site": 4, **site, "excerpt": f"    {made}", "excerpt_line": 50}]
    sites.append({"site": 9, **site, "role": "module", "line": 39, "source": "self.heads[name] = nn.Linear(8, n)"})
    models = [{"model": 0, "name": "Net", "called_as": "self.model", "parameters": 6, "elements": 600}]
    modules = [{"model": 0, "module": name, "kind": "Linear", "made_at": 9} for name in ("", "trunk", "heads.b")]
    optimizer = {"optimizer": 0, "name": "Adam", "made_at": 4, "parameters": 4, "groups": 1}
    row = FREE | {"names": names, "missed": 2, "shared_model": 2, "fed_by_trained": 0} | more
    process = make.process(
        sites=sites, models=models, optimizers=[optimizer], more={"reach": [ALL, row], "modules": modules}
    )
    finding = make.check("frozen-parameters", process)[2]
    assert ("Line 50 makes the optimizer of `model.parameters()`" in finding.summary) is later
    assert ("Line 39 makes their layers." in finding.summary) is (later and "parametrizations" not in names)
    assert ("weight_norm" in finding.fix) is ("parametrizations" in names)
    assert ("Python list" in finding.summary + finding.fix_code) is names.startswith("a tensor")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("0.weight, 0.bias, 1.weight, 1.bias, 2.weight and 3 more", "0.weight, 0.bias, 1.weight, 1.bias and 4 more"),
        ("a tensor [3, 4], a tensor [3]", "tensors of shape [3, 4] and [3]"),
        ("a tensor [3, 4], 2.bias", "a tensor [3, 4], 2.bias"),
    ],
)
def test_tensors_of_a_sequential_are_named_one_by_one(names: str, said: str) -> None:
    """Their names begin with a number, as what follows a comma within a shape does."""
    assert unheld.named(names) == said


def test_one_tensor_gets_no_gradient(make) -> None:
    one = CUT | {"missed": 1, "names": "item.first.scale"}
    finding = make.check("frozen-parameters", make.process(more={"reach": [one], "activations": RAN}))[2]
    assert finding.title == "1 of 8 tensors in the optimizer never gets a gradient"
    assert "forward does not use them" in finding.summary, "a parameter of a module that runs need not be used there"


def test_layers_that_forward_makes_anew_are_not_put_down_to_a_list(make) -> None:
    """Neither a ModuleList nor an optimizer that is made later would keep them."""
    anew = FREE | {"missed": 0, "short_lived": 2, "names": "a tensor [8, 8], a tensor [8]"}
    finding = make.check("frozen-parameters", make.process(more={"reach": [ALL, anew]}))[2]
    assert "made anew for every backward" in finding.summary
    assert "Python list" not in finding.summary + finding.fix + finding.fix_code
    assert "in __init__" in finding.fix


def test_what_is_not_frozen_need_not_train(make) -> None:
    """Beside an optimizer that does not hold it, a part only gets gradients."""
    event = {
        "kind": "frozen-in-vain",
        "name": "Backbone",
        "text": "requires_grad",
        "value": 2.0,
        "time": 1.0,
        "step": 0,
    }
    finding = make.check("frozen-parameters", make.process(events=[event], more={"reach": [ALL]}))[2]
    assert "2 tensors that should be frozen still require a gradient" in finding.summary
    assert "still train" not in finding.summary


def test_the_line_that_puts_in_a_part_whose_tensors_no_optimizer_holds(make) -> None:
    line = {"site": 70, "role": "part-text", "file": "t.py", "line": 118, "function": "main"}
    sites = [line | {"source": "model.head = nn.Linear(64, 5)"}]
    free = FREE | {"names": "head.weight, head.bias"}
    for reach, told in (([CUT | {"names": "a tensor [3, 4]"}, free], True), ([ALL, free], False)):
        process = make.process(sites=[*SITES, *sites], more={"reach": reach, "activations": RAN})
        finding = make.check("frozen-parameters", process)[2]
        assert (finding.location.line == 118, "Line 118 inserts this part" in finding.summary) == (told, told)


@pytest.mark.parametrize(
    ("names", "groups", "divided"),
    [
        ("place, summary", 2, True),
        ("net.place", 3, True),
        ("place, net.cls and 3 more", 2, True),
        ("place, head.weight", 2, False),  # a layer: it may have come later
        ("place, summary", 1, False),
        ("a tensor [3, 4]", 2, False),
    ],
)
def test_parameters_that_no_group_takes_in(make, names: str, groups: int, divided: bool) -> None:
    """Groups that are chosen by the names weight and bias leave out a position table."""
    optimizers = [{"optimizer": 0, "name": "AdamW", "groups": groups}]
    process = make.process(optimizers=optimizers, more={"reach": [ALL, FREE | {"names": names}], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    assert ("neither weight nor bias" in finding.summary, "an else" in finding.fix) == (divided, divided)
    assert ("nn.ModuleList" in finding.fix_code) is names.startswith("a tensor")


@pytest.mark.parametrize(
    ("groups", "listed", "rate"),
    [
        (('{"params": a.parameters(), "lr": lr},', '{"params": b.parameters(), "lr": lr},'), "", "lr"),
        (('{"params": a.parameters(), "lr": 0.1},', '{"params": b.parameters(), "lr": 0.2},'), "", ""),
        (("a.parameters(),", "lr=0.1,"), "", ""),
        (("a.parameters(),", "lr=0.1,"), "self.blocks = [nn.Linear(8, 8)]", ""),
    ],
)
def test_layers_with_names_that_no_optimizer_was_given(make, groups, listed: str, rate: str) -> None:
    """Of lists only where the script has one; a new group with the rate of the others."""
    text = "\n".join(f"    {line}" for line in ("opt = torch.optim.AdamW(", *groups, ")", listed))
    site = {"site": 4, "role": "optimizer", "file": "a.py", "function": "main", "line": 50, "excerpt_line": 50}
    sites = [site | {"source": "opt = torch.optim.AdamW(", "excerpt": text}]
    optimizer = {"optimizer": 0, "name": "AdamW", "made_at": 4, "parameters": 4, "groups": 2}
    free = FREE | {"names": "station.weight, gate.bias"}
    process = make.process(sites=sites, optimizers=[optimizer], more={"reach": [ALL, free], "activations": RAN})
    finding = make.check("frozen-parameters", process)[2]
    told = finding.summary + finding.fix + finding.fix_code
    assert ("ModuleList" in told, "Python list" in told) == (bool(listed), bool(listed))
    assert ('not in held], "lr": lr})' in finding.fix_code) is bool(rate)
    assert ("rates of their own" in finding.fix_code) is not bool(rate)


@pytest.mark.parametrize(
    ("reach", "expected"),
    [
        ([ALL], "passed"),
        ([CUT, ALL], "passed"),  # reached later
        ([FREE, ALL, FREE | {"steps": 400, "missed": 0}], "passed"),  # added to the optimizer later
        ([ALL | {"missed": 8}], "passed"),  # zero-gradients
        ([CUT | {"steps": 9}], "skipped"),
    ],
)
def test_frozen_parameters_stays_silent(make, reach: list[dict[str, Any]], expected: str) -> None:
    assert make.check("frozen-parameters", make.process(more={"reach": reach, "activations": RAN}))[0] == expected


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


def outcome(make, rule: str, **columns: Any) -> tuple[str, str]:
    status, _, finding = make.check(rule, make.process(make.steps() | columns))
    return status, finding.severity if finding else ""


def test_retain_graph(make) -> None:
    growing = list(range(COUNT))
    assert outcome(make, "retain-graph", graph_retained=[True] * COUNT) == ("fired", "warning")  # nothing piles up
    held = make.check("retain-graph", make.process(make.steps() | {"graph_retained": [True] * COUNT}))[2]
    assert "as long as something holds the loss" in held.summary, "a loss that a function has let go of holds nothing"
    assert "pile up" not in " ".join(held.excluded), "nothing piles up here"
    assert outcome(make, "retain-graph", graph_retained=[True] * COUNT, live_graphs=growing) == ("fired", "warning")
    assert outcome(make, "retain-graph", graph_retained=[False] * COUNT, live_graphs=growing) == ("passed", "")
    used = [{"time": 1.0, "step": 1, "kind": "kept-graph", "name": "torch.autograd.grad"}]
    process = make.process(make.steps() | {"graph_retained": [True] * COUNT}, events=used)
    assert make.check("retain-graph", process)[0] == "passed", "a graph that is gone through once more"
    assert outcome(make, "retain-graph")[0] == "skipped"


@pytest.mark.parametrize(
    ("name", "several", "detached"),
    [
        ("hidden", 1.0, "net.hidden = tuple(part.detach() for part in net.hidden)"),
        ("rnn.state", 0.0, "net.rnn.state = net.rnn.state.detach()"),
        ("", 0.0, "hidden = hidden.detach()"),
    ],
)
def test_a_kept_graph_that_leads_to_that_of_the_step_before(make, name: str, several: float, detached: str) -> None:
    """Without retain_graph=True the next backward would fail: the state is to be detached."""
    steps = make.steps() | {"graph_retained": [True] * COUNT, "live_graphs": [1] * COUNT}
    sites = [SITES[0] | {"role": "backward", "source": "loss.backward(retain_graph=True)"}]
    event = {"kind": "earlier-graph", "name": name, "text": "step before", "value": several, "step": 2, "time": 1.0}
    models = [{"model": 0, "name": "Net", "called_as": "net"}]
    finding = make.check("retain-graph", make.process(steps, events=[event], models=models, sites=sites))[2]
    assert "nothing uses it" not in finding.title
    assert "otherwise the next step's backward fails" in finding.fix
    assert finding.diff is None
    assert finding.fix_code.split("\n")[1].startswith(detached)
    once = make.process(steps, events=[event | {"name": "", "text": "once"}], models=models, sites=sites)
    status, reason, _ = make.check("retain-graph", once)
    assert (status, "made once" in reason) == ("passed", True)


@pytest.mark.parametrize(
    ("microbatches", "source", "code"),
    [
        (1, "loss.backward(retain_graph=True)", "total.backward()"),
        (1, "engine.backward(w * loss, retain_graph=True)", "engine.backward(total)"),
        (2, "loss.backward(retain_graph=True)", ""),  # each goes through a graph of its own
    ],
)
def test_one_line_that_calls_all_backwards_of_a_step(make, microbatches: int, source: str, code: str) -> None:
    steps = make.steps() | {"graph_retained": [True] * COUNT, "backwards": [2] * COUNT}
    steps |= {"microbatches": [microbatches] * COUNT}
    place = {"file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": f"for loss in losses:\n    {source}"}
    sites = [{"site": 2, "role": "backward", "line": 2, "source": source, **place}]
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert (finding.diff is None) == bool(code), "without the graph the second backward fails"
    assert code in finding.fix_code
    assert ("total = total + " in finding.fix_code) == bool(code)


@pytest.mark.parametrize(
    ("source", "backwards", "edited", "code"),
    [
        ("loss.backward(retain_graph=True)", 1, True, "loss.backward()"),
        ("self.manual_backward(loss, retain_graph=True)", 1, True, "self.manual_backward(loss)"),
        (
            "loss.backward(retain_graph=loss is not losses[-1])",
            1,
            False,
            "",
        ),  # a wrong condition, but one that is meant
        ("loss.backward(retain_graph=True)", 2, False, "loss.backward()  # the last one of the step"),
    ],
)
def test_a_graph_that_another_backward_of_the_step_may_need_is_not_edited_away(
    make, source: str, backwards: int, edited: bool, code: str
) -> None:
    """Whether each of several backwards has a batch of its own was not recorded: the first may need the graph."""
    steps = make.steps() | {"graph_retained": [True] * COUNT, "backwards": [backwards] * COUNT}
    place = {"file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": f"for loss in losses:\n    {source}"}
    sites = [{"site": 2, "role": "backward", "line": 2, "source": source, **place}]
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert (finding.diff is not None, finding.fix_code.startswith(code)) == (edited, True)
    assert bool(finding.fix_code) == bool(code)


@pytest.mark.parametrize("more", [{}, {"graph_retained": [True] * COUNT}])
def test_graphs_that_are_freed_as_the_loop_ends(make, more: dict[str, Any]) -> None:
    steps = make.steps() | {"live_graphs": [*range(1, COUNT), 0]} | more  # locals of train() are gone by the last row
    leak = make.check("memory-leak", make.process(steps))[2]
    assert f"{COUNT - 1} autograd graphs are kept alive" in leak.title
    assert leak.evidence[0].value == COUNT - 1
    assert ("Leave the backward pass as it is" in leak.fix) == (not more), "a carried state needs retain_graph gone too"
    if more:
        retained = make.check("retain-graph", make.process(steps))[2]
        assert f"up to {COUNT - 1} graphs" in retained.title
        assert retained.evidence[-1].fires_at == ">="


@pytest.mark.parametrize(
    ("call", "around", "name"),
    [
        ("logits, h = model(x, h)", "loss.backward(retain_graph=True)", "h"),
        ("h = cell(x, h)", "", "h"),
        ("logits, self.state = self.net(x, self.state)", "", "self.state"),
        ("logits, h = model(x, h)", "h = h.detach()", ""),
        ("logits, h = model(x, h)", "state = tuple(h.detach() for h in state)", ""),
        ("x = encoder(x)", "", ""),
        ("logits = model(x, mask)", "", ""),
    ],
)
def test_state_that_is_carried_with_its_graph(make, call: str, around: str, name: str) -> None:
    place = {"file": "a.py", "function": "train", "excerpt_line": 1, "excerpt": f"    {call}\n    {around}"}
    sites = [
        {"site": 1, "role": "training-call", "line": 1, "source": call, **place},
        {"site": 2, "role": "backward", "line": 2, "source": "loss.backward(retain_graph=True)", **place},
    ]
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert (f"{name} = {name}.detach()" in finding.fix_code and f"`{name}`" in finding.fix) == bool(name)


@pytest.mark.parametrize(
    ("lines", "said", "advice"),
    [
        (
            ["curve.append(loss)"],
            "`curve.append(loss)` keeps a tensor",
            "detach what line 4 keeps: `curve.append(loss.de",
        ),
        (["curve.append(loss)", "seen.append(loss)"], "Each of the lines 4 and 5", "detach what the loop keeps"),
        (["curve.append(loss.item())"], "something from every step is kept", "detach what the loop keeps"),
    ],
)
def test_what_keeps_the_graphs_that_a_backward_retains(make, lines: list[str], said: str, advice: str) -> None:
    """No state is carried that the text shows: nothing is said of one, and the backward is edited."""
    loop = ["for step in steps:", "    loss = criterion(model(x), y)", "    loss.backward(retain_graph=True)"]
    text = "\n".join([*loop, *(f"    {line}" for line in lines)])
    place = {"file": "a.py", "function": "<module>", "excerpt_line": 1, "excerpt": text}
    sites = [{"site": 2, "role": "backward", "line": 3, "source": "loss.backward(retain_graph=True)", **place}]
    for number, line in enumerate(lines, 4):
        sites += [place | {"site": number, "role": "keeps", "line": number, "source": line}] * ("item" not in line)
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert said in finding.summary
    assert advice in finding.fix
    assert finding.diff.added == ["    loss.backward()"]
    assert finding.fix_code == "loss.backward()"
    assert "hidden" not in finding.fix_code + finding.fix
    assert "real cause" not in finding.summary
    several = steps | {"backwards": [2] * COUNT}
    finding = make.check("retain-graph", make.process(several, sites=sites))[2]
    assert finding.diff is None, "the first backward of a step may need the graph"


@pytest.mark.parametrize(
    ("line", "carried"),
    [
        ("self.centres = self.centres * (1 - rate) + mean * rate", "self.centres"),
        ("self.h = torch.tanh(self.into(x) + self.over(self.h))", "self.h"),
        ("self.h = torch.tanh(self.into(x))", ""),
        ("self.seen = self.seen + [self.into(x)]", ""),  # a list, which has no graph of its own
    ],
)
def test_a_line_that_makes_a_value_of_that_of_the_step_before(make, line: str, carried: str) -> None:
    """The backward is not edited by itself: without retain_graph=True it fails where the loss is computed from it."""
    kept = {"site": 1, "role": "keeps", "file": "a.py", "line": 22, "function": "update", "source": line}
    kept |= {"excerpt_line": 21, "excerpt": f"    def update(self, x):\n        {line}"}
    backward = "loss.backward(retain_graph=True)"
    called = {"site": 2, "role": "backward", "file": "a.py", "line": 30, "function": "main", "source": backward}
    called |= {"excerpt_line": 30, "excerpt": f"    {backward}"}
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=[kept, called]))[2]
    if not carried:
        assert (finding.location.line, finding.diff.added) == (30, ["    loss.backward()"])
        return
    assert (finding.location.line, finding.seen_at.line, finding.diff) == (22, 30, None)
    guard = f"if torch.is_tensor({carried}):\n    {carried} = {carried}.detach()"
    assert finding.fix_code == f"# in place of line 22:\n{guard}\n{line}\n# in place of line 30:\nloss.backward()"
    assert f"line 22 makes `{carried}` of its value at the step before" in finding.summary


def test_a_line_of_another_file_keeps_the_graphs_that_a_backward_retains(make) -> None:
    sites = [
        {
            "site": 1,
            "role": "keeps",
            "file": "meters.py",
            "line": 5,
            "function": "add",
            "source": "self.all.append(one)",
        },
        {"site": 2, "role": "backward", "file": "a.py", "line": 3, "source": "loss.backward(retain_graph=True)"},
    ]
    sites[0] |= {"excerpt_line": 4, "excerpt": "def add(self, one):\n    self.all.append(one)"}
    steps = make.steps() | {"live_graphs": list(range(COUNT)), "graph_retained": [True] * COUNT}
    finding = make.check("retain-graph", make.process(steps, sites=sites))[2]
    assert "`self.all.append(one)` keeps a tensor beyond its step" in finding.summary
    assert (
        'line 5 of meters.py keeps: `self.all.append(one.detach() if hasattr(one, "detach") else one)`.' in finding.fix
    )


@pytest.mark.parametrize(
    ("call", "kind", "detached"),
    [
        ("logits, state = net(x, state)", "LSTM", "state = tuple(part.detach() for part in state)"),
        ("logits, state = net(x, state)", "GRU", "state = state.detach()"),
        ("logits, self.h = net(x, self.h)", "Cell", "self.h = self.h.detach()  # of an LSTM: tuple("),
        ("logits = net(x)", "LSTM", "hidden = hidden.detach()"),
    ],
)
def test_backward_into_the_step_before(make, call: str, kind: str, detached: str) -> None:
    sites = [
        {"site": 1, "role": "training-call", "line": 7, "source": call, "file": "a.py", "function": "train"},
        {"site": 2, "role": "exception", "line": 9, "source": "loss.backward()", "file": "a.py", "function": "train"},
    ]
    ended = {"kind": "exception", "name": "RuntimeError", "step": 1, "time": 1.0, "file": "a.py", "line": 9}
    ended |= {"text": "Trying to backward through the graph a second time.", "source": "loss.backward()"}
    modules = [{"model": 0, "module": "", "kind": "Net"}, {"model": 0, "module": "rnn", "kind": kind}]
    process = make.process(sites=sites, events=[ended], end=Exit("exception", 1), more={"modules": modules})
    finding = make.check("crash", process)[2]
    assert detached in finding.fix_code
    assert finding.location.function == "train", "names of that function are the script's own"
    assert ("in line 7" in finding.fix) == ("hidden" not in detached)
    assert "retain_graph=True silences" in finding.fix


OUTSIDE = """\
def main():
    codes = torch.tanh(encode(x))
    for epoch in range(3):
        for one in codes.split(8):
            loss = net(one).mean()
            loss.backward()"""


@pytest.mark.parametrize(
    ("line", "step", "found"),
    [
        ("codes = torch.tanh(encode(x))", 1, True),
        ("codes = torch.tanh(encode(x)).detach()", 1, False),
        ("codes = torch.tanh(encode(x))", 30, False),  # a later backward ran into it for another reason
        ("net(x)", 1, False),  # once to see its shapes
        ("shown = net(x)", 1, False),  # which is called in the loop as well
    ],
)
def test_a_graph_that_is_made_outside_of_the_loop(make, line: str, step: int, found: bool) -> None:
    lines = [line.lstrip() for line in OUTSIDE.replace("codes = torch.tanh(encode(x))", line).splitlines()]
    rows = [("training-call", 2), ("epochs", 3), ("loop", 4), ("training-call", 5), ("exception", 6)]
    place = {"file": "a.py", "function": "main"}
    sites = [
        place | {"site": at, "role": role, "line": at, "source": lines[at - 1]}
        | {"excerpt_line": at, "excerpt": "    " + lines[at - 1]}
        for role, at in rows
    ]  # fmt: skip
    ended = {"kind": "exception", "name": "RuntimeError", "step": step, "time": 1.0, "file": "a.py", "line": 6}
    ended |= {"text": "Trying to backward through the graph a second time.", "source": "loss.backward()"}
    models = [{"model": 0, "name": "Linear", "called_as": "encode"}, {"model": 1, "name": "Net", "called_as": "net"}]
    process = make.process(sites=sites, events=[ended], end=Exit("exception", 1), models=models)
    finding = make.check("crash", process)[2]
    assert (finding.location.line, "Here line 2 calls encode" in finding.summary) == (
        (2, True) if found else (6, False)
    )
    assert finding.fix_code.startswith("with torch.no_grad():\n    codes = ") == found


SCALER = {"losses_scaled": [1] * COUNT, "scaler_use": [2] * COUNT}


@pytest.mark.parametrize("first", [True, False])
def test_the_loss_that_is_not_scaled(make, first: bool) -> None:
    """Whichever of both backwards comes first. The scale grows with time."""
    lines = ["    scaler.scale(loss).backward()", "    (weight * penalty()).backward()"][:: 1 if first else -1]
    sites = [
        {"site": at, "role": "backward", "file": "a.py", "line": 10 + at, "function": "run", "source": line.strip()}
        | {"excerpt_line": 10, "excerpt": "\n".join(lines)}
        for at, line in enumerate(lines)
    ]
    pairs = {
        "backwards": [2] * COUNT,
        "backwards_unscaled": [1] * COUNT,
        "scale": [1024.0] * 9 + [2048.0] * (COUNT - 9),
    }
    finding = make.check("scaler-misuse", make.process(make.steps() | SCALER | pairs, sites=sites))[2]
    assert "(1,024 at first)" in finding.summary
    assert finding.location.line == 10 + first
    assert finding.diff.added == ["    scaler.scale(weight * penalty()).backward()"]


def test_scaler_misuse(make) -> None:
    def answer(scaled: int, use: int, **more: Any) -> str:
        return outcome(make, "scaler-misuse", losses_scaled=[scaled] * COUNT, scaler_use=[use] * COUNT, **more)[0]

    assert answer(1, 0) == "fired"
    assert answer(0, 2) == "fired"
    assert answer(0, 2, scale=[1024.0] * COUNT, loss_divisor=[1 / 1024] * COUNT) == "passed"
    assert answer(1, 2) == answer(1, 1) == answer(4, 2) == "passed"
    assert answer(1, 2, backwards_unscaled=[1] * COUNT) == answer(1, 2, scaler_new=[True] * COUNT) == "fired"
    now_and_then = [index % 2 for index in range(COUNT)]
    assert answer(1, 2, backwards_unscaled=now_and_then, scaler_new=[not n for n in now_and_then]) == "passed"
    assert answer(1, 2, backwards_unscaled=[0] * COUNT, scaler_new=[True] + [False] * (COUNT - 1)) == "passed"
    pairs = {"backwards": [2] * COUNT, "backwards_unscaled": [1] * COUNT}
    assert "One of several" in make.check("scaler-misuse", make.process(make.steps() | SCALER | pairs))[2].title
    process = make.process(make.steps() | SCALER | {"backwards_unscaled": [1] * COUNT})
    finding = make.check("scaler-misuse", process)[2]
    assert "The result of scaler.scale() is not used" in finding.title, "there is one backward"
    assert "scaler.step" not in finding.title + finding.summary + finding.fix, "unscale_() may be what divides"
    assert answer(1, 0, backwards_unscaled=[1] * COUNT) == "passed", "the scaler changes nothing"
    two = {"optimizer": [index % 2 for index in range(COUNT)]}
    assert answer(1, 2, backwards_unscaled=[1] * COUNT, **two) == "passed", "another optimizer's own loss"
    assert outcome(make, "scaler-misuse")[0] == "skipped"


def test_debug_mode_left_on(make) -> None:
    slow, on = {"seconds": [0.5] * COUNT}, [True] * COUNT
    off, window = [False] * COUNT, [True] * 50 + [False] * 350
    assert outcome(make, "debug-mode-left-on", anomaly_mode=on, profiled=off, **slow)[0] == "fired"
    assert outcome(make, "debug-mode-left-on", anomaly_mode=off, profiled=on, **slow)[0] == "fired"
    assert outcome(make, "debug-mode-left-on", anomaly_mode=off, profiled=window, **slow)[0] == "passed"
    assert outcome(make, "debug-mode-left-on", anomaly_mode=on, **slow)[1] == "warning"
    assert outcome(make, "debug-mode-left-on", anomaly_mode=on, seconds=[0.02] * COUNT)[1] == "warning", "many steps"
    profiled = make.check("debug-mode-left-on", make.process(make.steps() | {"profiled": on, "anomaly_mode": off}))[2]
    region = {"site": 9, "role": "anomaly", "file": "t.py", "line": 8, "function": "main"}
    region |= {"source": "with torch.autograd.detect_anomaly():"}
    within = make.check("debug-mode-left-on", make.process(make.steps() | {"anomaly_mode": on}, sites=[region]))[2]
    assert "with torch.autograd.set_detect_anomaly(debug):" in within.fix_code
    assert profiled.setting is None, "which names arguments of anomaly detection"
    assert "memory grows" not in profiled.summary, "one that is begun anew with each step is stopped as often"
    many = make.check(
        "debug-mode-left-on", make.process(make.steps() | {"anomaly_mode": on, "seconds": [0.02] * COUNT})
    )
    assert many[2].evidence[1].name == "steps of the run", "not the length, which is below its limit"
    few = make.process(make.steps(200) | {"anomaly_mode": [True] * 200, "seconds": [0.02] * 200})
    assert make.check("debug-mode-left-on", few)[2].severity == "info", "4 s in all"
    for count, status in ((200, "fired"), (60, "passed")):
        process = make.process(make.steps(count) | {"anomaly_mode": [True] * count})
        assert make.check("debug-mode-left-on", process)[0] == status


def test_a_profiler_whose_schedule_does_not_end(make) -> None:
    """wait=1, warmup=1, active=8, and no repeat: a window of eight steps, time and again, even in a short run."""
    cycle = [False] * 2 + [True] * 8

    def judged(on: list[bool], slow: float = 1.0, line: str = "schedule=schedule(wait=1, active=8, repeat=0),") -> Any:
        after = [slow if was and not now else 0.02 for was, now in zip([False, *on], on, strict=False)]
        site = {"site": 9, "role": "setting", "file": "t.py", "line": 8, "function": "__init__", "source": line}
        columns = make.steps(len(on)) | {"profiled": on, "anomaly_mode": [False] * len(on), "seconds": after}
        return make.check("debug-mode-left-on", make.process(columns, sites=[site]))

    status, _, finding = judged(cycle * 9 + cycle[:6])
    assert (status, finding.severity, finding.location.line) == ("fired", "warning", 8)
    assert finding.title == "A profiler records 10 windows, until the end of the run"
    assert "in 79% of the 96 steps" in finding.summary
    assert finding.fix_code == "schedule(wait=1, active=8, repeat=1)"
    assert judged(cycle * 9, 0.02)[2].severity == "info", "no step is slower by it"
    other = judged(cycle * 9, line="self.prof = profile(activities=[ProfilerActivity.CPU])")[2]
    assert ("schedule end" in other.fix, "wait=50" in other.fix_code) == (False, True), "how it is begun is not known"
    rare = [False] * 97 + [True] * 3
    assert judged(rare * 8, 0.02)[0] == "passed", "it looks in now and then, and costs nothing"
    assert judged(rare * 8, 5.0)[0] == "fired"
    assert judged(cycle * 5 + [False] * 60)[0] == "passed", "its windows are over"
    assert judged(cycle * 3)[0] == "passed", "a short run, looked into"


def test_layers_of_tiny_micro_batches_are_what_to_change(make) -> None:
    """Their line, and not that of the loader: batches are as large as the memory takes."""
    text = "    return nn.Sequential(\n        nn.Conv3d(cin, cout, 3),\n        nn.BatchNorm3d(cout),\n    )"
    made = {
        "site": 1,
        "role": "module",
        "file": "a.py",
        "line": 12,
        "function": "block",
        "source": "nn.BatchNorm3d(cout),",
    }
    made |= {"excerpt_line": 10, "excerpt": text}
    steps = make.steps() | {"backwards": [16] * COUNT, "batch_size": [32] * COUNT, "modules_sensitive": [3] * COUNT}
    steps |= {"modules_in_train": [3] * COUNT}
    models = [{"model": 0, "name": "VolumeNet", "sensitive": "BatchNorm3d x3"}]
    modules = [{"model": 0, "module": "stages.0.1", "kind": "BatchNorm3d", "made_at": 1}]
    process = make.process(steps, models=models, sites=[made], more={"modules": modules})
    finding = make.check("batchnorm-small-batch", process)[2]
    assert finding.location.line == 12
    assert "nn.GroupNorm(math.gcd(cout, max(1, cout // 16)), cout)," in finding.fix_code


def test_batchnorm_small_batch(make) -> None:
    def answer(kinds: str = "BatchNorm2d x3", **columns: Any) -> str:
        steps = make.steps() | {"backwards": [16] * COUNT, "batch_size": [32] * COUNT} | columns
        models = [{"model": 0, "name": "Net", "sensitive": kinds}]
        return str(make.check("batchnorm-small-batch", make.process(steps, models=models))[0])

    assert answer() == "fired"
    assert answer("SyncBatchNorm x3") == "skipped"
    assert answer("Dropout") == "passed"
    assert answer(batch_size=[256] * COUNT) == "passed"
    assert answer(backwards=[1] * COUNT, batch_size=[2] * COUNT) == "passed"
    assert answer(modules_in_train=[0] * COUNT) == "passed", "frozen"


def test_groups_of_channels_divide_them_and_hold_several() -> None:
    imported, _, example = group_norms.CODE.partition("\n\n")
    formula = f"{imported}\n{example.partition(chr(10))[0]}"
    for channels in (8, 16, 24, 48, 56, 64, 100, 512, 2048):
        names: dict[str, Any] = {"channels": channels}
        exec(formula, names)
        assert channels % names["groups"] == 0
        assert channels // names["groups"] >= min(channels, 16)


def mostly_frozen(make: Any, name: str = "norm.weight", held: int = 40, varies: float = 0.1, **more: Any) -> Any:
    calls = [
        {"function": "cross_entropy", "site": 3, "training": True, "step": step, "input_shape": "32x4",
         "target_shape": "32", "varies": varies, "target_varies": 0.8}
        for step in range(0, COUNT, 20)
    ]  # fmt: skip
    tables = {
        "reach": [
            ALL | {"optimizer": 0, "steps": 100, "held": 1, "held_elements": held, "missed": 0, "missed_elements": 0}
        ],
        "activations": [{"module": "norm", "kind": "LayerNorm"}, {"module": "last", "kind": "Linear"}],
        "parameters": [{"step": step, "optimizer": 0, "parameter": name, "elements": held} for step in (1, 100)],
        "loss_calls": calls,
    }
    loss = more.pop("loss", [1.4] * COUNT)
    models = [{"model": 0, "name": "Net", "elements": 5000}]
    return make.check(
        "frozen-parameters", make.process(make.steps() | {"loss": loss}, models=models, more=tables | more)
    )


def test_a_model_of_which_only_shifts_can_learn(make) -> None:
    for name in ("norm.weight", "last.bias"):
        status, reason, finding = mostly_frozen(make, name)
        assert status == "fired", reason
        assert (finding.severity, finding.confidence) == ("warning", "likely")
        assert finding.title.startswith("Only 40 of the model's 5,000 weights can learn")


def test_a_model_that_is_frozen_for_a_reason(make) -> None:
    assert mostly_frozen(make, varies=0.7)[0] == "passed", "biases of a model that knows its task"
    assert mostly_frozen(make, loss=[2.0 - index / COUNT for index in range(COUNT)])[0] == "passed", "it learns"
    assert mostly_frozen(make, "last.weight")[0] == "passed", "a probe"
    assert mostly_frozen(make, held=500)[0] == "passed"
    loads = [{"time": 0.1, "step": 0, "module": 0, "name": "Net", "given": 6, "expected": 6, "missing": 0}]
    assert mostly_frozen(make, loads=loads)[0] == "passed", "pretrained weights"


def test_batchnorm_over_few_values(make) -> None:
    """Two samples of one value each leave nothing but a sign; two images hold many values of each channel."""

    def answer(elements: int, looks: int = 3, **columns: Any) -> tuple[str, Any]:
        steps = make.steps() | {"backwards": [1] * COUNT, "batch_size": [2] * COUNT} | columns
        models = [{"model": 0, "name": "Net", "sensitive": "BatchNorm1d"}]
        row = {"module": "norm", "kind": "BatchNorm1d", "outputs": 16, "elements": elements}
        rows = [row | {"step": 10 * look} for look in range(looks)]
        status, _, finding = make.check(
            "batchnorm-small-batch", make.process(steps, models=models, more={"activations": rows})
        )
        return status, finding

    status, finding = answer(32)
    assert (status, finding.confidence) == ("fired", "likely")
    assert "norm normalises each channel" in finding.summary
    assert answer(2 * 16 * 144)[0] == "passed", "images"
    assert answer(32, looks=1)[0] == "passed"
    assert answer(32, modules_in_train=[0] * COUNT)[0] == "passed", "frozen"


def test_data_parallel(make) -> None:
    model = {"model": 0, "name": "DataParallel"}
    assert make.check("data-parallel", make.process(models=[model]))[2].severity == "info"
    assert make.check("data-parallel", make.process(models=[model]))[2].title.endswith("gains nothing on a CPU")
    assert make.check("data-parallel", make.process())[0] == "passed"
    made = {"modules": [{"model": model["model"], "module": "", "kind": "DataParallel", "made_at": 3}]}
    assert make.check("data-parallel", make.process(models=[model], more=made))[2].location.line == 60
    step = {"site": 1, "role": "step", "file": "t.py", "line": 4, "function": "main", "source": "trainer.train()"}
    trainer = make.check("data-parallel", make.process(models=[model], sites=[step]))[2]
    assert "the Trainer then wraps the model" in trainer.fix, "it wrapped it in DataParallel by itself"
    assert trainer.fix_code == "torchrun --nproc-per-node 4 train.py"
    for own, fired in (("DataParallel", True), ("DistributedDataParallel", False)):
        status = make.check("data-parallel", make.process(models=[{"model": 0, "name": "Wrapped", "parallel": own}]))[0]
        assert (status == "fired") is fired


@pytest.mark.parametrize(
    ("validation", "size", "in_train", "status"),
    [
        ([40.0, 44.0, 41.0, 39.0], 1, False, "fired"),
        ([1.5, 1.4, 1.4, 1.3], 1, False, "passed"),  # no worse than training
        ([40.0, 44.0, 41.0, 39.0], 2, False, "passed"),  # two samples: few values are judged elsewhere
        ([40.0, 44.0, 41.0, 39.0], 1, True, "passed"),  # validated with statistics of its own batches as well
        ([1.5, 40.0, 41.0, 39.0], 1, False, "passed"),  # good at first: something else came later
    ],
)
def test_batchnorm_of_one_sample_that_fails_in_validation(make, validation, size, in_train, status) -> None:
    steps = make.steps() | {"backwards": [1] * COUNT, "batch_size": [size] * COUNT}
    evals = make.evals() | {"loss": validation, "model_in_train": [in_train] * 4, "loss_is_whole": [True] * 4}
    models = [{"model": 0, "name": "Net", "sensitive": "BatchNorm2d x3"}]
    assert make.check("batchnorm-small-batch", make.process(steps, models=models, evals=evals))[0] == status


@pytest.mark.parametrize("above", [True, False])
def test_an_optimizer_of_a_part_that_another_one_replaced(make, above: bool) -> None:
    """All that it holds belongs to no module any more: the line that puts the new part in is the one to change."""
    made = {"site": 90, "file": "train.py", "line": 30 if above else 50, "function": "main", "role": "optimizer"}
    made |= {"source": "opt = torch.optim.AdamW(model.head.parameters())"}
    put_in = {"site": 91, "file": "train.py", "line": 40, "function": "main", "role": "part-text"}
    put_in |= {"source": "model.head = nn.Linear(model.dim, 5)"}
    old = ALL | {"held": 2, "missed": 2, "names": "a tensor [6, 432], a tensor [6]"}
    new = FREE | {"held": 2, "missed": 2, "missed_elements": 4330, "names": "head.weight, head.bias"}
    optimizers = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "made_at": 90}]

    def zero(reach: list[dict[str, Any]]) -> Any:
        steps = make.steps() | {"grads_none": [8] * COUNT}
        more = {"reach": reach, "activations": RAN}
        process = make.process(steps, sites=[made, put_in], optimizers=optimizers, more=more)
        orphans = make.check("frozen-parameters", process)[2]
        return make.check("zero-gradients", process)[2], orphans

    dead, orphans = zero([old, new])
    assert "Line 40 puts model.head into the model" in dead.summary
    assert (dead.location.line, orphans.location.line, orphans.severity) == (40, 40, "warning")
    assert f"{'opt' if above else 'optimizer'}.add_param_group" in dead.fix_code
    assert ("(line 30)" in dead.fix) == above
    for reach in ([old | {"names": "head.weight, head.bias"}, new], [old, new | {"names": "neck.weight"}]):
        assert "cut off from these parameters" in zero(reach)[0].summary

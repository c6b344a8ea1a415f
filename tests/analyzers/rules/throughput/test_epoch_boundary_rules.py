"""epoch-boundary-stall: workers that start anew, and first batches that cost nothing."""

from __future__ import annotations

import pytest

from tests.analyzers.step_times import ends, looks, seconds, steps
from tracelyze.analyzers import diagnose


def epochs(make, wait: float, every: int = 100, **columns):
    """Batches come at once, but for the first of an epoch, which takes `wait` seconds."""
    first = [index % every == 0 for index in range(400)]
    waits = [wait if begins else 0.001 for begins in first]
    taken = seconds(400, {index: 0.05 + wait for index, begins in enumerate(first) if begins and index})
    return steps(make, seconds=taken, time=ends(taken), loader_first=first, loader_wait=waits, **columns)


def workers(count: int, persistent: bool = False) -> list[dict]:
    return [{"loader": 0, "dataset": "Images", "length": 100, "num_workers": count, "persistent_workers": persistent}]


def test_workers_that_start_anew_for_every_epoch(make) -> None:
    process = make.process(epochs(make, 2.5), evals={}, loaders=workers(4))
    status, _, finding = make.check("epoch-boundary-stall", process)
    assert status == "fired"
    assert "persistent_workers=True" in finding.fix_code
    assert (finding.first_step, finding.last_step) == (101, 301)
    assert finding.cost.seconds == pytest.approx(3 * 2.5, rel=0.02)
    assert {one.name: one.value for one in finding.evidence}["num_workers"] == "4"


@pytest.mark.parametrize(
    ("line", "stays", "columns"),
    [
        ("train_set.epoch = epoch", False, {}),
        ("train_set.set_epoch(epoch)", False, {"iterable": True}),
        ("train_loader.dataset.set_difficulty(epoch)", False, {}),
        ("sampler.set_epoch(epoch)", True, {}),  # the loader asks it for indices in the program itself
        ("train_loader.set_epoch(epoch)", True, {}),  # hands it on to its sampler
        ("model.train()", True, {}),
    ],
)
def test_workers_are_not_to_stay_where_the_script_changes_the_dataset(make, line: str, stays: bool, columns) -> None:
    source = "train_loader = DataLoader(train_set, batch_size=8, num_workers=4)"
    place = {"file": "train.py", "function": "main", "excerpt": source, "excerpt_line": 10}
    sites = [
        place | {"site": 40, "role": "dataloader", "line": 10, "source": source},
        place | {"site": 41, "role": "epochs", "line": 12, "source": "for epoch in range(4):", "excerpt_line": 12}
        | {"excerpt": f"for epoch in range(4):\n    {line}\n    for x, y in train_loader:"},
    ]  # fmt: skip
    loader = [workers(4)[0] | {"made_at": 40} | columns]
    finding = make.check(
        "epoch-boundary-stall", make.process(epochs(make, 2.5), evals={}, loaders=loader, sites=sites)
    )[2]
    assert ("persistent_workers=True" in finding.fix_code, finding.diff is not None) == (stays, stays)
    assert ("line 13 sets something on the dataset" in finding.fix) is not stays


@pytest.mark.parametrize(
    ("head", "line", "stays"),
    [
        ("def on_train_epoch_start(self):", "self.trainer.train_dataloader.dataset.epoch = self.current_epoch", False),
        ("def harder(train_set):", "train_set.level += 1", False),
        ("def __init__(self):", "self.dataset.transform = flip", True),  # before any loader is made
        ("def setup(self, stage):", "self.dataset.transform = flip", True),
    ],
)
def test_a_hook_above_the_loader_may_change_the_dataset_between_epochs(make, head: str, line: str, stays: bool) -> None:
    source = "train_loader = DataLoader(train_set, batch_size=8, num_workers=4)"
    sites = [
        {"site": 40, "role": "dataloader", "file": "train.py", "line": 30, "function": "main", "source": source}
        | {"excerpt": f"def main():\n    {source}", "excerpt_line": 29},
        {"site": 41, "role": "epochs", "file": "train.py", "line": 12, "function": "Model.hook", "source": line}
        | {"excerpt": f"    {head}\n        {line}", "excerpt_line": 11},
    ]
    process = make.process(epochs(make, 2.5), evals={}, loaders=[workers(4)[0] | {"made_at": 40}], sites=sites)
    finding = make.check("epoch-boundary-stall", process)[2]
    assert ("persistent_workers=True" in finding.fix_code, finding.diff is not None) == (stays, stays)
    assert ("line 12 sets something on the dataset" in finding.fix) is not stays


@pytest.mark.parametrize(
    ("line", "stays"),
    [
        ("rng = random.Random(self.seed + self.epoch)", False),
        ("rng = random.Random(self.seed)", True),
        ("self.epoch += 1; rng = random.Random(self.epoch)", True),  # each worker counts for itself
    ],
)
def test_a_stream_that_reads_the_number_of_the_epoch(make, line: str, stays: bool) -> None:
    """The line that sets it need not be among the recorded ones."""
    source = "train_loader = DataLoader(Shards(names), batch_size=8, num_workers=4)"
    made = {"site": 40, "role": "dataloader", "file": "train.py", "line": 30, "function": "main", "source": source}
    head = "    def __iter__(self):"
    sites = [
        made | {"excerpt": f"def main():\n    {source}", "excerpt_line": 29},
        {"site": 41, "role": "dataset", "file": "train.py", "line": 12, "function": "__iter__", "source": head.strip()}
        | {"excerpt": f"        self.epoch = 0\n{head}\n        {line}", "excerpt_line": 11},
    ]
    loader = [workers(4)[0] | {"made_at": 40, "read_by": 41, "iterable": True}]
    process = make.process(epochs(make, 2.5), evals={}, loaders=loader, sites=sites)
    finding = make.check("epoch-boundary-stall", process)[2]
    assert "persistent_workers=True" in finding.fix_code or not stays
    assert ("line 13 reads self.epoch" in finding.fix) is not stays
    assert bool(finding.fix_code) is stays


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (", worker_init_fn=build_bank", " Each new one runs build_bank() first."),
        (", worker_init_fn=seed_worker", ""),  # which takes no time
        ("", ""),
    ],
)
def test_what_each_new_worker_runs_first(make, given: str, said: str) -> None:
    source = f"train_loader = DataLoader(train_set, num_workers=4{given})"
    place = {"site": 40, "role": "dataloader", "file": "train.py", "line": 10, "function": "main", "source": source}
    process = make.process(
        epochs(make, 2.5),
        evals={},
        loaders=[workers(4)[0] | {"made_at": 40}],
        sites=[place | {"excerpt": source, "excerpt_line": 10}],
    )
    assert make.check("epoch-boundary-stall", process)[2].summary.endswith(f"and start anew.{said}")


def test_the_edit_of_a_stream_is_withheld_and_its_example_warns(make) -> None:
    loader = [workers(4)[0] | {"iterable": True}]
    finding = make.check("epoch-boundary-stall", make.process(epochs(make, 2.5), evals={}, loaders=loader))[2]
    assert finding.diff is None
    assert "what the script sets on it later does not reach them" in finding.fix


def test_the_share_that_first_batches_cost_is_of_the_whole_training(make) -> None:
    table = epochs(make, 2.5)
    finding = make.check("epoch-boundary-stall", make.process(table, evals={}, loaders=workers(4)))[2]
    assert finding.cost.share == pytest.approx(finding.cost.seconds / sum(taken or 0.0 for taken in table["seconds"]))
    assert {one.name: one.value for one in finding.evidence}[
        "lost to first batches, of the time from the second epoch on"
    ] > finding.cost.share


def test_a_loader_that_every_epoch_makes_anew_is_to_be_made_once(make) -> None:
    """persistent_workers would change nothing: the workers end with their loader."""
    anew = [workers(4)[0] | {"loader": number, "made_at": 0} for number in range(5)]
    feeding = [index // 100 for index in range(400)]
    process = make.process(epochs(make, 2.5, loader=feeding), evals={}, loaders=anew)
    _, _, finding = make.check("epoch-boundary-stall", process)
    assert finding.fix.startswith("Make the loader once")
    assert finding.diff is None
    assert finding.fix_code.startswith("# before the epochs:\nloader = DataLoader(")
    assert "Each epoch makes a new loader" in finding.summary


@pytest.mark.parametrize(
    ("made", "loop", "example"),
    [
        (
            "return DataLoader(data, 32, num_workers=4)",
            "for x, y in tqdm(batches(data, epoch)):",
            (
                "return DataLoader(data, 32, num_workers=4, persistent_workers=True)  # in batches()\n"
                "loader = batches(data, 0)  # before the epochs\nfor x, y in tqdm(loader):\n    ..."
            ),
        ),
        (
            "return DataLoader(data, 32, num_workers=4, persistent_workers=True)",
            "for x, y in self.batches(epoch=epoch):",
            "loader = self.batches(epoch=0)  # before the epochs\nfor x, y in loader:\n    ...",
        ),
        (
            "return DataLoader(data, 32, num_workers=4, persistent_workers=True)",
            "for x, y in source:",
            "# call batches() once, before the epochs, and keep what it returns",
        ),
        (
            "loader = DataLoader(data, 32, num_workers=4, generator=seeded(epoch))",
            "for x, y in loader:",
            (
                "# before the epochs:\n"
                "loader = DataLoader(data, 32, num_workers=4, generator=seeded(0), persistent_workers=True)"
            ),
        ),
    ],
)
def test_how_a_loader_is_made_once(make, made: str, loop: str, example: str) -> None:
    texts = {("dataloader", "batches"): made, ("loader", "main"): loop, ("epochs", "main"): "for epoch in range(9):"}
    sites = [
        {"site": 40 + at, "file": "train.py", "function": function, "line": 30 + 5 * at, "source": text, "role": role,
         "excerpt": text, "excerpt_line": 30 + 5 * at}
        for at, ((role, function), text) in enumerate(texts.items())
    ]  # fmt: skip
    anew = [workers(4)[0] | {"loader": number, "made_at": 40, "site": 41} for number in range(5)]
    table = epochs(make, 2.5, loader=[index // 100 for index in range(400)])
    finding = make.check("epoch-boundary-stall", make.process(table, evals={}, loaders=anew, sites=sites))[2]
    assert finding.fix_code == example


def test_a_loader_made_anew_whose_dataset_changes_would_have_to_be_made_once_first(make) -> None:
    source, line = "return DataLoader(self.train, batch_size=8, num_workers=4)", "self.train.set_epoch(self.epoch)"
    site = {"site": 40, "role": "dataloader", "file": "train.py", "line": 12, "function": "loader", "source": source}
    site |= {"excerpt": f"    def loader(self):\n        {line}\n        {source}", "excerpt_line": 10}
    told = {"site": 41, "role": "set-epoch", "file": "train.py", "line": 11, "function": "loader", "source": line}
    anew = [workers(4)[0] | {"loader": number, "made_at": 40} for number in range(5)]
    feeding = [index // 100 for index in range(400)]
    process = make.process(epochs(make, 2.5, loader=feeding), evals={}, loaders=anew, sites=[site, told])
    _, _, finding = make.check("epoch-boundary-stall", process)
    assert "line 11 sets something on the dataset" in finding.fix
    assert "with one loader and persistent_workers=True" in finding.fix
    once = make.process(epochs(make, 2.5), evals={}, loaders=anew[:1], sites=[site, told])
    assert "one loader" not in make.check("epoch-boundary-stall", once)[2].fix


def test_loaders_that_a_trainer_makes_for_its_evaluations_are_none_of_the_training(make) -> None:
    """All are made at the line `trainer.train()`, the one that feeds the steps once: its workers can stay."""
    train = "trainer.train()"
    sites = [
        *[{"site": 40 + at, "file": "train.py", "function": "main", "line": 30, "source": train, "role": role}
          for at, role in enumerate(("dataloader", "loader", "backward", "step"))],
        {"site": 50, "file": "train.py", "function": "main", "line": 20, "source": "dataloader_num_workers=2,",
         "role": "setting"},
    ]  # fmt: skip
    evaluated = [{"loader": number, "dataset": "list", "num_workers": 2, "made_at": 40} for number in range(1, 7)]
    loaders = [workers(2)[0] | {"made_at": 40, "site": 41}, *evaluated]
    process = make.process(epochs(make, 2.5, loader=[0] * 400), evals={}, loaders=loaders, sites=sites)
    (finding,) = diagnose(make.run(process), select=["epoch-boundary-stall"]).findings
    assert "Each epoch makes a new loader" not in finding.summary
    assert finding.fix.startswith("Keep the workers between epochs")
    assert finding.location.line == 20
    assert "trainer.args.dataloader_persistent_workers = True" in finding.fix_code


def test_the_advice_for_workers_that_stay_or_that_are_none(make) -> None:
    for loaders in (workers(4, persistent=True), workers(0)):
        _, _, finding = make.check("epoch-boundary-stall", make.process(epochs(make, 2.5), evals={}, loaders=loaders))
        assert finding.fix_code == ""


def test_both_rules_on_one_run_tell_the_stall_once(make) -> None:
    run = make.run(make.process(epochs(make, 2.5), evals={}, loaders=workers(4)))
    checks = diagnose(run, select=["slow-steps", "epoch-boundary-stall"]).checks
    assert {check.rule: check.status for check in checks} == {"slow-steps": "passed", "epoch-boundary-stall": "fired"}


@pytest.mark.parametrize(
    ("wait", "every", "severity"),
    [
        (2.5, 100, "warning"),
        (0.4, 40, "info"),  # 3.6 s in all: epochs are short, workers start as quickly as they can
        (0.4, 4, "warning"),  # 40 s in all
        (0.8, 100, "warning"),  # 2.4 s in all, but no worker takes so long to start
    ],
)
def test_stalls_that_cost_little_alarm_nobody(make, wait, every, severity) -> None:
    process = make.process(epochs(make, wait, every), evals={}, loaders=workers(2))
    assert make.check("epoch-boundary-stall", process)[2].severity == severity


def test_workers_that_start_late_on_a_crowded_machine_are_no_stall(make) -> None:
    table = epochs(make, 0.3, 40)
    status = [
        make.check(
            "epoch-boundary-stall",
            make.process(table, evals={}, loaders=workers(2), samples=looks(table["time"][-1], [0.0, lost, 2 * lost])),
        )[0]
        for lost in (0.0, 0.4 * table["time"][-1])
    ]
    assert status == ["fired", "passed"]


@pytest.mark.parametrize(
    ("wait", "columns", "status"),
    [
        (0.05, {}, "passed"),  # workers start at once
        (0.2, {}, "passed"),  # 200 ms of 5 s
        (2.5, {"loader_first": [True] * 400}, "passed"),  # a new iterator for every step
        (2.5, {"loader_first": [index in (0, 200) for index in range(400)]}, "skipped"),
    ],
)
def test_epoch_boundary_stall_is_silent(make, wait, columns, status) -> None:
    process = make.process(epochs(make, wait) | columns, evals={}, loaders=workers(4))
    assert make.check("epoch-boundary-stall", process)[0] == status


def test_a_stall_that_the_queue_of_the_device_hides_is_none(make) -> None:
    columns = epochs(make, 2.5, device_wait=[0.0] * 400)
    optimizer = [{"optimizer": 0, "name": "SGD", "device": "cuda:0"}]
    process = make.process(columns, evals={}, loaders=workers(4), optimizers=optimizer)
    assert make.check("epoch-boundary-stall", process)[0] == "passed"


@pytest.mark.parametrize(
    ("call", "kept", "example", "line"),
    [
        ("train_loader = batches(data, epoch)", True, "train_loader = batches(data, 0)", 32),
        ("train_loader = batches(data, 32)", False, "train_loader = batches(data, 32)", 32),
        ("loaders[epoch] = other(data)", True, "", 10),  # what calls the function is not known
    ],
)
def test_a_function_that_makes_the_loader_is_called_above_the_epochs(make, call, kept, example, line) -> None:
    """Where the loop over epochs gives a name to what it returns, that line moves; its definition stays."""
    texts = [
        (40, "dataloader", "batches", 10, "return DataLoader(data, 32, num_workers=4)"),
        (41, "loader", "main", 34, "for x, y in train_loader:"),
        (42, "epochs", "main", 31, "for epoch in range(9):"),
        (43, "data", "main", 32, call),
    ]
    sites = [
        {"site": site, "file": "train.py", "function": function, "line": at, "source": text, "role": role,
         "excerpt": text, "excerpt_line": at}
        for site, role, function, at, text in texts
    ]  # fmt: skip
    row = workers(4)[0] | {"made_at": 40, "site": 41, "called_at": 43, "persistent_workers": kept}
    anew = [row | {"loader": number} for number in range(5)]
    table = epochs(make, 2.5, loader=[index // 100 for index in range(400)])
    finding = make.check("epoch-boundary-stall", make.process(table, evals={}, loaders=anew, sites=sites))[2]
    assert finding.location.line == line
    assert (f"# above line 31, and no more in line 32:\n{example}" in finding.fix_code) == bool(example)
    assert ("  # in batches()" in finding.fix_code) == (not example or not kept)

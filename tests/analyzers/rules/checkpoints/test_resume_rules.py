"""resume-discontinuity: trainings that go on without a part of their state, and those that go on as they should."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.analyzers.rules.checkpoints.files import ADAM, LOAD, SAVE, SGD, judge
from tests.analyzers.sites import lines_of


def test_a_training_that_goes_on_without_its_optimizer(make) -> None:
    _, _, finding = judge(make, "resume-discontinuity", [SAVE, LOAD | {"optimizer_restored": False}])
    assert (finding.severity, finding.first_step) == ("warning", 201)
    weights = {"optimizer": False, "optimizer_restored": False}
    assert (
        "holds no optimizer state" in judge(make, "resume-discontinuity", [SAVE | weights, LOAD | weights])[2].summary
    )
    schedules = {"schedules": [{"scheduler": 0, "name": "StepLR", "step": 300}]}
    rows = [SAVE | {"scheduler": True}, LOAD | {"scheduler": True}]
    process = make.process(more={"checkpoints": rows} | schedules, optimizers=ADAM)
    assert "scheduler" in make.check("resume-discontinuity", process)[2].title


@pytest.mark.parametrize(
    ("keys", "load", "code"),
    [
        ("epoch model optimizer", {}, 'optimizer.load_state_dict(checkpoint["optimizer"])'),
        ("net opt_state step", {}, 'optimizer.load_state_dict(checkpoint["opt_state"])'),
        ("adam net options", {}, 'optimizer.load_state_dict(checkpoint["adam"])'),
        ("opt_a opt_b nets", {}, 'optimizer.load_state_dict(checkpoint["optimizer"])'),  # whose is not known
        ("", {}, 'optimizer.load_state_dict(checkpoint["optimizer"])'),
    ],
)
def test_an_example_reads_the_keys_that_the_file_has(make, keys: str, load: dict[str, Any], code: str) -> None:
    rows = [SAVE | {"keys": keys}, LOAD | {"keys": keys, "optimizer_restored": False} | load]
    _, _, finding = judge(make, "resume-discontinuity", rows)
    assert finding.fix_code.splitlines() == ["checkpoint = torch.load(path)", code]


@pytest.mark.parametrize(("rates", "lost"), [((0.1, 0.02, 0.1), True), ((0.1, 0.02, 0.02), False)])
def test_a_schedule_that_starts_over_is_lost_as_well(make, rates: tuple[float, ...], lost: bool) -> None:
    """Where the file holds neither: a schedule that goes on by its epoch needs no state."""
    weights = {"optimizer": False, "optimizer_restored": False, "file": "last.pt"}
    first, before, after = rates
    facts = {"step": 200, "optimizer": 0, "same_model": True, "steps": 1}
    columns = make.steps() | {"lr": [first] + [before] * 199 + [after] * (len(make.steps()["loss"]) - 200)}
    process = make.process(
        columns,
        more={"checkpoints": [SAVE | weights, LOAD | weights], "schedules": [{"scheduler": 0, "name": "StepLR"}]},
        events=[{"kind": "resumed", "name": "last.pt", "step": 201, "text": json.dumps(facts)}],
        optimizers=ADAM,
    )
    finding = make.check("resume-discontinuity", process)[2]
    assert ("optimizer and scheduler" in finding.title) is lost
    assert ("neither optimizer nor scheduler" in finding.summary) is lost
    assert ('"scheduler": scheduler.state_dict()' in finding.fix_code) is lost


@pytest.mark.parametrize(
    ("optimizers", "effect"), [(ADAM, "starts with empty state"), (SGD, "rate is back at its initial value")]
)
@pytest.mark.parametrize("in_file", [True, False])
def test_a_scheduler_is_restored_after_the_optimizer_whose_rate_it_leaves(make, optimizers, effect, in_file) -> None:
    """Its load_state_dict sets no rate: alone it goes on from that of the new optimizer."""
    load = {"scheduler": True, "optimizer": in_file, "optimizer_restored": False, "keys": "net opt sched"}
    more = {"checkpoints": [SAVE | load, LOAD | load], "schedules": [{"scheduler": 0, "name": "StepLR", "step": 300}]}
    _, _, finding = make.check("resume-discontinuity", make.process(more=more, optimizers=optimizers))
    assert "optimizer and scheduler" in finding.title
    assert "Restore the optimizer first" in finding.fix
    assert effect in finding.summary
    first, second = finding.fix_code.splitlines()[-2:]
    assert (first.split(".")[0], second.split(".")[0]) == ("optimizer", "scheduler")
    assert ('"optimizer": optimizer.state_dict()' in finding.fix_code) is not in_file
    assert '"scheduler": scheduler.state_dict()' not in finding.fix_code


def test_a_file_without_the_optimizer_is_mended_where_it_is_written(make) -> None:
    """By its only line; one that is read may be written by several, or by the program before."""
    writes = 'torch.save({"model": model.state_dict(), "epoch": epoch}, path)'
    sites = [
        {"site": 8, "role": "checkpoint", "file": "run.py", "line": 30, "function": "run", "source": writes},
        {"site": 9, "role": "checkpoint", "file": "run.py", "line": 12, "function": "run"}
        | {"source": "state = torch.load(path)"},
    ]
    weights = {"optimizer": False, "optimizer_restored": False, "keys": "epoch model"}
    rows = [SAVE | weights | {"site": 8}, LOAD | weights | {"site": 9}]
    _, _, finding = judge(make, "resume-discontinuity", rows, sites=sites)
    assert (finding.location.line, finding.seen_at.line) == (30, 12)
    assert finding.fix_code.splitlines()[:2] == [
        'torch.save({"model": model.state_dict(), "epoch": epoch, "optimizer": optimizer.state_dict()}, path)',
        "state = torch.load(path)",
    ]
    _, _, finding = judge(make, "resume-discontinuity", [*rows, SAVE | weights | {"site": 9}], sites=sites)
    assert (finding.location.line, finding.seen_at) == (12, None)
    whole = [SAVE | {"site": 8}, LOAD | {"site": 9, "optimizer_restored": False}]
    assert judge(make, "resume-discontinuity", whole, sites=sites)[2].location.line == 12, "it holds what is needed"


def test_an_example_writes_what_the_file_lacks_beside_what_it_holds(make) -> None:
    weights = {"optimizer": False, "optimizer_restored": False, "keys": "epoch net"}
    _, _, finding = judge(make, "resume-discontinuity", [SAVE | weights, LOAD | weights])
    assert '{**saved, "optimizer": optimizer.state_dict()}' in finding.fix_code
    assert '"model"' not in finding.fix_code


@pytest.mark.parametrize(
    ("rows", "optimizers"),
    [
        ([SAVE, LOAD], ADAM),
        ([LOAD | {"optimizer_restored": False}], ADAM),  # another program's weights
        ([SAVE | {"file": "b", "keys": "b"}, LOAD | {"optimizer_restored": False}], ADAM),
        ([SAVE, LOAD | {"optimizer_restored": False}], SGD),  # nothing to restore
    ],
)
def test_trainings_that_go_on_as_they_should(make, rows, optimizers) -> None:
    assert judge(make, "resume-discontinuity", rows, optimizers=optimizers)[0] == "passed"


def test_bare_weights_do_not_say_whether_a_training_was_to_go_on(make) -> None:
    """They may be the best so far, to be tried or tuned further, or all that a training that goes on has."""
    status, reason, _ = judge(make, "resume-discontinuity", [SAVE, LOAD | {"optimizer": False, "progress": False}])
    assert (status, "holds only weights" in reason) == ("skipped", True)


def test_a_second_training_of_the_process_that_goes_on(make) -> None:
    """The finding counts in the steps of the training that it is about, as what follows from it does."""
    first, second = make.process(), make.process(make.steps() | {"time": [100.0 + at for at in range(400)]})
    first.training, second.training = "training 1 of 2", "training 2 of 2"
    rows = [SAVE, LOAD | {"optimizer_restored": False, "time": 50.0, "step": 400}]
    process = make.process(more={"checkpoints": rows}, optimizers=ADAM)
    process.trainings = [first, second]
    _, _, finding = make.check("resume-discontinuity", process)
    assert (finding.first_step, finding.trainings) == (1, ["training 2 of 2"])


SEEN = {"site": 3, "step": 200, "optimizer": 0, "file_rate": 0.01, "rate": 0.01, "same_model": True, "parameters": 4,
        "file_parameters": 4}  # fmt: skip


MOMENTUM = [ADAM[0] | {"name": "SGD", "options": '{"lr": 0.01, "momentum": 0.9}'}]


UNDER_WAY = {"restored_lr": 0.002, "initial_lr": 0.01, "anew": "LambdaLR"}


def resumed(make: Any, load: dict[str, Any], seen: dict[str, Any], **more: Any) -> Any:
    event = {"kind": "resumed", "time": 1.0, "step": 201, "name": "last.pt", "text": json.dumps(SEEN | seen)}
    process = make.process(
        more={"checkpoints": [SAVE, LOAD | load], "events": [event]}, **({"optimizers": ADAM} | more)
    )
    return make.check("resume-discontinuity", process)


@pytest.mark.parametrize(
    ("load", "seen", "lacks"),
    [
        ({}, {"renewed": True}, "optimizer"),
        ({}, UNDER_WAY, "scheduler"),
        ({"optimizer_restored": False}, {}, "optimizer"),
        ({"optimizer_restored": False}, {"rate": 0.03, "file_rate": 0.001}, "optimizer"),  # decayed, and reset
        ({"optimizer_restored": False}, {"fresh": 0, "groups": [4], "file_groups": [4]}, "optimizer"),
        ({}, UNDER_WAY | {"fresh": 1}, "scheduler"),  # the optimizer's state was taken in: it goes on
    ],
)
def test_what_the_first_step_after_a_file_shows(make, load, seen, lacks) -> None:
    status, _, finding = resumed(make, load, seen)
    assert (status, finding.severity, finding.confidence) == ("fired", "warning", "likely")
    assert lacks in finding.title
    assert resumed(make, load, seen, optimizers=MOMENTUM)[0] == "fired"


@pytest.mark.parametrize(
    ("load", "seen"),
    [
        ({}, {}),
        ({}, {"renewed": True, "rate": 0.001}),  # a second phase with a lower rate
        ({"optimizer_restored": False}, {"rate": 0.001}),
        ({"optimizer_restored": False}, {"parameters": 2}),  # of which only the head is trained
        ({"optimizer_restored": False}, {"groups": [3, 1], "file_groups": [4], "rate": 0.03}),  # a rate for the head
        ({"optimizer_restored": False}, {"fresh": 2, "rate": 0.03}),  # a head for other classes
        ({"optimizer_restored": False}, {"same_model": False}),  # the next fold, after the best of the last
        ({}, UNDER_WAY | {"anew": None}),
        ({"progress": False}, UNDER_WAY),  # a schedule that is to begin anew
        ({"scheduler_restored": True}, UNDER_WAY),
    ],
)
def test_first_steps_of_a_second_phase(make, load, seen) -> None:
    status, reason, _ = resumed(make, load, seen)
    left = load.get("optimizer_restored") is False
    assert (status, "does not need it" in reason) == ("passed", left)
    assert ("loaded everything" in reason) != left


@pytest.mark.parametrize(
    ("source", "fix", "example"),
    [
        ("self.acc.load_state(folder)", "accelerator.prepare()", "register_for_checkpointing(scheduler)"),
        ('optimizer.load_state_dict(torch.load("opt.pt"))', "Save the state", 'torch.load("scheduler.pt")'),
    ],
)
def test_a_schedule_that_a_folder_of_states_leaves_out(make, source: str, fix: str, example: str) -> None:
    of_optimizer = {"file": "opt.pt", "keys": "param_groups state", "tensors": 0, "progress": True, "site": 3}
    event = {"kind": "resumed", "time": 1.0, "step": 201, "name": "opt.pt", "text": json.dumps(SEEN | UNDER_WAY)}
    rows = [SAVE | of_optimizer | {"progress": False}, LOAD | of_optimizer]
    site = {"site": 3, "role": "load", "file": "train.py", "line": 7, "function": "main", "source": source}
    process = make.process(more={"checkpoints": rows, "events": [event]}, sites=[site], optimizers=ADAM)
    status, _, finding = make.check("resume-discontinuity", process)
    assert (status, finding.location.line) == ("fired", 7)
    assert fix in finding.fix
    assert example in finding.fix_code
    assert "**saved" not in finding.fix_code


def test_weights_and_an_optimizer_in_files_of_their_own(make) -> None:
    """That of the weights says how far the training is, and the other one holds the moments."""
    weights = {"optimizer": False, "keys": "epoch model"}
    states = {"file": "opt.pt", "keys": "param_groups state", "tensors": 0}
    saved = [SAVE | weights, SAVE | states]
    assert judge(make, "resume-discontinuity", [*saved, LOAD | weights, LOAD | states])[0] == "passed"
    left = {"optimizer_restored": False}
    assert judge(make, "resume-discontinuity", [*saved, LOAD | weights | left, LOAD | states | left])[0] == "fired"


def test_an_optimizer_of_another_method_takes_in_no_state(make) -> None:
    """Pretraining by Adam, fine-tuning by SGD, in one program."""
    load, seen = {"optimizer_restored": False}, {"optimizer": 1}
    again = [ADAM[0], ADAM[0] | {"optimizer": 1}]
    assert resumed(make, load, seen, optimizers=again)[0] == "fired"
    assert resumed(make, load, seen, optimizers=[ADAM[0], MOMENTUM[0] | {"optimizer": 1}])[0] == "passed"


@pytest.mark.parametrize(
    ("later", "status"),
    [
        ({"length": 40}, "passed"),
        ({"dataset": "Photos"}, "passed"),
        ({}, "fired"),  # made again over the same data
        (None, "fired"),  # the same one
    ],
)
def test_a_phase_on_other_data_begins_with_a_fresh_optimizer(make, later: dict[str, Any] | None, status: str) -> None:
    of_first = {"loader": 0, "dataset": "Images", "iterable": False, "length": 100, "batch_size": 32, "num_workers": 0}
    loaders = [of_first, *([] if later is None else [of_first | {"loader": 1} | later])]
    columns = make.steps()
    columns |= {"loader": [0] * 200 + [len(loaders) - 1] * (len(columns["loss"]) - 200)}
    rows = {"checkpoints": [SAVE, LOAD | {"optimizer_restored": False}]}
    process = make.process(columns, more=rows, loaders=loaders, optimizers=ADAM)
    assert make.check("resume-discontinuity", process)[0] == status


@pytest.mark.parametrize(
    ("steps", "row", "status"),
    [
        (200, {}, "passed"),  # pretraining, and then the same model on other texts at the same rate
        (100, {}, "fired"),
        (400, {}, "fired"),  # up and down again
        (200, {"horizon": None}, "fired"),  # a schedule without an end
        (200, {"inner": True}, "fired"),  # a part of another one
        (200, {"name": "LinearLR"}, "fired"),  # a warm-up
    ],
)
def test_a_schedule_that_was_over_leaves_nothing_to_go_on_with(make, steps, row, status) -> None:
    event = {
        "kind": "resumed",
        "time": 1.0,
        "step": 201,
        "name": "last.pt",
        "text": json.dumps(SEEN | {"optimizer": 1}),
    }
    rows = {"scheduler": 0, "name": "CosineAnnealingLR", "optimizer": 0, "inner": False, "horizon": 200} | row
    schedules = [rows | {"step": 100, "steps": steps // 2}, rows | {"step": 220, "steps": steps}]
    load = LOAD | {"optimizer_restored": False}
    process = make.process(
        more={"checkpoints": [SAVE, load], "events": [event], "schedules": schedules},
        optimizers=[ADAM[0], ADAM[0] | {"optimizer": 1}],
    )
    assert make.check("resume-discontinuity", process)[0] == status


@pytest.mark.parametrize(
    ("seen", "status", "severity", "word"),
    [
        ({"unread": ["ema", "epoch"], "steps": 1}, "fired", "warning", "average"),
        ({"unread": ["global_step"], "steps": 1}, "fired", "info", "counts from zero"),
        ({"unread": ["config", "loss", "schema"], "steps": 1}, "passed", None, None),
        ({"unread": ["ema", "epoch"], "steps": 41}, "passed", None, None),  # back to the last good state, in one loop
        ({"unread": [], "steps": 1}, "passed", None, None),
    ],
)
def test_what_a_script_writes_and_never_reads(make, seen, status, severity, word) -> None:
    found, _, finding = resumed(make, {}, seen)
    assert found == status
    assert not finding or (finding.severity == severity and word in finding.title)


def test_rates_that_begin_anew(make) -> None:
    """Those of epochs that are counted from zero again."""
    steps = make.steps()
    of_epochs = [0.01, 0.009, 0.008, 0.007]
    for after, status in (([*of_epochs[1:], 0.006], "fired"), ([0.006, 0.005, 0.004, 0.003], "passed")):
        steps["lr"] = [rate for rate in of_epochs for _ in range(50)] + [0.006 if status == "passed" else 0.0065] * 40
        steps["lr"] += [rate for rate in after for _ in range(40)]
        restored = {"restored_lr": steps["lr"][200], "initial_lr": None, "anew": None}
        seen, _, finding = resumed(make, {}, restored, steps=steps)
        assert seen == status
        assert not finding or "starts over" in finding.title


def test_a_new_head_on_weights_with_the_number_of_an_epoch(make) -> None:
    """Pretraining and fine-tuning that save alike, without their optimizers."""
    weights = {"optimizer": False, "optimizer_restored": False}
    assert resumed(make, weights, {"fresh": 0})[0] == "fired"
    assert resumed(make, weights, {"fresh": 2})[0] == "skipped"


def test_a_training_that_goes_on_from_weights_alone(make) -> None:
    """A hint, since a training in stages looks the same."""
    bare = {"keys": "", "optimizer": False, "optimizer_restored": False, "progress": False}
    event = {"kind": "resumed", "time": 2.5, "step": 201, "name": "last.pt"}
    optimizers = [ADAM[0] | {"made_at": 4, "parameters": 4}, ADAM[0] | {"made_at": 4, "parameters": 4, "optimizer": 1}]

    def judged(saved: int = 200, made_at: int = 4, again: str = "last.pt", **seen: Any) -> Any:
        text = json.dumps(SEEN | {"optimizer": 1, "file_rate": None, "file_parameters": 0} | seen)
        rows = [SAVE | bare | {"step": saved, "time": 1.0}, LOAD | bare | {"time": 2.0}]
        rows.append(SAVE | bare | {"step": 400, "time": 3.0, "file": again})
        made = [optimizers[0], optimizers[1] | {"made_at": made_at}]
        process = make.process(more={"checkpoints": rows, "events": [event | {"text": text}]}, optimizers=made)
        return make.check("resume-discontinuity", process)

    status, _, finding = judged()
    assert (status, finding.severity, finding.first_step) == ("fired", "info", 201)
    assert judged(saved=100)[0] == "skipped", "the best weights so far"
    assert judged(made_at=5)[0] == "skipped", "another optimizer: a second phase"
    assert judged(again="tuned.pt")[0] == "skipped"
    assert judged(optimizer=0)[0] == "skipped", "the optimizer goes on"
    assert judged(same_model=False)[0] == "skipped"
    assert judged(fresh=2)[0] == "skipped", "a new head"


FITS = "trainer.fit(net, train, valid)"


@pytest.mark.parametrize(
    ("read", "call", "code"),
    [
        ("net = Net.load_from_checkpoint(last)", FITS, "trainer.fit(net, train, valid, ckpt_path=last)"),
        (
            "net = Net.load_from_checkpoint(checkpoint_path=args.file, weights_only=False)",
            FITS,
            "trainer.fit(net, train, valid, ckpt_path=args.file, weights_only=False)",
        ),
        ('net.load_state_dict(torch.load(last)["state_dict"])', FITS, "trainer.fit(net, train, valid, ckpt_path=last)"),
        ("net = Net.load_from_checkpoint(last)", "trainer.fit(net, train, ckpt_path=file)", ""),
        ("net = Net.load_from_checkpoint(last)", "optimizer.step()", ""),
    ],
)
@pytest.mark.parametrize(("saved", "severity"), [(-2.0, "warning"), (9.0, "info")])
def test_a_trainer_of_lightning_is_given_the_file(make, read, call, code, saved, severity) -> None:
    """Its lists of states are no state dicts. A loop of the script's own has no Trainer, and restores the first of
    them. A file from before this program may be of another one, with the same keys: fine-tuning."""
    keys = {"keys": "epoch lr_schedulers optimizer_states pytorch-lightning_version state_dict", "file": ""}
    states = keys | {"scheduler": True, "optimizer_restored": False, "step": 0, "time": -1.0, "site": 1}
    sites = lines_of(f"def main():\n    {read}\n    {call}\n", load=read, step=call)
    process = make.process(
        more={
            "checkpoints": [SAVE | keys | {"scheduler": True, "time": saved}, LOAD | states],
            "schedules": [{"scheduler": 0, "name": "StepLR", "step": 300}],
        },
        sites=sites,
        optimizers=ADAM,
    )
    finding = make.check("resume-discontinuity", process)[2]
    assert finding.title == "Training resumes without its optimizer and scheduler state"
    assert finding.severity == severity
    if code:
        assert finding.fix_code.splitlines()[-1] == code
        assert (finding.location.line, finding.seen_at.line, "max_epochs" in finding.fix) == (3, 2, True)
    else:
        assert 'checkpoint["optimizer_states"][0]' in finding.fix_code
        assert finding.location.line == 2

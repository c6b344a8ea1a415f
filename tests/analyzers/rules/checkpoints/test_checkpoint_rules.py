"""Rules about files of weights: what they hold, and what is restored of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

SAVE = {
    "action": "save",
    "file": "last.pt",
    "keys": "epoch model optimizer",
    "step": 100,
    "tensors": 8,
    "optimizer": True,
    "scheduler": False,
    "scaler": False,
    "progress": True,
    "held": 8,
    "missing": 0,
    "compared": 8,
    "untouched": 0,
}
LOAD = SAVE | {
    "action": "load", "step": 200, "model_restored": True, "optimizer_restored": True, "scheduler_restored": False,
    "scaler_restored": False, "held": None, "missing": None, "compared": None, "untouched": None,
}  # fmt: skip
ADAM = [{"optimizer": 0, "name": "AdamW", "device": "cpu", "dtype": "float32", "options": '{"lr": 0.01}'}]
SGD = [ADAM[0] | {"name": "SGD", "options": '{"lr": 0.01, "momentum": 0}'}]


def judge(make: Any, rule: str, rows: list[dict[str, Any]], **more: Any) -> Any:
    return make.check(rule, make.process(more={"checkpoints": rows}, **({"optimizers": ADAM} | more)))


def test_files_of_the_model_before_training(make) -> None:
    _, _, finding = judge(make, "checkpoint-mismatch", [SAVE | {"untouched": 8}, SAVE | {"untouched": 8, "step": 200}])
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "likely", 100)


def test_checkpoints_without_a_part_that_is_trained(make) -> None:
    _, _, finding = judge(make, "checkpoint-mismatch", [SAVE | {"missing": 2, "names": "head.weight, head.bias"}])
    assert "head.weight" in finding.summary


ADAPTER = SAVE | {
    "file": "adapter_model.safetensors", "optimizer": False, "progress": False, "held": 14, "missing": 2,
    "compared": 12, "names": "base_model.model.classifier.weight, base_model.model.classifier.bias",
}  # fmt: skip


def test_adapters_without_what_is_trained_beside_them(make) -> None:
    lacks = ADAPTER | {"beside_adapters": 2, "site": 3}
    _, _, finding = judge(make, "checkpoint-mismatch", [lacks, lacks | {"step": 200}])
    assert (finding.severity, finding.confidence, finding.location.line) == ("critical", "likely", 60)
    assert finding.fix_code.startswith('lora_config.modules_to_save = ["classifier"]  #')
    of_critic = ADAPTER | {"beside_adapters": 0}  # a second model, which is not saved
    beside = {"step": 200, "file": "classifier.pt", "missing": 0, "beside_adapters": 0}
    for rows in ([of_critic], [lacks | {"step": 200}, SAVE | beside], [lacks, SAVE | beside], [SAVE | {"missing": 2}]):
        assert judge(make, "checkpoint-mismatch", [row | {"optimizer": False} for row in rows])[0] == "passed"


CONFIGURES = [
    "def adapt(model):",
    "    config = LoraConfig(",
    "        r=8,",
    "    )",
    "    return get_peft_model(model, config)",
    "",
    "def unfreeze(model):",
    "    model.base_model.model.classifier.requires_grad_(True)",
]


def configured(lines: list[str], *places: tuple[str, int]) -> list[dict[str, Any]]:
    """Sites of these roles at these lines, from 1 on, each with all of the text around it."""
    shared = {"file": "t.py", "function": "adapt", "excerpt_line": 1, "excerpt": "\n".join(lines)}
    return [
        shared | {"site": 10 + at, "role": role, "line": line, "source": lines[line - 1].strip()}
        for at, (role, line) in enumerate(places)
    ]


def test_adapters_are_configured_to_be_saved_with_what_is_trained_beside_them(make) -> None:
    rows = [ADAPTER | {"beside_adapters": 2, "site": 3}]
    sites = configured(CONFIGURES, ("adapters-text", 2), ("freeze", 8))
    _, _, finding = judge(make, "checkpoint-mismatch", rows, sites=sites)
    assert finding.diff.added[-1].strip() == 'modules_to_save=["classifier"],'
    assert finding.location.line == 3, "where the argument goes"
    assert "Leave out what unfreezes them by hand (line 8)." in finding.fix
    assert "They are base_model.model.classifier.weight, " in finding.summary
    named = [line.replace("r=8", 'r=8, modules_to_save=["score"]') for line in CONFIGURES]
    _, _, finding = judge(make, "checkpoint-mismatch", rows, sites=configured(named, ("adapters-text", 2)))
    assert '["score", "classifier"]' in finding.diff.added[0]
    assert "Leave out the lines that unfreeze" in finding.fix


@pytest.mark.parametrize(
    ("lines", "places"),
    [
        (CONFIGURES, (("adapters-text", 2), ("adapters-text", 5))),  # two configurations: either may be meant
        ([line.replace("r=8", "r=8, modules_to_save=kept") for line in CONFIGURES], (("adapters-text", 2),)),
    ],
)
def test_adapters_whose_configuration_is_not_known_as_a_whole_get_no_edit(make, lines, places) -> None:
    lines = [*lines[:4], "    other = LoraConfig(r=4)", *lines[5:]]
    rows = [ADAPTER | {"beside_adapters": 2, "site": 3}]
    _, _, finding = judge(make, "checkpoint-mismatch", rows, sites=configured(lines, *places))
    assert finding.diff is None
    assert 'lora_config.modules_to_save = ["classifier"]' in finding.fix_code


@pytest.mark.parametrize(
    "rows",
    [
        [SAVE],
        [SAVE | {"untouched": 8}, SAVE],  # the start is kept beside what was trained
        [SAVE | {"untouched": 3}],  # an average that hardly moved
        [SAVE | {"missing": 2, "optimizer": False, "progress": False}],  # an export of a part
        [SAVE | {"missing": 2, "optimizer": False}],  # an encoder without its projector, with the number of the step
        [SAVE | {"missing": 2}, SAVE | {"file": "all.pt"}],
        [SAVE | {"missing": 8, "compared": 0}],  # other names throughout: another library's
    ],
)
def test_files_that_hold_what_was_trained(make, rows) -> None:
    assert judge(make, "checkpoint-mismatch", rows)[0] == "passed"


BARE = {"statistics": 6, "statistics_missing": 6}


def test_files_without_running_statistics(make) -> None:
    _, _, finding = judge(make, "checkpoint-mismatch", [SAVE | BARE, SAVE | BARE | {"step": 200}])
    assert (finding.severity, finding.confidence, finding.first_step) == ("critical", "likely", 100)
    assert "6 tensors" in finding.title


@pytest.mark.parametrize(
    "rows",
    [
        [SAVE | BARE | {"statistics_missing": 0}],
        [SAVE | BARE | {"optimizer": False}],  # an export of the weights, for another tool
        [SAVE | BARE, SAVE | BARE | {"statistics_missing": 0, "optimizer": False}],  # beside the whole state
        [SAVE | BARE, SAVE | {"statistics": 0, "statistics_missing": 0}],  # beside files of another kind
    ],
)
def test_files_that_may_leave_out_running_statistics(make, rows) -> None:
    assert judge(make, "checkpoint-mismatch", rows)[0] == "passed"


READ = {"step": 300, "time": 9.0, "module": 0, "name": "Net", "given": 8, "expected": 14, "missing": 6, "unexpected": 0}
UNSET = {"step": 300, "model": 1, "modules": 3, "of": 3, "spectral": 0, "call": 1, "training": False}


@pytest.mark.parametrize(
    ("loads", "unset", "status"),
    [
        ([READ], [UNSET], "fired"),
        ([], [UNSET], "passed"),  # another model
        ([READ], [], "passed"),  # into a model that has statistics
        ([READ], [UNSET | {"modules": 0}], "passed"),  # they are estimated anew before it evaluates
        ([READ | {"step": 50}], [UNSET], "passed"),  # of a file from elsewhere, before
        ([READ | {"given": 4}], [UNSET], "passed"),  # a part
    ],
)
def test_files_of_weights_alone_that_a_model_is_evaluated_with(make, loads, unset, status: str) -> None:
    more = {"checkpoints": [SAVE | BARE | {"optimizer": False}], "loads": loads, "unset": unset}
    answer = make.check("checkpoint-mismatch", make.process(more=more, optimizers=ADAM))
    assert answer[0] == status
    if status == "fired":
        assert "evaluates with mean 0 and variance 1 after step 300" in answer[2].summary
        assert "optimizer" not in answer[2].fix_code.split("#")[0]


def test_files_of_the_beginning_are_not_judged(make) -> None:
    assert judge(make, "checkpoint-mismatch", [SAVE | {"untouched": 8, "step": 2}])[0] == "skipped"
    assert judge(make, "checkpoint-mismatch", [LOAD])[0] == "skipped"


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


@pytest.mark.parametrize(("missing", "status"), [(6, "skipped"), (1, "fired")])
def test_a_file_of_which_no_name_fits_restores_nothing(make, missing: int, status: str) -> None:
    """weights-not-loaded is the finding, and the training that follows begins anew."""
    rows = [SAVE, LOAD | {"optimizer_restored": False, "time": 2.0}]
    load = {"step": 200, "time": 2.5, "module": 0, "given": 6, "expected": 6, "missing": missing, "unexpected": missing}
    process = make.process(more={"checkpoints": rows, "loads": [load]}, optimizers=ADAM)
    assert make.check("resume-discontinuity", process)[0] == status


def test_nothing_was_restored(make) -> None:
    assert judge(make, "resume-discontinuity", [SAVE, LOAD | {"model_restored": False}])[0] == "skipped"


def long(make: Any, seconds: float) -> dict[str, Any]:
    steps: dict[str, Any] = make.steps() | {"seconds": [seconds / 400] * 400}
    return steps


@pytest.mark.parametrize(("seconds", "severity"), [(900, "info"), (7200, "warning")])
def test_a_long_training_that_saves_nothing(make, seconds, severity) -> None:
    _, _, finding = judge(make, "no-checkpoint", [], steps=long(make, seconds))
    assert finding.severity == severity
    saved = [SAVE | {"action": "state"}]  # by another library
    status, reason, _ = judge(make, "no-checkpoint", saved, steps=long(make, seconds))
    assert (status, "what became of the weights was not seen" in reason) == ("passed", True)


@pytest.mark.parametrize(
    ("call", "code"), [("trainer.train()", "save_strategy="), ("trainer.fit(x)", "Trainer(enable_")]
)
def test_a_trainer_is_told_to_save_by_its_settings(make, call: str, code: str) -> None:
    step = {"site": 1, "role": "step", "file": "t.py", "line": 4, "function": "main", "source": call}
    finding = make.check("no-checkpoint", make.process(long(make, 900), sites=[step]))[2]
    assert code in finding.fix_code
    assert "torch.save" not in finding.fix_code


def test_short_runs_need_save_nothing(make) -> None:
    assert judge(make, "no-checkpoint", [])[0] == "passed"
    assert judge(make, "no-checkpoint", [SAVE])[0] == "passed"
    assert judge(make, "no-checkpoint", [SAVE | {"optimizer": False}])[2].severity == "info"
    assert judge(make, "no-checkpoint", [SAVE | {"optimizer": False, "progress": False}])[0] == "passed"
    assert judge(make, "no-checkpoint", [SAVE | {"optimizer": False}], optimizers=SGD)[0] == "passed"


@pytest.mark.parametrize(
    ("given", "restored", "status"),
    [
        ("Classifier", False, "passed"),
        ("Pretraining", False, "fired"),  # the model goes on
        ("Classifier", None, "fired"),  # nothing of the process reads the file
    ],
)
def test_a_file_that_hands_weights_to_another_model(make, given: str, restored: bool | None, status: str) -> None:
    save = SAVE | {"optimizer": False, "time": 10.0}
    read = LOAD | {"optimizer": False, "optimizer_restored": restored, "time": 11.0, "step": 100}
    loads = [{"step": 100, "time": 12.0, "module": 0, "name": given, "given": 8, "expected": 8, "missing": 0}]
    links = [{"step": 1, "optimizer": 0, "model": 0}, {"step": 101, "optimizer": 1, "model": 1}]
    models = [{"model": 0, "name": "Pretraining"}, {"model": 1, "name": "Classifier"}]
    files = [save] if restored is None else [save, read]
    process = make.process(more={"checkpoints": files, "loads": loads, "links": links}, models=models, optimizers=ADAM)
    assert make.check("no-checkpoint", process)[0] == status


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


KEEPER = [
    "class Keeper:",
    "    def __init__(self, model):",
    "        self.weights = copy.deepcopy(model.state_dict())",
    "        self.path = 'best.pt'",
    "    def keep(self, epoch):",
    "        state = {",
    '            "epoch": epoch,',
    '            "model": self.weights,',
    "        }",
    "        torch.save(state, self.path)",
]
IN_MAIN = [
    "def main():",
    "    best = copy.deepcopy(model.state_dict())",
    "    for epoch in range(9):",
    "        train(model)",
    "    torch.save(best, 'best.pt')",
]
IN_TUPLE = [one.replace("best = copy.deepcopy(", "low, best = 9.0, copy.deepcopy(") for one in IN_MAIN]
ANY = "a model that was rebuilt"


def taken(text: list[str], function: str, saves: str, more: tuple[tuple[str, str, str], ...] = ()) -> Any:
    """Sites of a script of this text: the line that takes a state, in `function`, and that which saves, in `saves`."""
    roles = (("state_dict", "state_dict()", function), ("save", "torch.save(", saves), *more)
    lines = [next(at for at, line in enumerate(text, 1) if part in line) for _, part, _ in roles]
    return [
        {"site": number, "role": role, "file": "a.py", "line": at, "function": where}
        | {"source": text[at - 1].strip(), "excerpt": "\n".join(text), "excerpt_line": 1}
        for number, ((role, _, where), at) in enumerate(zip(roles, lines, strict=True), 1)
    ]


@pytest.mark.parametrize(
    ("sites", "line", "said"),
    [
        (taken(KEEPER, "__init__", "keep"), 8, "saves `self.weights`, an early copy: line 3 makes it"),
        (taken(IN_MAIN, "main", "main", (("epochs", "for epoch", "main"),)), 5, "saves `best`, an early copy"),
        (taken(IN_TUPLE, "main", "main", (("epochs", "for epoch", "main"),)), 5, "saves `best`, an early copy"),
        (taken(IN_MAIN, "main", "main"), 5, ANY),  # in a loop further out, perhaps
        (taken(KEEPER, "refresh", "keep"), 10, ANY),  # which may copy a model that never trains
        (taken([one.replace("self.weights,", "self.own,") for one in KEEPER], "__init__", "keep"), 10, ANY),
        (taken([one.replace("copy.deepcopy", "dict") for one in KEEPER], "__init__", "keep"), 10, ANY),
        (taken(KEEPER, "__init__", "keep", (("state_dict", "class", ""),)), 10, ANY),  # which of them is not known
    ],
)
def test_an_early_copy_that_is_saved(make, sites: list[dict[str, Any]], line: int, said: str) -> None:
    bare = "best," in sites[1]["source"]
    keys = "0.weight 0.bias" if bare else "epoch model"
    rows = [SAVE | {"untouched": 8, "site": 2, "keys": keys, "step": at} for at in (100, 200)]
    finding = judge(make, "checkpoint-mismatch", rows, sites=sites)[2]
    assert (finding.location.line, said in finding.summary) == (line, True), finding.summary
    assert (finding.fix_code == "torch.save(model.state_dict(), 'best.pt')") == bare


def test_an_entry_that_a_file_lacks_stands_on_a_line_of_its_own(make) -> None:
    rows = [SAVE | {"optimizer": False, "site": 2, "keys": "epoch model"}]
    finding = judge(make, "no-checkpoint", rows, sites=taken(KEEPER, "__init__", "keep"))[2]
    assert '    "model": self.weights,\n    "optimizer": optimizer.state_dict(),\n}' in finding.fix_code
    assert "hold the optimizer's state" in finding.verify


READS = """def load_checkpoint(path, model, optimizer=None, scheduler=None):
    state = torch.load(path)
    model.load_state_dict(state["model"])
    if optimizer is not None:
        optimizer.load_state_dict(state["optimizer"])
    if scheduler is not None:"""  # what was recorded ends here
JOB = """    optimizer = AdamW(model.parameters())
    scheduler = OneCycleLR(
        optimizer, 0.1)
    first = load_checkpoint(path, model)"""


@pytest.mark.parametrize(
    ("job", "place", "code"),
    [
        (JOB, 43, "first = load_checkpoint(path, model, optimizer=optimizer, scheduler=scheduler)"),
        (JOB.replace("optimizer = AdamW", "self.made[0] = AdamW"), 43, ""),
        (JOB.replace("path, model", "*given"), 11, ""),
        (JOB.replace("first = load_checkpoint(path, model)", "job(load_checkpoint, path)"), 11, ""),
    ],
)
def test_states_that_a_function_restores_where_it_is_given_them(make, job: str, place: int, code: str) -> None:
    """Within the function both are None: to load them there without a condition would raise at once."""
    read = {"file": "train.py", "excerpt_line": 10, "excerpt": READS, "function": "load_checkpoint"}
    made = {"file": "train.py", "excerpt_line": 40, "excerpt": job, "function": "job"}
    lines = job.splitlines()
    sites = [
        read | {"site": 7, "role": "load", "line": 11, "source": "state = torch.load(path)"},
        made | {"site": 8, "role": "optimizer", "line": 40, "source": lines[0].strip()},
        made | {"site": 9, "role": "scheduler", "line": 41, "source": lines[1].strip()},
    ]
    load = {"scheduler": True, "optimizer": True, "optimizer_restored": False, "keys": "model optimizer scheduler"}
    more = {
        "checkpoints": [SAVE | load, LOAD | load | {"site": 7}],
        "schedules": [{"scheduler": 0, "name": "OneCycleLR", "step": 300}],
    }
    facts = {"step": 200, "optimizer": 0, "same_model": True, "steps": 1}
    events = [{"kind": "resumed", "name": LOAD["file"], "step": 201, "text": json.dumps(facts)}]
    optimizers = [ADAM[0] | {"made_at": 8}]
    process = make.process(sites=sites, more=more, optimizers=optimizers, events=events)
    finding = make.check("resume-discontinuity", process)[2]
    assert (finding.location.line, finding.fix_code) == (place, code)
    assert "load_checkpoint restores the state of the optimizer only where it is given one (line 13)." in finding.fix
    where = "in the call on line 43" if place == 43 else "where it is called"
    assert finding.fix.endswith(f"Pass the optimizer and scheduler {where}.")

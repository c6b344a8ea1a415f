"""Rules about files of weights: what they hold, what is restored of them, and whether any is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.analyzers.rules.checkpoints.files import ADAM, LOAD, SAVE, SGD, judge


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

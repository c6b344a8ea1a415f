"""Rules about scalers, modes left on, batch normalisation over few samples and DataParallel."""

from __future__ import annotations

from typing import Any

import pytest

from tracelyze.analyzers import context
from tracelyze.analyzers.rules import RULES
from tracelyze.analyzers.rules.evaluation.batchnorm_small_batch import group_norms

COUNT = 400


def outcome(make, rule: str, **columns: Any) -> tuple[str, str]:
    status, _, finding = make.check(rule, make.process(make.steps() | columns))
    return status, finding.severity if finding else ""


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


@pytest.mark.parametrize(
    ("channels", "beside", "groups", "imports"),
    [
        ("64", "", "4", False),
        ("12", "", "1", False),
        ("width", "", "math.gcd(width, max(1, width // 16))", True),
        ("width", "scale = math.sqrt(width)", "math.gcd(width, max(1, width // 16))", False),
        ("width", "scale = self.math.root(width)", "math.gcd(width, max(1, width // 16))", True),
    ],
)
def test_groups_in_place_of_batch_normalisation(make, channels: str, beside: str, groups: str, imports: bool) -> None:
    line = f"self.norm = nn.BatchNorm2d({channels})"
    site = {"site": 1, "role": "module", "file": "a.py", "line": 12, "function": "block", "source": line}
    site |= {"excerpt_line": 11, "excerpt": f"    {beside}\n    {line}"}
    process = make.process(sites=[site])
    made = group_norms.in_place(process, process.location("module"))
    assert made.code.endswith(f"self.norm = nn.GroupNorm({groups}, {channels})")
    assert made.code.startswith("import math") is imports


def test_batchnorm_small_batch(make) -> None:
    def answer(kinds: str = "BatchNorm2d x3", **columns: Any) -> str:
        steps = make.steps() | {"backwards": [16] * COUNT, "batch_size": [32] * COUNT} | columns
        models = [{"model": 0, "name": "Net", "sensitive": kinds}]
        return str(make.check("batchnorm-small-batch", make.process(steps, models=models))[0])

    assert answer() == "fired"
    assert answer("SyncBatchNorm x3") == "skipped"
    assert answer("Dropout") == "skipped"
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


@pytest.mark.parametrize(
    ("step", "line", "code"),
    [
        ("trainer.train()", 86, "per_device_train_batch_size=16, gradient_accumulation_steps=1"),
        ("trainer.fit(model)", None, "loader = DataLoader(dataset, batch_size=32, shuffle=True, drop_last=True)"),
    ],
)
def test_batchnorm_over_few_values_in_a_trainer(make, step: str, line: int | None, code: str) -> None:
    """The Trainer makes the loader: the size of its batches is an argument."""
    steps = make.steps() | {"backwards": [8] * COUNT, "batch_size": [16] * COUNT}
    models = [{"model": 0, "name": "Net", "sensitive": "BatchNorm1d"}]
    row = {"module": "norm", "kind": "BatchNorm1d", "outputs": 16, "elements": 32}
    place = {"file": "train.py", "function": "main"}
    sites = [
        place | {"site": 1, "role": "step", "line": 104, "source": step},
        place | {"site": 2, "role": "backward", "line": 104, "source": step},
        place | {"site": 3, "role": "setting", "line": 86, "source": "per_device_train_batch_size=2,"},
    ]
    rows = {"activations": [row | {"step": 10 * look} for look in range(3)]}
    loaders = [{"loader": 0, "batch_size": 2, "made_at": 2}]
    process = make.process(steps, models=models, sites=sites if line else sites[:2], loaders=loaders, more=rows)
    _, _, finding = make.check("batchnorm-small-batch", process)
    (rule,) = (one for one in RULES if one.id == "batchnorm-small-batch")
    completed = context.completed(finding, process, rule)
    assert code in completed.fix_code
    assert completed.location.line == (line or 104)


def test_data_parallel(make) -> None:
    model = {"model": 0, "name": "DataParallel"}
    assert make.check("data-parallel", make.process(models=[model]))[2].severity == "info"
    assert make.check("data-parallel", make.process(models=[model]))[2].title.endswith("gains nothing on a CPU")
    assert make.check("data-parallel", make.process())[0] == "skipped", "nothing is wrapped"
    ranks = make.process(models=[{"model": 0, "name": "DistributedDataParallel"}])
    assert make.check("data-parallel", ranks)[0] == "passed"
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

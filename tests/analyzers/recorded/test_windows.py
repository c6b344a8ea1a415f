"""Windows of torch.profiler that a run recorded are judged with it."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fork_server import client
from tests.kineto.made import training
from tracelyze.analyzers import diagnose
from tracelyze.diagnosis import Diagnosis, Finding

STARVED = {"kernel": 30, "launch": 100, "kernels": 300}  # the host launches more slowly than the device works
LOADING = {"loading": 20_000}
CUDA = [{"optimizer": 0, "name": "SGD", "device": "cuda:0", "dtype": "float32"}]

PROGRAM = """
import torch
from torch import nn
torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(1200, 20), torch.randn(1200, 1))
model = nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in torch.utils.data.DataLoader(data, batch_size=20):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


def recorded(make, folder: Path, *windows: dict[str, object] | None, ranks: int = 1, **process) -> Diagnosis:
    """The diagnosis of a run with a window of four steps after every hundred; None is one that cannot be read."""
    processes = []
    for rank in range(ranks):
        name = f"rank0000{rank}"
        (folder / name).mkdir()
        rows = []
        for index, how in enumerate(windows):
            file = folder / name / f"window-{index}.json.gz"
            if how is None:
                file.write_bytes(b"not a trace")
            else:
                training(**({"steps": 4, "rank": rank, "world_size": ranks} | how)).write(file)
            rows.append({"first_step": 100 * index + 11, "last_step": 100 * index + 14, "file": file.name})
        one = make.process(windows=rows, **process)
        one.name, one.facts = name, {"rank": rank, "cpus": 8}
        processes.append(one)
    return diagnose(replace(make.run(*processes), path=folder))


def finding(diagnosis: Diagnosis, rule: str) -> Finding:
    return next(found for found in diagnosis.findings if found.rule == rule)


def answer(diagnosis: Diagnosis, rule: str) -> tuple[str, str]:
    return next((check.status, check.reason) for check in diagnosis.checks if check.rule == rule)


def test_without_windows_the_rules_for_traces_are_skipped(make) -> None:
    checks = diagnose(make.run(make.process())).checks
    check = next(check for check in checks if check.rule == "host-bound")
    assert (check.status, check.why) == ("skipped", "needs-more")
    assert check.command == "tracelyze collect --profile-every 100 -- python train.py"


def test_what_most_windows_show_is_found_in_the_steps_of_the_run(make, tmp_path) -> None:
    diagnosis = recorded(make, tmp_path, STARVED, STARVED, {})
    found = finding(diagnosis, "host-bound")
    assert (found.first_step, found.last_step, found.ranks) == (11, 114, [0])
    assert "2 of 3 profiler windows" in found.summary
    assert "profiled steps" in found.charts[0].title
    assert found.cost.seconds is None  # what the other steps lost was not measured
    assert 0 < found.cost.share < 1


def test_what_one_of_many_windows_shows_is_not(make, tmp_path) -> None:
    diagnosis = recorded(make, tmp_path, STARVED, {}, {}, {})
    assert diagnosis.findings == []
    status, reason = answer(diagnosis, "host-bound")
    assert status == "passed"
    assert "1 of 4" in reason


def test_windows_of_one_process_are_not_ranks(make, tmp_path) -> None:
    diagnosis = recorded(make, tmp_path, *[{"communicating": 5_000}] * 4)
    assert answer(diagnosis, "straggler")[0] == "skipped"
    assert finding(diagnosis, "exposed-communication").ranks == [0]


def test_ranks_are_united(make, tmp_path) -> None:
    assert finding(recorded(make, tmp_path, STARVED, ranks=2), "host-bound").ranks == [0, 1]


def test_a_window_answers_where_the_recorded_steps_cannot(make, tmp_path) -> None:
    diagnosis = recorded(make, tmp_path, LOADING, optimizers=CUDA)  # on a device, without the device's own wait
    found = finding(diagnosis, "dataloader-bottleneck")
    assert found.first_step == 11
    assert [check.rule for check in diagnosis.checks].count("dataloader-bottleneck") == 1
    steps = make.steps() | {"device_wait": [0.0] * 400, "loader_wait": [0.01] * 400}
    (tmp_path / "judged").mkdir()
    silent = recorded(make, tmp_path / "judged", LOADING, optimizers=CUDA, steps=steps)
    assert answer(silent, "dataloader-bottleneck")[0] == "passed"  # 400 recorded steps outnumber 4 profiled ones


def test_a_rule_that_steps_and_windows_know_makes_one_finding(make, tmp_path) -> None:
    steps = make.steps() | {"device_wait": [0.04] * 400, "loader_wait": [0.04] * 400, "seconds": [0.06] * 400}
    found = finding(recorded(make, tmp_path, LOADING, optimizers=CUDA, steps=steps), "dataloader-bottleneck")
    assert {"median share of time the device was idle for data", "profiler windows that show it"} <= {
        evidence.name for evidence in found.evidence
    }
    assert any("profiled steps" in chart.title for chart in found.charts)


def test_an_unreadable_window_is_noted(make, tmp_path) -> None:
    some = recorded(make, tmp_path, STARVED, None)
    assert finding(some, "host-bound").last_step == 14
    assert any("window-1.json.gz" in note for note in some.run.notes)
    (tmp_path / "none").mkdir()
    status, reason = answer(recorded(make, tmp_path / "none", None), "host-bound")
    assert status == "skipped"
    assert "window-0.json.gz" in reason


def test_a_missing_window_is_noted(make, tmp_path) -> None:
    process = make.process(windows=[{"first_step": 11, "last_step": 14, "file": "../window-7.json.gz"}])
    diagnosis = diagnose(replace(make.run(process), path=tmp_path))
    assert any("window-7.json.gz" in note and "missing" in note for note in diagnosis.run.notes)


def test_selected_and_configured_like_any_rule(make, tmp_path) -> None:
    run = make.run(make.process())
    assert [check.rule for check in diagnose(run, select=["host-bound"]).checks] == ["host-bound"]
    assert "host-bound" not in [check.rule for check in diagnose(run, ignore=["host-bound"]).checks]
    assert diagnose(run, thresholds={"dataloader-bottleneck": {"waiting": 0.5, "share": 0.5}}).findings == []


@pytest.mark.starts_programs
def test_a_real_run_on_the_cpu_ends_in_skips(tmp_path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "tracelyze", "collect", "--profile-every", "20", "--out", "run"]
    root = str(Path(__file__).resolve().parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}
    client.shared().run([*command, "--", sys.executable, "train.py"], environment, cwd=tmp_path).check_returncode()
    diagnosis = diagnose(tmp_path / "run")
    assert diagnosis.findings == []
    status, reason = answer(diagnosis, "host-bound")
    assert status == "skipped"
    assert "no work on a device" in reason
    assert diagnosis.run.notes == []

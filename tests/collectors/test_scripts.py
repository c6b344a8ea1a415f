"""What a script says itself: `tracelyze.log`, and `tracelyze.Recorder` around a block."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.collectors.conftest import Collect, Collected, environment, program, run_plain, run_started, two_ranks
from tests.fork_server import client
from tracelyze.analyzers import diagnose
from tracelyze.analyzers.recorded.run import Process
from tracelyze.analyzers.recorded.run_directory import load


def said(collect: Collect, what: str) -> Collected:
    collected = collect(sys.executable, program("said.py"), what)
    assert collected.process.returncode == 0, collected.process.stderr
    return collected


def only(folder: Path) -> Process:
    (process,) = load(folder).processes
    return process


def findings(folder: Path) -> list[Any]:
    return [finding for finding in diagnose(folder).findings if finding.severity != "info"]


# tracelyze.log


def test_a_healthy_loop_that_no_hook_sees(collect: Collect) -> None:
    folder = said(collect, "healthy").folder
    assert [finding.rule for finding in findings(folder)] == []
    checks = {check.rule: check.status for check in diagnose(folder).checks}
    for rule in ("loss-nonfinite", "loss-divergence", "overfitting", "validation-nonfinite"):
        assert checks[rule] == "passed"
    process = only(folder)
    assert len(process.steps) == 300
    assert process.steps["step"].tolist() == list(range(300)), "the script's own numbers"
    assert len(process.evals) == 20
    assert "the steps are those for which the script logged a loss" in " ".join(process.notes)


def test_a_logged_loss_that_turns_nan_names_line_and_batch(collect: Collect) -> None:
    (root,) = [finding for finding in findings(said(collect, "nan").folder) if finding.caused_by is None]
    assert (root.rule, root.first_step, root.severity) == ("loss-nonfinite", 200, "critical")
    assert root.location.source == 'tracelyze.log(loss=loss, batch=f"shard-{batch}", step=step)'
    assert "shard-0" in [evidence.value for evidence in root.evidence]


def test_overfitting_is_told_from_logged_losses(collect: Collect) -> None:
    (root,) = findings(said(collect, "overfits").folder)
    assert root.rule == "overfitting"
    assert 80 <= root.first_step <= 105


def test_losses_that_the_hooks_saw_are_not_taken_twice(collect: Collect) -> None:
    folder = said(collect, "seen").folder
    assert findings(folder) == [], "the NaN of the logged validation loss is no measurement"
    process = only(folder)
    assert len(process.steps) == 100
    assert process.steps["loss"][0] < 100, "not the logged one, which is a thousand times as large"
    logged = [row for row in process.scalars.records() if (row["phase"], row["name"]) == ("train", "loss")]
    assert logged[0]["value"] == pytest.approx(1000 * process.steps["loss"][0], rel=1e-5)
    assert [row["batch"] for row in logged] == [str(step) for step in range(100)]
    assert [row["step"] for row in logged] == list(range(1, 101))
    assert process.notes == []


def test_logged_losses_fill_the_steps_and_passes_that_lack_them(collect: Collect) -> None:
    process = only(said(collect, "by-hand-loss").folder)
    logged = [row for row in process.scalars.records() if row["name"] == "loss"]
    losses = [row["value"] for row in logged if row["phase"] == "train"]
    assert process.steps["loss"].tolist() == losses, "logged after its step"
    assert process.facts["signals"]["loss"]["reason"] == ""
    rows = list(process.evals.records())
    assert [row["loss"] for row in rows] == [row["value"] for row in logged if row["phase"] == "eval"]
    assert {(row["forwards"], row["trained"], row["model_in_train"]) for row in rows} == {(1, True, False)}


def test_nothing_that_it_is_given_raises(collect: Collect) -> None:
    collected = said(collect, "nonsense")
    assert collected.process.stdout == "went on\n"
    assert collected.own_stderr == ""
    process = only(collected.folder)
    events = [row for row in process.events.records() if row["kind"] == "log-ignored"]
    assert len(events) == len({row["name"] for row in events}), "one for each argument"
    assert {"loss", "batch", "phase", "step", "accuracy", "log"} <= {row["name"] for row in events}
    assert not [row for row in process.events.records() if row["kind"] == "collector-error"]
    assert len({row["name"] for row in process.scalars.records()}) <= 201
    assert any("tracelyze.log: loss is a str, not a number" in note for note in process.notes)
    for file in collected.folder.rglob("*"):
        assert not file.is_file() or b"hf_QQQQ" not in file.read_bytes()


def test_log_does_nothing_when_nothing_is_recorded(tmp_path: Path) -> None:
    plain = run_plain(sys.executable, program("said.py"), "nonsense", cwd=tmp_path)
    assert (plain.stdout, plain.stderr) == ("went on\n", "")
    assert list(tmp_path.iterdir()) == []
    code = "import sys, tracelyze; tracelyze.log(loss=1.0); print('torch' in sys.modules, 'pyarrow' in sys.modules)"
    assert run_started(sys.executable, "-c", code).stdout == "False False\n"


def test_a_signal_that_is_off_takes_no_values(collect: Collect) -> None:
    collected = collect(sys.executable, program("said.py"), "seen", options=("--no-signal", "scalars"))
    process = only(collected.folder)
    assert len(process.scalars) == 0
    assert len(process.steps) == 100


def test_workers_of_a_loader_do_not_speak_for_the_training(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "workers.py"
    script.write_text(
        "import torch, tracelyze\n"
        "from torch.utils.data import DataLoader, Dataset\n"
        "class Data(Dataset):\n"
        "    def __len__(self): return 8\n"
        "    def __getitem__(self, index):\n"
        "        tracelyze.log(index=index)\n"
        "        return torch.zeros(2)\n"
        "if __name__ == '__main__':\n"
        "    for batch in DataLoader(Data(), num_workers=1):\n"
        "        tracelyze.log(loss=batch.sum())\n"
    )
    collected = collect(sys.executable, str(script))
    process = only(collected.folder)
    assert {row["name"] for row in process.scalars.records()} == {"loss"}


# tracelyze.Recorder


def block(what: str, place: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, program("blocks.py"), what, str(place)]
    done = client.shared().run(command, environment(**more), cwd=place)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.starts_programs
def test_only_what_happens_in_the_block_is_recorded(tmp_path: Path) -> None:
    done = block("around", tmp_path)
    run, same = json.loads(done.stdout)
    assert run == str(tmp_path / "run")
    assert same, "the hooks that stay behind change nothing"
    process = only(tmp_path / "run")
    assert len(process.steps) == 20
    assert process.exit.kind == "finished"
    assert load(tmp_path / "run").manifest["command"][1:3] == [program("blocks.py"), "around"]
    assert "20 steps recorded. Next: tracelyze diagnose run" in done.stderr
    assert [finding.rule for finding in findings(tmp_path / "run")] == []


@pytest.mark.starts_programs
def test_an_exception_in_the_block_is_recorded_and_passed_on(tmp_path: Path) -> None:
    assert json.loads(block("raises", tmp_path).stdout) == ["blocks.py"], "without frames of the recorder"
    process = only(tmp_path / "run")
    assert (process.exit.kind, process.exit.detail) == ("exception", "ValueError: the block has failed")
    assert len(process.steps) == 5


@pytest.mark.starts_programs
def test_blocks_one_after_the_other_have_runs_of_their_own(tmp_path: Path) -> None:
    done = block("twice", tmp_path)
    folders = [tmp_path / name for name in ("run", "run-2", "run-3")]
    assert json.loads(done.stdout) == [str(folder) for folder in folders]
    assert [len(only(folder).steps) for folder in folders] == [5, 7, 9]
    assert done.stderr == "", "quiet"


@pytest.mark.starts_programs
def test_a_block_within_a_block_adds_nothing(tmp_path: Path) -> None:
    assert json.loads(block("nested", tmp_path).stdout) == [str(tmp_path / "outer")] * 2
    assert len(only(tmp_path / "outer").steps) == 18
    assert not (tmp_path / "inner").exists()


def test_a_block_under_collect_adds_to_its_run(collect: Collect, tmp_path: Path) -> None:
    collected = collect(sys.executable, program("blocks.py"), "around", str(tmp_path))
    assert json.loads(collected.process.stdout)[0] == str(collected.folder)
    assert len(only(collected.folder).steps) == 40
    assert not (tmp_path / "run").exists()


@pytest.mark.starts_programs
@pytest.mark.parametrize(("what", "steps"), [("thread", 12), ("never-ended", 8)])
def test_blocks_that_are_used_otherwise(what: str, steps: int, tmp_path: Path) -> None:
    block(what, tmp_path)
    process = only(tmp_path / "run")
    assert len(process.steps) == steps
    assert process.exit.kind == "finished"


@pytest.mark.starts_programs
def test_a_block_without_a_training_says_so(tmp_path: Path) -> None:
    block("nothing", tmp_path)
    (check, *_) = diagnose(tmp_path / "run").checks
    assert check.reason.startswith("Nothing trained in this run")


@pytest.mark.starts_programs
def test_log_speaks_to_the_block_that_is_open(tmp_path: Path) -> None:
    block("log", tmp_path)
    (row,) = only(tmp_path / "run").scalars.records()
    assert row["value"] == 2.0


@pytest.mark.starts_programs
def test_a_block_is_switched_off_by_the_environment(tmp_path: Path) -> None:
    done = block("around", tmp_path, TRACELYZE_DISABLE="1")
    assert (json.loads(done.stdout), done.stderr) == (["None", True], "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.starts_programs
def test_a_block_that_cannot_record_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file where the folder should be")
    done = block("around", tmp_path)
    run, _same = json.loads(done.stdout)
    assert run == str(tmp_path / "run-2"), "a name that is taken gets a number"
    blocked = tmp_path / "file"
    blocked.write_text("no folder")
    done = client.shared().run([sys.executable, program("blocks.py"), "around", str(blocked)], environment())
    assert json.loads(done.stdout) == ["None", True]
    assert done.stderr.startswith("[tracelyze] not recording: NotADirectoryError")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.starts_programs
def test_ranks_share_the_run_of_their_job(tmp_path: Path) -> None:
    script = tmp_path / "ranks.py"
    script.write_text(
        "import torch, tracelyze\n"
        "with tracelyze.Recorder('run'):\n"
        "    w = torch.zeros(2, requires_grad=True)\n"
        "    optimizer = torch.optim.SGD([w], lr=0.1)\n"
        "    for _ in range(5):\n"
        "        optimizer.zero_grad(); (w - 1).square().sum().backward(); optimizer.step()\n"
    )
    for _ in range(2):
        done = client.shared().run(two_ranks(str(script)), environment(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    for name in ("run", "run-2"):
        processes = load(tmp_path / name).processes
        assert [process.rank for process in processes] == [0, 1]
        assert all(np.isfinite(process.steps["loss"]).all() and len(process.steps) == 5 for process in processes)

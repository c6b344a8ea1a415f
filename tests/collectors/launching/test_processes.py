"""Every process that trains has its own folder; those that do not train leave no rows and cost nothing."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, program, run_plain, run_started
from tracelyze.analyzers import diagnose

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_torchrun_ranks(collect_started: Collect) -> None:
    plain = run_plain(sys.executable, program("forked_ranks.py"), "2", program("ranks.py"))
    assert plain.stdout.count("rank ") == 2, plain.stderr
    collected = collect_started(*TORCHRUN, program("ranks.py"))
    assert sorted(collected.process.stdout.splitlines()) == sorted(plain.stdout.splitlines())
    processes = collected.run.processes
    assert [process.rank for process in processes] == [0, 1]
    for process in processes:
        assert len(process.steps) == 30
        assert set(process.steps["grads_carried"]) == {0}
        assert process.facts["world_size"] == 2
        assert process.exit.kind == "finished"
    told = {one.name: one.state for one in diagnose(collected.folder).ranks}
    assert told.items() >= dict.fromkeys(("Weights", "Gradients", "Optimizer", "Software and device"), "agree").items()


def test_a_script_that_forks_its_own_trainers(collect: Collect) -> None:
    collected = collect(sys.executable, program("ranks.py"), "fork")
    assert collected.process.returncode == 0, collected.process.stderr
    assert [len(process.steps) for process in collected.run.processes] == [30, 30]


def test_a_failure_in_a_spawned_trainer_is_recorded(collect: Collect) -> None:
    collected = collect(sys.executable, program("ranks.py"), "raise")
    assert collected.process.returncode == 1
    texts = [row["text"] for p in collected.run.processes for row in p.events.records() if row["kind"] == "exception"]
    assert any("rank one has failed" in text for text in texts)
    (finding,) = [one for one in diagnose(collected.run).findings if one.rule in ("crash", "killed")]
    assert finding.title == "ValueError: rank one has failed at ranks.py:29"
    assert finding.first_step == 30, "the steps of that process"


def test_a_sweep_that_starts_trainers_by_subprocess(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "sweep.sh"
    script.write_text(f"{sys.executable} {program('by_hand.py')} none\n{sys.executable} {program('short.py')}\n")
    collected = collect("sh", str(script))
    assert collected.process.returncode == 7
    assert sorted(len(process.steps) for process in collected.run.processes) == [20, 40]


def test_trainer_in_a_thread(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "threaded.py"
    script.write_text(
        "import threading, runpy, sys\n"
        f"sys.argv = ['ending.py', 'ok']\n"
        f"t = threading.Thread(target=runpy.run_path, args=({program('ending.py')!r},))\n"
        "t.start(); t.join()\n"
    )
    (process,) = collect(sys.executable, str(script)).run.processes
    assert len(process.steps) == 200


def test_programs_that_never_train_leave_a_note(collect: Collect) -> None:
    code = "import torch; torch.nn.Linear(2, 2)(torch.ones(1, 2))"
    collected = collect(sys.executable, "-c", code)
    assert list(collected.folder.glob("rank*")) == []
    (note,) = collected.folder.glob("seen-*.json")
    assert '"forwards": 1' in note.read_text()


def test_programs_without_torch_are_not_touched(collect_started: Collect) -> None:
    collected = collect_started(sys.executable, "-c", "import sys; print('tracelyze' in sys.modules)")
    assert collected.process.stdout == "False\n"
    (note,) = {path.name for path in collected.folder.iterdir()} - {"run.json"}
    assert json.loads((collected.folder / note).read_text()) == {"argv": ["-c"]}  # torch never came


def test_a_collector_that_cannot_be_installed_says_so_in_the_run(collect_started: Collect) -> None:
    broken = "import sys, types; sys.modules['tracelyze'] = types.ModuleType('tracelyze')"
    collected = collect_started(sys.executable, "-c", f"{broken}; import torch; print(torch.ones(1))")
    assert collected.process.stdout == "tensor([1.])\n"
    assert "[tracelyze] not recording: ModuleNotFoundError" in collected.process.stderr
    (note,) = collected.run.notes
    assert note.startswith("-c could not be recorded (ModuleNotFoundError"), note


def test_an_error_of_ours_ends_one_signal_and_nothing_else(collect: Collect, tmp_path: Path) -> None:
    """The script breaks what a signal relies on: that signal stops, says why, and the training does not notice."""
    script = tmp_path / "hostile.py"
    script.write_text(
        "import runpy, sys, torch\n"
        "def broken(*a, **k): raise OSError('broken on purpose')\n"
        "torch._foreach_norm = broken\n"
        f"sys.argv = ['ending.py', 'ok']\n"
        f"runpy.run_path({program('ending.py')!r}, run_name='__main__')\n"
    )
    collected = collect(sys.executable, str(script))
    assert collected.process.stdout == "end\n"
    assert collected.own_stderr == ""
    (process,) = collected.run.processes
    assert len(process.steps) == 200
    assert not process.steps.has("grad_norm")
    assert process.steps.has("loss")
    assert "broken on purpose" in process.facts["signals"]["gradient_norm"]["reason"]
    failed = [row["name"] for row in process.events.records() if row["kind"] == "collector-error"]
    assert sorted(failed) == ["gradient_norm", "parameters"], "both take norms, each ends by itself"


def test_a_signal_can_be_switched_off(collect: Collect) -> None:
    collected = collect(sys.executable, program("ending.py"), "ok", options=("--no-signal", "gradient_norm"))
    (process,) = collected.run.processes
    assert not process.steps.has("grad_norm")
    assert "switched off" in process.lacks("steps.grad_norm")


@pytest.mark.parametrize(("how", "carried"), [("none", {0}), ("zero", {0}), ("data", {0}), ("never", {4})])
def test_loops_without_an_optimizer_are_recorded(how: str, carried: set[int], collect: Collect) -> None:
    (process,) = collect(sys.executable, program("by_hand.py"), how).run.processes
    steps = list(process.steps.records())
    assert len(steps) == 40
    assert {row["grads_carried"] for row in steps[2:]} == carried
    assert steps[5]["loss"] > 0
    assert steps[5]["grad_norm"] > 0
    assert [row["name"] for row in process.optimizers.records()] == ["ByHand"]


def test_sampled_looks_at_loops_without_an_optimizer(collect: Collect) -> None:
    """An update by hand is noticed at the next backward: what it left must be known, whether that step is looked at."""
    seldom = ("--signal", "gradient_lifecycle=every:7")
    for how, carried in (("not any more", {0, 4}), ("none", {0}), ("zero", {0})):
        (process,) = collect(sys.executable, program("by_hand.py"), how, options=seldom).run.processes
        rows = [row for row in list(process.steps.records())[2:] if row["grads_carried"] is not None]
        assert {row["grads_carried"] for row in rows} == carried
        assert len(rows) < 38, "not all steps are looked at"


def test_profiler_windows(collect: Collect) -> None:
    options = ("--profile-every", "50")
    (process,) = (collected := collect(sys.executable, program("ending.py"), "ok", options=options)).run.processes
    windows = list(process.tables["windows"].records())
    assert [(row["first_step"], row["last_step"]) for row in windows][:2] == [(11, 14), (65, 68)]
    for row in windows:
        assert next(collected.folder.glob(f"rank*/{row['file']}")).stat().st_size > 1000
    assert len(process.steps) == 200


def test_an_error_outside_of_any_signal_ends_the_recording_and_nothing_else(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "hostile.py"
    script.write_text(
        "import runpy, sys, torch\n"
        "def broken(*a, **k): raise OSError('broken on purpose')\n"
        "sys.modules['tracelyze.collectors.program.optimizers'].describe = broken\n"
        "sys.argv = ['ending.py', 'ok']\n"
        f"runpy.run_path({program('ending.py')!r}, run_name='__main__')\n"
    )
    collected = collect(sys.executable, str(script))
    assert collected.process.returncode == 0
    assert collected.process.stdout == "end\n"
    assert collected.own_stderr == ""
    assert collected.process.stderr.count("recording stopped, the program goes on: OSError: broken on purpose") == 1
    (stopped,) = collected.folder.glob("rank*/stopped.txt")
    assert "broken on purpose" in stopped.read_text()


def test_workers_of_the_fork_server_tell_what_forked_ones_do(collect_started: Collect) -> None:
    """It is how Python 3.14 starts them."""
    told = {}
    for method in ("fork", "forkserver"):
        collected = collect_started(sys.executable, program("started_workers.py"), method)
        assert collected.process.returncode == 0, collected.process.stderr
        (process,) = collected.run.processes
        rows = list(process.tables["fetches"].records())
        seen = [(row["epoch"], row["worker"], row["batches"], row["moved"]) for row in rows]
        first = [row["start"].split()[0] for row in rows]  # of Python's generator, which the script seeds by worker
        assert first[:2] == first[2:]
        told[method] = seen, first
        lines = {row["name"] for row in process.events_of("loading")}
        assert lines
        assert lines <= {"__getitem__", "<genexpr>"}, method
    assert told["fork"] == told["forkserver"]
    assert told["fork"][0] == [(epoch, worker, 5, "python torch") for epoch in (0, 1) for worker in (0, 1)]


def test_loader_workers_pay_nothing(collect_started: Collect) -> None:
    collected = collect_started(sys.executable, program("workers.py"))
    assert collected.process.returncode == 0, collected.process.stderr
    plain = run_started(sys.executable, program("workers.py"), "before")
    (usual,) = map(ast.literal_eval, plain.stdout.splitlines())
    befores, afters, inherited = map(ast.literal_eval, collected.process.stdout.splitlines())
    assert befores.keys() == afters.keys() == usual.keys() == {"fork", "spawn", "forkserver"}
    for method, before in befores.items():
        after = afters[method]
        assert before | {"hooks": 0} == after | {"hooks": 0, "pyarrow": 0, "files": 0} == usual[method], method
        assert before["hooks"] == after["hooks"] == (method != "spawn"), method
        if method != "fork":  # a fork has what its parent has
            assert after["pyarrow"] == after["files"] == 0, method
    assert inherited == 0, "what spawned workers go by is as it was"
    steps = sorted(len(process.steps) for process in collected.run.processes)
    assert steps == [5, 5], "the trainer that is spawned is recorded like the process itself"

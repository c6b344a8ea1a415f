"""A program under the collector sees what it would see under plain Python."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import PROGRAMS, Collect, environment, program, run_plain, run_started
from tests.fork_server.client import FRAMEWORKS


def forms(folder: Path) -> dict[str, list[str]]:
    package = folder / "as_directory"
    package.mkdir(exist_ok=True)
    shutil.copy(program("probe.py"), package / "__main__.py")
    return {
        "script": [sys.executable, program("probe.py"), "--lr", "3e-4", "--help"],
        "module": [sys.executable, "-m", "probe", "-q", "--", "x"],
        "code": [sys.executable, "-c", "import probe, sys; print(probe.facts()); sys.exit(11)", "a b"],
        "directory": [sys.executable, str(package), "z"],
        "shell": ["sh", "-c", f"{sys.executable} {program('probe.py')} from-shell"],
        "flags": [sys.executable, "-u", "-B", "-X", "dev", "-W", "ignore", program("probe.py")],
    }


@pytest.mark.parametrize("form", ["script", "module", "code", "directory", "shell", "flags"])
def test_the_program_sees_plain_python(form: str, collect_started: Collect, tmp_path: Path) -> None:
    command = forms(tmp_path)[form]
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub/torch.py").touch()  # what the program sees is no matter of torch, which takes seconds to import
    plain = run_started(*command, cwd=PROGRAMS, input="from stdin", env=environment(PYTHONPATH=str(tmp_path / "stub")))
    assert plain.returncode == 11, plain.stderr
    collected = collect_started(*command, cwd=PROGRAMS, input="from stdin", env={"PYTHONPATH": repository()})
    assert collected.process.stdout == plain.stdout
    assert collected.own_stderr == plain.stderr
    assert collected.process.returncode == 11


def test_the_users_own_sitecustomize_runs_as_before(collect_started: Collect, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.seen = __file__\n")
    paths = os.pathsep.join([str(tmp_path), repository()])
    code = "import sys, torch; print(seen, sys.modules['sitecustomize'].__file__)"
    process = collect_started(sys.executable, "-c", code, env={"PYTHONPATH": paths}).process
    assert process.stdout.split() == [str(tmp_path / "sitecustomize.py")] * 2


def test_models_can_be_copied_scripted_exported_and_compiled_as_before(collect: Collect) -> None:
    plain = run_plain(sys.executable, "-W", "ignore", program("transforms.py"), modules=FRAMEWORKS)
    assert plain.returncode == 0, plain.stderr
    collected = collect(sys.executable, "-W", "ignore", program("transforms.py"), modules=FRAMEWORKS)
    assert collected.process.stdout == plain.stdout


@pytest.mark.slow
def test_torch_compile_passes_by_all_that_wrappers_call(collect: Collect) -> None:
    run = collect(sys.executable, "-W", "ignore", program("called_by_wrappers.py"))
    assert run.process.returncode == 0, run.process.stderr
    said = run.process.stdout.partition(" wrappers:\n")
    assert int(said[0].split()[-1]) > 20
    assert said[2].strip() == "", "add their classes to CALLED in hooks/install.py"


def test_nothing_is_injected_when_switched_off(collect_started: Collect) -> None:
    code = "import os, sys; print('TRACELYZE_RUN' in os.environ, os.environ.get('PYTHONPATH', ''))"
    collected = collect_started(sys.executable, "-c", code, env={"TRACELYZE_DISABLE": "1", "PYTHONPATH": repository()})
    assert collected.process.stdout == f"False {repository()}\n"
    assert not collected.folder.exists()


def test_flags_that_keep_the_collector_out_are_named_before_the_start(collect_started: Collect) -> None:
    collected = collect_started(sys.executable, "-I", "-c", "print('ran')")
    assert collected.process.stdout == "ran\n"
    assert "-I ignores PYTHONPATH" in collected.process.stderr


@pytest.mark.starts_programs
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-program-here"], "no such program"),
        (["train.py"], "did you mean tracelyze collect -- python train.py"),
        ([sys.executable, "no_such_script.py"], "no_such_script.py: no such file"),
        ([], "nothing to run"),
    ],
)
def test_a_wrong_call_is_one_line_and_leaves_nothing(command: list[str], words: str, tmp_path: Path) -> None:
    wrapper = [sys.executable, "-m", "tracelyze", "collect", "--out", str(tmp_path / "run"), "--", *command]
    process = subprocess.run(
        wrapper, capture_output=True, text=True, env=environment(PYTHONPATH=repository()), cwd=tmp_path, timeout=60
    )
    assert process.returncode == 2
    assert words in process.stderr
    assert len(process.stderr.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_pipes_of_a_shell_end_as_before(collect_started: Collect) -> None:
    """Python ignores SIGPIPE: a shell that inherited that would have its programs complain of a reader that left."""
    done = collect_started("bash", "-c", "yes | head -n 1; echo ${PIPESTATUS[@]}")
    assert (done.process.stdout, done.own_stderr) == ("y\n141 0\n", "")


def test_secrets_do_not_reach_the_disk(collect: Collect) -> None:
    secret = "hf_" + "Q" * 34
    hidden = {"WANDB_API_KEY": secret, "MY_TOKEN": secret}
    collected = collect(sys.executable, program("ending.py"), "ok", f"--api-key={secret}", env=hidden)
    files = [path for path in collected.folder.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert [path.name for path in files if secret.encode() in path.read_bytes()] == []


def repository() -> str:
    return str(Path(__file__).parents[2])


def unnamed(stderr: str) -> str:
    """Without the names of temporary folders: torch before 2.8 leaves one behind, of which Python warns at the end."""
    return re.sub(r"/tmp/tmp\w+", "", stderr)


def test_handlers_hooks_children_and_warnings_are_the_programs_own(collect_started: Collect) -> None:
    command = [sys.executable, "-W", "default", program("inside.py")]
    plain, collected = run_started(*command), collect_started(*command)
    assert plain.returncode == 1
    assert "inside.py:" in plain.stderr, "the warning names the line of the program"
    assert collected.process.stdout == plain.stdout
    assert unnamed(collected.own_stderr) == unnamed(plain.stderr)
    assert collected.process.returncode == 1
    steps = sorted(len(process.steps) for process in collected.run.processes)
    assert steps == [10, 15, 25], "the process, the child that trained, and the daemon that outlived its parent"


def test_errors_that_the_program_catches_show_none_of_our_frames(collect: Collect) -> None:
    """Out of modules, backward, losses, clipping, scalers, loaders, optimizers: tracebacks, causes, contexts, lines."""
    plain, collected = (
        run_plain(sys.executable, program("caught.py")),
        collect(sys.executable, program("caught.py")),
    )
    assert plain.returncode == collected.process.returncode == 0, collected.process.stderr
    assert plain.stdout.count("Traceback (most recent call last)") > 50
    assert collected.process.stdout == plain.stdout
    assert collected.own_stderr == plain.stderr


def test_warnings_as_errors_and_development_mode_change_nothing(collect_started: Collect) -> None:
    command = [sys.executable, "-X", "dev", "-W", "error", program("short.py"), "said"]
    plain, collected = run_started(*command), collect_started(*command)
    assert collected.process.stdout == plain.stdout == "said\n"
    assert unnamed(collected.own_stderr) == unnamed(plain.stderr)
    (process,) = collected.run.processes
    assert len(process.steps) == 20


def test_hooks_for_saved_tensors_are_called_by_backward_alone(collect: Collect) -> None:
    command = [sys.executable, program("unpacked.py")]
    plain, collected = run_plain(*command), collect(*command)
    assert plain.returncode == 0, plain.stderr
    assert collected.process.stdout == plain.stdout
    (process,) = collected.run.processes
    assert {row["loss_divisor"] for row in process.steps.records()} == {4.0, None}, "a number is read, a tensor is not"


def test_signals_whose_handlers_train_or_raise_neither_hang_nor_end_the_recording(collect: Collect) -> None:
    collected = collect(sys.executable, program("interrupted.py"))
    assert collected.process.returncode == 0, collected.process.stderr
    assert collected.process.stdout == "handlers that raised were heard: True\n"
    assert "recording stopped" not in collected.process.stderr
    assert "thread started by" not in collected.process.stderr, "what a handler raises is the main thread's to see"
    assert "AttributeError" not in collected.process.stderr
    (process,) = collected.run.processes
    assert len(process.steps) > 10, "more than before the signals began"


@pytest.mark.starts_programs
def test_a_terminal_is_still_a_terminal(collect_started: Collect, tmp_path: Path) -> None:
    """`script` gives the program a pseudo-terminal, with and without the collector between."""
    if shutil.which("script") is None:
        pytest.skip("the program script (util-linux) is not installed")
    code = "import sys; print(*[s.isatty() for s in (sys.stdin, sys.stdout, sys.stderr)], input())"
    wrapped = f"{sys.executable} -m tracelyze collect -q -o {tmp_path / 'run'} -- {sys.executable} -c '{code}'"
    done = subprocess.run(
        ["script", "-qec", wrapped, "/dev/null"],
        input="typed\n",
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(PYTHONPATH=repository()),
    )
    assert "True True True typed" in done.stdout

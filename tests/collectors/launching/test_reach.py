"""Every form of launch reaches the training, with its own status; where none can, the command says so first."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipapp
import zipfile
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, environment, program, run_started
from tracelyze import analyzers

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]


def console_script(folder: Path) -> list[str]:
    """An entry point that pip installed from a wheel, in an environment that borrows this one's packages."""
    wheel = folder / "trainer-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as files:
        files.write(program("short.py"), "trainer.py")
        files.writestr("trainer-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: trainer\nVersion: 1\n")
        files.writestr("trainer-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        files.writestr("trainer-1.dist-info/entry_points.txt", "[console_scripts]\ntrain = trainer:main\n")
        files.writestr("trainer-1.dist-info/RECORD", "")
    made = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made)], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = ["-m", "pip", "--python", str(made / "bin/python"), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, *install, "--disable-pip-version-check", str(wheel)], check=True, timeout=120)
    return [str(made / "bin/train"), "installed"]


def directory(folder: Path) -> list[str]:
    (folder / "package").mkdir()
    shutil.copy(program("short.py"), folder / "package/__main__.py")
    return [sys.executable, str(folder / "package"), "directory"]


def archive(folder: Path) -> list[str]:
    (folder / "source").mkdir()
    shutil.copy(program("short.py"), folder / "source/__main__.py")
    zipapp.create_archive(folder / "source", folder / "app.pyz", interpreter=sys.executable)
    return [str(folder / "app.pyz"), "zipapp"]


LOOKED_FOR = (
    "import importlib.util, runpy, sys; assert importlib.util.find_spec('torch'); sys.argv[1:] = ['looked']; "
    f"runpy.run_path({program('short.py')!r}, run_name='__main__')"
)
FORMS = {
    "console script": console_script,
    "directory": directory,
    "zipapp": archive,
    "env": lambda _: ["env", "SEED=1", "nice", "-n", "1", sys.executable, program("short.py"), "wrapped"],
    "login shell": lambda _: ["bash", "-lc", f"PATH=/usr/bin:/bin {sys.executable} -O {program('short.py')} shell"],
    "looked for first": lambda _: [sys.executable, "-X", "importtime", "-c", LOOKED_FOR],
}


@pytest.mark.parametrize("form", FORMS)
def test_forms_of_launch(form: str, collect_started: Collect, tmp_path: Path) -> None:
    command = FORMS[form](tmp_path)
    collected = collect_started(*command, env={"PYTHONSAFEPATH": "1"} if form == "env" else {})
    assert collected.process.returncode == 7, collected.process.stderr
    assert len(collected.process.stdout.split()) == 1
    (process,) = collected.run.processes
    assert len(process.steps) == 20


@pytest.mark.starts_programs
def test_uv_run_in_an_environment_without_tracelyze(collect_started: Collect, tmp_path: Path) -> None:
    """uv makes its own environment. What recording takes there is pyarrow; without it, that is said."""
    uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
    if uv is None:
        pytest.skip("uv is not installed")
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "1"\nrequires-python = ">=3.11"\n[tool.uv]\npackage = false\n'
    )
    options = ["run", "--offline", "--no-managed-python", "--quiet", "--python", sys.executable]
    command = [uv, *options, "python", program("short.py"), "by-uv"]
    subprocess.run([uv, *options, "python", "-c", ""], cwd=tmp_path, env=environment(), check=True, timeout=120)
    (site,) = tmp_path.glob(".venv/lib/python*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith(("pyarrow", "tracelyze", "_", "pip", "uv")):
            (site / path.name).symlink_to(path)

    lacking = collect_started(*command, cwd=tmp_path)
    assert lacking.process.returncode == 7, lacking.process.stderr
    assert lacking.process.stderr.count("has no pyarrow") == 1
    assert f"install it for {tmp_path}" in lacking.process.stderr
    assert any("has no pyarrow" in note for note in analyzers.diagnose(lacking.folder).run.notes)

    (site / "pyarrow").symlink_to(Path(sysconfig.get_path("purelib")) / "pyarrow")
    (process,) = collect_started(*command, cwd=tmp_path).run.processes
    assert len(process.steps) == 20


def test_attempts_of_an_elastic_launch_are_kept_apart_and_the_last_is_judged(
    collect_started: Collect, tmp_path: Path
) -> None:
    options = ["--nproc-per-node", "2", "--max-restarts", "1"]
    collected = collect_started(*TORCHRUN, *options, program("elastic.py"), str(tmp_path / "store"))
    assert collected.process.returncode == 0, collected.process.stderr
    steps = {(process.attempt, process.rank): len(process.steps) for process in collected.run.processes}
    assert steps[0, 1] == 10
    assert steps[1, 0] == steps[1, 1] == 30
    diagnosis = analyzers.diagnose(collected.folder)
    assert diagnosis.run.exit.kind == "finished"
    assert diagnosis.run.steps == 30
    assert any("attempt 0" in note and "rank 1 ended first" in note for note in diagnosis.run.notes)
    (death,) = [finding for finding in diagnosis.findings if finding.rule == "crash"]
    assert death.severity == "warning"
    assert death.title.startswith("Attempt 0 was restarted")
    assert death.ranks == [1]


def test_accelerate_launch(collect_started: Collect) -> None:
    if importlib.util.find_spec("accelerate") is None:
        pytest.skip("accelerate is not installed")
    launcher = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"]
    more = ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"]
    collected = collect_started(*launcher, *more, "--num_cpu_threads_per_process", "1", program("by_hand.py"), "none")
    assert collected.process.returncode == 0, collected.process.stderr
    (process,) = collected.run.processes
    assert len(process.steps) == 40


@pytest.mark.starts_programs
def test_what_others_put_in_the_way_of_start_up_still_runs(collect_started: Collect, tmp_path: Path) -> None:
    """Two folders with a sitecustomize, of which Python takes the first; a usercustomize; a .pth file with code."""
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sitecustomize.py").write_text(f"print('sitecustomize', {name!r}, __name__)\n")
    made = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", str(made)], check=True)
    (site,) = made.glob("lib/python*/site-packages")
    (site / "with_code.pth").write_text("import sys; print('pth', len(sys.argv))\n")
    user = tmp_path / f"user/lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    user.mkdir(parents=True)
    (user / "usercustomize.py").write_text("print('usercustomize')\n")
    (tmp_path / "startup.py").write_text("print('startup')\n")
    theirs = {
        "PYTHONPATH": os.pathsep.join([str(tmp_path / "first"), str(tmp_path / "second")]),
        "PYTHONUSERBASE": str(tmp_path / "user"),
        "PYTHONSTARTUP": str(tmp_path / "startup.py"),
    }
    command = [str(made / "bin/python"), "-q", "-i", "-c", "import sys; print([p for p in sys.path if 'inject' in p])"]
    plain = subprocess.run(
        command, capture_output=True, text=True, env=environment(**theirs), input="print(6 * 7)\n", timeout=60
    )
    assert {"pth", "sitecustomize", "usercustomize", "42"} <= set(plain.stdout.split())
    assert "second" not in plain.stdout
    paths = os.pathsep.join([theirs["PYTHONPATH"], repository()])  # with which the wrapper itself is found
    collected = collect_started(*command, env=theirs | {"PYTHONPATH": paths}, input="print(6 * 7)\n")
    said, expected = collected.process.stdout.splitlines(), plain.stdout.splitlines()
    assert said[-len(expected) :] == expected, collected.process.stderr  # before that: the wrapper's own start


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([sys.executable, "-u", "-E", "-c", "print('ran')"], "-E ignores PYTHONPATH"),
        ([sys.executable, "-bS", "-c", "print('ran')"], "-S ignores PYTHONPATH"),
        (["nice", "-n", "1", sys.executable, "-I", "-c", "print('ran')"], "-I ignores PYTHONPATH"),
        (["env", "-i", sys.executable, "-c", "print('ran')"], "env -i clears the environment"),
        (["env", "-u", "PYTHONPATH", sys.executable, "-c", "print('ran')"], "env -u takes PYTHONPATH away"),
        (["env", "PYTHONPATH=.", sys.executable, "-c", "print('ran')"], "env replaces PYTHONPATH"),
        (["isolated-script"], "-I ignores PYTHONPATH"),
    ],
)
def test_what_keeps_the_collector_out_is_said_before_the_start(
    command: list[str], words: str, collect_started: Collect, tmp_path: Path
) -> None:
    if command == ["isolated-script"]:
        script = tmp_path / command[0]
        script.write_text(f"#!{sys.executable} -I\nprint('ran')\n")
        script.chmod(0o755)
        command = [str(script)]
    collected = collect_started(*command)
    assert collected.process.stdout == "ran\n"
    assert words in collected.process.stderr
    assert "nothing will be recorded" in collected.process.stderr
    (note,) = analyzers.diagnose(collected.folder).run.notes
    assert words in note


def test_an_unreached_program_is_explained(collect_started: Collect) -> None:
    """A script that replaces PYTHONPATH cannot be seen from outside; the diagnosis names it among the reasons."""
    collected = collect_started("sh", "-c", f"PYTHONPATH=. {sys.executable} {program('short.py')}")
    assert collected.process.returncode == 7
    (note,) = analyzers.diagnose(collected.folder).run.notes
    assert "sets PYTHONPATH anew" in note
    assert "it was killed before it trained" in note, "which leaves as little"


def test_an_older_python_is_left_alone_and_named(collect_started: Collect, tmp_path: Path) -> None:
    named = [shutil.which(f"python3.{minor}") for minor in (10, 9, 8)]
    installed = map(str, Path.home().glob(".pyenv/versions/3.[189]*/bin/python3.[189]*"))
    found = [path for path in (*named, *installed) if path and path.endswith(("3.10", "3.9", "3.8"))]
    older = next((path for path in found if works(path)), None)
    if older is None:
        pytest.skip("no Python 3.8 to 3.10 here")
    (tmp_path / "torch.py").write_text("x = 1\n")
    collected = collect_started(
        older, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import torch; print(torch.x)"
    )
    assert collected.process.stdout == "1\n"
    assert "recording takes 3.11" in collected.process.stderr


def works(python: str) -> bool:
    return run_started(python, "-c", "").returncode == 0


def repository() -> str:
    return str(Path(__file__).parents[3])

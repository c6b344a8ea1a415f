"""`tracelyze collect`: prepare the environment, write run.json, become the program.

The program replaces this process (exec), so that its pid, terminal, signals and exit status are its own. What is
injected travels in the environment and reaches every Python process that the program starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

from tracelyze import redaction, schema
from tracelyze.collectors.hooks.loaders import SPAWNED_WORKER
from tracelyze.collectors.launching.obstacles import obstacle, script_of
from tracelyze.collectors.launching.revision import revision
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.system import identity, notices
from tracelyze.errors import Cause, InputError
from tracelyze.version import __version__

INJECTED = Path(__file__).parent / "inject"


def collect(command: list[str], out: Path | None, options: CollectOptions) -> NoReturn:
    """Run `command` under the collector; never returns. InputError, and nothing left behind, if the call is wrong."""
    if not command:
        raise InputError(
            Cause.NOTHING_TO_RUN,
            "nothing to run: write the command after two dashes: tracelyze collect -- python train.py",
        )
    program = _find(command)
    if os.environ.get("TRACELYZE_DISABLE", "") not in ("", "0"):
        os.execv(program, command)
    _check_script(command)
    run = _new_run(out if out is not None else default_folder(command))
    environment = dict(os.environ)
    environment |= {"TRACELYZE_RUN": str(run), SPAWNED_WORKER: "0"} | options.to_environment()
    paths = [str(INJECTED), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    # The jemalloc in pyarrow starts a thread as soon as it is loaded: Python 3.12 and later would warn at each fork.
    environment.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    blocked = obstacle(command, program)
    git = revision(Path.cwd(), script_of(command))
    more = ({"obstacle": blocked} if blocked else {}) | ({"git": git} if git else {})
    identity.write_json(run / schema.RUN_FILE, manifest(command) | more)
    if not options.quiet:
        notices.say(f"recording to {_shown(run)}")
    if blocked:
        notices.say(f"{blocked}, by which the collector gets in: nothing will be recorded")
    for stream in filter(None, (sys.stdout, sys.stderr)):
        stream.flush()
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores them, and a shell with its pipes would inherit that.
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    os.execve(program, command, environment)


def _find(command: list[str]) -> str:
    program = shutil.which(command[0])
    if program is not None:
        return program
    if command[0].endswith(".py"):
        meant = f"tracelyze collect -- python {' '.join(command)}"
        raise InputError(Cause.NO_SUCH_PROGRAM, f"{command[0]} is not a program: did you mean {meant}?")
    raise InputError(
        Cause.NO_SUCH_PROGRAM, f"{command[0]}: no such program; check the spelling, or that its environment is active"
    )


def _check_script(command: list[str]) -> None:
    """A script that is not there is better said before a run directory is made."""
    script = script_of(command)
    if script is not None and not Path(script).exists():
        raise InputError(
            Cause.NO_SUCH_PROGRAM,
            f"{script}: no such file; give the path of the training script as seen from {Path.cwd()}",
        )


def default_folder(command: list[str]) -> Path:
    script = script_of(command)
    name = Path(script).stem if script else _module(command) or Path(command[0]).stem
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name) or "run"
    base = Path("runs") / f"{name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def _module(command: list[str]) -> str | None:
    return command[command.index("-m") + 1] if "-m" in command[:-1] else None


def _new_run(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()) and not _belongs_to_this_job(folder):
            raise InputError(Cause.NOT_EMPTY, f"{folder} is not empty: choose another folder with --out, or remove it")
        return folder.resolve()
    except OSError as error:
        raise InputError(
            Cause.UNWRITABLE, f"{folder}: {error.strerror}; choose a folder that can be written with --out"
        ) from None


def _belongs_to_this_job(folder: Path) -> bool:
    """Whether another task of the same batch job has just begun to record there: `srun` starts one a node."""
    job = identity.batch_job()
    try:
        return job is not None and json.loads((folder / schema.RUN_FILE).read_bytes()).get("job") == job
    except (OSError, ValueError, AttributeError):
        return False


def manifest(command: list[str]) -> dict[str, object]:
    """What run.json says of a run that `command` makes."""
    return {
        "schema_version": schema.SCHEMA_VERSION,
        "tracelyze_version": __version__,
        "command": redaction.redact_argv(command),
        "cwd": os.getcwd(),
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "host": identity.host(),
        "job": identity.batch_job(),
        "pid": os.getpid(),
        "pid_start": identity.process_start(os.getpid()),
        "boot_id": identity.boot_id(),
    }


def _shown(run: Path) -> str:
    try:
        return str(run.relative_to(Path.cwd()))
    except ValueError:
        return str(run)

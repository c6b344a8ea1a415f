"""A recording that begins and ends inside a process, by a `with tracelyze.Recorder()` block instead of `collect`."""

from __future__ import annotations

import importlib
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

from tracelyze import schema
from tracelyze.collectors.hooks import install, process_recorders
from tracelyze.collectors.internals.own_frames import hide_own_frames
from tracelyze.collectors.launching import launch
from tracelyze.collectors.options import CollectOptions
from tracelyze.collectors.recording import ending
from tracelyze.collectors.recording.recorder import Recorder
from tracelyze.collectors.system import fatal_signals, identity, notices

MOST_NUMBERS = 10_000


def begin(wanted: Any, quiet: bool, no_signal: tuple[str, ...], profile_every: int) -> Recorder:
    """Make a run directory and record into it from now on. Imports torch. OSError if no directory can be made."""
    torch = importlib.import_module("torch")  # the program's own: in this room nobody imports it by name
    options = CollectOptions(quiet=quiet, signals_off=no_signal, profile_every=profile_every)
    run = _folder(Path(os.fspath(wanted)) if wanted is not None else _default()).resolve()
    run.mkdir(parents=True, exist_ok=True)
    if not (run / schema.RUN_FILE).exists():
        identity.write_json(run / schema.RUN_FILE, launch.manifest([sys.executable, *sys.argv]))
    if not quiet:
        notices.say(f"recording to {os.path.relpath(run)}")
    return install.begin(torch, run, options)


def end(recorder: Recorder, error: BaseException | None) -> None:
    """The block is over: write the rest, and record nothing more. `error` is what ended it early."""
    name, code = "finished", None
    if isinstance(error, KeyboardInterrupt):
        name = "interrupted"  # what the program exits with is up to what handles it outside of the block
    elif error is not None and not isinstance(error, (SystemExit, GeneratorExit)):
        name, code = "exception", 1.0
        hide_own_frames(error)
        ending.note_exception(recorder, error, "exception")
    if not recorder.opened:
        ending.say_what_was_seen(recorder)
    for one in process_recorders.recorders():  # one for each thread that trained
        ending.end(one, name, code)
        one.writer.end()
        one.writer.off = True
    fatal_signals.forget()
    if not recorder.options.quiet:
        ending.say_what_is_next(recorder)


def _folder(wanted: Path) -> Path:
    """The folder itself if this rank can record there, else the next one with a number: NAME-2, NAME-3, ..."""
    for number in range(1, MOST_NUMBERS):
        folder = wanted if number == 1 else wanted.with_name(f"{wanted.name}-{number}")
        if _free(folder):
            return folder
    raise OSError(f"{wanted}: too many runs of that name; choose another one")


def _free(folder: Path) -> bool:
    """Whether the folder is new or empty, or holds the run that other ranks of this job have just begun."""
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return True
    rank, attempt = os.environ.get("RANK"), os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    if rank is None or not (folder / schema.RUN_FILE).exists():
        return False
    return not any(folder.glob(f"rank{int(rank):05d}-attempt{attempt}-*"))


def _default() -> Path:
    script = Path(sys.argv[0]).stem if sys.argv and sys.argv[0] not in ("", "-c", "-m") else ""
    inside_notebook = script in ("", "ipykernel_launcher")
    return Path("runs") / f"{'notebook' if inside_notebook else script}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"

"""How the program ends: normally, by an exception, by `os._exit`, by a fatal signal.

Rows are on disk without any of this: it only adds how and why the program ended. No OS signal handler of Python's is
installed, so the program finds its handlers as they would be: see `system/fatal_signals.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import inspect
import json
import multiprocessing
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from multiprocessing.process import BaseProcess
from typing import Any

from tracelyze import redaction, schema
from tracelyze.collectors.internals.own_frames import hide_own_frames, leave_no_frame
from tracelyze.collectors.program.call_sites import is_library, shown_path, source_line
from tracelyze.collectors.recording.recorder import Recorder
from tracelyze.collectors.system import exit_status, identity, interrupted, notices

# Exceptions that a launcher raises when a process that it has started failed, or when torchrun is asked to terminate
# and passes that on: the processes that it has started record their own ends.
_OTHERS_FAILURES = ("ChildFailedError", "ProcessExitedException", "SignalException")
_noted: dict[str, Any] = {}


def install(recorder: Callable[[], Recorder], recorders: Callable[[], list[Recorder]], quiet: bool) -> None:
    """Watch all ends of this process. `recorder()` is that of the calling thread, `recorders()` are all."""
    previous_hook, previous_thread_hook, previous_exit = sys.excepthook, threading.excepthook, os._exit

    def excepthook(kind: Any, error: Any, trace: Any) -> None:
        # A program may call this itself, to log an exception that it has handled, and with other arguments than the
        # interpreter's. The interpreter sets `sys.last_value` before it calls.
        given = getattr(error, "__traceback__", None)
        _safely(lambda: hide_own_frames(error))
        is_uncaught = error is not None and getattr(sys, "last_value", None) is error
        if is_uncaught:
            _noted["error"] = type(error).__name__
            _safely(lambda: note_exception(recorder(), error, "exception"))
        previous_hook(kind, error, error.__traceback__ if trace is not None and trace is given else trace)

    def thread_excepthook(args: Any) -> None:
        if args.exc_value is not None:
            _safely(lambda: hide_own_frames(args.exc_value))
            _safely(lambda: note_exception(recorder(), args.exc_value, "thread-exception"))
        previous_thread_hook(args)

    def leave(*args: Any, **kwargs: Any) -> Any:
        status = args[0] if args else kwargs.get("status")
        raised = status != 0 and "error" in _noted  # So ends a process of multiprocessing that raised an exception.
        for one in recorders():
            _safely(functools.partial(end, one, "exception" if raised else "os._exit", status))
        previous_exit(*args, **kwargs)

    def at_exit() -> None:
        first, *others = recorders()
        for other in others:
            _safely(functools.partial(end, other, "finished"))
        _safely(lambda: _finish(first, others, quiet))
        for one in (first, *others):
            if one.folder is not None and not one.off:  # What stopped it may be a lack of descriptors.
                _safely(functools.partial(exit_status.note, one.folder))
        _safely(_keep_status)

    for name in ("execv", "execve"):  # execl, execvp and the others call these
        _put_in_os(name, _replacing(getattr(os, name), recorders))
    BaseProcess.run = _running(BaseProcess.run, recorder)  # type: ignore[method-assign]
    sys.excepthook = excepthook
    threading.excepthook = thread_excepthook
    _put_in_os("_exit", functools.update_wrapper(leave, previous_exit))
    atexit.register(at_exit)


def _put_in_os(name: str, function: Any) -> None:
    """Put a function into `os`, and also into the module `posix`, which the original says it belongs to: pickle looks
    for it there."""
    setattr(os, name, function)
    setattr(sys.modules[function.__module__], name, function)
    function.__annotations__, function.__signature__ = {}, inspect.signature(function.__wrapped__)


def _running(run: Any, recorder: Callable[[], Recorder]) -> Any:
    """Wraps `multiprocessing.Process.run`, because multiprocessing prints its exceptions without `sys.excepthook`."""

    @functools.wraps(run)
    def observed(self: Any) -> Any:
        try:
            return run(self)
        except Exception as error:
            _safely(functools.partial(_note_of_child, recorder, error))
            leave_no_frame(error)
            raise

    return observed


def _note_of_child(recorder: Callable[[], Recorder], error: BaseException) -> None:
    """Write down what ended a process of multiprocessing, if it trained: a program may have others beside."""
    one = recorder()
    if one.opened or one.progress.forwards:
        _noted["error"] = type(error).__name__
        hide_own_frames(error)
        note_exception(one, error, "exception")


def _replacing(call: Any, recorders: Callable[[], list[Recorder]]) -> Any:
    """Wraps `os.execv` and `os.execve`: they end this program, and another one goes on under the same process id."""

    @functools.wraps(call)
    def replace(*args: Any, **kwargs: Any) -> Any:
        for one in recorders():
            _safely(functools.partial(_note_replaced, one, "exec"))
        try:
            return call(*args, **kwargs)
        except BaseException as error:
            for one in recorders():
                _safely(functools.partial(_note_replaced, one, schema.EXEC_FAILED))
            leave_no_frame(error)
            raise

    return replace


def note_exception(recorder: Recorder, error: BaseException, kind: str) -> None:
    """Write down an exception that nobody handled: class, message, innermost line of the script, traceback."""
    if type(error).__name__ in _OTHERS_FAILURES:
        return
    if not recorder.opened:
        recorder.open()
    if isinstance(error, KeyboardInterrupt):
        return
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not is_library(frame.filename)] or list(frames)
    line = users[-1] if users else None
    text = "".join(traceback.format_exception(error))
    if line:
        recorder.program.sites.add("exception", line.filename, line.lineno or 0, line.name)
    recorder.record_event(
        kind,
        type(error).__name__,
        redaction.redact_text(text[-20_000:]),
        file=shown_path(line.filename) if line else None,
        line=line.lineno if line else None,
        source=source_line(line.filename, line.lineno or 0) if line else None,
    )
    recorder.flush()


def _note_replaced(recorder: Recorder, name: str) -> None:
    """Another program takes the place of this one: nothing of ours runs after that, so the rows are written now."""
    if recorder.opened and not recorder.ended:
        recorder.record_event("exit", name)
        recorder.flush()


def end(recorder: Recorder, name: str, code: float | None = None) -> None:
    """Write the exit record and close the files."""
    if recorder.opened and not recorder.ended:
        recorder.record_event("exit", name, value=code)
        recorder.close()
        recorder.writer.note_end(name, code)
        if recorder.off:  # Its files were left open. What the program does at its end may need their descriptors.
            recorder.writer.let_go()


def _finish(recorder: Recorder, others: list[Recorder], quiet: bool) -> None:
    """End the recording of the process's own recorder; `others` are those of threads that trained beside it."""
    error = _ended_by()
    name = "finished" if error is None else "interrupted" if error == "KeyboardInterrupt" else "exception"
    if recorder.ended:  # a `with tracelyze.Recorder()` block that is over
        return
    if not recorder.opened:
        say_what_was_seen(recorder)
        if not quiet:
            say_that_nothing_was_recorded(recorder)
        return
    stopped = recorder.off
    end(recorder, name, 1.0 if name == "exception" else None)  # what else it exits with: `exit_status`
    if not quiet:
        say_what_is_next(recorder, others, stopped)


def say_what_is_next(recorder: Recorder, others: Iterable[Recorder] = (), stopped: bool = False) -> None:
    """One line for people, from one process of the run."""
    first = recorder.folder is not None and recorder.folder.name.startswith("rank00000")
    if first and (recorder.progress.steps or recorder.progress.log_calls) and multiprocessing.parent_process() is None:
        run = os.fspath(recorder.run)
        with contextlib.suppress(OSError):  # The program may have deleted the folder that it works in.
            run = os.path.relpath(run)
        steps = recorder.progress.steps  # Of these, the last may not be on the disk where recording stopped.
        what = f"recording stopped at step {steps}" if stopped else _recorded([recorder, *others])
        notices.say(f"{what}. Next: tracelyze diagnose {run}")


def _recorded(recorders: list[Recorder]) -> str:
    """How much was recorded, in the words of a diagnosis; which optimizers carry each other on is known there only."""
    longest = max(one.progress.longest for one in recorders)
    every = sum(one.progress.steps for one in recorders)
    counted = [one.program.trainings.counted() for one in recorders]
    trainings, optimizers = (sum(of_each) for of_each in zip(*counted, strict=True))
    steps = f"{longest} step{'' if longest == 1 else 's'}"
    if not longest:
        return "logged values recorded"
    if trainings > 1:
        return f"{trainings} trainings recorded, {steps} in the longest"
    if optimizers > 1:
        each = f"{steps} of each of" if longest * optimizers == every else f"{every} steps of"
        return f"{each} {optimizers} optimizers recorded"
    return f"{steps} recorded"


def say_that_nothing_was_recorded(recorder: Recorder) -> None:
    """One line on why a program that imported torch left no recording: only the process that `collect` became says it.

    A launcher imports torch too and never trains, so nothing is said where another process has made its folder.
    """
    with open(os.path.join(recorder.run, schema.RUN_FILE), encoding="utf-8") as file:
        launched = json.load(file).get("pid") == os.getpid()
    if not launched or multiprocessing.parent_process() is not None:
        return
    if any(entry.is_dir() and entry.name.startswith("rank") for entry in os.scandir(recorder.run)):
        return
    if recorder.off:
        why = f"the collector is off ({recorder.off})"
    elif recorder.progress.backwards:
        why = f"{recorder.progress.backwards} backwards ran, but no optimizer took a step"
    else:
        why = "torch was imported, but no backward ran"
        if recorder.progress.forwards:
            why = "models were called, but no backward ran, and torch.autograd.grad was asked for no weights' gradients"
    notices.say(f"nothing was recorded: {why}")


def _keep_status() -> None:
    if _ended_by() == "KeyboardInterrupt":
        interrupted.keep_status()


def _ended_by() -> str | None:
    """The exception that ended the program, also if its excepthook was replaced after ours was installed."""
    error = getattr(sys, "last_value", None)
    return _noted.get("error") or (type(error).__name__ if error is not None else None)


def say_what_was_seen(recorder: Recorder) -> None:
    """A process that imported torch and never trained leaves a note: an empty run can then say why it is empty."""
    if multiprocessing.parent_process() is not None:
        return
    seen = {
        "argv": redaction.redact_argv(list(sys.argv)),
        "torch": str(recorder.torch.__version__),
        "forwards": recorder.progress.forwards,
        "backwards": recorder.progress.backwards,
        "steps": recorder.progress.steps,
        "off": recorder.off,
    }
    identity.write_json(recorder.run / f"seen-{os.getpid()}.json", seen)


def _safely(note: Callable[[], None]) -> None:
    """Call `note` and drop what it raises: the end of the program must not change."""
    with contextlib.suppress(Exception):
        note()

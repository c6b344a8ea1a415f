"""Fatal signals: faulthandler, below Python's own handlers, writes the stacks of a process that dies of one to a file.

No OS signal handler of Python's is installed, so the program finds its handlers as they would be without the collector.
"""

from __future__ import annotations

import contextlib
import faulthandler
import signal
from pathlib import Path

from tracelyze import schema
from tracelyze.collectors.system.own_file import OwnFile
from tracelyze.collectors.system.program_signals import is_free

_file: OwnFile | None = None
_registered: set[str] = set()


def watch(folder: Path, in_main_thread: bool) -> bool:
    """Let faulthandler write the Python stacks to a file when a fatal signal arrives, then die of it as before.

    `in_main_thread`: the training runs there, so that a SIGTERM is for it.

    False where the program has enabled faulthandler for itself: there is one per process, so its stacks go where the
    program wants them, and the file stays empty.
    """
    global _file
    if _file is not None:  # Another thread of this process trains too, and its folder has the file.
        return True
    _file = OwnFile(folder / schema.SIGNAL_FILE)
    if in_main_thread and is_free(signal.SIGTERM):
        faulthandler.register(signal.SIGTERM, _file.descriptor, all_threads=False, chain=True)
        _registered.add("SIGTERM")
    if faulthandler.is_enabled():
        return False
    # All of them: Gloo and NCCL abort from threads without Python, while the training waits in a collective.
    faulthandler.enable(_file.descriptor, all_threads=True)
    _registered.add("fatal")
    return True


def check() -> None:
    """Let go of the signals where the program has closed the file's descriptor: the stacks would go to its own file."""
    if _file is not None and not _file.is_ours():
        forget()


def forget() -> None:
    """In a forked child, whose parent's file is not its own, and at the end of a recording."""
    global _file
    if _file is None:
        return
    with contextlib.suppress(RuntimeError, ValueError, OSError):
        if "SIGTERM" in _registered:
            faulthandler.unregister(signal.SIGTERM)
        if "fatal" in _registered:
            faulthandler.disable()
        _file.close()
    _registered.clear()
    _file = None

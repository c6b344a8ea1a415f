"""The status of `sys.exit(n)`: Python has forgotten it when the last code of ours runs, the C library has not.

Python calls `exit(n)` after that. glibc hands n to whatever was registered with `on_exit`, here to its own `fputc` on
a file of the run directory: one byte, which it writes on its way out. No code of ours runs then, nothing is registered
before the program's own last words are over, and a forked child has nothing of it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tracelyze import schema


def note(folder: Path) -> None:
    """To be called when Python ends: leave the status that this process is about to exit with in a file in `folder`.

    Does nothing where the C library has no `on_exit` (macOS, musl). Raises OSError if the file cannot be made.
    """
    ctypes: Any = sys.modules.get("ctypes")  # torch has imported it
    if ctypes is None or not sys.platform.startswith("linux"):
        return
    library = ctypes.CDLL(None, use_errno=True)
    if not hasattr(library, "on_exit"):
        return
    library.fopen.restype = ctypes.c_void_p
    library.on_exit.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    file = library.fopen(str(folder / schema.STATUS_FILE).encode(), b"we")  # e: not for programs that it still starts
    if not file:
        raise OSError(ctypes.get_errno(), f"{folder / schema.STATUS_FILE} cannot be made")
    library.on_exit(ctypes.cast(library.fputc, ctypes.c_void_p), file)

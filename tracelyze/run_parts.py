"""The run directory that a part of it belongs to: people name its manifest, or the folder of a process."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tracelyze import schema

_PART = re.compile(rf"{schema.PROCESS_FOLDER.pattern}|trace-\d+$")


def whole_run(path: str | Path) -> Path:
    """The run directory that `path` is a part of: its manifest, the folder of a process, a file in there. Else `path`.

    A file that only lies in the folder of a run, such as a log, is no part of it.
    """
    given = Path(path)
    full = given.absolute()
    inside = [full, full.parent] if full.exists() else []
    part = next((one for one in inside if _PART.match(one.name)), None)
    ours = full.name == schema.RUN_FILE or schema.is_seen_file(full.name)
    run = full.parent if ours else part.parent if part is not None else None
    if run is None or not (run / schema.RUN_FILE).is_file():
        return given
    return run if given.is_absolute() else Path(os.path.relpath(run))

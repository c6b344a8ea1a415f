"""Trackers' own readers, each in a process of its own: they import dozens of packages, and some write where they start.

A reader prints a JSON value a line. What a tracker does to a process when it is imported happens to that one alone.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tracelyze.errors import Cause, InputError

_SECONDS: Final = 600.0


def require(package: str, file: Path, what: str) -> None:
    """InputError where `package`, also the name of tracelyze's extra for it, is not installed."""
    if importlib.util.find_spec(package) is None:
        raise InputError(Cause.MISSING_PACKAGE, f"{file}: {what}; pip install 'tracelyze[{package}]' to read it")


def read(package: str, file: Path, arguments: Sequence[str], take: Callable[[Any], None]) -> tuple[int, str]:
    """Run Python with `arguments`, and hand each printed JSON value to `take`. Its exit status, and its last error."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as errors:
        try:
            with tempfile.TemporaryDirectory() as elsewhere:  # it may write a folder of its own where it is started
                done = subprocess.run(  # noqa: S603  # the tracker's own reader, with a path as its only argument
                    [sys.executable, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=errors,
                    cwd=elsewhere,
                    timeout=_SECONDS,
                    check=False,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise InputError(
                Cause.DAMAGED_LOG, f"{file}: {package} could not read it ({error}); give a whole copy of it"
            ) from None
        said.seek(0)
        for line in said:
            try:
                take(json.loads(line))
            except ValueError:
                continue
        errors.seek(0)
        trouble = errors.read(100_000).decode("utf-8", "replace").strip().splitlines()
    return done.returncode, trouble[-1][:200] if trouble else ""

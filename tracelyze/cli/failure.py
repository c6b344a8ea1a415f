"""What nobody foresaw: the traceback goes to a file that can be sent in, and one line to the user."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence

from tracelyze import redaction
from tracelyze.version import __version__

LONGEST = 200  # characters of the error's own text on the user's line


def describe(error: BaseException, arguments: Sequence[str]) -> str:
    """The one line for stderr, without a line feed; the traceback is in the file that it names.

    What looks like a secret is hidden in both, as in recordings.
    """
    what = redaction.redact_text(f"{type(error).__name__}: {error}".partition("\n")[0])[:LONGEST]
    path = _store(_report(error, arguments))
    where = f"the traceback is in {path}, please send it in" if path else "its traceback could not be written anywhere"
    return f"an error of tracelyze itself, not of yours ({what}); {where}"


def _report(error: BaseException, arguments: Sequence[str]) -> str:
    lines = [
        f"tracelyze {__version__}, Python {platform.python_version()}, {sys.platform}",
        f"arguments: {redaction.redact_argv(arguments)}",
        "",
        *traceback.format_exception(error, limit=-60),
    ]
    return redaction.redact_text("\n".join(lines)) + "\n"


def _store(text: str) -> str | None:
    """The path of a new file with `text` in the folder for temporary files, else here; None if neither can be had."""
    for folder in (tempfile.gettempdir(), "."):
        try:
            handle, path = tempfile.mkstemp(prefix="tracelyze-error-", suffix=".txt", dir=folder)
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError:
            continue
        return path
    return None

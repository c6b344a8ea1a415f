"""Lines of the script that matter: who called backward, step, the loader, the model. Once per line, not per call."""

from __future__ import annotations

import contextlib
import functools
import linecache
import os
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

from tracelyze import redaction
from tracelyze.collectors.internals.local_variables import attributes
from tracelyze.collectors.internals.own_frames import PACKAGE
from tracelyze.collectors.system.identity import working_folder

_MAX_SOURCE = 160
_AROUND = 3  # lines before and after
_START = working_folder()


class Sites:
    """Numbers each (role, line) once and hands the new ones to `emit` as rows of the table sites."""

    def __init__(self, emit: Callable[[dict[str, Any]], None]) -> None:
        self._emit = emit
        # By identity: hashing a code object hashes its constants, every time. The objects are kept, so ids stay theirs.
        self._numbers: dict[tuple[str, int, int], int] = {}
        self._library: dict[int, bool] = {}
        self._kept: list[CodeType] = []
        self._codes: dict[int, tuple[CodeType, int]] = {}  # functions and lines, by number of a site
        self.wanted: set[str] = set()  # roles of lines that are looked for since something has happened
        self.known: list[tuple[str, str, int]] = []  # role, file and line of each site
        self._lock = threading.RLock()  # an OS signal handler may come here from within

    def here(self, role: str) -> int | None:
        """Number of the innermost line of the script on the current stack; None if only libraries are on it."""
        return self.of(sys._getframe(1), role)

    def called_by(self, frame: FrameType | None, role: str, handed_on: str = "") -> int | None:
        """Number of the line of the script that called the function of torch which runs; None if a library did, unless
        its function's name ends in `handed_on`: then it hands on what the script asked it for."""
        while frame is not None:
            code = frame.f_code
            hands_on = handed_on != "" and code.co_name.endswith(handed_on) and is_library(code.co_filename)
            if not code.co_filename.startswith(PACKAGE) and not hands_on:
                break
            frame = frame.f_back
        return None if frame is None or is_library(frame.f_code.co_filename) else self.of(frame, role)

    def around(self, role: str, maker: str, bare: bool = False) -> int | None:
        """Number of the line of the script that called, with arguments, the innermost function of the script on the
        stack, whose own first line gets the role `maker`; None where a library called it. `bare`: also without."""
        frame = next(script_frames(sys._getframe(1)), None)
        takes = frame is not None and (bare or frame.f_code.co_argcount + frame.f_code.co_kwonlyargcount)
        above = frame.f_back if frame is not None and takes else None
        if frame is None or above is None or is_library(above.f_code.co_filename):
            return None
        self.at(maker, frame.f_code, frame.f_code.co_firstlineno)
        return self.of(above, role)

    def of(self, frame: FrameType | None, role: str, whole_line: bool = False) -> int | None:
        """Number of the innermost line of the script, from `frame` on. `whole_line`: calls on a line are one site."""
        while frame is not None:
            code = frame.f_code
            library = self._library.get(id(code))
            if library is None:
                self._kept.append(code)
                library = self._library[id(code)] = is_library(code.co_filename)
            if not library:
                key = (role, id(code), -line_of(frame) if whole_line else frame.f_lasti)
                number = self._numbers.get(key)
                return number if number is not None else self._add(key, frame)
            frame = frame.f_back
        return None

    def at(self, role: str, code: CodeType, line: int) -> int:
        """Number of a line of the script whose call is over."""
        key = (role, id(code), -line)
        number = self._numbers.get(key)
        if number is None:
            with self._lock:
                if key in self._numbers:
                    return self._numbers[key]
                self._kept.append(code)
                number = self._numbers[key] = len(self._numbers)
            self._emit_row(number, role, code.co_filename, line, code.co_name)
        return number

    def path(self) -> tuple[tuple[int, int], ...]:
        """All calls in the script that lead here, as keys: the innermost first."""
        frame: FrameType | None = sys._getframe(1)
        found = []
        while frame is not None:
            code = frame.f_code
            library = self._library.get(id(code))
            if library is None:
                self._kept.append(code)
                library = self._library[id(code)] = is_library(code.co_filename)
            if not library:
                found.append((id(code), frame.f_lasti))
            frame = frame.f_back
        return tuple(found)

    def _add(self, key: tuple[str, int, int], frame: FrameType) -> int:
        with self._lock:
            if key in self._numbers:
                return self._numbers[key]
            number = self._numbers[key] = len(self._numbers)
            self._codes[number] = frame.f_code, line_of(frame)
        self._emit_row(number, key[0], frame.f_code.co_filename, line_of(frame), frame.f_code.co_name)
        return number

    def add(self, role: str, filename: str, line: int, function: str, **more: Any) -> int:
        """A line that is known without having been called from; `more` are columns of its own. Returns its number."""
        with self._lock:
            number = self._numbers[role, -1 - len(self._numbers), line] = len(self._numbers)
        self._emit_row(number, role, filename, line, function, **more)
        return number

    def code(self, site: int) -> tuple[CodeType, int] | None:
        """The function and the line that a site stands in; None where nothing was called from there."""
        return self._codes.get(site)

    def codes(self) -> list[CodeType]:
        """The functions that sites stand in."""
        return [code for code, _ in list(self._codes.values())]

    def _emit_row(self, number: int, role: str, filename: str, line: int, function: str, **more: Any) -> None:
        self.known.append((role, filename, line))
        place = {"file": shown_path(filename), "line": line, "function": function}
        excerpt = source_excerpt(filename, line)
        self._emit({"site": number, "role": role, **place, "source": source_line(filename, line), **excerpt, **more})


@functools.cache
def _libraries() -> tuple[str, ...]:
    """Folders of Python's own modules and of installed packages, as they are when the first line is looked for.

    One that `pip install --target` has filled is known by the metadata that lie beside the packages.
    """
    found = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for folder in sys.path:
        with contextlib.suppress(OSError):
            if folder and any(name.endswith(".dist-info") for name in os.listdir(folder)):
                found.add(folder)
    return tuple(os.path.normpath(folder) + os.sep for folder in found if folder)


def is_library(filename: str) -> bool:
    """Whether a file belongs to Python, to an installed package or to the collector, and not to the user."""
    if filename.startswith("<"):
        return filename != "<string>" and not filename.startswith("<ipython")
    path = os.path.normpath(filename)
    return path.startswith((*_libraries(), PACKAGE)) or "site-packages" in path


def script_modules() -> list[tuple[str, Any]]:
    """The modules that are loaded and no library's, each with its file.

    Thousands are loaded beside torch. So a library's is found to be one once, and known again by its name and identity.
    """
    found: list[tuple[str, Any]] = []
    for name, module in sys.modules.copy().items():  # in one go: another thread may import
        if _library_modules.get(name) == id(module):
            continue
        file = attributes(module).get("__file__")
        if type(file) is not str:
            continue  # It may get one.
        if is_library(file):
            _library_modules[name] = id(module)
        else:
            found.append((file, module))
    return found


_library_modules: dict[str, int] = {}  # their identities by name


def line_of(frame: FrameType) -> int:
    """The line that a frame is at, or else the first of its function: some of Python's instructions have no line, and
    a thread that looks at another one's frames may meet them at those."""
    line: int | None = frame.f_lineno
    return frame.f_code.co_firstlineno if line is None else line


def script_frames(frame: FrameType | None, most: int = sys.maxsize) -> Iterator[FrameType]:
    """The frames of the script, from this one outwards: between them stand a library's, where that runs the loop.
    `most`: frames that are looked at, of either kind."""
    for _ in range(most):
        if frame is None:
            return
        if not is_library(frame.f_code.co_filename):
            yield frame
        frame = frame.f_back


def shown_path(filename: str) -> str:
    """A file as seen from the folder where the program was started (process.json names it), if it lies below."""
    return filename.removeprefix(_START + os.sep)


def source_line(filename: str, line: int) -> str | None:
    """The text of a line, shortened and without secrets; None if the file cannot be read."""
    text = linecache.getline(filename, line).strip()
    return redaction.redact_text(text[:_MAX_SOURCE]) if text else None


def source_excerpt(filename: str, line: int) -> dict[str, Any]:
    """The line with its neighbours, as columns of the table sites: each shortened, all without secrets.

    Empty if the file cannot be read, or where the redaction takes out whole lines, so that the numbers would be wrong.
    """
    first = max(1, line - _AROUND)
    lines = [text.rstrip()[:_MAX_SOURCE] for text in linecache.getlines(filename)[first - 1 : line + _AROUND]]
    text = redaction.redact_text("\n".join(lines))
    if len(lines) <= line - first or text.count("\n") != len(lines) - 1:
        return {}
    return {"excerpt": text, "excerpt_line": first}

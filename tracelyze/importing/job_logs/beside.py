"""Reads the files that are given beside a run, whatever of the three kinds they are, and says what they hold."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from pathlib import Path

from tracelyze.errors import Cause, InputError
from tracelyze.formatting import plural
from tracelyze.importing import reading
from tracelyze.importing.job_logs import kernel_log, slurm_log, stack_dumps
from tracelyze.importing.run_builder import Log
from tracelyze.schema import outside

_MOST_EVENTS = 10_000
_MOST_FILES = 20_000
_SHOWN = 8
_OUTPUT = re.compile(r"slurm-(\d{1,12})")
_LIBRARY = re.compile(
    r"^(?:torch|torchrun|threading\.py|multiprocessing|concurrent|asyncio|<frozen)|site-packages|/lib/python"
)


def read(paths: list[Path]) -> list[outside.Beside]:
    """What these files, and those in these folders, hold. InputError for one that is not there, or is no text."""
    files = [file for path in paths for file in (_inside(path) if path.is_dir() else [path])]
    return [_read(file) for file in files[:_MOST_FILES]]


def recognize(head: str) -> str:
    """What a file that begins so is taken for when it is given alone; empty if it is of neither kind.

    The output of a SLURM job is a console log, whose end SLURM may have written: see :func:`own`.
    """
    if stack_dumps.looks_so(head):
        return "a dump of py-spy"
    return "a log of the kernel" if kernel_log.looks_so(head) else ""


def own(file: Path) -> list[outside.Beside]:
    """What SLURM says in a console log itself; nothing where it is silent."""
    found = _read(file)
    return [found] if found.events else []


def log_of(file: Path) -> Log:
    """A file that was given alone: nothing of a training, and notes on what it holds."""
    found = _read(file)
    advice = "give it beside a run: tracelyze diagnose RUN --beside " + file.name
    return Log("surroundings", file, [], {}, (*said(found), advice), of_training=True)


def said(found: outside.Beside) -> list[str]:
    """Sentences on what a file holds."""
    if found.stacks:
        return [f"{found.file}: {_where(stack)}" for stack in found.stacks[:_SHOWN]]
    if not found.events:
        return [f"{found.file}: {found.title}, without XID errors, kills for memory or ends of jobs"]
    kinds = Counter(event.said for event in found.events)
    sentences = [f"{found.file}: {found.title} with {plural(len(found.events), 'such line')}"]
    for words, times in kinds.most_common(_SHOWN):
        first = next(event for event in found.events if event.said == words)
        again = f", {times:,} times" if times > 1 else ""
        sentences.append(f"{found.file}, line {first.line}{again}: {words}. {first.advice}".rstrip())
    return sentences


def _where(stack: outside.Stack) -> str:
    who = f"process {stack.pid}" if stack.rank is None else f"rank {stack.rank}"
    places = []
    for thread in stack.threads[:_SHOWN]:
        own = [frame for frame in thread.frames if frame.line and not _LIBRARY.search(frame.file)]
        frame = next(iter(own or thread.frames), None)
        if frame is not None:
            places.append(f"{thread.name} ({thread.status}) stood in {frame.function} ({frame.file}:{frame.line})")
    return f"{who}: " + ("; ".join(places) if places else "no Python was running")


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in itertools.islice(folder.iterdir(), _MOST_FILES) if path.is_file())
    except OSError as error:
        raise InputError(Cause.of_reading(error), f"{folder}: {error.strerror}; check the permissions") from None


def _read(file: Path) -> outside.Beside:
    if not file.exists():
        raise InputError(Cause.NO_SUCH_PATH, f"{file}: No such file; give dmesg output, a SLURM log or a py-spy dump")
    head = reading.head_of(file)
    if b"\x00" in head:
        raise InputError(Cause.NO_SURROUNDINGS, f"{file}: no text; give dmesg output, a SLURM log or a dump of py-spy")
    text = reading.without_colors(head.decode("utf-8", "replace").removeprefix("\ufeff"))
    if stack_dumps.looks_so(text):
        return outside.Beside(file.name, "a dump of py-spy", stacks=tuple(_stacks(file)))
    kernel = kernel_log.looks_so(text)
    events = kernel_log.events if kernel else slurm_log.events
    found: tuple[outside.Event, ...] = tuple(
        itertools.islice(events(file.name, reading.numbered_lines_of(file)), _MOST_EVENTS)
    )
    if kernel:
        return outside.Beside(file.name, "a log of the kernel", found)
    jobs = {event.job for event in found if event.job} | set(_OUTPUT.findall(file.name))
    title = "output of a SLURM job" if found else "text in which neither the kernel nor SLURM speaks"
    return outside.Beside(file.name, title, found, job=jobs.pop() if len(jobs) == 1 else "")


def _stacks(file: Path) -> list[outside.Stack]:
    try:
        return stack_dumps.read(file.name, reading.without_colors(reading.text_of(file)))
    except ValueError:
        raise InputError(Cause.DAMAGED_LOG, f"{file}: not valid JSON, half-written or damaged; dump again") from None

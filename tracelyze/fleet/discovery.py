"""The runs below folders and buckets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from tracelyze import reading, schema
from tracelyze.errors import Cause, InputError
from tracelyze.fleet import storage

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem


def runs_below(places: Sequence[str], filesystem: FileSystem | None = None) -> list[str]:
    """The paths or URIs of all run directories in and below `places`, each once, in the order of their names.

    A place that is a file stands for itself, so that a profiler's trace or a log can be among them. A folder of this
    machine without a run directory stands for the recordings of other programs in it. InputError for a place that does
    not exist or holds nothing of all that.
    """
    found: dict[str, None] = {}
    for place in places:
        remote = filesystem is not None or storage.is_remote(place)
        if remote:
            runs = list(_in_bucket(place, filesystem))
        else:
            folder = Path(place.removeprefix("file://"))
            runs = list(_in_folder(folder)) or list(_recordings_in(folder))
        if not runs:
            raise InputError(
                Cause.NO_RUN_FOUND,
                f"{place}: no run directory or recording in it or below; record one with `tracelyze collect`",
            )
        found.update(dict.fromkeys(runs))
    return list(found)


def _in_folder(place: Path) -> Iterator[str]:
    if not place.exists():
        raise InputError(
            Cause.NO_SUCH_PATH, f"{place}: no such file or folder; give a folder of runs, or s3://, gs:// or az://"
        )
    if not place.is_dir():
        yield str(place)
        return
    for folder, inner, files in os.walk(place):
        if _is_run(Path(folder), inner, files):
            yield str(Path(folder))
            inner.clear()  # a run holds no other
        inner.sort()


def _recordings_in(place: Path) -> Iterator[str]:
    """Recordings of other programs."""
    from tracelyze.importing import recordings

    return (str(found.path) for found in recordings.below(place))


def _is_run(folder: Path, inner: list[str], files: list[str]) -> bool:
    if any(storage.is_process(name) for name in inner) or any(_is_note(name) for name in files):
        return True
    return schema.RUN_FILE in files and _is_ours(lambda: reading.read_text(folder / schema.RUN_FILE))


def _is_ours(manifest: Callable[[], str]) -> bool:
    """Whether a run.json was written by tracelyze, or may have been: other programs call files so, too."""
    try:
        return "schema_version" in reading.parse_json(manifest())
    except (InputError, OSError, ValueError, TypeError):
        return True  # its diagnosis will say what is wrong with it


def _is_note(name: str) -> bool:
    return schema.is_seen_file(name)


def _in_bucket(place: str, filesystem: FileSystem | None) -> Iterator[str]:
    """By one listing of everything below: names show what is a run, and its manifest where nothing else lies there."""
    from pyarrow import ArrowException, fs

    found, root = storage.opened(place, filesystem)
    try:
        entries = found.get_file_info(fs.FileSelector(root, recursive=True))
    except (ArrowException, ValueError, OSError) as error:
        raise InputError(
            Cause.NO_ACCESS, f"{place}: cannot be listed ({str(error).splitlines()[0]}); check name and access"
        ) from None
    files = [PurePosixPath(entry.path) for entry in entries if entry.is_file]
    runs = {run for file in files if (run := _run_of(file)) is not None}
    for file in files:
        is_manifest = file.name == schema.RUN_FILE and file.parent not in runs
        if is_manifest and _is_ours(partial(storage.text_of, found, str(file))):
            runs.add(file.parent)
    inner = {run for run in runs if any(parent in runs for parent in run.parents)}
    for run in sorted(runs - inner):
        below = str(run).removeprefix(root).strip("/")
        yield storage.joined_uri(place, below) if below else place


def _run_of(path: PurePosixPath) -> PurePosixPath | None:
    """The run that a file makes of a folder above it by its name alone; None if it makes none."""
    if _is_note(path.name):
        return path.parent
    return path.parent.parent if storage.is_process(path.parent.name) else None

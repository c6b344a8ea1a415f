"""Where the runs of a fleet lie: folders of this machine, and buckets, which are read through pyarrow or fsspec.

A run in a bucket is judged from a mirror in a temporary folder, which holds those of its files that a diagnosis reads
(manifests, tables, the traces of its profiler windows), one run at a time for each process. Checkpoints, pages and
whatever else lies beside them stay where they are.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

from tracelyze import reading, schema
from tracelyze.errors import Cause, InputError

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_NOTES: Final = (schema.SIGNAL_FILE, schema.STATUS_FILE, schema.STOPPED_FILE)
_TRACES: Final = (".json", ".json.gz")
_PIECE: Final = 4 << 20
_LEFT_OUT: Final = {f"{one.name}{schema.TABLE_SUFFIX}" for one in (schema.RANGES, schema.SAID)}  # only a page shows it


def is_remote(path: str) -> bool:
    """Whether `path` is a URI of something else than files of this machine."""
    found = _SCHEME.match(path)
    return found is not None and found[1] != "file"


def is_process(name: str) -> bool:
    """Whether a folder of this name is that of a process of a run."""
    return schema.PROCESS_FOLDER.fullmatch(name) is not None


def joined_uri(uri: str, below: str) -> str:
    """The URI of what lies below another; options of the store (`s3://bucket/runs?region=x`) stay at the end."""
    path, mark, options = uri.partition("?")
    return f"{path.rstrip('/')}/{below}{mark}{options}"


def opened(uri: str, filesystem: FileSystem | None = None) -> tuple[FileSystem, str]:
    """The file system of a URI, and the path there. InputError, one line, where none can be had.

    pyarrow's own are preferred (s3, gs, abfs, hdfs); others, such as az, are asked of fsspec.
    """
    from pyarrow import ArrowException, fs

    if filesystem is not None:
        return filesystem, _SCHEME.sub("", uri).rstrip("/")
    try:
        found, path = fs.FileSystem.from_uri(uri)
        return found, path.rstrip("/")
    except (ArrowException, ValueError, OSError) as refused:
        reason = str(refused).splitlines()[0]
    try:
        import fsspec

        other, path = fsspec.core.url_to_fs(uri)
    except ImportError as missing:
        raise InputError(
            Cause.MISSING_PACKAGE, f"{uri}: cannot be opened ({reason}; {missing}); pip install 'tracelyze[fleet]'"
        ) from None
    except (ValueError, OSError) as error:
        raise InputError(
            Cause.NO_ACCESS, f"{uri}: cannot be opened ({error}); use s3://, gs://, az:// or a folder"
        ) from None
    handler: Any = fs.FSSpecHandler
    return fs.PyFileSystem(handler(other)), str(path).rstrip("/")


@contextmanager
def mirrored(uri: str, filesystem: FileSystem | None = None) -> Iterator[Path]:
    """A temporary folder with those files of the run at `uri` that a diagnosis reads. InputError if there are none."""
    from pyarrow import ArrowException, fs

    found, root = opened(uri, filesystem)
    with tempfile.TemporaryDirectory(prefix="tracelyze-") as temporary:
        folder = Path(temporary) / (PurePosixPath(root).name or "run")
        folder.mkdir()
        try:
            entries = found.get_file_info(fs.FileSelector(root, recursive=True))
            wanted = [entry for entry in entries if entry.is_file and _is_read(_below(entry.path, root))]
            for entry in wanted:
                _copy(found, entry, folder / _below(entry.path, root))
        except (ArrowException, ValueError, OSError) as error:
            raise InputError(
                Cause.NO_ACCESS, f"{uri}: cannot be read ({str(error).splitlines()[0]}); check name and access"
            ) from None
        if not wanted:
            raise InputError(
                Cause.NO_RUN_FOUND, f"{uri}: no run directory; give the folder that holds {schema.RUN_FILE}"
            )
        yield folder


def text_of(filesystem: FileSystem, path: str) -> str:
    """The text of a small file, its first bytes if it is none. OSError or ValueError if it cannot be read."""
    with filesystem.open_input_stream(path) as file:
        data: bytes = file.read(reading.MANIFEST_BYTES)
    return data.decode("utf-8")


def _copy(filesystem: FileSystem, entry: FileInfo, target: Path) -> None:
    """With its time of change, which shows whether a program still writes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with filesystem.open_input_stream(entry.path) as source, target.open("wb") as file:
        shutil.copyfileobj(source, file, _PIECE)
    if entry.mtime_ns is not None:
        os.utime(target, ns=(entry.mtime_ns, entry.mtime_ns))


def _below(path: str, root: str) -> PurePosixPath:
    return PurePosixPath(path.removeprefix(root).lstrip("/"))


def _is_read(path: PurePosixPath) -> bool:
    """Whether a diagnosis reads the file at `path`, relative to its run."""
    name = path.name
    if ".." in path.parts:  # a bucket's keys are any text
        return False
    if len(path.parts) == 1:
        return name == schema.RUN_FILE or schema.is_seen_file(name)
    if len(path.parts) > 2 or name in _LEFT_OUT:
        return False
    if name.endswith((schema.TABLE_SUFFIX, schema.STREAM_SUFFIX)) or name in (*_NOTES, schema.PROCESS_FILE):
        return True
    return name == schema.TRACE_FILE or (is_process(path.parts[0]) and name.endswith(_TRACES))

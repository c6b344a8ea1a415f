"""The run directory: the contract between collectors and analyzers, declared as data.

    RUN/
      run.json                                  how the run was launched (written by `collect` or an importer)
      rank00000-attempt0-pid4711/               one folder per process that trained
        process.json                            who it was: rank, versions, devices, command, clock
        steps.arrows                            rows while the program runs (Arrow IPC stream, survives a kill)
        steps.parquet                           the same rows after a clean end, or after the first reader came by
        evals.parquet, events.parquet, ...      one file per table below; long runs add steps-00001.parquet, ...
        signals.txt                             Python stacks written when a fatal signal arrived
        status.bin                              the exit status, one byte: from the C library where it can
        stopped.txt                             JSON: why recording stopped early; blank while it runs, gone after
      trace-00000/                              instead of processes: a profiler's trace, by `import kineto`
        trace.json                              which file it was, its rank, its clock, what was wrong with it
        device.parquet, host.parquet, ...       one file per trace table below

A missing value (null) means "was not measured"; a NaN is a NaN of the training. The two are never mixed.
This module is plain standard library: it is imported inside the training process.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final, Literal, TypedDict

from tracelyze.schema.declaration import Column, ColumnType, Table
from tracelyze.schema.events import EVENT_KINDS, EVENTS
from tracelyze.schema.objectives import (
    COMPILATIONS,
    COUNTED_TARGETS,
    GROUP_RATES,
    LOSS_CALLS,
    LOSS_GRAPHS,
    NEW_ROWS,
    REFERENCES,
    TIMESTEPS,
    UPDATES,
)
from tracelyze.schema.probing import MIXINGS, REPLAYS
from tracelyze.schema.samples import (
    ACTIVATIONS,
    BATCHES,
    DEVICES,
    FETCHES,
    INPUTS_IN_USE,
    NONFINITE,
    PARAMETERS,
    SAMPLES,
)
from tracelyze.schema.sites import SITES
from tracelyze.schema.traces import (
    DEVICE,
    HOST,
    LABELS,
    LAUNCHES,
    MEMORY,
    RANGES,
    SAID,
)
from tracelyze.schema.training import (
    AUTOCAST,
    COLLECTIVES,
    COPIES,
    EVALS,
    GRAD_MODE,
    LINKS,
    LOADERS,
    MODELS,
    MODULES,
    NORM_SOURCE,
    OPTIMIZERS,
    PUT_IN,
    REACH,
    SCALARS,
    SCALER_USE,
    SCHEDULES,
    SIGNALS,
    STEPS,
    UNSET,
    WINDOWS,
)
from tracelyze.schema.weights import CHECKPOINTS, INITIALIZATIONS, LOADS

__all__ = [
    "ACTIVATIONS",
    "AUTOCAST",
    "BATCHES",
    "CHECKPOINTS",
    "CHECKSUM",
    "COLLECTIVES",
    "COMPILATIONS",
    "COPIES",
    "COUNTED_TARGETS",
    "DEVICE",
    "DEVICES",
    "EVALS",
    "EVENTS",
    "EVENT_KINDS",
    "EXEC_FAILED",
    "FETCHES",
    "GRAD_MODE",
    "GROUP_RATES",
    "HOST",
    "INITIALIZATIONS",
    "INPUTS_IN_USE",
    "LABELS",
    "LAUNCHES",
    "LINKS",
    "LOADERS",
    "LOADS",
    "LOSS_CALLS",
    "LOSS_GRAPHS",
    "MEMORY",
    "MIXINGS",
    "MODELS",
    "MODULES",
    "NEW_ROWS",
    "NONFINITE",
    "NORM_SOURCE",
    "OPTIMIZERS",
    "PARAMETERS",
    "PROCESS_FILE",
    "PROCESS_FOLDER",
    "PUT_IN",
    "RANGES",
    "REACH",
    "REFERENCES",
    "REPLAYS",
    "RUN_FILE",
    "SAID",
    "SAMPLES",
    "SCALARS",
    "SCALER_USE",
    "SCHEDULES",
    "SCHEMA_VERSION",
    "SEEN_FILES",
    "SIGNALS",
    "SIGNAL_FILE",
    "SITES",
    "STATUS_FILE",
    "STEPS",
    "STOPPED_FILE",
    "STREAM_SUFFIX",
    "TABLES",
    "TABLE_SUFFIX",
    "TIMESTEPS",
    "TRACE_FILE",
    "TRACE_TABLES",
    "UNSET",
    "UPDATES",
    "WINDOWS",
    "Column",
    "ColumnType",
    "Table",
    "checksum",
    "compression",
    "is_seen_file",
    "process_folder",
    "table",
]

SCHEMA_VERSION: Final = 1
RUN_FILE: Final = "run.json"
PROCESS_FILE: Final = "process.json"
STREAM_SUFFIX: Final = ".arrows"
TABLE_SUFFIX: Final = ".parquet"
SIGNAL_FILE: Final = "signals.txt"
STATUS_FILE: Final = "status.bin"
EXEC_FAILED: Final = "exec-failed"
"""Name of an exit that did not happen: `os.exec*` raised, and the program went on."""
STOPPED_FILE: Final = "stopped.txt"
SEEN_FILES: Final = "seen-*.json"
"""One for each program that was started under the collector and did not train: `seen-PID.json`."""
PROCESS_FOLDER: Final = re.compile(
    r"rank(?P<rank>\d{1,9})-attempt(?P<attempt>\d{1,9})-pid(?P<pid>\d{1,10})(?:-thread(?P<thread>\d{1,9}))?"
)


def process_folder(rank: int, attempt: int, pid: int) -> str:
    """Name of the folder of a process; that of a second thread has the thread behind it."""
    return f"rank{rank:05d}-attempt{attempt}-pid{pid}"


def is_seen_file(name: str) -> bool:
    """Whether a file of this name is one of SEEN_FILES."""
    return name.startswith("seen-") and name.endswith(".json")


TABLES: Final[tuple[Table, ...]] = (
    STEPS, EVALS, UNSET, COPIES, PUT_IN, MODELS, MODULES, OPTIMIZERS, LINKS, LOADERS, LOADS, CHECKPOINTS, LOSS_CALLS,
    LOSS_GRAPHS, COUNTED_TARGETS, REACH, REFERENCES, SCHEDULES, GROUP_RATES, NEW_ROWS, TIMESTEPS, UPDATES,
    COMPILATIONS, SITES, EVENTS, SAMPLES, BATCHES, INPUTS_IN_USE, FETCHES, ACTIVATIONS, PARAMETERS, INITIALIZATIONS,
    DEVICES, SIGNALS, SCALARS, COLLECTIVES, WINDOWS, REPLAYS, MIXINGS,
)  # fmt: skip

SMALL_STREAM: Final = 2**20


class Encoding(TypedDict):
    """Arguments of pyarrow's ParquetWriter."""

    compression: Literal["lz4", "zstd"]
    use_dictionary: bool
    write_statistics: bool


def encoding(length: int) -> Encoding:
    """How a table is written whose stream has `length` bytes.

    In a small one, what is set up for each column takes longer than its values: zstd, dictionaries, and the least and
    largest value, by which readers skip parts of files. Without them a process folder of a few hundred steps is written
    in a third of the time, and a fifth smaller.
    """
    small = length <= SMALL_STREAM
    return {"compression": "lz4" if small else "zstd", "use_dictionary": not small, "write_statistics": not small}


TRACE_FILE: Final = "trace.json"

TRACE_TABLES: Final[tuple[Table, ...]] = (DEVICE, LAUNCHES, HOST, MEMORY, LABELS, RANGES, SAID)
"""The tables of a folder into which `tracelyze import kineto` put one profiler trace, beside its TRACE_FILE."""

CHECKSUM: Final = b"crc32"


def checksum(batch: Any) -> bytes:
    """CRC-32 of the values in an Arrow record batch, which travels with it in a stream under :data:`CHECKSUM`.

    A power cut can leave a batch of the right length whose end are zeros: without this they would pass for values.
    """
    crc = 0
    for column in batch.columns:
        rows, (validity, *buffers) = len(column), column.buffers()
        if column.null_count:
            crc = zlib.crc32(memoryview(validity)[: (rows + 7) // 8], crc)
        if column.null_count == rows:
            continue
        if len(buffers) == 2:  # text: where each value ends, then all of them
            offsets = memoryview(buffers[0])[: 4 * (rows + 1)]
            crc = zlib.crc32(offsets, crc)
            if buffers[1] is not None:
                crc = zlib.crc32(memoryview(buffers[1])[: offsets.cast("B").cast("i")[rows]], crc)
        else:
            crc = zlib.crc32(memoryview(buffers[0])[: (rows * column.type.bit_width + 7) // 8], crc)
    return str(crc).encode()


def table(name: str) -> Table:
    """The table called `name`; KeyError if there is none."""
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    raise KeyError(f"the run directory has no table {name!r}")

"""Who a process is: its rank and attempt, its machine and versions, and the clock its rows are timed with."""

from __future__ import annotations

import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from time import time as wall_time
from typing import Any

from tracelyze import redaction, schema
from tracelyze.collectors.system import memory_limits
from tracelyze.version import __version__


def facts(torch: Any) -> dict[str, Any]:
    """The facts of this process for process.json. Only allow-listed environment variables; arguments redacted."""
    rank, world_size = _rank(torch)
    system = os.uname()
    return {
        "schema_version": schema.SCHEMA_VERSION,
        "tracelyze_version": __version__,
        "pid": os.getpid(),
        "pid_start": process_start(os.getpid()),
        "boot_id": boot_id(),
        "pid_namespace": _pid_namespace(),
        "host": host(),
        "rank": rank,
        "local_rank": _integer(os.environ.get("LOCAL_RANK"), rank),
        "world_size": world_size,
        "launcher": _launcher(),
        "attempt": _integer(os.environ.get("TORCHELASTIC_RESTART_COUNT"), 0),
        "started_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "clock": {"unix": wall_time(), "monotonic": perf_counter()},
        "argv": redaction.redact_argv(list(sys.argv)),
        "cwd": working_folder(),
        "python": platform.python_version(),
        "platform": f"{system.sysname}-{system.release}-{system.machine}",
        "torch": str(torch.__version__),
        "cpus": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "threads": torch.get_num_threads(),
        "host_memory_bytes": host_memory(),
        "device": _device(torch),
        "environment": redaction.allowed_environment(os.environ),
    }


def working_folder() -> str:
    """The folder that the program works in; empty if it has been deleted."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def folder_name(process: dict[str, Any]) -> str:
    """Name of the folder: one per rank, attempt, process and training thread, so that nobody ever shares a file."""
    thread = f"-thread{process['thread']}" if process["thread"] > 1 else ""
    return f"rank{process['rank']:05d}-attempt{process['attempt']}-pid{process['pid']}{thread}"


def batch_job() -> str | None:
    """What names the batch job that this process belongs to, and its attempt; None outside of a batch system."""
    for name, attempt in (("SLURM_JOB_ID", "SLURM_RESTART_COUNT"), ("PBS_JOBID", ""), ("LSB_JOBID", "")):
        if os.environ.get(name):
            return f"{name}={os.environ[name]}.{os.environ.get(attempt) or 0}"
    return None


def host() -> str:
    """Name of the machine. `platform.node` would start a process to learn more than that."""
    return os.uname().nodename


def write_json(path: Path, data: dict[str, Any]) -> None:
    """Write `data` so that a reader sees either the old file or the new one, never half of it.

    Bytes of a file name that are not UTF-8 (lone surrogates in Python) are written as escapes of JSON.
    """
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    text = json.dumps(data, indent=1, ensure_ascii=False) + "\n"
    temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
    os.replace(temporary, path)


def boot_id() -> str | None:
    """Identifier of the machine's current boot; None where the platform has none."""
    return _read("/proc/sys/kernel/random/boot_id")


def _pid_namespace() -> str | None:
    """Within which process ids mean the same: containers of one machine share its boot and have their own ids."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def process_start(pid: int) -> int | None:
    """Start of a process in clock ticks since boot: with the pid it names a process for ever. None if unknown."""
    stat = _read(f"/proc/{pid}/stat")
    try:
        return int(stat.rpartition(")")[2].split()[19]) if stat else None
    except (IndexError, ValueError):
        return None


def host_memory() -> int | None:
    """Memory of the machine in bytes, or the limit of the container or the job if that is smaller; None if unknown."""
    try:
        total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None
    limits = [limit for group in memory_limits.groups() if (limit := memory_limits.limit(group)) is not None]
    return min(total, *limits) if limits else total


def _rank(torch: Any) -> tuple[int, int]:
    try:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
    except (AttributeError, RuntimeError, ValueError):
        pass
    return _integer(os.environ.get("RANK"), 0), _integer(os.environ.get("WORLD_SIZE"), 1)


def _launcher() -> str:
    """What the attempts of one elastic launch share: the name of the launch, else the process that launches."""
    name = os.environ.get("TORCHELASTIC_RUN_ID", "none")
    return name if name != "none" else f"{host()}-{os.getppid()}"


def _device(torch: Any) -> dict[str, Any]:
    try:
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            properties = torch.cuda.get_device_properties(torch.cuda.current_device())
            return {"type": "cuda", "name": properties.name, "memory_bytes": properties.total_memory}
    except (AttributeError, RuntimeError, AssertionError):
        pass
    return {"type": "cpu", "name": _processor()}


def _processor() -> str:
    """The processor as the kernel names it. Not `platform.processor`, nor `platform.platform`: they start `uname -p`,
    and a program that handles SIGCHLD would see a child of ours end."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return os.uname().machine


def _integer(text: str | None, default: int) -> int:
    try:
        return int(text) if text is not None else default
    except ValueError:
        return default


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return None

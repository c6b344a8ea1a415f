"""What the control groups of this process leave it of the machine's memory: a container's limit, or a batch job's.

The group that a process is in names its limit, and so does each group around it: under a scheduler such as Slurm, or
systemd, the files of the job lie deep below the root that a container sees as its own.
"""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
OF_PROCESS = Path("/proc/self/cgroup")
NO_LIMIT = 2**60  # version 1 writes the largest number of pages instead of "max"
# Of either version: its mount, limit, what is used, and what of that is file cache that can be given back.
SECOND = ("", "memory.max", "memory.current", "inactive_file")
SECOND_BESIDE_FIRST = ("unified", *SECOND[1:])
FIRST = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
Group = tuple[Path, str, str, str]


def groups(root: Path = ROOT, of_process: Path = OF_PROCESS) -> list[Group]:
    """The groups that limit this process's memory now, with the names of their files. Outermost last."""
    found: list[Group] = []
    try:
        lines = of_process.read_text().splitlines()
    except OSError:
        return found
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        for mount, *names in (FIRST,) if controllers else (SECOND, SECOND_BESIDE_FIRST):
            inner = root / mount / path.strip("/")
            for folder in [inner, *inner.parents]:
                group: Group = (folder, names[0], names[1], names[2])
                if folder.is_relative_to(root / mount) and limit(group) is not None:
                    found.append(group)
    return found


def limit(group: Group) -> int | None:
    """Bytes that a group may use; None without a limit."""
    text = _text(group[0] / group[1])
    return int(text) if text.isdigit() and int(text) < NO_LIMIT else None


def room(group: Group) -> int | None:
    """Bytes that a group may still take; None without a limit. File cache that it could give back counts as room."""
    allowed, used = limit(group), _text(group[0] / group[2])
    if allowed is None or not used.isdigit():
        return None
    cached = [line.split()[1] for line in _text(group[0] / "memory.stat").splitlines() if line.startswith(group[3])]
    return allowed - int(used) + int(cached[0] if cached else 0)


def _text(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, 2**16).decode("ascii", "replace").strip()
    except OSError:
        return ""
    finally:
        os.close(descriptor)

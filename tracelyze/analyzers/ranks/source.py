"""What processes a run has, known without reading what they recorded, and the way to each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.recorded import run_directory

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process, Run


@dataclass(frozen=True)
class Head:
    """A process by what its manifest and the name of its folder say. `bytes`: of what it recorded, where known."""

    name: str
    rank: int
    attempt: int
    launcher: str
    pid: Any
    thread: int
    bytes: int = 0


class InMemory:
    """A run that is loaded."""

    def __init__(self, run: Run) -> None:
        self.path, self.manifest = run.path, run.manifest
        self._notes = run.notes
        self._processes = run.processes
        self.heads = [_head(str(index), process.facts) for index, process in enumerate(run.processes)]

    def open(self, head: Head) -> Process:
        """The process."""
        return self._processes[int(head.name)]

    def notes(self, of_processes: Sequence[str], restarted: bool) -> list[str]:
        """The notes of the run; `of_processes`: those of the judged ones, without restarted ones."""
        return [note for note in self._notes if note in of_processes] if restarted else list(self._notes)


class OnDisk:
    """A run directory, of which the manifests are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest, self._wrong, found = run_directory.opened(path)
        heads = [_head(folder.name, facts, size) for folder, facts, size in found]
        self.heads = sorted(heads, key=lambda head: (head.rank, head.attempt, head.name))

    def open(self, head: Head) -> Process:
        """The process; its columns are read when they are asked for."""
        return run_directory.process(self.path / head.name)

    def notes(self, of_processes: Sequence[str], restarted: bool) -> list[str]:
        """The notes of the run, those of its processes (`of_processes`) among them."""
        if restarted:
            return [*self._wrong, *of_processes]
        return run_directory.notes(self.path, self.manifest, self._wrong, of_processes, bool(self.heads))


Source = InMemory | OnDisk


def _head(name: str, facts: Mapping[str, Any], size: int = 0) -> Head:
    rank = int(facts.get("rank") or 0)
    launcher = str(facts.get("launcher") or f"rank {rank}")  # where it is not named, the attempts of a rank
    thread = int(facts.get("thread") or 1)
    return Head(name, rank, int(facts.get("attempt") or 0), launcher, facts.get("pid"), thread, size)

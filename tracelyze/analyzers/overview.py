"""The facts of the run itself, and the pictures that a report opens with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.recorded import deaths, recording_cost
from tracelyze.diagnosis import Chart, Exit, Finding, Mark, RunFacts, SignalFacts, TrainingFacts

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process, Run

WORST_EXIT = ("exception", "signal", "vanished", "interrupted", "unknown", "running", "finished")
ENVIRONMENT = ("python", "torch", "cuda", "platform", "hostname", "host", "device", "world_size", "cpu_count", "cpus")


@dataclass
class Facts:
    """Collects, process by process, what the diagnosis says about the run; holds only chart-sized data."""

    steps: int = 0
    ranks: set[int] = field(default_factory=set)
    exits: list[Exit] = field(default_factory=list)
    died: list[Process] = field(default_factory=list)
    seconds: float = 0.0
    overhead: float = 0.0
    overhead_known: bool = False
    duration: float | None = None
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    started_at: str | None = None
    signals: list[SignalFacts] = field(default_factory=list)
    trainings: list[TrainingFacts] = field(default_factory=list)
    drawn: list[Chart] = field(default_factory=list)
    longest: int = 0

    def add(self, process: Process) -> None:
        """Take one process into account."""
        self.ranks.add(process.rank)
        self.exits.append(process.exit)
        if process.exit.kind in deaths.DIED:
            self.died.append(process)
        count = max((len(training.steps) for training in process.trainings), default=0)
        self.steps = max(self.steps, count)
        self._time(process)
        self._identity(process)
        self.signals = recording_cost.joined(self.signals, recording_cost.signals_of(process))
        if count > self.longest:
            self.longest, self.drawn = count, pictures_of(process)

    def _time(self, process: Process) -> None:
        steps = process.steps
        self.seconds += float(np.nansum(steps["seconds"]))
        if steps.has("overhead"):
            self.overhead_known = True
            self.overhead += float(np.nansum(steps["overhead"]))
        ends = [process.tables[name]["time"] for name in ("steps", "events", "samples")]
        last = max((float(np.nanmax(times)) for times in ends if np.isfinite(times).any()), default=None)
        if last is not None:
            self.duration = max(self.duration or 0.0, last)

    def _identity(self, process: Process) -> None:
        facts = process.facts
        if not self.environment:
            self.environment = environment(facts)
        self.command = self.command or _words(facts.get("command") or facts.get("argv"))
        self.started_at = self.started_at or _maybe(facts.get("started_at"))

    def why_nothing(self, run: Run) -> str | None:
        """If nothing trained: the sentence that says so and what is known about it, else None."""
        if self.steps:
            return None
        known = "; ".join(run.notes) if not run.processes and run.notes else "no optimizer took a step"
        return f"nothing trained in this run: {known}"

    def why_unknown(self, run: Run) -> str:
        """If nothing trained, a sentence that says so by how the run ended; empty if something did."""
        nothing = self.why_nothing(run)
        if nothing is None:
            return ""
        kinds = {end.kind for end in self.exits}
        if "running" in kinds:
            return "The run is still starting: it has not taken an optimizer step yet."
        if "interrupted" in kinds:
            return "The run was interrupted before its first optimizer step."
        return f"{nothing[:1].upper()}{nothing[1:].rstrip('.')}."

    def run(self, run: Run) -> RunFacts:
        """The facts of the whole run."""
        nothing = self.why_nothing(run)
        notes = list(dict.fromkeys(run.notes)) if run.processes or not nothing else []
        return RunFacts(
            path=str(run.path),
            command=_words(run.manifest.get("command")) or self.command,
            started_at=_maybe(run.manifest.get("started_at")) or self.started_at,
            duration_s=self.duration,
            steps=self.steps,
            ranks=len(self.ranks),
            exit=self._exit(),
            environment=self.environment or environment(run.manifest),
            notes=notes + ([nothing] if nothing else []) + recording_cost.notes(self.signals),
            signals=self.signals,
            trainings=self.trainings,
            overhead=self.overhead / self.seconds if self.overhead_known and self.seconds > 0 else None,
            **_revision(run.manifest.get("git")),
        )

    def _exit(self) -> Exit:
        """The end of the process that died first; if none died, the worst end."""
        first = deaths.first(self.died)
        return first.process.exit if first else min(self.exits, key=_badness, default=Exit("unknown"))

    def charts(self, findings: Sequence[Finding]) -> list[Chart]:
        """The overview's pictures, with the onset of every root cause marked."""
        roots = [f for f in findings if f.caused_by is None and f.first_step is not None]
        marks = [Mark(float(f.first_step or 0), f.rule) for f in sorted(roots, key=lambda f: f.first_step or 0)]
        return [replace(picture, marks=[*marks, *picture.marks]) for picture in self.drawn]


def command_of(run: Run) -> str:
    """How the program was started, as it can be typed again; empty where that was not recorded."""
    return shlex.join(_words(run.manifest.get("command")))


def _revision(recorded: Any) -> dict[str, Any]:
    """The git commit that the program was started from, and whether its tracked files were unchanged."""
    if not isinstance(recorded, Mapping):
        return {}
    clean = recorded.get("clean")
    return {"commit": str(recorded.get("commit") or ""), "clean": clean if isinstance(clean, bool) else None}


def environment(facts: Mapping[str, Any]) -> dict[str, str]:
    """What the program ran on, as text by name, from a manifest's flat values and its `versions`."""
    nested = facts.get("versions")
    flat = dict(nested) if isinstance(nested, Mapping) else {}
    flat |= {key: facts[key] for key in ENVIRONMENT if key in facts}
    framework = facts.get("framework")
    if isinstance(framework, Mapping):
        flat["framework"] = f"{framework.get('name', '')} {framework.get('version', '')}".strip()
    device = flat.get("device")
    if isinstance(device, Mapping):
        flat["device"] = device.get("name") or device.get("type")
    return {str(key): str(value) for key, value in flat.items() if value not in (None, "", {}, [])}


def pictures_of(process: Process) -> list[Chart]:
    """Loss with validation, gradient norm, what a step's time went to, and memory, of one process."""
    found: list[Chart] = []
    longest_part = max(process.parts, key=lambda part: len(part.steps))
    shown = process.trainings if longest_part is process else [t for part in process.parts for t in part.trainings]
    for training in shown[:3]:
        name = timing.name_of(training)
        found += pictures.loss(training, name=name) + pictures.grad_norm(training, name=name)
    longest = max(process.trainings, key=lambda training: len(training.steps), default=None)
    if longest is not None:
        found += pictures.time_split(longest) + pictures.memory(longest)
    return found


def _badness(end: Exit) -> int:
    return WORST_EXIT.index(end.kind) if end.kind in WORST_EXIT else WORST_EXIT.index("unknown")


def _words(command: Any) -> list[str]:
    return [str(word) for word in command] if isinstance(command, list | tuple) else [command] if command else []


def _maybe(value: Any) -> str | None:
    return None if value is None else str(value)

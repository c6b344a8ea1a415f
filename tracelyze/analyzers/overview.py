"""The facts of the run itself, and the pictures that a report opens with."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.context import wall_time
from tracelyze.analyzers.evidence import epochs, pictures, timing
from tracelyze.analyzers.recorded import deaths, recording_cost
from tracelyze.analyzers.recorded.run_directory import CALLED_MODELS, COULD_NOT_WRITE, STOPPED
from tracelyze.diagnosis import Chart, Counted, Exit, Finding, Mark, RunFacts, SignalFacts, TrainingFacts
from tracelyze.formatting import capitalized, listed, plural

if TYPE_CHECKING:
    from pathlib import Path

    from tracelyze.analyzers.recorded.run import Death, Process

WORST_EXIT = ("exception", "signal", "vanished", "interrupted", "unknown", "running", "finished")
LEAST_LOGGED = 20
"""Steps of a log below which nothing found says nothing."""

ENVIRONMENT = ("python", "torch", "cuda", "platform", "hostname", "host", "device", "world_size", "cpu_count", "cpus")


CORE = {
    "gradients": ("steps.grad_norm", "steps.grads_zero"),
    "updates of the weights": ("parameters.update_norm",),
    "the layers": ("activations.kind",),
}
"""What checks of a training read beside its losses, with the columns of which one is there if it was seen."""


@dataclass
class ProcessFacts:
    """What the diagnosis says about one process. `steps`: of its longest training; `cost`: None if unknown."""

    rank: int
    exit: Exit
    steps: int
    cost: recording_cost.Cost | None
    duration: float | None
    environment: dict[str, str]
    command: list[str]
    started_at: str | None
    signals: list[SignalFacts]
    death: Death | None = None
    trainings: list[TrainingFacts] = field(default_factory=list)
    losses: bool = False  # whether the loss of a training step was seen
    unseen: tuple[str, ...] = ()  # of CORE, in a process that trains and was recorded here
    backwards: int = 0  # of a process without an optimizer step
    imported: bool = False  # what another program recorded
    counts: Counted = "step"
    last_step: int | None = None  # the number of the last step, where a log holds only some of them


def facts_of(process: Process) -> ProcessFacts:
    """What is said about this process; its trainings are added where they have names."""
    facts = process.facts
    ends = [process.tables[name]["time"] for name in ("steps", "events", "samples")]
    return ProcessFacts(
        rank=process.rank,
        exit=process.exit,
        steps=max((len(optimization.steps) for optimization in process.optimizations), default=0),
        cost=recording_cost.of_steps(process),
        duration=max((float(np.nanmax(times)) for times in ends if np.isfinite(times).any()), default=None),
        environment=environment(facts),
        command=_words(facts.get("command") or facts.get("argv")),
        started_at=wall_time(process, 0.0) or _maybe(facts.get("started_at")),
        signals=recording_cost.signals_of(process),
        death=deaths.of(process),
        losses=any(optimization.steps.has("loss") for optimization in process.optimizations),
        unseen=_unseen(process),
        backwards=int(facts.get("backwards") or 0),
        imported=bool(facts.get("source")),
        counts="epoch" if epochs.are_counted(process) else "step",
        last_step=_last_logged(process),
    )


def _unseen(process: Process) -> tuple[str, ...]:
    if process.facts.get("source") or not len(process.steps):
        return ()
    known = {name: [column.split(".") for column in columns] for name, columns in CORE.items()}
    return tuple(name for name, columns in known.items() if not any(process.tables[t].has(c) for t, c in columns))


def _last_logged(process: Process) -> int | None:
    """The number of the last step of a log, if the log leaves out some of those before it."""
    source = process.facts.get("source")
    if not isinstance(source, Mapping) or "columns" not in source or not process.optimizations:
        return None
    last = float(np.nanmax(timing.numbers(process.longest)))
    return int(last) if last > len(process.longest.steps) else None


@dataclass
class Facts:
    """Collects, process by process, what the diagnosis says about the run."""

    processes: int = 0
    steps: int = 0
    ranks: set[int] = field(default_factory=set)
    exits: list[Exit] = field(default_factory=list)
    died: list[Death] = field(default_factory=list)
    costs: list[recording_cost.Cost] = field(default_factory=list)
    duration: float | None = None
    environment: dict[str, str] = field(default_factory=dict)
    command: list[str] = field(default_factory=list)
    started_at: str | None = None
    signals: list[SignalFacts] = field(default_factory=list)
    trainings: list[TrainingFacts] = field(default_factory=list)
    drawn: list[Chart] = field(default_factory=list)
    losses: bool = False
    unseen: set[str] = field(default_factory=lambda: set(CORE))
    backwards: int = 0
    imported: bool = False
    counts: Counted = "step"
    last_step: int | None = None

    def add(self, facts: ProcessFacts) -> bool:
        """Take one process into account. Whether it trained for longer than those before it."""
        self.processes += 1
        self.ranks.add(facts.rank)
        self.exits.append(facts.exit)
        if facts.death is not None:
            self.died.append(facts.death)
        if facts.cost is not None:
            self.costs.append(facts.cost)
        if facts.duration is not None:
            self.duration = max(self.duration or 0.0, facts.duration)
        self.environment = self.environment or facts.environment
        self.command = self.command or facts.command
        self.started_at = min(filter(None, (self.started_at, facts.started_at)), default=None)
        self.signals = recording_cost.joined(self.signals, facts.signals)
        self.trainings += facts.trainings
        self.losses |= facts.losses
        self.unseen &= set(facts.unseen) if facts.steps else self.unseen
        self.backwards += facts.backwards
        self.imported |= facts.imported
        self.counts = facts.counts
        longer = facts.steps > self.steps
        self.last_step = facts.last_step if longer else self.last_step
        self.steps = max(self.steps, facts.steps)
        return longer

    def why_nothing(self, notes: Sequence[str]) -> str | None:
        """If nothing trained: the sentence that says so and what is known about it, else None."""
        if self.steps:
            return None
        if self.imported:
            return "this recording holds no steps of a training"
        if self.backwards:
            ran = f"{plural(self.backwards, 'backward pass')} ran, and no optimizer took a step"
            return f"no training that can be followed was seen: {ran}"
        known = "; ".join(notes) if not self.processes and notes else "no optimizer took a step"
        if any(clause in note for note in notes for clause in (CALLED_MODELS, STOPPED, COULD_NOT_WRITE)):
            return f"no training that can be followed was seen: {known}"
        return f"nothing trained in this run: {known}"

    def why_partial(self) -> str:
        """A sentence for a run whose steps had no loss that was seen; empty where one was, or nothing trained."""
        if self.losses or not self.steps:
            return ""
        return "No training loss was seen: whether it fell, diverged or became NaN was not checked."

    def why_little(self) -> str:
        """A sentence for a run of which neither gradients nor updates were seen (torch.func); else empty."""
        if not self.steps or not self.unseen.issuperset(list(CORE)[:2]):
            return ""
        unseen = [name for name in CORE if name in self.unseen]
        return f"Little could be looked at: nothing was seen of {listed(unseen, len(CORE))}."

    def why_unknown(self, notes: Sequence[str]) -> str:
        """A sentence that says so if too little trained to be judged, or nothing, by how the run ended; else empty."""
        nothing = self.why_nothing(notes)
        if nothing is None:
            few = self.imported and self.steps < LEAST_LOGGED
            return f"Only {plural(self.steps, self.counts)} were logged, too few to judge." if few else ""
        kinds = {end.kind for end in self.exits}
        if "running" in kinds:
            return "The run is still starting: it has not taken an optimizer step yet."
        if "interrupted" in kinds:
            return "The run was interrupted before its first optimizer step."
        return f"{capitalized(nothing).rstrip('.')}."

    def run(self, path: Path, manifest: Mapping[str, Any], notes: Sequence[str]) -> RunFacts:
        """The facts of the whole run."""
        nothing, seconds = self.why_nothing(notes), sum(cost.seconds for cost in self.costs)
        notes = list(dict.fromkeys(notes)) if self.processes or not nothing else []
        return RunFacts(
            path=str(path),
            command=_words(manifest.get("command")) or self.command,
            started_at=self.started_at or _maybe(manifest.get("started_at")),
            duration_s=self.duration,
            steps=self.steps,
            ranks=len(self.ranks),
            exit=self._exit(),
            environment=self.environment or environment(manifest),
            notes=[*notes] + ([nothing] if nothing else []) + recording_cost.notes(self.signals),
            signals=self.signals,
            trainings=self.trainings,
            overhead=sum(cost.settled for cost in self.costs) / seconds if seconds else None,
            overhead_per_step=_per_step(self.costs),
            overhead_at_start=max((cost.at_start for cost in self.costs), default=None),
            last_step=self.last_step,
            imported=self.imported,
            counts=self.counts,
            **_revision(manifest.get("git")),
        )

    def _exit(self) -> Exit:
        """The end of the process that died first; if none died, the worst end."""
        first = deaths.first(self.died)
        return first.exit if first else min(self.exits, key=_badness, default=Exit("unknown"))

    def charts(self, findings: Sequence[Finding]) -> list[Chart]:
        """The overview's pictures, with the onset of every root cause marked."""
        roots = [f for f in findings if f.caused_by is None and f.first_step is not None]
        marks = [
            Mark(float(f.first_step or 0), f.rule, "finding") for f in sorted(roots, key=lambda f: f.first_step or 0)
        ]
        drawn = [epochs.over_epochs(one) for one in self.drawn] if self.counts == "epoch" else self.drawn
        return [replace(picture, marks=[*marks, *picture.marks]) for picture in drawn]


def command_of(manifest: Mapping[str, Any]) -> str:
    """How the program was started, as it can be typed again; empty where that was not recorded."""
    return shlex.join(_words(manifest.get("command")))


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
    longest_training = max(process.trainings, key=lambda training: len(training.steps))
    shown = (
        process.optimizations
        if longest_training is process
        else [each for training in process.trainings for each in training.optimizations]
    )
    for optimization in shown[:3]:
        name = timing.name_of(optimization)
        found += pictures.loss(optimization, name=name) + pictures.grad_norm(optimization, name=name)
    longest = max(process.optimizations, key=lambda optimization: len(optimization.steps), default=None)
    if longest is not None:
        found += pictures.time_split(longest) + pictures.memory(longest)
    return found


def _badness(end: Exit) -> int:
    return WORST_EXIT.index(end.kind) if end.kind in WORST_EXIT else WORST_EXIT.index("unknown")


def _per_step(costs: Sequence[recording_cost.Cost]) -> float | None:
    steps = sum(cost.steps for cost in costs)
    return sum(cost.settled for cost in costs) / steps if steps else None


def _words(command: Any) -> list[str]:
    return [str(word) for word in command] if isinstance(command, list | tuple) else [command] if command else []


def _maybe(value: Any) -> str | None:
    return None if value is None else str(value)

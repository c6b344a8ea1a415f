"""A recorded run as the rules see it: processes, each with tables whose columns are numpy arrays.

Columns are read when they are first asked for, and only those: a run of a million steps stays small.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze import schema
from tracelyze.analyzers.recorded import in_words, trainings
from tracelyze.analyzers.recorded.table import Table
from tracelyze.diagnosis import Exit, Location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd


@dataclass(frozen=True)
class Optimization:
    """The steps of one optimizer of one process, in order. Most rules judge one optimization at a time."""

    process: Process
    optimizer: int
    steps: Table
    measures: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def facts(self) -> Mapping[str, Any]:
        """The optimizer's row of the table `optimizers`; empty if it was not recorded."""
        return next((row for row in self.process.optimizers.shared_records() if row["optimizer"] == self.optimizer), {})

    @property
    def made_at(self) -> Location | None:
        """The line that makes this optimizer, with its rate and its parameters; None where a framework makes it."""
        return self.process.site(self.facts.get("made_at"))

    @property
    def step_location(self) -> Location | None:
        """The line that makes this optimizer step; the first line that makes any step where that is not known."""
        return self.process.site(self.facts.get("site")) or self.process.location("step")

    def ended(self, step: int) -> float | None:
        """When this optimizer's step of that number ended, on the run's clock; None where that was not recorded."""
        times = self.steps["time"][self.steps["step"] == step]
        return float(times[0]) if len(times) and np.isfinite(times[0]) else None

    @property
    def backward_location(self) -> Location | None:
        """The line of the backward before this optimizer's first step; else the first line with a backward.

        Lines are looked up now and then. Where the one that was known is that of an earlier optimizer, which steps in
        another line, it is the last backward above this one's step.
        """
        own, process = self.facts, self.process
        same = [row for row in process.optimizers.shared_records() if row["optimizer"] < self.optimizer]
        same = [
            row for row in same if row["backward_site"] == own.get("backward_site") and row["site"] != own.get("site")
        ]
        earlier = [process.site(row["site"]) for row in same]
        known, lines = process.site(own.get("backward_site")), process.locations("backward")
        return trainings.own_backward(known, self.step_location, lines, earlier) or process.location("backward")

    @property
    def loader(self) -> dict[str, Any]:
        """Settings of the loader that fed most of the steps (a row of the table `loaders`); empty if unknown."""
        fed = self.steps["loader"]
        numbers, counts = np.unique(fed[np.isfinite(fed)], return_counts=True)
        usual = int(numbers[np.argmax(counts)]) if len(numbers) else None
        return next((row for row in self.process.loaders.records() if row["loader"] == usual), {})

    @property
    def loss_location(self) -> Location | None:
        """The line of the backward; where a framework calls that, the line that computed, or logged, the loss, outside
        of functions that only evaluate. Of several such lines of a process that trains several times, which is meant is
        known only where the framework computes the loss as well."""
        backward = self.backward_location
        if backward is not None and "backward(" in backward.source:
            return backward
        evaluates = self.process.functions("evaluation") - self.process.functions("training-call", "backward")
        lines = [one for one in self.process.locations("loss") if one.file_function not in evaluates]
        if backward is not None and self.process.training and len(lines) > 1:
            return backward
        return lines[0] if lines else backward

    @property
    def zero_grad_location(self) -> Location | None:
        """The line that clears gradients, where only one optimizer can be meant by it."""
        return self.process.location("zero_grad") if len(self.process.optimizations) == 1 else None


@dataclass(frozen=True)
class Death:
    """How and when a process died. `at` is wall time in seconds, infinity where it is not known.

    `follows`: the way in which a process dies when another one of its job is gone. `what`: how, in one line. `job`: the
    number of its ranks, or None for a process that is no rank of several; `steps`: rows that it recorded.
    """

    rank: int
    name: str
    exit: Exit
    at: float
    follows: bool
    what: str
    steps: int
    job: int | None
    host: Any
    launcher: Any


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A process of the run as rules that compare ranks see it. `gathered`: by rule, what it took from this process.

    `steps`: of its longest training. `open` gives the process itself, which is read again: for the few that a finding
    is about.
    """

    name: str
    rank: int
    attempt: int
    thread: int
    pid: Any
    launcher: Any
    steps: int
    death: Death | None
    gathered: Mapping[str, Any]
    open: Callable[[], Process] = field(repr=False, compare=False)


class _TableOf:
    """A table of a process, by the name of the attribute."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, process: Process, owner: type) -> Table:
        return process.tables[self._name]


@dataclass
class Process:
    """One process that trained: a rank, an attempt, or simply the script."""

    name: str
    facts: Mapping[str, Any]
    tables: Mapping[str, Table]
    exit: Exit
    notes: list[str] = field(default_factory=list)
    remade: Mapping[int, list[int]] = field(default_factory=dict)  # by optimizer: steps of it that a new one began
    training: str = ""  # of which of several trainings the tables are, "training 3 of 5"; empty for a whole process
    peers: Sequence[Peer] = field(default=(), repr=False, compare=False)  # all processes of the run, itself too
    whole: Process | None = field(default=None, repr=False, compare=False)  # all trainings, where this is one
    known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)  # what is computed once
    measures: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    steps = _TableOf()
    evals = _TableOf()
    models = _TableOf()
    optimizers = _TableOf()
    loaders = _TableOf()
    sites = _TableOf()
    events = _TableOf()
    samples = _TableOf()
    scalars = _TableOf()

    @property
    def thread(self) -> int:
        """Number of the training thread in its operating system process, from 1."""
        return int(self.facts.get("thread") or 1)

    @cached_property
    def trainings(self) -> list[Process]:
        """The trainings that this process made, each as a process of its own; the process itself if it made one."""
        found = [] if self.training else trainings.tables_of_each(self.tables)
        names = (f"training {number} of {len(found)}" for number in range(1, len(found) + 1))
        parts = zip(found, names, strict=True)
        return [replace(self, tables=tables, training=name, whole=self) for tables, name in parts] or [self]

    def training_of(self, optimizer: int) -> str:
        """Of several trainings the name of the one that this optimizer steps in; empty where there is only one."""
        named = (one for one in self.trainings if any(own.optimizer == optimizer for own in one.optimizations))
        return next((one.training for one in named), "") if len(self.trainings) > 1 else ""

    @property
    def rank(self) -> int:
        return int(self.facts.get("rank") or 0)

    @property
    def attempt(self) -> int:
        return int(self.facts.get("attempt") or 0)

    @property
    def world_size(self) -> int:
        """The number of ranks of its job; 1 for a process that is no rank of several."""
        return int(self.facts.get("world_size") or 1)

    @property
    def device(self) -> str:
        """Type of the device that holds the trained parameters: "cpu", "cuda", ...; "cpu" if unknown."""
        for row in self.optimizers.shared_records():
            if row["device"]:
                return str(row["device"]).split(":")[0]
        return "cpu"

    @property
    def longest(self) -> Optimization:
        """The training with the most steps, of those that there are: ValueError if nothing stepped."""
        return max(self.optimizations, key=lambda one: len(one.steps))

    @cached_property
    def optimizations(self) -> list[Optimization]:
        """One per optimizer, in the order of their first steps."""
        if len(self.steps) == 0:
            return []
        optimizer = self.steps["optimizer"]
        if not self.steps.has("optimizer"):
            return [Optimization(self, 0, self.steps)]
        known = np.unique(optimizer[np.isfinite(optimizer)])
        if len(known) == 1:
            return [Optimization(self, int(known[0]), self.steps)]
        return [Optimization(self, int(index), self.steps.where(optimizer == index)) for index in known]

    @property
    def windows(self) -> list[dict[str, Any]]:
        """The profiler windows that have a file."""
        return [row for row in self.tables["windows"].records() if row["file"]]

    def forget(self) -> None:
        """Free the columns of all tables: a run with many processes is looked at one after the other."""
        for table in self.tables.values():
            table.forget()
        for known in ("trainings", "_by_site", "_by_role"):
            self.__dict__.pop(known, None)
        for measured in (self, *self.__dict__.get("optimizations", ())):
            measured.measures.clear()

    @cached_property
    def uses_transforms(self) -> bool:
        """Whether losses or gradients were computed within a transform of torch.func."""
        asked = self.events_of("functional-gradients")
        return bool(self.events_of("transformed")) or any(row["name"] == "torch.func" for row in asked)

    def events_of(self, *kinds: str) -> list[dict[str, Any]]:
        """The events of these kinds, in order; KeyError for a kind that the schema does not have."""
        unknown = [kind for kind in kinds if kind not in schema.EVENT_KINDS]
        if unknown:
            raise KeyError(*unknown)
        return [dict(row) for row in self.events.shared_records() if row["kind"] in kinds]

    def location(self, role: str) -> Location | None:
        """The line of the script with this role (table sites); of several the first, of this training where known."""
        facts = [one.facts for one in self.optimizations] if self.training else []
        numbers = {row.get("optimizer") for row in facts}
        others = [row for row in self.optimizers.shared_records() if facts and row["optimizer"] not in numbers]
        return trainings.own_line(self.locations(role), facts, self.site, others)

    def locations(self, role: str) -> list[Location]:
        """All lines of the script with this role."""
        return self._by_role.get(role, [])

    def functions(self, *roles: str) -> set[tuple[str, str]]:
        """The functions of the script that hold a line with one of these roles, as :attr:`Location.file_function`."""
        return {one.file_function for role in roles for one in self.locations(role)}

    def module_location(self, name: str) -> Location | None:
        """The line that makes a module, named as in the tables activations and parameters: its own line, else that of
        the module that holds it. None where models of that name are made in different lines."""
        lines: dict[Any, dict[str, Any]] = {}
        for row in self.tables["modules"].shared_records():
            lines.setdefault(row["model"], {})[_plain(row["module"] or "")] = row["made_at"]
        parts = _plain(name).split(".")
        holders = [".".join(parts[:length]) for length in range(len(parts), -1, -1)]
        for holder in holders:
            sites = {made[holder] for made in lines.values() if holder in made}
            if sites:
                return self.site(sites.pop()) if len(sites) == 1 else None
        return None

    @property
    def last_seen(self) -> Location | None:
        """The line of the script at which the training thread was when it was looked at last, once a second."""
        sites = self.samples["site"]
        known = sites[np.isfinite(sites)]
        return self.site(float(known[-1])) if len(known) else None

    def loader_location(self, loader: Mapping[str, Any]) -> Location | None:
        """The line that makes a DataLoader (a row of the table loaders), else the one that iterates it."""
        return self.site(loader.get("made_at")) or self.site(loader.get("site"))

    def site(self, identifier: float | int | None) -> Location | None:
        """The line of the script with this site identifier."""
        if identifier is None or identifier != identifier:
            return None
        return self._by_site.get(int(identifier))

    @cached_property
    def _by_site(self) -> dict[int | None, Location]:
        """Lines of the script by their identifiers; of two with the same one, the first."""
        return {row["site"]: location_of(row) for row in reversed(self.sites.shared_records())}

    @cached_property
    def _by_role(self) -> dict[str | None, list[Location]]:
        found: dict[str | None, list[Location]] = {}
        for row in self.sites.shared_records():
            found.setdefault(row["role"], []).append(location_of(row))
        return found

    @cached_property
    def signals(self) -> dict[str, dict[str, Any]]:
        """What became of every signal, by name: the manifest's entry, brought up to date by the table signals."""
        entries: dict[str, dict[str, Any]] = {k: dict(v) for k, v in (self.facts.get("signals") or {}).items()}
        table = self.tables.get("signals")
        for row in table.shared_records() if table is not None else ():
            known = entries.setdefault(str(row["signal"]), {})
            if known.get("state") != "failed" or row["state"] == "failed":
                known.update({key: value for key, value in row.items() if value is not None})
        for row in self.events_of("collector-error"):  # between two statements of the table a process may have died
            if row["name"] in entries:
                text = str(row["text"] or "").strip()
                entries[row["name"]] |= {"state": "failed", "traceback": text, "reason": text.rpartition("\n")[2]}
        return entries

    def signal_of(self, column: str) -> tuple[str, dict[str, Any]] | None:
        """Name and entry of the signal that records `column` ("steps.grad_norm"); None where the run knows none."""
        name = self._recorded_by.get(column)
        return (name, self.signals[name]) if name is not None else None

    @cached_property
    def _recorded_by(self) -> dict[str, str]:
        """The first signal that records each column."""
        found: dict[str, str] = {}
        for name, state in self.signals.items():
            for column in state.get("columns", ()):
                found.setdefault(column, name)
        return found

    def lacks(self, column: str) -> str:
        """Why the run holds nothing for `column` ("steps.grad_norm"), as a clause."""
        signal = self.signal_of(column)
        what = in_words.said(column, self.tables)
        if signal is None:
            return f"not recorded: {what}"
        name, state = signal
        if state.get("reason"):
            return f"the signal {name} is off ({state['reason']})"
        return f"not seen in this run: {what}"


@dataclass(frozen=True)
class Run:
    """A whole run: how it was launched, and every process that trained in it."""

    path: Path
    manifest: Mapping[str, Any]
    processes: list[Process]
    notes: list[str] = field(default_factory=list)

    def to_pandas(self, table: str) -> pd.DataFrame:
        """The table of this name of all processes as one pandas DataFrame; KeyError if the format has no such table.

        In front of its columns stand `process` (the name of the folder), `rank` and `attempt`.
        """
        import pandas as pd

        spec = schema.table(table)
        frames = []
        for process in self.processes:
            frame = process.tables[table].to_pandas()
            frame.insert(0, "process", pd.Series([process.name] * len(frame), dtype="string"))
            frame.insert(1, "rank", process.rank)
            frame.insert(2, "attempt", process.attempt)
            frames.append(frame)
            process.forget()
        if not frames:
            return pd.DataFrame(columns=["process", "rank", "attempt", *(column.name for column in spec.columns)])
        return pd.concat(frames, ignore_index=True)


def _plain(name: str) -> str:
    """The name of a module without those of the wrappers around the model."""
    return name.removeprefix("module.").removeprefix("_orig_mod.")


def location_of(row: Mapping[str, Any]) -> Location:
    """The line of a row of the table sites."""
    return Location(row["file"] or "", row["line"] or 0, row["function"] or "", row["source"] or "")

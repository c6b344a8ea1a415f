"""Settings of two ranks' optimizers that differ: what they were made with, and the rates that tensors are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracelyze import reading
from tracelyze.analyzers.computed.ranks import last_phase

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

WITHOUT_EFFECT = {"foreach", "fused", "capturable", "differentiable", "lr", "initial_lr"}  # rates are read by step
BY_STEP = {
    "clip_max_norm": "the clip's max_norm",
    "scale": "the GradScaler's scale",
    "backwards": "the number of backwards",
}
"""Columns of steps that say what a rank makes of averaged gradients."""
GROUP = " of group "
OFTEN = 0.5  # of the steps: a setting, not a single step that was skipped
LEAST = 4  # steps that both know
APPLIED = (
    "the gradients are the same on all of them, but the optimizers make different updates of them.",
    (
        "Give the optimizers of all ranks the same class, options and state: load a checkpoint on every rank, let no "
        "setting depend on the rank, and step the scheduler on all of them."
    ),
)
TREATED = (
    "gradients are averaged in backward, and then each rank makes something else of them.",
    (
        "Let no setting depend on the rank: one max_norm for the clip, a GradScaler that is alike on all ranks, and "
        "the same number of backwards for a step."
    ),
)
"""What a finding says of it, and the repair."""


@dataclass(frozen=True)
class Apart:
    """A setting that differs between two ranks. `since`: the first optimizer step that was measured with it."""

    name: str
    own: str
    other: str
    since: int

    def shown(self, rank: int, other: int) -> str:
        """The two values, as evidence."""
        return f"{self.own} on rank {rank}, {self.other} on rank {other}"

    def words(self, rank: int, other: int) -> str:
        """One sentence for these two ranks."""
        return f"At step {self.since:,}, {self.name} is {self.own} on rank {rank} and {self.other} on rank {other}."


def apart(process: Process, other: Process) -> list[Apart]:
    """The settings in which two ranks differ: class and options (of the first group) of the only optimizer of each, or
    that of its last phase, and the rates of tensors that both hold."""
    own, theirs = _options(process), _options(other)
    differing = [
        Apart(name, value_in(own, name), value_in(theirs, name), 1)
        for name in sorted(own.keys() | theirs.keys())
        if value_in(own, name) != value_in(theirs, name)
    ]
    return differing + _rates_apart(process, other)


def apart_by_step(process: Process, other: Process) -> list[Apart]:
    """What two ranks whose gradients a wrapper averages do differently with them, at most steps that both made."""
    if not (_averages(process) and _averages(other)):
        return []
    own, theirs = process.longest.steps, other.longest.steps
    found: list[Apart] = []
    for column, name in BY_STEP.items():
        values = [
            {
                int(step): float(value)
                for step, value in zip(steps["step"], steps[column], strict=True)
                if value == value
            }
            for steps in (own, theirs)
        ]
        common = sorted(values[0].keys() & values[1].keys())
        unlike = [step for step in common if values[0][step] != values[1][step]]
        if len(common) >= LEAST and len(unlike) >= OFTEN * len(common):
            first = unlike[0]
            found.append(Apart(name, f"{values[0][first]:.4g}", f"{values[1][first]:.4g}", first))
    return found


def _averages(process: Process) -> bool:
    return any("DistributedDataParallel" in str(row["name"]) for row in process.models.records())


def options_of(row: dict[str, Any]) -> dict[str, Any]:
    """The options of an optimizer by name; those of further groups, where they differ, as `name of group 2`."""
    options = reading.parse_object(row["options"])
    further = reading.parse_object(f'{{"groups": {row.get("other_options") or "[]"}}}').get("groups", [])
    for number, group in enumerate(further if isinstance(further, list) else [], 2):
        if isinstance(group, dict):
            options |= {f"{name}{GROUP}{number}": value for name, value in group.items()}
    return options


def value_in(options: Mapping[str, str], name: str) -> str:
    """An option of these; a group that says nothing of its own has that of the first."""
    return options.get(name, options.get(name.partition(GROUP)[0], "none"))


def _options(process: Process) -> dict[str, str]:
    last = last_phase.of(process)
    row = dict(last.facts) if last is not None else {}
    options = {"class": row["name"], **options_of(row)} if row else {}
    return {name: str(value) for name, value in options.items() if name.partition(" ")[0] not in WITHOUT_EFFECT}


def _rates_apart(process: Process, other: Process) -> list[Apart]:
    """The first measured step at which a tensor has two rates, and those of its first such tensor."""
    own, theirs = _rates(process), _rates(other)
    for step, name in sorted(own.keys() & theirs.keys()):
        if own[step, name] != theirs[step, name]:
            return [Apart("lr", f"{own[step, name]:.4g}", f"{theirs[step, name]:.4g}", step)]
    return []


def _rates(process: Process) -> dict[tuple[int, str], float]:
    rows = last_phase.parameters(process)
    return {(int(row["step"]), str(row["parameter"])): float(row["lr"]) for row in rows if row["lr"] is not None}

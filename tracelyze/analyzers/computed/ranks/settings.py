"""Settings of two ranks' optimizers that differ: what they were made with, and the rates that tensors are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracelyze import reading

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

WITHOUT_EFFECT = {"foreach", "fused", "capturable", "differentiable", "lr", "initial_lr"}  # rates are read by step


@dataclass(frozen=True)
class Apart:
    """A setting that differs between two ranks. `since`: the first optimizer step that was measured with it."""

    name: str
    own: str
    other: str
    since: int

    def words(self, rank: int, other: int) -> str:
        """One sentence for these two ranks."""
        return f"At step {self.since:,}, {self.name} is {self.own} on rank {rank} and {self.other} on rank {other}."


def apart(process: Process, other: Process) -> list[Apart]:
    """Of the only optimizer of each: class, options of the first group, and the rates of tensors that both hold."""
    own, theirs = _options(process), _options(other)
    differing = [
        Apart(name, own.get(name, "none"), theirs.get(name, "none"), 1)
        for name in sorted(own.keys() | theirs.keys())
        if own.get(name) != theirs.get(name)
    ]
    return differing + _rates_apart(process, other)


def _options(process: Process) -> dict[str, str]:
    for row in process.optimizers.records():
        options = {"class": row["name"], **reading.parse_object(row["options"])}
        return {name: str(value) for name, value in options.items() if name not in WITHOUT_EFFECT}
    return {}


def _rates_apart(process: Process, other: Process) -> list[Apart]:
    """The first measured step at which a tensor has two rates, and those of its first such tensor."""
    own, theirs = _rates(process), _rates(other)
    for step, name in sorted(own.keys() & theirs.keys()):
        if own[step, name] != theirs[step, name]:
            return [Apart("lr", f"{own[step, name]:.4g}", f"{theirs[step, name]:.4g}", step)]
    return []


def _rates(process: Process) -> dict[tuple[int, str], float]:
    rows = process.tables["parameters"].records()
    return {(int(row["step"]), str(row["parameter"])): float(row["lr"]) for row in rows if row["lr"] is not None}

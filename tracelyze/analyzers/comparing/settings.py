"""Which settings of two recorded runs differ: command, optimizers, loaders, versions, machine, environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from tracelyze import reading
from tracelyze.analyzers.recorded.run import Process, Run
from tracelyze.comparison import SettingChange

_VERSIONS: Final = ("python", "torch", "cuda", "cudnn", "nccl", "tracelyze_version")
_MACHINE: Final = ("platform", "cpus", "threads", "world_size", "host_memory_bytes")
_OF_SCHEDULES: Final = ("name", "horizon", "base_lr", "mode")
_NOT_SETTINGS: Final = (
    "site",
    "backward_site",
    "made_at",
    "optimizer",
    "loader",
    "model",
    "step_defined_at",
    "read_by",
    "collated_by",
    "opened_at",
    "shares_with",
    "options",
    "other_options",
)
_KINDS: Final = ("class", "dataset")
"""What an optimizer or a loader is known by."""
Settings = dict[tuple[str, str, str], str]
"""Group, the optimizer or loader that it belongs to (empty: none), and name of each setting."""
NOT_THERE: Final = "not set"
NONE: Final = "none"
_WORDS: Final = {
    "name": "class",
    "groups": "parameter groups",
    "parameters": "tensors of parameters",
    "elements": "parameters",
    "lr": "learning rate",
    "length": "batches per epoch",
    "horizon": "length in its steps",
    "base_lr": "base rate",
    "iterable": "iterable dataset",
}
"""Columns and options whose names say less than words do; the others are named as torch names them."""
_LONGEST: Final = 400
_MOST: Final = 4


def setting_changes(a: Run, b: Run) -> list[SettingChange]:
    """The settings that differ, by group."""
    before, after = _settings(a), _settings(b)
    for object_ in dict.fromkeys(key[:2] for key in (*before, *after) if key[1]):
        _compared(object_, before, after)
    changes = {key: (before.get(key, NOT_THERE), after.get(key, NOT_THERE)) for key in (*before, *after)}
    return [
        SettingChange(group, f"{of}: {name}" if of and name else of or name, *sides)
        for (group, of, name), sides in changes.items()
        if sides[0] != sides[1]
    ]


def _compared(of: tuple[str, str], before: Settings, after: Settings) -> None:
    """Leaves what two optimizers or loaders can differ in.

    One that only a side has is one change, not one for each of its options, and options that only one of two kinds
    of optimizers has show no change.
    """
    one, two = ({key for key in side if key[:2] == of} for side in (before, after))
    if one and two:
        kind = (*of, _WORDS["name"])
        different = before.get(kind) != after.get(kind)
        gone = (one ^ two) if different else set()
        named = {}
    else:
        gone = one | two
        side = before if one else after
        named = {(*of, ""): ", ".join(side[key] for key in side if key in gone and key[2] in _KINDS)}
    for side, there in ((before, one), (after, two)):
        for key in gone:
            side.pop(key, None)
        side.update({key: said if there else NONE for key, said in named.items()})


def lead(run: Run) -> Process | None:
    """The process that speaks for the run: of those with most steps the one of the lowest rank."""
    return max(run.processes, key=lambda process: (len(process.steps), -process.rank), default=None)


def _settings(run: Run) -> Settings:
    process = lead(run)
    command = run.manifest.get("command") or (process.facts.get("argv") if process else None) or []
    settings: Settings = {("command", "", "command line"): " ".join(map(str, command))} if command else {}
    if process is None:
        return settings
    facts = process.facts
    settings |= {("versions", "", name): _text(facts[name]) for name in _VERSIONS if facts.get(name) is not None}
    settings |= {("machine", "", name): _text(facts[name]) for name in _MACHINE if facts.get(name) is not None}
    device = facts.get("device")
    if isinstance(device, Mapping):
        settings |= {("machine", "", f"device {name}"): _text(value) for name, value in device.items()}
    environment = facts.get("environment")
    if isinstance(environment, Mapping):
        settings |= {("environment", "", str(name)): _text(value) for name, value in environment.items()}
    rows = list(process.tables["optimizers"].records())
    settings |= _rows(rows, "optimizer", "optimizer")
    settings |= _schedules(process)
    fed = process.steps["loader"]
    numbers, counts = np.unique(fed[np.isfinite(fed)], return_counts=True)
    use = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    loaders = sorted(process.loaders.records(), key=lambda row: -use.get(row["loader"], 0))
    training = [row for row in loaders if row["loader"] in use]
    settings |= _rows(training, "loader", "training loader")
    return settings | _rows([row for row in loaders if row["loader"] not in use], "loader", "other loader")


def _schedules(process: Process) -> Settings:
    """What the last row of each scheduler says of its settings, in the order in which they were made."""
    last = {row["scheduler"]: row for row in process.tables["schedules"].records()}
    rows = [{name: row[name] for name in _OF_SCHEDULES} for _, row in sorted(last.items()) if not row["inner"]]
    return _rows(rows, "schedule", "schedule")


def _rows(rows: Sequence[Mapping[str, Any]], group: str, noun: str) -> Settings:
    """The settings in some rows of a table; options that are JSON are listed one by one."""
    settings: Settings = {}
    for place, row in enumerate(rows[:_MOST]):
        of = f"{noun} {place + 1}" if place else noun
        options = _options(row["options"]) if row.get("options") else {}
        plain = {name: value for name, value in row.items() if name not in _NOT_SETTINGS and value is not None}
        settings |= {(group, of, _WORDS.get(name, name)): _text(value) for name, value in (plain | options).items()}
    return settings


def _options(text: str) -> dict[str, Any]:
    return reading.parse_object(text) or {"options": text}


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:_LONGEST]

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
_NOT_SETTINGS: Final = ("site", "backward_site", "made_at", "optimizer", "loader", "model")
_OPTIMIZER: Final = ("optimizer", "name")
Settings = dict[tuple[str, str], str]
NOT_THERE: Final = "not set"
_LONGEST: Final = 400
_MOST: Final = 4


def setting_changes(a: Run, b: Run) -> list[SettingChange]:
    """The settings that differ, by group."""
    before, after = _settings(a), _settings(b)
    if before.get(_OPTIMIZER) != after.get(_OPTIMIZER):
        _keep_common(before, after)
    return [
        SettingChange(group, name, before.get((group, name), NOT_THERE), after.get((group, name), NOT_THERE))
        for group, name in dict.fromkeys((*before, *after))
        if before.get((group, name)) != after.get((group, name))
    ]


def _keep_common(before: Settings, after: Settings) -> None:
    """Options that only one of two kinds of optimizers has show no change: leaves those of both."""
    options = {key for key in (*before, *after) if key[0] == _OPTIMIZER[0]}
    for key in options - (before.keys() & after.keys()):
        before.pop(key, None)
        after.pop(key, None)


def lead(run: Run) -> Process | None:
    """The process that speaks for the run: of those with most steps the one of the lowest rank."""
    return max(run.processes, key=lambda process: (len(process.steps), -process.rank), default=None)


def _settings(run: Run) -> Settings:
    process = lead(run)
    command = run.manifest.get("command") or (process.facts.get("argv") if process else None) or []
    settings = {("command", "command line"): " ".join(map(str, command))} if command else {}
    if process is None:
        return settings
    facts = process.facts
    settings |= {("versions", name): _text(facts[name]) for name in _VERSIONS if facts.get(name) is not None}
    settings |= {("machine", name): _text(facts[name]) for name in _MACHINE if facts.get(name) is not None}
    device = facts.get("device")
    if isinstance(device, Mapping):
        settings |= {("machine", f"device {name}"): _text(value) for name, value in device.items()}
    environment = facts.get("environment")
    if isinstance(environment, Mapping):
        settings |= {("environment", str(name)): _text(value) for name, value in environment.items()}
    rows = list(process.tables["optimizers"].records())
    settings |= _rows(rows, "optimizer", "optimizer")
    fed = process.steps["loader"]
    numbers, counts = np.unique(fed[np.isfinite(fed)], return_counts=True)
    use = dict(zip(numbers.tolist(), counts.tolist(), strict=True))
    loaders = sorted(process.loaders.records(), key=lambda row: -use.get(row["loader"], 0))
    training = [row for row in loaders if row["loader"] in use]
    settings |= _rows(training, "loader", "training loader")
    return settings | _rows([row for row in loaders if row["loader"] not in use], "loader", "other loader")


def _rows(rows: Sequence[Mapping[str, Any]], group: str, noun: str) -> Settings:
    """The settings in some rows of a table; options that are JSON are listed one by one."""
    settings: Settings = {}
    for place, row in enumerate(rows[:_MOST]):
        prefix = f"{noun} {place + 1}: " if place else "" if noun == group else f"{noun}: "
        for name, value in row.items():
            if name == "options" and value:
                settings |= {(group, prefix + key): _text(item) for key, item in _options(value).items()}
            elif name not in _NOT_SETTINGS and value is not None:
                settings[group, prefix + name] = _text(value)
    return settings


def _options(text: str) -> dict[str, Any]:
    return reading.parse_object(text) or {"options": text}


def _text(value: object) -> str:
    return (value if isinstance(value, str) else json.dumps(value, default=str))[:_LONGEST]

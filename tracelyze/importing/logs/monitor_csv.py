"""monitor.csv of Stable-Baselines3: the return, length and time of every episode."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path

from tracelyze.errors import Cause, InputError
from tracelyze.importing.reading import Numbers, number, text_of
from tracelyze.importing.run_builder import Log

_HEADER = ("r", "l", "t")


def looks_so(head: str) -> bool:
    """Whether a file begins with Monitor's comment and header."""
    lines = head.split("\n", 2)
    return len(lines) > 1 and lines[0].startswith("#{") and tuple(lines[1].strip().split(",")[:3]) == _HEADER


def read(file: Path) -> Log:
    """A row per episode: `reward` is its return, `step` the environment's steps so far."""
    comment, _, body = text_of(file).partition("\n")
    try:
        about = json.loads(comment.lstrip("#"))
    except ValueError:
        about = {}
    rows: list[Numbers] = []
    records = [r for r in csv.DictReader(io.StringIO(body, newline="")) if r.get("r") and r.get("l")]
    values = [(number(record["r"]), number(record["l"]), number(record.get("t") or "")) for record in records]
    episodes = [(reward, length, time) for reward, length, time in values if reward is not None and length is not None]
    for done, (reward, length, time) in zip(itertools.accumulate(t[1] for t in episodes), episodes, strict=True):
        rows.append({"step": done, "elapsed_s": time, "reward": reward, "episode_length": length})
    if not rows:
        raise InputError(
            Cause.NOTHING_LOGGED, f"{file}: holds no episodes; give the monitor.csv of a training that ended one"
        )
    environment = about.get("env_id") if isinstance(about, dict) else None
    return Log("sb3-monitor", file, rows, {"environment": environment} if environment else {})

"""Console logs with a step and a loss in a line: torchtitan, Megatron-LM, NeMo, nanoGPT, modded-nanogpt, llm.c, others.

A line counts if it numbers a step and names a loss. Names and numbers are found as these programs write them (`loss:
1.2`, `lm loss: 1.2E+00`, `loss 1.2`, `loss=1.2`); a pattern of the user's takes the place of that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tracelyze.errors import Cause, InputError
from tracelyze.importing import columns
from tracelyze.importing.logs.failures import Ending
from tracelyze.importing.reading import Numbers, lines_of, number
from tracelyze.importing.run_builder import Log

_NUMBER = r"[-+]?(?:\d[\d,_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan\b|inf(?:inity)?\b|nan(?=[a-z]))"
_NAME = r"[A-Za-z][\w./-]*(?: [A-Za-z(][\w./)]*){0,4}"
_PAIR = re.compile(rf"(?<![\w.])({_NAME}?)\s*[:=]\s*({_NUMBER})", re.IGNORECASE)
_SPACED = re.compile(
    rf"\b((?:(?:train|val|valid|validation|test|lm|eval) )?loss|grad[_ ]norm|norm|lr)\s+({_NUMBER})", re.IGNORECASE
)
_STEP = re.compile(
    r"(?<![\w/])(?:global[_ ]step|step|iteration|iter|it)\b\s*[:=]?\s*\[?\s*"
    r"(\d[\d,]*)(?:\.0+)?(?![\d,]*\.?\d)(?:\s*/\s*(\d+))?",
    re.IGNORECASE,
)
_LLMC = re.compile(r"^s:(\d+) ")
_RANK = re.compile(r"^\[?(?:rank|default)?(\d+)\]?:")
_ALIASES: Mapping[str, str] = {"trl": "train_loss", "tel": "val_loss", "norm": "grad_norm", "lm loss value": "val_loss"}
# What tells these programs apart, by a line of their own.
_PROGRAMS: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("torchtitan", "torchtitan", re.compile(r"\bstep:\s*\d+\s+loss:\s*\S+\s+grad_norm:")),
    ("megatron", "Megatron-LM", re.compile(r"\biteration\s+\d+/\s*\d+ \|.*\bconsumed samples:")),
    ("nemo", "NeMo", re.compile(r"\breduced_train_loss\b|\btrain_step_timing in s\b")),
    ("modded-nanogpt", "modded-nanogpt", re.compile(r"^step:\d+/\d+ (?:train|val)_loss:")),
    (
        "nanogpt",
        "nanoGPT",
        re.compile(r"^iter \d+: loss \S+, time |^step \d+: train loss \S+, val loss "),
    ),
    ("llm.c", "llm.c", re.compile(r"^s:\d+ t[re]l:|^step\s+\d+/\d+ \| .*loss ")),
)
Reader = Callable[[str], Numbers]


def looks_so(head: str) -> bool:
    """Whether a line of the beginning has a step and a loss, or a program of the list wrote it."""
    return any(_told(values) for values in map(values_of, head.splitlines()))


def program_of(line: str) -> tuple[str, str] | None:
    """Kind and name of the program that writes such lines."""
    return next(((kind, name) for kind, name, mark in _PROGRAMS if mark.search(line)), None)


def values_of(line: str) -> Numbers:
    """Step and values in a line by name; empty if it has no step. `1,234` is a number, `(12.3%)` belongs to none."""
    step = _LLMC.match(line) or _STEP.search(line)
    if step is None:
        return {}
    found: Numbers = {}
    for match in _SPACED.finditer(line):
        found[_named(match[1])] = number(match[2])
    for match in _PAIR.finditer(line):
        found[_named(match[1])] = number(match[2])
    whole = found.get("global_step")  # an iteration may begin anew with every epoch
    return {**found, "step": number(step[1]) if whole is None else whole}


def by_pattern(pattern: str) -> Reader:
    """A reader of lines by a regular expression with the named groups `step` and `loss`, and others as they are called.

    InputError for a pattern that is none or lacks these groups.
    """
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise InputError(Cause.WRONG_OPTION, f"--pattern {pattern!r}: {error}; give a regular expression") from None
    if not {"step", "loss"} <= compiled.groupindex.keys():
        raise InputError(
            Cause.WRONG_OPTION, f"--pattern {pattern!r}: lacks a group; write (?P<step>\\d+) and (?P<loss>\\S+)"
        )

    def values(line: str) -> Numbers:
        match = compiled.search(line)
        return {name: number(text) for name, text in match.groupdict().items() if text} if match else {}

    return values


def read(file: Path, pattern: str | None = None) -> Log:
    """Steps, losses and how it ended. Of several ranks that print, the first one counts."""
    values_in = values_of if pattern is None else by_pattern(pattern)
    rows: list[Numbers] = []
    ending, program, spoken_by = Ending(), None, None
    for line in lines_of(file):
        values = values_in(line)
        if not _told(values):
            ending.read(line)
            continue
        rank = _RANK.match(line)
        spoken_by = spoken_by or (rank[0] if rank else "")
        if spoken_by == (rank[0] if rank else ""):
            rows.append(values)
            program = program or program_of(line)
            ending.trains_on()
    last = max((row["step"] or 0.0 for row in rows), default=0.0)
    events = ending.events(int(last))
    if not rows and not events:
        wanted = "matches the pattern" if pattern else "has a step and a loss"
        raise InputError(
            Cause.OTHER_CONTENT,
            f"{file}: not a log that tracelyze reads: no line {wanted}; give --pattern for its lines",
        )
    kind, name = program or ("text", "")
    return Log(kind, file, rows, {"program": name} if name else {}, (), {"events": events})


def _told(values: Numbers) -> bool:
    """Whether a line numbers a step and has the loss of a training or of an evaluation, or its gradient norm."""
    return values.get("step") is not None and any(
        value is not None and columns.meaning(name).column in ("loss", "grad_norm") for name, value in values.items()
    )


def _named(name: str) -> str:
    plain = re.sub(r"\s*\([^)]*\)$", "", name.strip())
    return _ALIASES.get(plain.lower(), plain)

"""Console logs with a step and a loss in a line: torchtitan, Megatron-LM, NeMo, DeepSpeed, nanoGPT, timm, verl, others.

A line counts if it numbers a step or an epoch and names a loss or a reward. Names and numbers are found as these
programs write them (`loss: 1.2`, `lm loss: 1.2E+00`, `loss 1.2`, `loss=1.2`, `'loss': 1.2`); a pattern of the user's
takes the place of that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from tracelyze.errors import Cause, InputError
from tracelyze.importing import columns
from tracelyze.importing.logs.blocks import joined
from tracelyze.importing.logs.failures import Ending
from tracelyze.importing.numbering import IN_EPOCH
from tracelyze.importing.reading import Numbers, lines_of, number
from tracelyze.importing.run_builder import Log

_NUMBER = r"[-+]?(?:\d[\d,_]*\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|nan\b|inf(?:inity)?\b|nan(?=[a-z]))"
_NAME = r"[A-Za-z][\w./@-]*(?: [A-Za-z(][\w./)]*){0,4}"
# `loss: 1.2`, `lm loss: 1.2E+00`, `'loss': 1.2`, `"grad_norm": tensor(0.5`
_PAIR = re.compile(rf"(?<![\w.])({_NAME}?)[\"']?\s*[:=]\s*(?:[\"'\[]|np\.\w+\(|tensor\()?\s*({_NUMBER})", re.IGNORECASE)
# `train loss 1.2`, `norm 0.5`, `lr 1e-3`
_SPACED = re.compile(
    rf"\b((?:(?:train|val|valid|validation|test|lm|eval) )?loss|grad[_ ]norm|gnorm|norm|lr)\s+({_NUMBER})",
    re.IGNORECASE,
)
# `step: 12`, `iteration 5/ 1000`, `'global_step': 40`, `iter 7`; not the 1.5 of `iter 1.5 s`
_STEP = re.compile(
    r"(?<![\w/])(?:global[_ ]step|(?:[a-z]+_)?num_updates|steps?|iteration|iter|it)\b[\"']?\s*[:=]?\s*[\[\"']?\s*"
    r"(\d[\d,]*)(?:\.0+)?(?![\d,]*\.?\d)(?:\s*/\s*(\d+))?",
    re.IGNORECASE,
)
# `epoch 3`, `'epoch': 0.25`, `Epoch(train) [2]`
_EPOCH = re.compile(r"(?<![\w/])epoch\b[\"']?(?:\(train\))?[\s:=\[]{0,4}(\d+(?:\.\d+)?)", re.IGNORECASE)
# `Epoch: [0][ 10/5005]`, `Train: 0 [ 50/500 (10%)]`, `Train Epoch: 1 [6400/60000 (11%)]`: a place within an epoch.
_WITHIN = re.compile(r"(?:\bepoch(?:\(train\))?|\btrain)\s*:?\s*\[?\s*(\d+)\]?\s*\[\s*(\d+)\s*/\s*(\d+)", re.IGNORECASE)
# `10%|# | 10/100 [00:01<00:09`: tqdm's bar; what it shows beside it stays until it is replaced.
_BAR = re.compile(r"\|\s*(\d+)/(\d+)\s*\[[\d:?]+<")
# `32/32 ━━━━━━ 0s 2ms/step - loss: 0.5`, `32/32 [======] - 0s - loss: 0.5`: Keras' bar.
_KERAS = re.compile(r"^\s*(\d+)/(\d+) \S*[━=]")
# `Epoch 2/10`, and nothing else in the line, as Keras writes it.
_ALONE = re.compile(r"^\s*Epoch (\d+)(?:/\d+)?\s*$")
# `s:10 trl:3.2`: llm.c.
_LLMC = re.compile(r"^s:(\d+) ")
# `[rank0]:`, `[default1]:`, `0:`: which rank printed the line.
_RANK = re.compile(r"^\[?(?:rank|default)?(\d+)\]?:")
# `Test: [ 0/50]`, `INFO - valid (`, `validate step:`, `| valid |`, `Epoch(val)`: an evaluation.
_EVALUATED = re.compile(
    r"(?:^|[\]:|-]\s|\bINFO\s+)\W{0,3}(?:test|val|valid|validation|eval|evaluation)(?: set| epoch| step \d+)?\s*[:\[|(]"
    r"|\bvalidate step:|\|\s*(?:valid|test)\s*\||\bEpoch\(val\)",
    re.IGNORECASE,
)
# `| train | epoch 001`: fairseq's line on an epoch that is over.
_MEAN = re.compile(r"\|\s*train\s*\|")
# `Loss 0.52 (0.61)`: the loss of this batch, and in brackets that of all batches so far.
_RUNNING = re.compile(rf"\bloss\s*:?\s*{_NUMBER}\s*\(\s*({_NUMBER})\)", re.IGNORECASE)
_ALIASES: Mapping[str, str] = {"trl": "train_loss", "tel": "val_loss", "norm": "grad_norm", "lm loss value": "val_loss"}
# Each of these programs is recognised by a line of its own.
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
    return any(_is_measured(values) for values in map(values_of, joined(head.splitlines())))


def program_of(line: str) -> tuple[str, str] | None:
    """Kind and name of the program that writes such lines."""
    return next(((kind, name) for kind, name, mark in _PROGRAMS if mark.search(line)), None)


def values_of(line: str) -> Numbers:
    """Step and values in a line by name; empty if it has no step. `1,234` is a number, `(12.3%)` belongs to none."""
    place = _place(line)
    if not place and not _EVALUATED.search(line):
        return {}
    found = _measured(line)
    whole = found.get("global_step")  # an iteration may begin anew with every epoch
    return {**found, **place} if whole is None else {**found, "step": whole}


def _measured(line: str) -> Numbers:
    """The values that a line names, wherever in a training it stands."""
    found: Numbers = {}
    for match in [*_SPACED.finditer(line), *_PAIR.finditer(line)]:
        name, value = _named(match[1]), number(match[2])
        found[name] = value / 1e3 if value is not None and _in_milliseconds(match) else value
    if "loss train" in found and "val" in found:
        found["val_loss"] = found.pop("val")
    return _of_validation(line, found) if _EVALUATED.search(line) else found


def _in_milliseconds(match: re.Match[str]) -> bool:
    """Whether a duration is given in milliseconds: `time per iteration (ms): 2134.1`, `iter time: 300 ms`."""
    behind = match.string[match.end() : match.end() + 4].strip()
    return "time" in match[1] and (match[1].endswith("(ms)") or re.match(r"ms\b", behind) is not None)


def _place(line: str) -> Numbers:
    """Where in a training the line stands: its step, its epoch, and how many steps the line says that an epoch has."""
    within, epoch, keras = _WITHIN.search(line), _EPOCH.search(line), _KERAS.match(line)
    if within:
        return {"epoch": number(within[1]), "step": number(within[2]), IN_EPOCH: number(within[3])}
    step = None if keras else _LLMC.match(line) or _STEP.search(line) or _BAR.search(line)
    place: Numbers = {"epoch": number(epoch[1])} if epoch else {}
    if step:
        place["step"] = number(step[1])
        if epoch and step.re is not _LLMC and step[2]:
            place[IN_EPOCH] = number(step[2])
    return place


def _of_validation(line: str, found: Numbers) -> Numbers:
    """The values of a line that speaks of an evaluation; of a running mean the value, so that the last one counts."""
    mean = _RUNNING.search(line)
    numbers = {name: number(mean[1]) if mean and name.lower() == "loss" else value for name, value in found.items()}
    return {
        f"val {name}" if columns.meaning(name).column == "loss" and not columns.meaning(name).explicit else name: value
        for name, value in numbers.items()
    }


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
    rows, means = _Rows(), list[Numbers]()
    ending, program, spoken_by = Ending(), None, None
    for line in lines_of(file) if pattern else joined(lines_of(file)):
        rows.note(line)
        values = values_in(line)
        if not _is_measured(values):
            values = rows.means_of_epoch(line)
        if not values:
            ending.read(line)
            continue
        rank = _RANK.match(line)
        spoken_by = spoken_by or (rank[0] if rank else "")
        if spoken_by == (rank[0] if rank else ""):
            if _MEAN.search(line):
                means.append(values)
            else:
                rows.add(values, line)
            program = program or program_of(line)
            ending.trains_on()
    found = rows.rows
    if not any(columns.meaning(name).column == "loss" for row in found for name in row if name.startswith("loss")):
        found = sorted([*found, *means], key=lambda row: row.get("step") or 0.0) if means else found
    last = max((row.get("step") or 0.0 for row in found), default=0.0)
    events = ending.events(int(last))
    if not found and not events:
        wanted = "matches the pattern" if pattern else "has a step and a loss"
        raise InputError(
            Cause.OTHER_CONTENT,
            f"{file}: not a log that tracelyze reads: no line {wanted}; give --pattern for its lines",
        )
    kind, name = program or ("text", "")
    return Log(kind, file, found, {"program": name} if name else {}, (), {"events": events})


class _Rows:
    """The rows of a log, and what a line leaves for those after it: its step, its epoch, what a progress bar shows."""

    def __init__(self) -> None:
        self.rows: list[Numbers] = []
        self._epoch: float | None = None
        self._place: Numbers = {}
        self._shown: Numbers = {}
        self._evaluating = False

    def note(self, line: str) -> None:
        """Keras writes the epoch on a line of its own."""
        found = _ALONE.match(line)
        if found:
            self._epoch = number(found[1])

    def epoch_ended(self, line: str) -> bool:
        """Whether this is Keras' bar at the end of an epoch: before that, its numbers are means of a part of it."""
        bar = _KERAS.match(line)
        return bar is not None and bar[1] == bar[2] and self._epoch is not None

    def means_of_epoch(self, line: str) -> Numbers:
        """The values of Keras' bar at the end of an epoch, which numbers no step; empty for any other line."""
        values = _measured(line) if self.epoch_ended(line) else {}
        return values if _speaks(values) else {}

    def add(self, values: Numbers, line: str) -> None:
        """Take the values of a line."""
        evaluated = _EVALUATED.search(line) is not None
        if self.epoch_ended(line):
            values = {name: value for name, value in values.items() if name != "step"} | {"epoch": self._epoch}
        if "step" not in values and "epoch" not in values:
            values |= self._place
            if self._evaluating and self.rows:  # a batch of an evaluation: the last one holds the mean
                self.rows.pop()
        elif not evaluated:
            self._place = {name: values[name] for name in ("step", "epoch", IN_EPOCH) if name in values}
        self._evaluating = evaluated and "step" not in values
        if _BAR.search(line) or "reduced_train_loss" in values:  # NeMo goes on showing it, too
            values = self._renewed(values)
        if "step" in values or "epoch" in values:
            self.rows.append(values)
            self._evaluating = evaluated

    def _renewed(self, values: Numbers) -> Numbers:
        """The values without evaluations that a bar goes on showing; a bar that is drawn again replaces its row."""
        again = {
            n for n, v in values.items() if columns.meaning(n).phase == "eval" and repr(self._shown.get(n)) == repr(v)
        }
        if (
            self.rows
            and self._shown.get("step") == values.get("step")
            and self._shown.get("epoch") == values.get("epoch")
        ):
            self.rows.pop()
            again = set()
        self._shown = dict(values)
        return {name: value for name, value in values.items() if name not in again}


def _is_measured(values: Numbers) -> bool:
    """Whether a line says where it stands, and the loss of a training or of an evaluation, a gradient norm or a reward.

    A line on an evaluation says it by standing behind one that does.
    """
    placed = values.get("step") is not None or values.get("epoch") is not None
    evaluated = any(columns.meaning(n).column == "loss" and columns.meaning(n).phase != "train" for n in values)
    return (placed or evaluated) and _speaks(values)


def _speaks(values: Numbers) -> bool:
    return any(
        value is not None and (columns.meaning(name).column in ("loss", "grad_norm") or columns.is_reward(name))
        for name, value in values.items()
    )


def _named(name: str) -> str:
    plain = re.sub(r"\s*\([^)]*\)$", "", name.strip())
    return _ALIASES.get(plain.lower(), plain)

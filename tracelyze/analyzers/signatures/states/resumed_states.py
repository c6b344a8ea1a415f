"""A training that goes on from a file without all of its state: what the first step after it shows."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.evidence.editing import own_loads, own_names, own_saves, own_statement
from tracelyze.analyzers.signatures.states import guarded_loads
from tracelyze.diagnosis import Evidence, Finding, Mark
from tracelyze.formatting import number

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

Row = dict[str, Any]


class How(NamedTuple):
    """How it was seen that states were not restored, and what to do; both may name what stands in `finding`."""

    said: str
    fix: str = "Save the state of the optimizer along with the weights, and restore both."


class Lost(NamedTuple):
    """States that were not restored, and how that was seen."""

    names: list[str]
    how: How
    severity: Any = "warning"


IN_FILE: Final = How(
    "{file} holds the state of the {names}, but it was not restored before the next step.",
    "Restore the state of the {names} as well, right where the weights are restored.",
)
HALF_IN_FILE: Final = How(
    "{file} holds the state of the scheduler, which was not restored before the next step, and no optimizer state.",
    "Save the state of the optimizer as well, and restore both.",
)
NOT_IN_FILE: Final = How("{file} records how far training got, but holds no optimizer state.")
NEITHER_IN_FILE: Final = How(
    "{file} records how far training got, but holds neither optimizer nor scheduler state.",
    "Save the states of the optimizer and the scheduler along with the weights, and restore all of them.",
)
RENEWED: Final = How(
    "An optimizer restored its state from {file}, but then another one was made, which steps in its place with no "
    "state at all.",
    "Make the optimizer first, then restore its state, and do not make another one after that.",
)
ANEW: Final = How(
    "{file} holds no scheduler state. {anew} starts at its first step, while the optimizer state comes from the middle "
    "of a schedule: its learning rate is {restored}, its initial one was {initial}.",
    "Save the state of the scheduler along with that of the optimizer, and restore both.",
)
RATES: Final = How(
    "After resuming, the learning rate repeats that of the first steps of training, although the optimizer was "
    "restored with a rate of {restored}: epochs, or steps, are counted from zero again.",
    "Restore the epoch or step number that the learning rate is computed from.",
)
UNREAD: Final = How(
    "{file} holds {unread}, which the script writes but never reads back.",
    "Restore {unread} from the file as well.",
)
BARE: Final = How(
    "{file} holds only weights. They were loaded, trained with a newly made optimizer, and written to the same file "
    "again."
)

_ENDS_LOW: Final = ("CosineAnnealingLR", "OneCycleLR", "PolynomialLR")
_STATELESS: Final = ("SGD",)  # without momentum
_AVERAGE: Final = re.compile(r"(?:^|_)ema(?:_|$)|averag|shadow", re.IGNORECASE)
_PROGRESS: Final = re.compile(r"^(?:\w*_)?(?:epochs?|steps?|iter(?:ation)?s?)$", re.IGNORECASE)
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")
_KEYS: Final = {  # what the states are called in files
    "optimizer": re.compile(r"opt(?!ion)|adam|sgd", re.IGNORECASE),
    "scheduler": re.compile(r"sched", re.IGNORECASE),
    "scaler": re.compile(r"scaler|\bamp\b", re.IGNORECASE),
}
_TITLES = {
    "average": "Training resumes from a checkpoint without the average of its weights",
    "epoch counter": "Training resumes from a checkpoint but counts from zero again",
}
MADE: Final = own_names.OPTIMIZER_LINE
ACCELERATE: Final = (
    "Pass the scheduler to accelerator.prepare() along with its optimizer, or register it before load_state(). "
    "save_state() leaves out everything else."
)
OPTIMIZER_FIRST: Final = (
    " Restore the optimizer first: its state holds the learning rate, which restoring the scheduler does not set."
)
REGISTER: Final = "accelerator.register_for_checkpointing(scheduler)  # before load_state() and save_state()"
_OF_ONE: Final = ["param_groups", "state"]  # the keys of a file that holds the state of an optimizer and no more


def first_steps(process: Process) -> dict[tuple[str, int], Row]:
    """What the first step after each file showed, by the file's name and the step before."""
    events = process.events_of("resumed")
    return {(row["name"], facts["step"]): facts for row in events if (facts := json.loads(row["text"]))}


def nothing_fitted(process: Process, row: Row) -> bool:
    """Whether no load of a model's weights between the file and the next step found a name of that model."""
    loads = [one for one in process.tables["loads"].records() if one["step"] == row["step"]]
    loads = [one for one in loads if (one["time"] or 0.0) >= (row["time"] or 0.0)]
    return bool(loads) and all(one["missing"] == one["expected"] for one in loads)


def has_state(process: Process) -> bool:
    """Whether an optimizer keeps more than its parameters: moments, momentum."""
    for row in process.optimizers.records():
        options = json.loads(row["options"] or "{}")
        if str(row["name"]) not in _STATELESS or options.get("momentum"):
            return True
    return False


def is_second_phase(process: Process, facts: Row) -> bool:
    """Whether the optimizer that steps is set for something else: a lower rate, other parameters than the file's or
    other groups of them, or another method than that of the training before it in this program. The state of other
    groups, or of another method, it cannot take in. Or the schedule of the training before it was over."""
    if not facts:
        return False
    rate, of_file = facts.get("rate"), facts.get("file_rate")
    lower = rate is not None and of_file is not None and rate < of_file
    methods = [str(one["name"]) for one in process.optimizers.records() if one["optimizer"] <= facts["optimizer"]]
    another = len(methods) > 1 and methods[-1] != methods[-2]
    others = any(facts.get(name) != facts.get(f"file_{name}") for name in ("parameters", "groups"))
    return bool(lower or another or others or _schedule_was_over(process, facts))


def _schedule_was_over(process: Process, facts: Row) -> bool:
    """Whether the optimizer before the one that steps had come to the low end of its schedule: nothing was left of it.

    What stepped on past its end goes in cycles, or holds its last rate.
    """
    rows = [row for row in process.tables["schedules"].records() if not row["inner"]]
    before = [row for row in rows if row["optimizer"] is not None and row["optimizer"] < facts["optimizer"]]
    latest = max((row["optimizer"] for row in before), default=None)
    own = [row for row in before if row["optimizer"] == latest and row["name"] in _ENDS_LOW and row["horizon"]]
    return bool(own) and own[-1]["steps"] - own[-1]["horizon"] in (0, 1)


def has_new_part(facts: Row) -> bool:
    """Whether parameters are trained that took in nothing of any file: a new head on weights from another task."""
    return bool(facts.get("fresh"))


def never_read(facts: Row) -> list[str]:
    """Averages of the weights, else numbers of epochs or steps, that the script writes into the file and never reads.

    An optimizer that had stepped before goes back a few steps, in a loop that counts on.
    """
    unread = facts.get("unread", []) if facts.get("steps") == 1 else []
    return [key for key in unread if _AVERAGE.search(key)] or [key for key in unread if _PROGRESS.search(key)]


def has_average(facts: Row) -> bool:
    """Whether an average of the weights is among what is never read."""
    return any(_AVERAGE.search(key) for key in facts.get("unread", []))


def goes_on_from_weights(process: Process, row: Row, saves: list[Row], facts: Row) -> bool:
    """Whether a training takes in the newest weights of a file, without an optimizer's state, and writes it again.

    In one process: where the optimizer is made by the line, and with the settings, of the one before. So does a
    training in stages, from one to the next.
    """
    same = [one for one in saves if one["file"] and one["file"] == row["file"]]
    before = [one["step"] for one in same if one["step"] <= row["step"]]
    again = any(one["step"] > row["step"] and not one["optimizer"] for one in same)
    if not facts.get("same_model") or has_new_part(facts) or facts.get("restored_lr") is not None or not again:
        return False
    made = {one["optimizer"]: one for one in process.optimizers.records()}
    own = made.pop(facts["optimizer"], None)
    if own is None or not before:
        return own is not None and row["step"] == 0 == len([at for at in made if at < own["optimizer"]])
    names = ("made_at", "name", "options", "parameters")
    twins = [one for at, one in made.items() if at < own["optimizer"] and all(one[n] == own[n] for n in names)]
    return bool(twins) and own["made_at"] is not None and max(before) == row["step"] > 0


def rates_repeat(process: Process, facts: Row, rates: int) -> bool:
    """Whether the rates after a file was taken in are those of the first steps again: so many different ones."""
    restored = facts.get("restored_lr")
    if restored is None or facts.get("anew"):
        return False
    lr, step = process.steps["lr"], int(facts["step"])
    before, after = _different(lr[:step]), _different(lr[step:])
    after = after[1:] if after and after[0] == restored else after
    first = after[:rates]
    return len(first) == rates and first[0] != restored and first in (before[:rates], before[1 : rates + 1])


def starts_over(process: Process, facts: Row) -> bool:
    """Whether the first rate after a file was taken in is that of the first step of all, and not the one before."""
    lr, step = process.steps["lr"], int(facts["step"])
    known = 0 < step < len(lr) and bool(np.isfinite(lr[[0, step - 1, step]]).all())
    return known and bool(lr[step] == lr[0] != lr[step - 1])


def _different(rates: Any) -> list[float]:
    """Rates in their order, each once for as long as it stays."""
    known = rates[np.isfinite(rates)]
    return [float(rate) for at, rate in enumerate(known) if not at or rate != known[at - 1]]


def _jump(process: Process, step: int, steps: int) -> float | None:
    """The loss after the step over the loss before it; None where there are too few."""
    losses = process.longest.steps["loss"] if process.optimizations else np.empty(0)
    before, after = losses[max(0, step - steps) : step], losses[step : step + steps]
    before, after = before[np.isfinite(before)], after[np.isfinite(after)]
    half = steps // 2  # of the window: some losses may be missing, or not finite
    if min(len(before), len(after)) < half or float(np.median(before)) <= 0:
        return None
    return float(np.median(after) / np.median(before))


def _begun_after(process: Process, time: float | None) -> str | None:
    """The name of the training that was the first to begin after this time, if the process made several."""
    named = [(one.steps["time"], one.training) for one in process.trainings]
    begun = [(times[0], name) for times, name in named if name and len(times) and time is not None and times[0] > time]
    return min(begun)[1] if begun else None


def finding(process: Process, row: Row, lost: Lost, facts: Row, rule: str, limits: Limits) -> Finding:
    """`row`: the file; `facts`: what the first step after it showed."""
    step = int(row["step"] or 0)
    training = _begun_after(process, row["time"])
    names = " and ".join(lost.names)
    jump = _jump(process, step, int(limits["window"]))
    evidence = [Evidence("states that were not restored", names)]
    if jump is not None:
        evidence.append(Evidence("loss after resuming over loss before", jump, "times"))
    rates = [
        number(facts[name]) if facts.get(name) is not None else "unknown" for name in ("restored_lr", "initial_lr")
    ]
    words = {"file": row["file"] or "The file", "names": names, "anew": facts.get("anew")}
    words |= {"unread": " and ".join(never_read(facts))}
    words |= {"restored": rates[0], "initial": rates[1]}
    effect = {
        "optimizer": "The optimizer starts with empty state: its first steps are as large as those of a fresh training."
        if has_state(process)
        else "The learning rate is back at its initial value.",
        "scheduler": "The learning-rate schedule starts over.",
        "average": "The average of the weights starts over.",
        "epoch counter": "Epochs, or steps, are counted from zero again.",
        "scaler": "The loss scale starts at its default, and the first steps overflow.",
    }
    effects = [effect[name] for name in lost.names if name in effect]
    effects += [f"This is {training}."] if training else []
    grown = f" The loss became {number(jump)} times as large." if jump is not None and jump > limits["jump"] else ""
    of_optimizer = next((one for one in process.optimizers.records() if one["optimizer"] == facts.get("optimizer")), {})
    read, made = process.site(row["site"]), process.site(of_optimizer.get("made_at"))
    fix = lost.how.fix.format(**words)
    written = _written(process, row) if lost.how in (NOT_IN_FILE, NEITHER_IN_FILE) else None
    whole = lost.names == ["scheduler"] and read is not None and ".load_state(" in (read.source or "")
    if whole:
        fix = ACCELERATE
    guarded = _guarded(process, lost, read, made)
    if guarded is not None:
        fix = guarded.fix
    elif lost.names[:2] == ["optimizer", "scheduler"] and lost.how is not RENEWED:
        fix += OPTIMIZER_FIRST
    states = {name: f"{name}.state_dict()" for name in lost.names}
    saved = own_saves.with_state(process, written, states, "") if written else ""
    return Finding(
        rule=rule,
        severity=lost.severity,
        confidence="likely",
        title=_TITLES.get(lost.names[0], f"Training resumes from a checkpoint without its {names} state")
        if lost.how is not RATES
        else "Training resumes from a checkpoint, but its learning rate starts over",
        summary=f"{lost.how.said.format(**words)} {' '.join(effects)}{grown}".strip(),
        fix=fix,
        fix_code=REGISTER
        if whole
        else guarded.code
        if guarded
        else own_loads.in_example(
            _code(lost, (row["keys"] or "").split(), never_read(facts), _made(process, made), saved), process, read
        ),
        first_step=1 if training else step + 1,
        first_second=row["time"],
        trainings=[training] if training else [],
        evidence=evidence,
        location=(guarded.call if guarded else made if lost.how is RENEWED else written) or read,
        seen_at=read if lost.how is RENEWED or written is not None or (guarded and guarded.call) else None,
        charts=pictures.loss(process.longest, [Mark(float(step), "restored")]) if process.optimizations else [],
        false_alarm="A second phase that is meant to start from these weights with a fresh optimizer or schedule.",
    )


def _guarded(
    process: Process, lost: Lost, read: Location | None, made: Location | None
) -> guarded_loads.Guarded | None:
    """What the function that reads the file restores under a condition on its arguments, of what the file holds."""
    wanted = {name: _KEYS[name] for name in lost.names if name in _KEYS}
    schedulers = process.locations("scheduler")
    places = {"optimizer": made, "scheduler": schedulers[0] if len(schedulers) == 1 else None}
    return guarded_loads.found(process, read, wanted, places) if lost.how is IN_FILE else None


def _written(process: Process, row: Row) -> Location | None:
    """The only line that writes the file which was read; None where several do, or another program did."""
    rows = process.tables["checkpoints"].records()
    sites = {one["site"] for one in rows if one["action"] == "save" and one["file"] and one["file"] == row["file"]}
    return process.site(sites.pop()) if len(sites) == 1 else None


def _code(lost: Lost, keys: list[str], unread: list[str], made: str, saved: str) -> str:
    """What restores the lost states, and saves them where the file holds none. `keys`: the outermost ones of the
    file; `unread`: those of them that are never read; `made`: the statement that makes the optimizer which steps;
    `saved`: the one that writes the file, with the state of the optimizer."""
    if lost.names == ["average"]:
        return f'ema.load_state_dict(checkpoint["{unread[0] if unread else "ema"}"])'
    if lost.names == ["epoch counter"]:
        key = next(iter(unread or [one for one in keys if _PROGRESS.search(one)]), "epoch")
        counted = key.rstrip("s") if "epoch" not in key.lower() else "epoch"
        return f'start = checkpoint["{key}"] + 1\nfor {counted} in range(start, {counted}s):\n    ...'
    loads = [f'{name}.load_state_dict(checkpoint["{_key(name, keys)}"])' for name in lost.names]
    if lost.how is RENEWED:
        target = _ASSIGNED.match(made)
        loads[0] = re.sub(r"^optimizer\b", target["name"] if target else "optimizer", loads[0])
        return "\n".join([f"{made or MADE}  # before its state", *loads])
    if keys == _OF_ONE:
        path = '"scheduler.pt"' if lost.names == ["scheduler"] else "path"
        saving = [f"torch.save({name}.state_dict(), {path})  # where the optimizer's is saved" for name in lost.names]
        taking = [f"{name}.load_state_dict(torch.load({path}))" for name in lost.names]
        return "\n".join(taking if lost.how is IN_FILE else [*saving, *taking])
    absent = lost.names[:1] if lost.how is HALF_IN_FILE else lost.names
    states = ", ".join(f'"{name}": {name}.state_dict()' for name in absent)
    saving = [f"torch.save({{**saved, {states}}}, path)  # saved: what is written to the file today"]
    if lost.how is IN_FILE:
        saving = []
    elif saved:
        saving = [saved]
    elif lost.how is BARE:  # the file holds the weights without a key of their own
        saving = [f'torch.save({{"model": model.state_dict(), {states}}}, path)  # where the file is written']
        loads.insert(0, 'model.load_state_dict(checkpoint["model"])')
    return "\n".join([*saving, "checkpoint = torch.load(path)", *loads])


def _made(process: Process, place: Location | None) -> str:
    """The script's own statement that makes the optimizer; empty where it is not known as a whole."""
    own = own_statement.at(process, place)
    return own.dedented(own.text) if own is not None and own.is_whole and "\n" not in own.text else ""


def _key(name: str, keys: list[str]) -> str:
    """The key under which the file holds the state of an optimizer, scheduler or scaler, if one of its keys says so."""
    named = [key for key in keys if _KEYS[name].search(key)]
    return named[0] if len(named) == 1 else name

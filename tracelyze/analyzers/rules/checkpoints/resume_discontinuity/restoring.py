"""What to do about states that were not restored: the line to change, and what to write there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.rules.checkpoints.resume_discontinuity import guarded_loads, lightning_files, own_loads
from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.first_steps import PROGRESS_KEY, never_read
from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.lost_states import (
    BARE,
    HALF_IN_FILE,
    IN_FILE,
    NEITHER_IN_FILE,
    NOT_IN_FILE,
    RENEWED,
)
from tracelyze.analyzers.script.editing import own_names, own_saves, own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rules.checkpoints.resume_discontinuity.lost_states import Lost
    from tracelyze.diagnosis import Location

Row = dict[str, Any]

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
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)")
_KEYS: Final = {  # what the states are called in files
    "optimizer": re.compile(r"opt(?!ion)|adam|sgd", re.IGNORECASE),
    "scheduler": re.compile(r"sched", re.IGNORECASE),
    "scaler": re.compile(r"scaler|\bamp\b", re.IGNORECASE),
}


class Restoring(NamedTuple):
    """What to change about a training that goes on without all of its state."""

    fix: str
    code: str
    change: Location | None
    seen: Location | None  # the line that reads the file, where another one is to be changed


def remedy(process: Process, row: Row, lost: Lost, facts: Row, fix: str) -> Restoring:
    """`row`: the file; `facts`: what the first step after it showed; `fix`: what the way it was seen says of it."""
    read, made = process.site(row["site"]), _made_at(process, facts)
    if (guarded := _guarded(process, lost, read, made)) is not None:
        return Restoring(guarded.fix, guarded.code, guarded.call or read, read if guarded.call else None)
    if lost.names == ["scheduler"] and read is not None and ".load_state(" in (read.source or ""):
        return Restoring(ACCELERATE, REGISTER, read, None)
    if lost.how is IN_FILE and (fit := lightning_files.fit_after(process, row, read, lost.shown)) is not None:
        return Restoring(fit.fix, fit.code, fit.call, read)
    if lost.names[:2] == ["optimizer", "scheduler"] and lost.how is not RENEWED:
        fix += OPTIMIZER_FIRST
    written = _written(process, row) if lost.how in (NOT_IN_FILE, NEITHER_IN_FILE) else None
    states = {name: f"{name}.state_dict()" for name in lost.names}
    saved = own_saves.with_state(process, written, states, "") if written else ""
    code = _code(lost, (row["keys"] or "").split(), never_read(facts), _statement(process, made), saved)
    change = made if lost.how is RENEWED else written
    seen = read if lost.how is RENEWED or written is not None else None
    return Restoring(fix, own_loads.in_example(code, process, read), change or read, seen)


def _made_at(process: Process, facts: Row) -> Location | None:
    """The line that makes the optimizer which steps after the file was read."""
    rows = process.optimizers.records()
    own = next((one for one in rows if one["optimizer"] == facts.get("optimizer")), {})
    return process.site(own.get("made_at"))


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
        key = next(iter(unread or [one for one in keys if PROGRESS_KEY.search(one)]), "epoch")
        counted = key.rstrip("s") if "epoch" not in key.lower() else "epoch"
        return f'start = checkpoint["{key}"] + 1\nfor {counted} in range(start, {counted}s):\n    ...'
    loads = [f"{name}.load_state_dict(checkpoint{lightning_files.entry(_key(name, keys))})" for name in lost.names]
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


def _statement(process: Process, place: Location | None) -> str:
    """The script's own statement that makes the optimizer; empty where it is not known as a whole."""
    own = own_statement.at(process, place)
    return own.dedented(own.text) if own is not None and own.is_whole and "\n" not in own.text else ""


def _key(name: str, keys: list[str]) -> str:
    """The key under which the file holds the state of an optimizer, scheduler or scaler, if one of its keys says so."""
    named = [key for key in keys if _KEYS[name].search(key)]
    return named[0] if len(named) == 1 else name

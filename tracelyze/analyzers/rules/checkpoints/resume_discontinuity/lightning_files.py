"""Checkpoints of Lightning, whose states its Trainer restores when `fit` is given the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

Row = dict[str, Any]

_VERSION: Final = "pytorch-lightning_version"  # a key that Lightning writes into each file
_FITS: Final = re.compile(r"(?:\w+ = )?(?P<trainer>[A-Za-z_][\w.]*)\.fit\(")
_FIX: Final = (
    "Give {trainer}.fit the file as ckpt_path: it restores the state of the {names} along with the weights. "
    "max_epochs then counts the epochs before it, too, so it has to be larger than their number."
)
_LISTS: Final = ("optimizer_states", "lr_schedulers")


class Fit(NamedTuple):
    """What to do about the call that trains on, an example, and its line."""

    fix: str
    code: str
    call: Location


def fit_after(process: Process, row: Row, read: Location | None, names: str) -> Fit | None:
    """The call of a Trainer whose training is the first after the file was read; None where a loop of the script
    trains on, or where the call is given a file already."""
    call = _steps_after(process, row["time"]) if _VERSION in (row["keys"] or "").split() else None
    fits = _FITS.match(call.source) if call is not None else None
    if call is None or fits is None or "ckpt_path" in call.source:
        return None
    path, more = _path(process, read, call)
    own = own_statement.at(process, call)
    text = own.with_argument(("fit",), "ckpt_path", path) if own is not None else ""
    if own is None or not text or "ckpt_path" in own.text:
        code = f"{fits['trainer']}.fit(model, loader, ckpt_path={path}{more})"
    else:
        code = own.dedented(f"{text.removesuffix(')')}{more})" if text.endswith(")") else text)
    return Fit(_FIX.format(trainer=fits["trainer"], names=names), code, call)


def may_be_foreign(row: Row, saves: Sequence[Row]) -> bool:
    """Whether the file may be of another program, whose weights are fine-tuned here: the keys are those of every such
    file, and this program had written none when it was read."""
    of_lightning = _VERSION in (row["keys"] or "").split()
    before = [one for one in saves if (one["time"] or 0.0) <= (row["time"] or 0.0)]
    named = bool(row["file"]) and any(one["file"] == row["file"] for one in saves)
    return of_lightning and not before and not named


def entry(key: str) -> str:
    """How to read a state from what the file holds under a key: Lightning keeps a list of each kind."""
    return f'["{key}"]' + "[0]" * (key in _LISTS)


def _steps_after(process: Process, time: float | None) -> Location | None:
    begun: Sequence[Any] = [one for one in process.optimizations if len(one.steps) and time is not None]
    begun = [one for one in begun if one.steps["time"][0] > (time or 0.0)]
    first = min(begun, key=lambda one: float(one.steps["time"][0]), default=None)
    return first.step_location if first is not None else None


def _path(process: Process, read: Location | None, call: Location) -> tuple[str, str]:
    """The file as the line that reads it names it, where that stands in the same function, and how far it is trusted;
    `path` where it is not known."""
    own = own_statement.at(process, read) if read is not None and read.file_function == call.file_function else None
    load = own.only_call("load_from_checkpoint", "load") if own is not None else None
    if own is None or load is None:
        return "path", ""
    given = {one.arg: one.value for one in load.keywords}
    file = load.args[0] if load.args else given.get("checkpoint_path", given.get("f"))
    trusted = given.get("weights_only")
    more = f", weights_only={own.parsed.text_of(trusted)}" if trusted is not None else ""
    return (own.parsed.text_of(file), more) if file is not None else ("path", more)

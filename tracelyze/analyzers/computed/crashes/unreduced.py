"""Parameters that a DistributedDataParallel waited for in vain: the backward of the step before did not reach them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import listed, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_INDICES: Final = re.compile(r"Parameter indices which did not receive grad for rank \d+: (?P<indices>[\d ]+)")
_NAMES: Final = re.compile(r"Parameters which did not receive grad for rank \d+: (?P<names>\S.*)")  # as torch debugs
_DDP: Final = "DistributedDataParallel"
_CALLED: Final = (_DDP, "DDP")
_MOST_NAMED: Final = 4


def which(process: Process, text: str) -> str:
    """A sentence that names them, by the indices that the message holds; empty where it holds none."""
    said = _NAMES.search(text)
    if said is not None:
        return _sentence([one.strip() for one in said["names"].split(",")])
    found = _INDICES.search(text)
    if found is None:
        return ""
    indices, names = [int(one) for one in found["indices"].split()], _in_order(process)
    if names and max(indices) < len(names):
        return _sentence([names[index] for index in indices])
    return f" Here {plural(len(indices), 'tensor')} got none."


def wrapper(process: Process) -> Location | None:
    """The line that makes the only DistributedDataParallel."""
    models = {row["model"] for row in process.models.records() if row["name"] == _DDP}
    rows = process.tables["modules"].records()
    made = [row["made_at"] for row in rows if row["model"] in models and not row["module"]]
    return process.site(made[0]) if len(made) == len(models) == 1 else None


def example(process: Process) -> str:
    """That line with the option that looks for such parameters; empty where it is not known."""
    own = own_statement.at(process, wrapper(process))
    if own is None or not own.is_whole:
        return ""
    text = own.with_argument(_CALLED, "find_unused_parameters", "True")
    return own.dedented(text) if text else ""


def _sentence(names: list[str]) -> str:
    """Which they are; those of one part of the model by its name."""
    parts = [name.split(".")[:-1] for name in names]
    common = [steps[0] for steps in zip(*parts, strict=False) if len(set(steps)) == 1]
    common = common if common and all(part[: len(common)] == common for part in parts) else []
    if common and len(names) > 1:
        return f" Here {len(names)} tensors of {'.'.join(common)} got none."
    return f" Here {listed(names, _MOST_NAMED)} got none."


def _in_order(process: Process) -> list[str]:
    """The names of all parameters of the only wrapped model in their order, where all of them train and were looked
    at: the message counts the trainable ones."""
    wrapped = [row["parameters"] for row in process.models.records() if row["name"] == _DDP]
    rows = list(process.tables["parameters"].records())
    first = [row for row in rows if row["step"] == rows[0]["step"] and row["optimizer"] == rows[0]["optimizer"]]
    names = [str(row["parameter"]) for row in first]
    trained = all(row["grad_norm"] is not None for row in first)
    return names if trained and wrapped == [len(names)] and len(set(names)) == len(names) else []

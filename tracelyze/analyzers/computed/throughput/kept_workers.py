"""Workers of a loader that end with each epoch: how to keep them, and whether they may be kept.

Each has a copy of the dataset, of the time when it began: one that the script changes between epochs is to come anew.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.computed.throughput import loaders_made_once
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import loader_arguments, own_statement, parsed_line
from tracelyze.analyzers.script.remedy import Remedy
from tracelyze.diagnosis import Diff, Location, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Optimization, Process

_SETS_EPOCH: Final = re.compile(r"(?P<owner>[A-Za-z_][\w.]*)\.set_epoch\s*\(")
_READS_EPOCH: Final = re.compile(r"\bself\.(?:\w*_)?epoch\b")
_COUNTS_EPOCH: Final = re.compile(r"\bself\.(?:\w*_)?epoch\s*[-+*/]?=(?!=)")
_FUNCTION: Final = re.compile(r"\s*(?:async )?def ")
_PREPARES: Final = re.compile(r"\s*def (?:__init__|__post_init__|setup|prepare\w*|make\w*|build\w*|\w*dataloaders?)\(")
_SAMPLER: Final = re.compile(r"sampler$", re.IGNORECASE)  # the loader asks it in the program, and no worker has a copy
_CHANGES: Final = r"{owner}(?:\.\w+)*\.(?:\w+\s*[-+*/]?=(?!=)|set_?\w*\s*\(|update\w*\s*\()"
PERSISTENT: Final = (
    "Keep the workers between epochs: all that a new worker imports, copies and reads is done again each time."
)
COPIES: Final = (
    " They keep the dataset that they were started with: what the script sets on it later does not reach them."
)
SHARED: Final = (
    "Leave the workers as they are, or let the change reach those that stay: line {line} sets something on the "
    "dataset, and with persistent_workers=True each worker would keep the copy that it was started with. What stands "
    "in shared memory (a tensor after share_memory_()) is seen by all."
)
READS: Final = (
    "Leave the workers as they are, or let the number reach those that stay: line {line} reads {name}, and with "
    "persistent_workers=True each worker would go on with the one that it was started with, whatever the script sets "
    "later. What stands in shared memory (a tensor after share_memory_()) is seen by all."
)
_STAY: Final = "persistent_workers=True"  # alone, it keeps no workers of a loader that is made anew
ENDED: Final = " The workers of the loader end with each epoch, and start anew."
ONCE: Final = (
    "Make the loader once, before the first epoch, and keep its workers: what they load and prepare as they begin is "
    "then done once."
)


def edit(process: Process, loader: Mapping[str, Any]) -> Diff | None:
    """persistent_workers at the line that makes the loader, where it has workers that start anew: not for a stream,
    which often reads the number of the epoch from itself."""
    if not loader.get("num_workers") or loader.get("persistent_workers") or loader.get("iterable"):
        return None
    if not _may_stay(process, loader):
        return None
    return loader_arguments.with_arguments(process, process.site(loader.get("made_at")), {"persistent_workers": "True"})


def setting(process: Process, loader: Mapping[str, Any]) -> Setting | None:
    """persistent_workers=False as a setting of the script, where that is to change."""
    return Setting(("persistent_workers",), (False,), "True") if edit(process, loader) is not None else None


def staying(process: Process, loader: Mapping[str, Any], workers: int) -> dict[str, str]:
    """Arguments that give a loader so many workers, which stay where that keeps nothing from them."""
    stay = {"persistent_workers": "True"} if _may_stay(process, loader) else {}
    return {"num_workers": str(workers), **stay}


def made_anew(optimization: Optimization, loader: Mapping[str, Any], most: float) -> bool:
    """Whether the line that made this loader made one for every epoch: then no setting keeps its workers.

    Those that fed a step count: a trainer makes one for each evaluation, too, at the line that calls it.
    """
    made_at, fed = loader.get("made_at"), set(optimization.steps["loader"].tolist())
    same = [row for row in optimization.process.loaders.records() if made_at is not None and row["made_at"] == made_at]
    return bool(loader.get("num_workers")) and sum(row["loader"] in fed for row in same) > most


def advice(process: Process, loader: Mapping[str, Any], renewed: bool) -> Remedy:
    """What to do about a first batch that is late, and a sentence that says why it is."""
    changed = changed_between_epochs(process, loader)
    read = _epoch_read(process, loader)
    end = loader.get("num_workers") and not loader.get("persistent_workers")
    if (changed is not None or read is not None) and end:
        why = " Each epoch makes a new loader, with new workers." if renewed else ENDED
        told = SHARED.format(line=changed.line) if changed else READS.format(line=read[0], name=read[1]) if read else ""
        return Remedy(told.replace(_STAY, f"one loader and {_STAY}") if renewed else told, why=why)
    if renewed:
        code = loaders_made_once.example(process, loader)
        return Remedy(ONCE + COPIES, code, why=" Each epoch makes a new loader, with new workers.")
    if end:
        code = loader_arguments.example(process, loader, {"persistent_workers": True})
        return Remedy(PERSISTENT + COPIES, code, why=ENDED + _begun_by(process, loader))
    if loader.get("num_workers"):
        return Remedy("Let the workers fetch further ahead, or make the first samples of an epoch cheaper to come by.")
    return Remedy("Look at what dataset, sampler or loop do at the start of an epoch: do it once, or in workers.")


def _begun_by(process: Process, loader: Mapping[str, Any]) -> str:
    """A sentence on the script's own worker_init_fn, where the line that makes the loader names it: what only seeds
    takes no time."""
    own = own_statement.at(process, process.site(loader.get("made_at")))
    call = own.only_call("DataLoader") if own is not None else None
    given = [one.value for one in call.keywords if one.arg == "worker_init_fn"] if call is not None else []
    name = parsed_line.name_of(given[0]) if given else ""
    return f" Each new one runs {name}() first." if name and "seed" not in name else ""


def changed_between_epochs(process: Process, loader: Mapping[str, Any]) -> Location | None:
    """The first of the recorded lines that changes the dataset of this loader (a row of the table loaders) by an
    attribute or a call, behind the line that makes the loader or in another function; that sets its epoch anywhere."""
    made_at = process.site(loader.get("made_at"))
    dataset = loader_arguments.dataset_of(made_at)
    owners = [re.escape(dataset), r"[\w.]*\.dataset"] if dataset else [r"[\w.]*\.dataset"]
    changes = re.compile(rf"^\s*{_CHANGES.format(owner='(?:' + '|'.join(owners) + ')')}")
    for place in _recorded(process):
        told = _SETS_EPOCH.search(place.source)
        if told is not None and not _SAMPLER.search(told["owner"]) and _may_hold(told["owner"], dataset, loader):
            return place
        if changes.match(place.source) and _may_come_later(process, place, made_at, dataset):
            return place
    return None


def _may_stay(process: Process, loader: Mapping[str, Any]) -> bool:
    """Whether nothing tells that workers that stay would miss what the script sets between epochs."""
    return changed_between_epochs(process, loader) is None and _epoch_read(process, loader) is None


def _epoch_read(process: Process, loader: Mapping[str, Any]) -> tuple[int, str] | None:
    """The line of the dataset's own method that reads the number of the epoch from itself, and what it is called: the
    script sets it somewhere, which need not be among the recorded lines. None where the method counts it."""
    reader = process.site(loader.get("read_by"))
    own = recorded_text.of_function(process, reader) if reader is not None else {}
    if reader is not None and (head := own.get(reader.line)) and _FUNCTION.match(head):
        own = {at: line for at, line in own.items() if at > reader.line and _is_below(line, head)}
    text = {at: code_of(line) for at, line in sorted(own.items())}
    if any(_COUNTS_EPOCH.search(line) for line in text.values()):
        return None
    return next(((at, found[0]) for at, line in text.items() if (found := _READS_EPOCH.search(line))), None)


def _is_below(line: str, head: str) -> bool:
    return not line.strip() or recorded_text.indent_of(line) > recorded_text.indent_of(head)


def _may_come_later(process: Process, place: Location, made_at: Location | None, dataset: str | None) -> bool:
    """Whether the line may run after the one that makes the loader: further down, or in another function above it, as
    a hook that is called at each epoch, but one that prepares the dataset."""
    if made_at is None or place.file != made_at.file or place.line > made_at.line:
        return True
    if place.line in recorded_text.of_function(process, made_at):
        return False
    text = recorded_text.of_file(process, place.file)
    depth, at = recorded_text.indent_of(text[place.line]), place.line
    while (above := text.get(at - 1)) is not None:
        at -= 1
        if _PREPARES.match(above) or (dataset and re.match(rf"\s*{re.escape(dataset)}\s*=(?!=)", above)):
            return False
        if _FUNCTION.match(above) and recorded_text.indent_of(above) < depth:
            return True
    return depth > 0


def _may_hold(owner: str, dataset: str | None, loader: Mapping[str, Any]) -> bool:
    """Whether what is told the epoch is the dataset: a loader tells it to its sampler where the set is no stream."""
    return bool(loader.get("iterable")) or owner == dataset or owner.rpartition(".")[2].endswith(("dataset", "data"))


def _recorded(process: Process) -> list[Location]:
    """All lines that were recorded around places, in order."""
    found = {one.file_line: one for one in recorded_text.lines(process)}
    return [Location(*key, "", code_of(found[key].source)) for key in sorted(found)]

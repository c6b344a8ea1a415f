"""The line that hands a model to Accelerate or Fabric, which would divide the data too, and leaves out the loader."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rules.distributed.same_data_on_every_rank import batches_of_ranks, early_ranks
from tracelyze.analyzers.rules.distributed.same_data_on_every_rank.early_ranks import Undivided
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import loader_arguments, own_statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_HANDS_OVER: Final = re.compile(r"(?P<holder>[A-Za-z_][\w.]*)\.(?P<method>prepare|prepare_model|setup|setup_module)\(")
_OVER: Final = re.compile(r"\bfor .+ in (?:\w+\()*(?P<loader>[A-Za-z_][\w.]*)")
_GOES_OVER: Final = re.compile(r"\bin (?:(?:enumerate|tqdm|zip)\()?(?P<loader>[A-Za-z_][\w.]*)\s*[,):]")
_DRAWS: Final = ("randint", "randperm", "multinomial")
_FABRIC: Final = ("setup", "setup_module")
_WRAPPERS: Final = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDP", "_FabricModule")


def divided(process: Process, loader: Mapping[str, Any], by_hand: bool) -> tuple[Location | None, str, str]:
    """How to give each rank samples of its own, in words and as code, and the line of such a library that may do so."""
    left = None if by_hand else early_ranks.of(process, loader) or of(process, loader)
    if left is not None:
        return left.line, left.fix, left.code
    sampler = "" if by_hand else batches_of_ranks.own_sampler(loader)
    if sampler and "Distributed" not in sampler:
        items = "batches" if "batch_sampler" in loader_arguments.own_sampler(process, loader) else "indices"
        code = batches_of_ranks.OWN_CODE.format(sampler=sampler, items=items)
        return None, batches_of_ranks.OWN.format(sampler=sampler), code
    fix, code = batches_of_ranks.divided(by_hand, bool(loader.get("iterable")))
    if by_hand and (drawn := _of_own_draw(process)):
        code = batches_of_ranks.SEED_CODE + drawn
    return None, fix, _of_own_loader(process, loader) if code == batches_of_ranks.SAMPLER_CODE else code


def _of_own_draw(process: Process) -> str:
    """The script's own statement that draws the samples of a batch, with a generator of the rank's own; empty where it
    does not draw once, from the generator that all of torch shares."""
    own = own_statement.at(process, script_lines.drawn_batches(process))
    call = own.only_call(*_DRAWS) if own is not None and own.is_whole else None
    if own is None or call is None or not own.parsed.text_of(call.func).startswith("torch."):
        return ""
    if any(one.arg == "generator" for one in call.keywords):
        return ""
    return own.dedented(own.with_argument(_DRAWS, "generator", "own"))


def _of_own_loader(process: Process, loader: Mapping[str, Any]) -> str:
    """The sampler before the script's own statement that makes the loader, with all that it says beside. A loop in
    another function knows the loader alone."""
    if "batch_sampler" in loader_arguments.own_sampler(process, loader):  # beside which torch takes no sampler
        return batches_of_ranks.SAMPLER_CODE
    dataset = loader_arguments.dataset_of(process.site(loader.get("made_at"))) or "dataset"
    made = loader_arguments.example(process, loader, {"sampler": "sampler"}, dropped="shuffle")
    told = "for epoch in range(epochs):\n    sampler.set_epoch(epoch)"
    place, read = process.site(loader.get("made_at")), process.site(loader.get("site"))
    over = _GOES_OVER.search(read.source) if read is not None else None
    if place is not None and read is not None and over is not None and place.file_function != read.file_function:
        told = f"{over['loader']}.sampler.set_epoch(epoch)  # the first line in the loop over epochs"
    return f"sampler = DistributedSampler({dataset}, shuffle=True)\n{made}\n{told}"


def of(process: Process, loader: Mapping[str, Any]) -> Undivided | None:
    """The only line that has the model wrapped by such a library, unless it names the loader that the loop reads."""
    rows = [row for row in process.tables["modules"].records() if str(row["kind"]).startswith(_WRAPPERS)]
    places = {row["made_at"] for row in rows if row["made_at"] is not None}
    place = process.site(places.pop()) if len(places) == 1 else None
    hands = _HANDS_OVER.search(place.source) if place is not None else None
    read = process.site(loader.get("site"))
    over = _OVER.search(read.source) if read is not None else None
    if place is None or hands is None or read is None or over is None:
        return None
    if "Distributed" in str(loader.get("sampler")):  # it is told to divide them, by wrong numbers
        return None
    own = _made_as(process, loader, place) if "." not in over["loader"] else ""  # an object holds the one it was given
    name, holder = own or over["loader"], hands["holder"]
    if re.search(rf"(?<![\w.]){re.escape(name)}\b", place.source):
        return None
    if hands["method"] in _FABRIC:
        fix = f"Hand the loader to {holder}.setup_dataloaders() as well: it gives each rank samples of its own."
        return Undivided(place, fix, f"{name} = {holder}.setup_dataloaders({name})  # below line {place.line}")
    fix = f"Pass the loader to {holder}.prepare() as well: it gives each rank samples of its own."
    known = read.file_function == place.file_function or name != over["loader"]
    together = _together(process, place, name) if known else ""
    return Undivided(place, fix, together or f"{name} = {holder}.prepare({name})  # below line {place.line}")


def _made_as(process: Process, loader: Mapping[str, Any], place: Location) -> str:
    """What the line that makes the loader calls it, above a place in the same function; empty of any other line."""
    made = process.site(loader.get("made_at"))
    own = own_statement.at(process, made) if made is not None else None
    statement = own.parsed.statement if own is not None else None
    if made is None or made.file_function != place.file_function or made.line >= place.line:
        return ""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return ""
    target = statement.targets[0] if len(statement.targets) == 1 else None
    return target.id if isinstance(target, ast.Name) else ""


def _together(process: Process, place: Location, name: str) -> str:
    """The line with the loader as one more argument and result; empty where it does not take and give several."""
    own = own_statement.at(process, place)
    call = own.only_call("prepare") if own is not None else None
    statement = own.parsed.statement if own is not None else None
    if own is None or call is None or not isinstance(statement, ast.Assign) or statement.value is not call:
        return ""
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple) or call.keywords or len(target.elts) != len(call.args):
        return ""
    if any(isinstance(one, ast.Starred) for one in (*target.elts, *call.args)):
        return ""
    parts = {target.elts[-1]: own.parsed.text_of(target.elts[-1]), call.args[-1]: own.parsed.text_of(call.args[-1])}
    return own.dedented(own.parsed.with_parts({node: f"{text}, {name}" for node, text in parts.items()}))

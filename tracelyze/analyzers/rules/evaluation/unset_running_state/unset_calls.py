"""Calls of models in eval mode with statistics that nothing has set: why, what they harm, and what to do."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import called, recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_saves, own_statement
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Finding, Location


IN_TRAIN_MODE = (
    "Leave the BatchNorm layers in train mode. Keeping them in eval mode only suits a model whose statistics come "
    "from pretraining: load such weights before training, or use GroupNorm if batches are too small."
)
ESTIMATED_IN_TRAIN_MODE = (
    "Leave the layers with a spectral norm in train mode in training: there each forward estimates the norm. In eval "
    "mode they keep the one that was loaded."
)
NEVER_RUN_FIX = (
    "Run these layers in train mode in training, as those that are evaluated with them, or load their statistics "
    "before evaluating."
)
_LOADED: Final = "evaluated.load_state_dict(torch.load(path))  # evaluated: the model in eval mode\nevaluated.eval()"
_GIVEN: Final = (
    "evaluated.load_state_dict(model.state_dict())  # buffers included; evaluated: the model in eval mode\n"
    "evaluated.eval()"
)
_COPIED: Final = """with torch.no_grad():  # where the averaged weights are made; evaluated: the model in eval mode
    for kept, current in zip(evaluated.buffers(), model.buffers()):
        kept.copy_(current)"""
_WHOLE: Final = """torch.save(model.state_dict(), path)  # not of named_parameters(), which leaves buffers out
evaluated.load_state_dict(torch.load(path))  # strict, as it is by itself: raises where something is missing"""


def lacking_load(process: Process, row: dict[str, Any]) -> dict[str, Any] | None:
    """The latest load_state_dict before a call with unset statistics (a row of the table unset), if it left out names
    enough to be these and gave nothing that the model does not have. A load of another class, that is no part of the
    model, tells nothing."""
    own = {one["name"] for one in process.models.records() if one["model"] == row["model"]}
    if own:
        own |= {one["kind"] for one in process.tables["modules"].records() if one["model"] == row["model"]}
    loads = [one for one in process.tables["loads"].records() if one["step"] <= row["step"] and one["given"]]
    loads = [one for one in loads if not own or one["name"] in own]
    lacking = bool(loads) and row["modules"] and not loads[-1]["unexpected"] and loads[-1]["missing"] >= row["modules"]
    return loads[-1] if lacking else None


def remedy(process: Process, row: dict[str, Any], serves: bool, trained_so: bool) -> tuple[str, str]:
    """What to do about unset statistics, and an example, of a model that is evaluated, that serves the training of
    another one, or that is trained in eval mode itself."""
    if trained_so and not serves:
        return (IN_TRAIN_MODE, "") if row["modules"] else (ESTIMATED_IN_TRAIN_MODE, "")
    if not serves and row["model"] in _held(process):
        return NEVER_RUN_FIX, ""
    fix = f"Load the weights, buffers included, before {'training' if serves else 'evaluating'}"
    if lacking_load(process, row) is not None:
        return f"{fix}: the state given to load_state_dict lacks those of the normalisation layers.", _WHOLE
    if _averages(process, row) and not serves and not _reads_weights(process):
        return "Copy the buffers of the model along with its averaged weights.", _by_name(process, row, _COPIED)
    return (
        f"{fix}{'' if serves else ', or train in train mode first'}; copy buffers along with averaged weights.",
        _by_name(process, row, _LOADED if _reads_weights(process) else _COPIED if _averages(process, row) else _GIVEN),
    )


def _by_name(process: Process, row: dict[str, Any], code: str) -> str:
    """The example with the script's name of the model that is evaluated, where the lines around the average know it."""
    name, place = called.name_in(process, row["model"], None), script_lines.only(process, "average")
    lines = recorded_text.of_function(process, place).values() if place is not None and name else ()
    known = name is not None and any(re.search(rf"(?<![\w.]){re.escape(name)}\b", line) for line in lines)
    return code.replace("evaluated", str(name)).replace(f"; {name}: the model in eval mode", "") if known else code


def _held(process: Process) -> set[Any]:
    """The models that an optimizer holds."""
    links = process.tables.get("links")
    return {one["model"] for one in (links.records() if links is not None else ())} - {None}


def _averages(process: Process, row: dict[str, Any]) -> bool:
    """Whether the script may make the weights of this model an average of others: copies of weights would undo it."""
    moves = any(
        one["model"] == row["model"] and (one["changed"] or 0) > 0 for one in process.tables["copies"].records()
    )
    return moves or bool(process.locations("average"))


def averaged_at(process: Process, model: object) -> Location | None:
    """The only line that mixes weights into others, where this model is a copy of another one whose weights move
    between its evaluations: its state does not follow them by itself."""
    moves = any(row["model"] == model and (row["changed"] or 0) > 0 for row in process.tables["copies"].records())
    return script_lines.only(process, "average") if moves else None


@dataclass(frozen=True)
class Anew:
    """A model that a line makes beside a trained one of its kind, and that is given none of its weights."""

    place: Location
    said: str
    fix: str
    code: str


def made_anew(process: Process, row: dict[str, Any]) -> Anew | None:
    """Of a call with unset statistics (a row of the table unset), the line that makes its model, where no weights are
    loaded into a model of its class, none of its own move, and an optimizer holds another one of its class and size."""
    kinds = {one["model"]: (one["name"], one["elements"]) for one in process.models.records()}
    held = _held(process)
    kind = kinds.get(row["model"])
    if kind is None or row["model"] in held or not any(kinds.get(one) == kind for one in held):
        return None
    loaded = any(one["name"] == kind[0] for one in process.tables["loads"].records())
    moves = any(
        one["model"] == row["model"] and (one["changed"] or 0) > 0 for one in process.tables["copies"].records()
    )
    made = [one for one in process.tables["modules"].records() if one["model"] == row["model"] and not one["module"]]
    place = process.site(made[0]["made_at"]) if made else None
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None else None
    if loaded or moves or place is None or own is None or not isinstance(statement, ast.Assign):
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Name | ast.Attribute):
        return None
    name = own.parsed.text_of(target)
    saves = [one for one in process.tables["checkpoints"].records() if one["action"] == "save"]
    lines = [own_saves.read_back(process, process.site(one["site"]), name) for one in saves[-1:]]
    load = next(iter(filter(None, lines)), f"{name}.load_state_dict(trained.state_dict())")
    return Anew(
        place,
        f"Line {place.line} makes it anew, beside one that is trained, and no load_state_dict was seen.",
        f"Load the trained weights, buffers included, into what line {place.line} makes, before it is called.",
        f"{own.dedented(own.text)}\n{load}",
    )


def _which(unset: int, of: int) -> str:
    """How many of a model's batch normalisations, as the subject of a clause."""
    if unset < of:
        return f"{unset:,} of its {of:,} batch normalisations"
    if of == 1:
        return "its only batch normalisation"
    return "both of its batch normalisations" if of == 2 else f"all {of:,} of its batch normalisations"


def unset_state(row: dict[str, Any]) -> tuple[str, str]:
    """What nothing has set in the model, in two words, and what that does, in a sentence."""
    if row["modules"]:
        subtract = "it subtracts 0 and divides" if row["modules"] == 1 else "they subtract 0 and divide"
        return "BatchNorm statistics", (
            f"{_which(row['modules'], row['of'])} had seen no batch and no checkpoint: {subtract} by 1, whatever the "
            "activations are."
        )
    return "spectral norms", (
        f"{plural(row['spectral'], 'weight')} of it never ran forward in train mode, where "
        f"torch.nn.utils.spectral_norm estimates the norm: {'it is' if row['spectral'] == 1 else 'they are'} divided "
        "by a random number, of either sign."
    )


def before_training(process: Process, row: dict[str, Any]) -> bool:
    """Whether a model was called before the first step of the first optimizer that holds it; one that none holds,
    before the first step of the process. A training of another model, of a teacher say, may have gone before.

    A part of a model, called by itself, is held as the passes with it say.
    """
    links, evals = process.tables.get("links"), process.evals
    rows = links.records() if links is not None else ()
    begun = [int(one["step"] or 1) for one in rows if one["model"] == row["model"]]
    if not begun and len(process.trainings) > 1:
        held = np.unique(evals["optimizer"][(evals["model"] == row["model"]) & (evals["trained"] == 1)])
        begun = (np.flatnonzero(np.isin(process.steps["optimizer"], held))[:1] + 1).tolist()
    return bool(row["step"] < min(begun, default=1))


def trains(process: Process, row: dict[str, Any]) -> bool:
    """Whether a call is that of a training step: with autograd on, and of a model that an optimizer is known to hold.

    Where it is not known what optimizers hold, autograd says it alone.
    """
    held = _held(process)
    return bool(row["training"]) and (not held or row["model"] in held)


def first_to_train(process: Process, row: dict[str, Any], unset: list[dict[str, Any]]) -> dict[str, Any]:
    """The first call of its model in a training step, which may be the first one of all, else the call itself."""
    same = (one for one in unset if one["model"] == row["model"])
    return next((one for one in same if trains(process, one)), row)


def when_called(process: Process, row: dict[str, Any]) -> str:
    """The beginning of a sentence: from which training step on, after which one, or that it was before training."""
    if trains(process, row):
        return f"From step {timing.placed(process, [row['step']]).step:,} on"
    if not before_training(process, row) or not len(process.steps):
        several = len(process.trainings) > 1
        return f"After step {timing.placed(process, [max(0, row['step'] - 1)]).step if several else row['step']:,}"
    return "Before the first step of its training" if row["step"] else "Before the first step"


def of_its_training(finding: Finding, process: Process, row: dict[str, Any]) -> Finding:
    """The finding about such a call with its step as its training counts them, where the process made several."""
    if len(process.trainings) < 2:
        return finding
    in_a_step = trains(process, row)
    early = before_training(process, row) and not in_a_step
    where = timing.placed(process, [row["step"] if early or in_a_step else max(0, row["step"] - 1)])
    step, second = (0, None) if early else (where.step, where.second)
    title = re.sub(r" with (.+) that nothing has set$", r" with unset \1", finding.title)  # its name needs room
    return replace(finding, title=title, first_step=step, first_second=second, trainings=[where.name])


def why_unset(process: Process, row: dict[str, Any], averaged: Location | None) -> str:
    """What leaves the state of a model unset that is measured after training had begun."""
    if averaged is None and row["model"] in _held(process):
        return "An optimizer holds this model, but no training step has set them."
    if averaged is None:
        return "A newly built model causes this, or a copy whose buffers are not updated."
    return f"Line {averaged.line} makes its weights follow another model's, but not its buffers."


def _reads_weights(process: Process) -> bool:
    """Whether the run reads a file of weights, or trains nothing that could be copied."""
    read = any(row["action"] == "load" for row in process.tables["checkpoints"].records())
    return read or not process.optimizations


def harm_without_measurement(process: Process, early: bool, serves: bool, trained_so: bool) -> str:
    """What unset statistics harm where nothing was measured with the model after training had begun. `early`: it was
    called before the first step only."""
    if serves:
        return "No optimizer holds its weights, but training steps call it again and again."
    if trained_so:
        return "Training and evaluation agree in that, but both do without this normalisation."
    if not len(process.steps):
        return "Nothing was trained."
    if early:
        return "Numbers from before the first step say nothing about the model."
    return "No measurement with it was seen."

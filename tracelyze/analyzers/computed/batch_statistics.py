"""What BatchNorm gets to see of a batch, and what its averages are worth in validation."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import called, edits, recorded_text, script_lines, timing
from tracelyze.analyzers.evidence.editing import own_saves, own_statement
from tracelyze.diagnosis import Finding, Setting
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits, OneOutcome
    from tracelyze.diagnosis import Diff, Location

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


def few_values(optimization: Optimization, limits: Limits) -> tuple[str, float] | None:
    """The layer whose mean and variance come from the fewest values of each channel, if they are too few."""
    layers: dict[str, list[float]] = {}
    for row in optimization.process.tables["activations"].records():
        if "BatchNorm" in (row["kind"] or "") and row["outputs"]:
            layers.setdefault(row["module"] or "", []).append(row["elements"] / row["outputs"])
    usual = {name: float(np.median(values)) for name, values in layers.items() if len(values) >= limits["looks"]}
    name = min(usual, key=lambda one: usual[one], default=None)
    return None if name is None or usual[name] > limits["values"] else (name, usual[name])


def gap(optimization: Optimization, limits: Limits) -> tuple[float, float] | None:
    """Loss of the first validations in eval mode, and of training just before, if the former is far above."""
    evals, steps = optimization.process.evals, optimization.steps
    rows = np.flatnonzero(
        validation.passes(optimization.process)
        & np.isfinite(evals["loss"])
        & (evals["model_in_train"] == 0)
        & (evals["loss_is_whole"] == 1)
    )[: int(limits["first"])]
    trained = steps["loss"][timing.numbers(optimization) <= (evals["after_step"][rows[-1]] if len(rows) else 0)]
    known = trained[np.isfinite(trained)][-int(limits["before"]) :]
    if len(rows) < limits["first"] or len(known) < limits["before"]:
        return None
    here, there = float(np.median(known)), float(np.min(evals["loss"][rows]))
    return (there, here) if 0 < limits["gap"] * here < there else None


def batch_location(optimization: Optimization, samples: float, layer: str = "") -> Location | None:
    """The loader of batches that are forwarded whole: its line sets their size. Else the line that makes the layer, or
    the first batch normalisation, or that of the backward."""
    process = optimization.process
    return (
        loader_of_size(optimization, samples)
        or (process.module_location(layer) if layer else normalisation(process))
        or optimization.backward_location
    )


def loader_of_size(optimization: Optimization, samples: float) -> Location | None:
    """The line that makes the loader, if it makes batches of this size."""
    loader = optimization.loader
    return optimization.process.site(loader["made_at"]) if loader.get("batch_size") == samples else None


def said_of_size(optimization: Optimization, samples: float, beside: Location | None) -> str:
    """The line that sets the size of the batches, in brackets, beside one of the same file."""
    place = loader_of_size(optimization, samples)
    return f" (line {place.line})" if place is not None and beside is not None and place.file == beside.file else ""


def with_size(outcome: OneOutcome, optimization: Optimization) -> OneOutcome:
    """A finding that says which setting the size of the loader's batches is; not one that stands at the layers, which
    are to be others."""
    size = optimization.loader.get("batch_size")
    if not isinstance(outcome, Finding) or not size or outcome.location == normalisation(optimization.process):
        return outcome
    return replace(outcome, setting=Setting(("batch_size",), (size,)))


def normalisation(process: Process, model: object = None) -> Location | None:
    """The line that makes the first batch normalisation, of this model if one is given."""
    rows = process.tables["modules"].records()
    made = [row for row in rows if "BatchNorm" in str(row["kind"]) and model in (None, row["model"])]
    if made or model is not None:  # a layer of an nn.Sequential that one line makes has no row of its own
        return process.site(made[0]["made_at"]) if made else None
    called = [row["module"] for row in process.tables["activations"].records() if "BatchNorm" in str(row["kind"])]
    return process.module_location(called[0]) if called else None


def with_default_momentum(process: Process) -> tuple[list[Location], Diff | None, str]:
    """The lines that make batch normalisations with a momentum of the script's own; those lines with the default, where
    they stand together, and an example of the first. No line where the momentum is set elsewhere."""
    rows = [row for row in process.tables["modules"].records() if "BatchNorm" in str(row["kind"])]
    sites = [process.site(row["made_at"]) for row in rows]
    made = list(dict.fromkeys(one for one in sites if one is not None and "momentum" in one.source))
    kind = rows[0]["kind"] if rows else "BatchNorm1d"
    code = f"norm = nn.{kind}(channels, momentum={_DEFAULT})"
    parts: list[Diff] = []
    for place in made:
        own = own_statement.at(process, place)
        changed = own.with_argument(_NORMS, "momentum", _DEFAULT, 2) if own is not None else ""
        edit = own.changed(changed) if own is not None else None
        if own is not None and changed and place == made[0]:
            code = own.dedented(changed)
        parts += [edit] if edit is not None else []
    same = len({one.file_function for one in made}) == 1
    whole = edits.together(process, made[0], parts) if same and len(parts) == len(made) else None
    return made, whole, code


_DEFAULT: Final = "0.1"  # of the momentum, and the third argument of all of these
_NORMS: Final = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")
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


def when_called(process: Process, row: dict[str, Any]) -> str:
    """The beginning of a sentence: after which step, or that it was before training."""
    if not before_training(process, row) or not len(process.steps):
        several = len(process.trainings) > 1
        return f"After step {timing.placed(process, [max(0, row['step'] - 1)]).step if several else row['step']:,}"
    return "Before the first step of its training" if row["step"] else "Before the first step"


def of_its_training(finding: Finding, process: Process, row: dict[str, Any]) -> Finding:
    """The finding about such a call with its step as its training counts them, where the process made several."""
    if len(process.trainings) < 2:
        return finding
    early = before_training(process, row)
    where = timing.placed(process, [row["step"] if early else max(0, row["step"] - 1)])
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
        return "Training runs it in the same mode, so training and evaluation agree, but nothing is pretrained."
    if not len(process.steps):
        return "Nothing was trained."
    if early:
        return "Numbers from before the first step say nothing about the model."
    return "No measurement with it was seen."


def unset_by_a_load(process: Process, save: dict[str, Any]) -> int | None:
    """The step after which a model evaluates with statistics that nothing set, once it has loaded what was saved: all
    that was trained, and not what its normalisations keep."""
    loads = [row for row in process.tables["loads"].records() if row["step"] >= save["step"] and not row["unexpected"]]
    lacking = [row for row in loads if row["given"] >= save["held"] and row["missing"]]
    for row in process.tables["unset"].records():
        missed = (one["step"] <= row["step"] and one["missing"] >= row["modules"] for one in lacking)
        if row["modules"] and not row["training"] and any(missed):
            return int(row["step"])
    return None


def without(evaluated: int | None) -> str:
    """What comes of a file that lacks them. `evaluated`: the step after which a model that loaded it was, if any."""
    if evaluated is None:
        return "A model that loads it evaluates with mean 0 and variance 1, or with statistics from another training."
    return f"A model that loaded it evaluates with mean 0 and variance 1 after step {evaluated:,}."


def frozen_at(process: Process) -> Location | None:
    """The only line that keeps normalisations as they are: one in a method `train` of the script that calls eval(), or
    in a function that asks whether a module is one; where a single line applies that function, this one."""
    lines = process.locations("eval-mode")
    own = [one for one in lines if one.function == "train"] or [one for one in lines if _asks_for_norms(process, one)]
    if len(own) != 1:
        return None
    applied = recorded_text.matching(process, re.compile(rf"\.apply\(\s*(?:\w+\.)*{re.escape(own[0].function)}\s*\)"))
    return applied[0] if len(applied) == 1 else own[0]


def _asks_for_norms(process: Process, place: Location) -> bool:
    """Whether the function of a line chooses modules by a class of normalisations."""
    texts = recorded_text.of_function(process, place).values()
    return any(re.search(r"\bisinstance\(.*Norm|__name__.*Norm|Norm.*__name__", text) for text in texts)


def all_unset(optimization: Optimization) -> bool:
    """Whether no batch and no checkpoint had set any of the batch normalisations of a trained model when it was first
    called in eval mode: nothing of it is pretrained."""
    process, held = optimization.process, _held_by(optimization)
    rows = [row for row in process.tables["unset"].records() if row["model"] in held and row["modules"]]
    return any(row["modules"] == row["of"] for row in rows) and not any(process.tables["loads"].records())


def _held_by(optimization: Optimization) -> set[Any]:
    """The models whose parameters an optimizer holds; of an old recording, none."""
    links = optimization.process.tables.get("links")
    rows = links.records() if links is not None else ()
    return {row["model"] for row in rows if row["optimizer"] == optimization.optimizer} - {None}


def without_training_mode(optimization: Optimization, unset: bool = False) -> str:
    """A sentence on what eval mode changes in a training step, by the kinds of modules that the trained models have.
    `unset`: their batch normalisations have seen no batch yet."""
    process, held = optimization.process, _held_by(optimization)
    models = [row for row in process.models.records() if not held or row["model"] in held]
    kinds = " ".join(str(row["sensitive"] or "") for row in models).strip()
    if not kinds:
        return "Dropout, BatchNorm and the like act in it as in an evaluation."
    parts = ["Dropout is off"] if "ropout" in kinds else []
    if "BatchNorm" in kinds:
        parts.append(
            "BatchNorm keeps the mean 0 and variance 1 that it began with, instead of the batch's"
            if unset
            else "BatchNorm uses old statistics instead of the batch's and does not update them"
        )
    return f"{', and '.join(parts)}." if parts else f"What depends on the mode here: {kinds}."

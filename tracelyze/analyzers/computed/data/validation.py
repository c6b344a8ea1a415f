"""Which evaluation passes are validations of the model that is being trained.

A forward pass that no backward consumes may also be a generator at rest, a teacher, a rollout, a line search or a batch
that the loop gave up. Those are not judged.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.computed.once import measured_once
from tracelyze.analyzers.computed.optimization import style
from tracelyze.analyzers.evidence import timing

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats, Mask, Table
    from tracelyze.diagnosis import Location

RARE = 5  # steps per pass: a pass more often than that belongs to the step itself
_LEAST_PASSES = 3  # of one length: two may be alike by accident
_NEARLY_ALL = 0.8  # share of the passes: one set of data gives one number of forwards, but for a short first look
_MANY_CALLS = 4  # calls to a loss: two or three are of pairs and triplets that one loss compares
NONE = "no pass was seen that measures the trained model: by losses, comparisons, or a loader of its own"
GRAD = 2  # a code of evals.grad_mode: autograd was on


@measured_once
def passes(process: Process) -> Mask:
    """Rows of the table evals that are validations, shape [evals].

    The model must be one that an optimizer trains, and the pass must show that it measures: batches come from a loader
    that feeds no training step, or losses were computed, or at least two forwards in passes that are rare, or one that
    the script compares with something and that the model got after other steps as well (`compared_again`). In train
    mode with autograd on, where a training batch that was given up looks alike, the passes must resemble each other;
    single ones without a loader must not have the size of a training batch; frequent passes over the training loader's
    own batch are part of the step (line search, bootstrapping). A model that no optimizer trains counts if it is a copy
    of one that is trained, and now and then losses of it are computed: a running average of the weights. Where the
    model is trained by what it did, passes without losses are what it does (rollouts), whatever their loader feeds.
    """
    evals = process.evals
    other = np.isfinite(evals["loader"]) & ~np.isin(evals["loader"], training_loaders(process))
    same = np.isfinite(evals["loader"]) & ~other
    losses = np.nan_to_num(evals["losses"]) > 0
    rare = len(evals) * RARE <= len(process.steps)
    several = np.nan_to_num(evals["forwards"]) >= 2
    like_training = (evals["grad_mode"] == GRAD) & ~(evals["model_in_train"] == 0)
    several &= ~like_training | (~same & _alike(evals["forwards"], like_training))
    given_up = like_training & ~np.isfinite(evals["loader"]) & ~several & of_training_size(process)
    measures = other | (losses & ~(same & (not rare)) & ~given_up) | (several & rare) | compared_again(process, rare)
    measures &= losses | (not style.acts(process))
    announced = evals.matches("purpose", "validation") | evals.matches("purpose", "test")  # by a framework's callback
    other_purpose = evals.matches("purpose", "sanity check") | evals.matches("purpose", "predict")
    averages = losses & ~same & rare_copies(process)
    trained = evals["trained"] == 1
    return np.asarray(((measures | announced) & trained | averages) & ~other_purpose, dtype=bool)


def compared_again(process: Process, rare: bool) -> Mask:
    """Passes without a loader whose answers the script compares, shape [evals].

    Either they are `rare`, or the line gave the model one and the same tensor after different steps: a set that is held
    out as a tensor. As many samples as in a training batch are no validation, but for a graph that the model always
    sees whole, where the training loss takes some of its rows.
    """
    evals = process.evals
    compared = evals.known("compared") & ~np.isfinite(evals["loader"])
    again = np.nan_to_num(evals["same_input"]) > 0
    for site in np.unique(evals["site"][compared & again]):
        here = evals["site"] == site  # the first of these passes came before any other
        again |= here & (int((here & again).sum()) >= _LEAST_PASSES)
    if not (compared & (again | rare)).any():
        return np.zeros(len(evals), dtype=bool)
    return np.asarray(compared & (again | rare) & (~of_training_size(process) | _takes_some_rows(process)), dtype=bool)


def _takes_some_rows(process: Process) -> bool:
    """Whether the training loss is always given fewer rows than the model is."""
    calls, steps = process.tables.get("loss_calls"), process.steps
    shapes = [row["input_shape"] for row in calls.records() if row["training"]] if calls is not None else []
    rows = [int(shape.partition("x")[0]) for shape in shapes if shape]
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = steps["batch_size"] / np.fmax(steps["backwards"], 1)
    return bool(rows) and bool(max(rows) < np.nanmin(sizes, initial=np.inf))


def place(process: Process, row: int) -> Location | None:
    """The line that calls the model in a pass of the table evals; where that is not known, the loop over its loader."""
    site, loader = process.site(process.evals["site"][row]), process.evals["loader"][row]
    if site is not None or not np.isfinite(loader):
        return site
    return next((process.site(one["site"]) for one in process.loaders.records() if one["loader"] == loader), None)


def place_after(process: Process, step: int) -> Location | None:
    """The line that calls the model in the validation after this step."""
    here = passes(process) & (process.evals["after_step"] == step)
    return place(process, int(np.argmax(here))) if here.any() else None


def begins_at(process: Process, site: float) -> Location | None:
    """The first statement of the function that evaluates at this site; None where it trains, or none is known."""
    at = process.site(site)
    if at is None or any(one.file_function == at.file_function for one in _training_calls(process)):
        return None
    places = process.locations("evaluation")
    return next((one for one in places if one.file_function == at.file_function), None)


def trains_too(process: Process, site: float) -> bool | None:
    """Whether training called the model from the line of this site as well; None where its lines were not recorded."""
    at, calls = process.site(site), _training_calls(process)
    return any(one.file_line == at.file_line for one in calls) if at is not None and calls else None


def loop_of(process: Process, row: int) -> Location | None:
    """The `for` over the loader of a pass of the table evals; None where training goes through it as well."""
    training = training_loaders(process)
    sites = {one["loader"]: process.site(one["site"]) for one in process.loaders.records()}
    loop = sites.get(process.evals["loader"][row])
    return loop if loop not in {sites.get(loader) for loader in training} else None


def _training_calls(process: Process) -> list[Location]:
    """The lines at which training called a model, one of which may be a function's that evaluates, too."""
    return process.locations("training-call")


def of_training_size(process: Process) -> Mask:
    """Passes whose forwards had as many samples as a training batch, shape [evals]; all if either is not known."""
    evals, steps = process.evals, process.steps
    with np.errstate(divide="ignore", invalid="ignore"):
        sizes = np.unique(steps["batch_size"] / np.fmax(steps["backwards"], 1))
        each = evals["samples"] / evals["forwards"]
    sizes = sizes[np.isfinite(sizes)]
    return np.asarray(np.isin(each, sizes) | ~np.isfinite(each) | (len(sizes) == 0), dtype=bool)


def rare_copies(process: Process) -> Mask:
    """Passes of models with the same parameters and modules as one that is trained, and called rarely, shape [evals].

    One that is called with every step is a teacher, a target network or a former policy. (Statistics of BatchNorm that
    are gathered for an average come without losses.)
    """
    evals = process.evals
    links = process.tables.get("links")
    held = {row["model"] for row in (links.records() if links is not None else ()) if row["model"] is not None}
    models = {row["model"]: (row["parameters"], row["elements"], row["sensitive"]) for row in process.models.records()}
    trained = {kind for model, kind in models.items() if model in held}
    copies = [model for model, kind in models.items() if model not in held and kind in trained and kind[1]]
    rare = [model for model in copies if int((evals["model"] == model).sum()) * RARE <= len(process.steps)]
    return np.asarray(np.isin(evals["model"], rare) & (evals["trained"] == 0), dtype=bool)


def unused_forwards(process: Process) -> int:
    """Forwards in training of which no backward was seen: no more batches than these were given up."""
    evals = process.evals
    alike = (evals["grad_mode"] == GRAD) & (evals["model_in_train"] == 1) & (evals["trained"] == 1)
    return int(np.nansum(evals["forwards"][alike]))


def sampled(process: Process, share: float) -> Mask:
    """Passes that drop values and ask the model several times of the same data, to average them, shape [evals].

    Either most forwards, a `share` of them, repeat the one before; or the line evaluates the same set again and again
    between two steps. Not with a normalisation in train mode, which no sampling asks for; unless
    forwards repeat each other and it changes what it stores, which batchnorm-in-validation reports by itself.
    """
    evals = process.evals
    repeated = np.nan_to_num(evals["repeats"]) >= share * np.nan_to_num(evals["forwards"], nan=np.inf)
    names = ("after_step", "model", "site", "loader", "samples", "forwards")
    keys = np.stack([np.nan_to_num(evals[name], nan=-1.0) for name in names], axis=1)
    _keys, inverse, counts = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    again = 1 - 1 / counts[inverse.reshape(-1)] >= share
    normalizes = np.array(["Norm" in (kinds or "") for kinds in evals.text("modules")], dtype=bool)
    reported = repeated & (np.nan_to_num(evals["statistics"]) > 0)
    return np.asarray((repeated | again) & (evals["dropouts"] > 0) & (~normalizes | reported), dtype=bool)


def _alike(forwards: Floats, among: Mask) -> Mask:
    """Where a pass has as many forwards as nearly all passes `among` the rows, shape [rows]; at least three have."""
    counts, times = np.unique(forwards[among & np.isfinite(forwards)], return_counts=True)
    if not len(times) or times.max() < max(_LEAST_PASSES, _NEARLY_ALL * times.sum()):
        return np.zeros(len(forwards), dtype=bool)
    return np.asarray(forwards == counts[int(np.argmax(times))], dtype=bool)


@measured_once
def training_loaders(process: Process) -> Floats:
    """Identifiers of the loaders whose batches fed training steps."""
    fed = process.steps["loader"]
    return np.unique(fed[np.isfinite(fed)])


@measured_once
def curve(process: Process) -> tuple[Floats, Floats, Floats]:
    """The validation curve: steps done before, losses, and samples per pass, each of shape [passes], in order.

    Only the most frequent kind of pass (validation set, line of the script, model, whether one loss stands for many
    calls), so that two validation sets do not mix, nor losses with a measure of generated samples. In a log made
    elsewhere, where nothing is known but the losses, those of the set that was evaluated most often, the first one of
    several. Non-finite losses stay in; evaluations of a test set or of training data do not count, nor do losses that
    a model puts out itself where the training lowers another one.
    """
    evals = process.evals
    chosen = passes(process) if evals.has("forwards") else np.ones(len(evals), dtype=bool)
    chosen = chosen & evals.known("loss") & ~evals.matches("purpose", "test") & ~evals.matches("purpose", "training")
    if not chosen.any() or loss_calls.own_beside_another(process):
        return np.empty(0), np.empty(0), np.empty(0)
    columns = [
        _named_sets(evals),
        _validation_sets(process, chosen),
        evals["site"],
        evals["model"],
        _of_many_calls(evals),
    ]
    keys = np.stack([np.nan_to_num(column, nan=-1.0) for column in columns], axis=1)
    _kinds, inverse, counts = np.unique(keys[chosen], axis=0, return_inverse=True, return_counts=True)
    frequent = np.flatnonzero(chosen)[inverse.reshape(-1) == int(np.argmax(counts))]
    return evals["after_step"][frequent], evals["loss"][frequent], evals["samples"][frequent]


def _of_many_calls(evals: Table) -> Floats:
    """1 for each pass with far more calls than losses, whose answer takes many calls; else 0. Shape [evals]."""
    losses = np.nan_to_num(evals["losses"])
    return np.where((losses > 0) & (np.nan_to_num(evals["forwards"]) >= _MANY_CALLS * losses), 1.0, 0.0)


def _named_sets(evals: Table) -> Floats:
    """A number for each name of an evaluated set, in the order of their first passes, shape [evals]."""
    names = evals.text("set")
    numbers = {name: float(index) for index, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], dtype=np.float64)


def of_training_data(process: Process) -> tuple[Floats, Floats]:
    """Evaluations of training data that a log holds: steps done before, and losses, each of shape [passes]."""
    evals = process.evals
    rows = evals.matches("purpose", "training") & evals.known("loss")
    return evals["after_step"][rows], evals["loss"][rows]


def _validation_sets(process: Process, chosen: Mask) -> Floats:
    """The loader of each pass, shape [evals]; one number for loaders that are made anew for every pass (Trainer does).

    Loaders of the same settings stand for one validation set if each served a single pass, and no two at the same step.
    """
    loaders, after = process.evals["loader"].copy(), process.evals["after_step"]
    alike: dict[tuple[object, ...], list[float]] = {}
    for row in process.loaders.records():
        settings = tuple(value for name, value in row.items() if name != "loader")
        alike.setdefault(settings, []).append(float(row["loader"]))
    for numbers in alike.values():
        rows = np.flatnonzero(chosen & np.isin(loaders, numbers))
        if len(rows) == len(np.unique(loaders[rows])) == len(np.unique(after[rows])):
            loaders[rows] = numbers[0]
    return loaders


def training_before(optimization: Optimization, after: Floats) -> Floats:
    """Median training loss before each validation, back to the validation before; NaN without one. Shape of `after`.

    `after`: steps that were done before each validation, in order.
    """
    losses = optimization.steps["loss"]
    bounds = np.concatenate(([0], np.searchsorted(timing.numbers(optimization), after, side="right")))
    parts = [losses[a:b][np.isfinite(losses[a:b])] for a, b in itertools.pairwise(bounds)]
    return np.array([np.median(part) if len(part) else np.nan for part in parts], dtype=np.float64)


def seconds_within_steps(process: Process, ends: Floats, seconds: Floats) -> Floats:
    """Time that evaluation passes took inside each step, shape [steps]. `ends` are the steps' end times."""
    spent = _within_steps(process, ends, process.evals["time_end"] - process.evals["time_start"])
    return np.minimum(spent, np.nan_to_num(seconds))


def forwards_within_steps(process: Process, ends: Floats) -> Floats:
    """Calls of models in evaluation passes inside each step, shape [steps]. `ends` are the steps' end times."""
    return _within_steps(process, ends, np.nan_to_num(process.evals["forwards"]))


def _within_steps(process: Process, ends: Floats, values: Floats) -> Floats:
    """Sums of what each evaluation pass has over the passes that end inside each step, shape [steps]."""
    total = np.zeros(len(ends))
    starts, stops = process.evals["time_start"], process.evals["time_end"]
    known = np.isfinite(starts) & np.isfinite(stops)
    if not known.any() or not np.isfinite(ends).all():
        return total
    row = np.searchsorted(ends, stops[known])
    inside = row < len(ends)
    np.add.at(total, row[inside], values[known][inside])
    return total

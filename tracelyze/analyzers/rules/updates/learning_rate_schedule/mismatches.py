"""The ways in which a scheduler does not fit the training that steps it, each with its words."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.computed.schedules.schedulers import known_rates
from tracelyze.analyzers.rules.updates.learning_rate_schedule import lengths_in_batches, plateaus, units
from tracelyze.analyzers.rules.updates.learning_rate_schedule.findings import Mismatch
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.settings import callers
from tracelyze.diagnosis import Setting
from tracelyze.formatting import listed, number, plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tracelyze.analyzers.computed.schedules.schedulers import Row
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

RETURNING: Final = ("CosineAnnealingLR",)  # beyond their length they climb again
LATE: Final = ("SWALR",)  # made for the last part of a training, which may end before
PER_STEP: Final = 0.9  # share of the steps: GradScaler skips some, and then a scheduler is not stepped either
FEWEST_EPOCHS: Final = 3  # one or two may be a trial of the script
ABOUT: Final = 1.25  # a length that counts batches may leave out the last, short batch of each epoch, or warm-up
CONFIGURE: Final = "configure_optimizers"  # a method of the model
TWENTIETH: Final = 0.05  # of the training: BERT and its successors warm up over one to ten percent
EQUAL: Final = 1e-3  # steps of a line, but for what rounding leaves of them
ALMOST: Final = 0.2  # of its length, or of its rate: a schedule that ends there has not been gone through
SHOWN: Final = 4  # milestones that a sentence can bear
WARM_UPS: Final = ("num_warmup_steps", "warmup_steps", "warmup_iters", "total_iters", "warmup")
_STEPS: Final = re.compile(r"\.step\s*\(")
_STEPPED: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\.step\(.*\)")
_METHOD: Final = re.compile(r"\(\s*self\b")
WARM_UP: Final = r"(?i)warm|\bramp"


def first(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """The first mismatch of these schedulers, which are those of this optimizer."""
    for judge in _JUDGES:
        found = judge(optimization, schedulers, limits)
        if found is not None:
            return found
    return None


def of_another_optimizer(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A scheduler whose optimizer never steps while this one, with the same tensors, keeps its rate."""
    rate = known_rates(optimization)
    scheduled = any(row["optimizer"] is not None and row["steps"] for row in schedulers)
    if len(optimization.process.optimizations) != 1 or rate.min() != rate.max() or scheduled:
        return None
    moved = [
        row for row in schedulers if row["shares_parameters"] and row["steps"] > 1 and row["lowest_lr"] != rate[-1]
    ]
    if not moved or len(optimization.steps) < limits["steps"]:
        return None
    row = moved[0]
    twin = next((one for one in schedulers if one["optimizer"] is not None and one["name"] == row["name"]), None)
    made = optimization.process.site(row["made_at"])
    home = made.function if made is not None and twin is not None and made.function.isidentifier() else ""
    again = (
        f"one optimizer and one {row['name']} are never stepped, as if {home or 'what makes them'} had been called "
        "twice."
        if twin is not None
        else "the optimizer was made again after the scheduler."
    )
    below = None if twin is not None else _helper_called_below(optimization, row)
    return Mismatch(
        scheduler=row,
        place=below[0] if below else None,
        title=f"{row['name']} drives an optimizer that never steps: the learning rate stays the same",
        what=f"{row['name']} was stepped {plural(row['steps'], 'time')} and moved its optimizer's rate "
        f"from {number(row['highest_lr'] or 0.0)} to {number(row['lowest_lr'] or 0.0)}, but the one that "
        f"steps holds the same parameters and stayed at {number(float(rate[-1]))}: {again}",
        fix="Take the optimizer and the scheduler from the same call of the function that makes them."
        if twin is not None
        else "Create the scheduler after the optimizer that is actually used, and pass it that one.",
        code=f"made = {'model.' if home == CONFIGURE else ''}{home or 'make_optimizer'}()  # once\n"
        "# optimizer and scheduler: both out of `made`"
        if twin is not None
        else below[1]
        if below
        else _made_below(optimization, row),
    )


def _runs_ahead(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A scheduler that is stepped per batch and whose length counts epochs: it is over many times over."""
    epochs = _epochs(optimization)
    for row in schedulers:
        per_step = row["steps"] >= PER_STEP * len(optimization.steps)
        horizon = row["horizon"]
        if not per_step or not horizon or row["name"] not in (*RETURNING, "PolynomialLR"):
            continue
        if epochs is None:
            counts_epochs = horizon <= limits["few"]
        else:
            counts_epochs = epochs >= FEWEST_EPOCHS and abs(horizon - epochs) <= 1
        if counts_epochs and row["steps"] >= limits["apart"] * horizon:
            then = "then rises and falls again, over and over" if row["name"] in RETURNING else "stays there"
            return Mismatch(
                scheduler=row,
                title=f"{row['name']} counts {horizon:,} epochs but is stepped after every batch",
                what=f"Its length is {horizon:,}, and it was stepped {row['steps']:,} times: the learning rate reaches "
                f"its end within {plural(horizon, 'batch')}, and {then}.",
                fix="Step it once per epoch, or give it the number of batches of the whole training.",
                code=units.PER_EPOCH,
                at_step=_is_stepped_in_script(optimization, row),
            )
    return None


def _milestones_of_epochs(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A MultiStepLR that is stepped per batch and has passed its last milestone after fewer batches than there are
    epochs, early in the training. One whose rate rises is a warm-up, and counts batches."""
    epochs, rate, count = _epochs(optimization), known_rates(optimization), len(optimization.steps)
    rows = [row for row in schedulers if row["name"] == "MultiStepLR" and row["steps"] >= PER_STEP * count]
    passed = np.flatnonzero(np.diff(rate)) + 1
    if len(rows) != 1 or len(rate) < count or (epochs or 0) < FEWEST_EPOCHS or not len(passed) or _rises(rate):
        return None
    if passed[-1] > (epochs or 0) or count < limits["apart"] * passed[-1]:
        return None
    at = listed([f"{one:,}" for one in passed], most=SHOWN)
    return Mismatch(
        scheduler=rows[0],
        title=f"{rows[0]['name']} counts epochs but is stepped after every batch",
        what=f"It cut the rate after {at} of {plural(count, 'batch')}, from {number(float(rate[0]))} to "
        f"{_last_rate(optimization)}, where it stayed. As batches, milestones so close to the start leave next to no "
        f"training at the higher rates. As epochs, of which there were {epochs:,}, they fit.",
        fix="Step it once per epoch, or give it its milestones as numbers of batches.",
        code=units.PER_EPOCH,
        at_step=_is_stepped_in_script(optimization, rows[0]),
        first=int(passed[0]),
        confidence="likely",
        false_alarm="A short start at a higher rate, meant in batches.",
    )


def _lags_behind(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A scheduler that is stepped per epoch and whose length counts batches: it hardly begins."""
    count = len(optimization.steps)
    if optimization.process.exit.kind != "finished" or len(schedulers) != 1:
        return None
    row, rate = schedulers[0], known_rates(optimization)
    if not 1 < row["steps"] <= count / limits["apart"]:
        return None
    counts_batches = bool(row["horizon"]) and count / ABOUT <= row["horizon"] <= count * ABOUT
    if row["horizon"] and (counts_batches or row["name"] != "LambdaLR"):
        hardly_begun = counts_batches and row["steps"] <= ALMOST * row["horizon"]
        what = (
            f"It was stepped once every {count // row['steps']:,} optimizer steps, and made for "
            f"{plural(row['horizon'], 'step')} of its own: the rate begins at {number(float(rate[0]))} and has come no "
            f"further than {_last_rate(optimization)} at the end."
        )
    else:
        hardly_begun = row["name"] == "LambdaLR" and _climbs(rate) and rate[-1] <= ALMOST * (row["base_lr"] or 0.0)
        what = (
            f"It was stepped once every {count // row['steps']:,} optimizer steps, and with each of its steps the rate "
            f"climbs. At the end it is {_last_rate(optimization)}, of {number(row['base_lr'] or 0.0)} that the "
            "optimizer was given: a warm-up that counts optimizer steps has hardly begun."
        )
    if not hardly_begun:
        return None
    return Mismatch(
        scheduler=row,
        title=f"{row['name']} is stepped only {plural(row['steps'], 'time')} in {count:,} steps",
        what=what,
        fix=f"Step it after every optimizer step{_line(optimization.step_location, _STEPS)}, or make its length count "
        f"epochs{_line(optimization.process.site(row['made_at']))}.",
        code=units.PER_BATCH,
        at_step=_is_stepped_in_script(optimization, row),
    )


def _never_warm(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A warm-up that is stepped with every step and is longer than the training, which came to its end."""
    rate, count = known_rates(optimization), len(optimization.steps)
    if optimization.process.exit.kind != "finished" or len(schedulers) != 1 or len(rate) < limits["idle"]:
        return None
    row = schedulers[0]
    climbs = _climbs(rate) and rate[-1] > rate[len(rate) // 2]
    if not climbs or rate[-1] <= 0 or row["steps"] < PER_STEP * count:
        return None
    reached, takes = _last_rate(optimization), _length_of_warm_up(rate, row)
    each = lengths_in_batches.batches_of_a_step(optimization)
    of_batches = each > 1 and takes >= ABOUT * count
    if rate[-1] > ALMOST * (row["base_lr"] or 0.0) and not of_batches:
        return None
    told = f" As it climbs, it would take about {takes:,} steps." if takes else ""
    fitting = max(1, round(takes / each if of_batches else TWENTIETH * count))
    if of_batches:
        told += f" A step accumulates {each} batches: counted in batches, {takes:,} make {plural(fitting, 'step')}."
    return Mismatch(
        scheduler=row,
        title=f"The warm-up of {row['name']} is longer than the training: the rate only reaches {reached}",
        what=f"In {count:,} steps the rate climbed all the time and reached {reached}, of "
        f"{number(row['base_lr'] or 0.0)} that it was to warm up to.{told}",
        fix=f"Count the warm-up and the length of the schedule in steps of the optimizer, not in batches: {each} "
        "batches make one."
        if of_batches
        else "Set the warm-up to a few percent of the actual number of steps, and adjust the rest of the schedule, "
        "such as its length, to match.",
        code=f"total_steps = {count}  # all that this training makes\nwarmup_steps = {fitting}"
        f"  # {f'{takes:,} batches' if of_batches else 'a twentieth of them'}",
        setting=Setting(WARM_UPS, (takes - 1, takes, takes + 1), str(fitting), called=WARM_UP) if takes else None,
        confidence="likely" if of_batches else None,
    )


def _length_of_warm_up(rate: Floats, row: Row) -> int:
    """How many steps a warm-up would take that climbs by the same amount in each; 0 for any other."""
    steps = np.diff(rate)
    if not np.allclose(steps, np.median(steps), rtol=EQUAL, atol=0.0):
        return 0
    return round(float((row["base_lr"] or 0.0) / np.median(steps)))


def _never_stepped(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A scheduler that was made and never stepped, by a training of several epochs that came to its end."""
    epochs, rate, count = _epochs(optimization), known_rates(optimization), len(optimization.steps)
    if epochs is None:
        long = count >= limits["idle"] * FEWEST_EPOCHS
    else:
        long = count >= limits["idle"] and epochs >= FEWEST_EPOCHS
    if optimization.process.exit.kind != "finished" or not long or any(row["steps"] for row in schedulers):
        return None
    waiting = [row for row in schedulers if row["name"] not in LATE]
    if len(waiting) != 1 or not len(rate) or rate.min() != rate.max():
        return None
    return Mismatch(
        scheduler=waiting[0],
        title=f"{waiting[0]['name']} is never stepped: the learning rate stays at {_last_rate(optimization)}",
        what=f"In {count:,} steps of the optimizer step() of this scheduler was not called once, so the schedule has "
        "no effect.",
        fix="Call scheduler.step() after every epoch, or after every optimizer step, as its length counts.",
        code=units.of_length(waiting[0]["horizon"], count, epochs, ABOUT),
    )


def _begun_early(optimization: Optimization, schedulers: Sequence[Row], limits: Limits) -> Mismatch | None:
    """A scheduler that was stepped once before the first step of its optimizer, and then once with each of them (or
    more rarely), so that its first rate is never used. One that begins at zero is helped over that on purpose."""
    count = len(optimization.steps)
    for row in schedulers:
        from_zero = (row["first_lr"] or 0.0) <= limits["zero"] * (row["base_lr"] or 0.0)
        once_more = row["steps"] == count  # beside the early one: begun on purpose
        if row["early"] != 1 or row["steps"] <= 1 or from_zero or once_more or row["lowest_lr"] is None:
            continue
        return Mismatch(
            scheduler=row,
            title=f"{row['name']} is stepped before the optimizer: its first rate is never used",
            what="The first step of the scheduler came before the first step of the optimizer, so the rate of "
            f"{number(row['first_lr'] or 0.0)} with which the schedule begins was never used, and every later "
            "one comes a turn too soon. torch warns of it once.",
            fix="Call scheduler.step() after optimizer.step(), at the end of the batch or of the epoch.",
            at_step=True,
        )
    return None


def _helper_called_below(optimization: Optimization, row: Row) -> tuple[Location, str] | None:
    """The only recorded call of the function that makes and returns the optimizer, and the call of the one that makes
    its scheduler of it, to stand below: a scheduler that a function returns is not made anew where that is defined."""
    process, made, stepped = optimization.process, optimization.made_at, optimization.process.site(row["site"])
    helper = process.site(row["made_at"])
    own, steps = own_statement.at(process, helper), own_statement.at(process, stepped)
    if made is None or helper is None or own is None or not isinstance(own.parsed.statement, ast.Return):
        return None
    calls = callers.of(process, made.function.rpartition(".")[2], made.file)
    head = callers.signature(process, helper)
    name = _STEPPED.fullmatch(code_of(steps.text).strip()) if steps is not None else None
    if len(calls) != 1 or head is None or len(head.names) != 1 or name is None:
        return None
    given = calls[0].own.parsed.statement
    if not isinstance(given, ast.Assign) or given.value is not calls[0].call or len(given.targets) != 1:
        return None
    again = callers.of(process, helper.function.rpartition(".")[2], helper.file)
    if any(one.place.file_function == calls[0].place.file_function for one in again):
        return None  # that is the call before the scheduler was made, and the later one was not recorded
    optimizer = ast.unparse(given.targets[0])
    owner = "self." if _METHOD.search(head.place.source) else ""
    if owner and not name["name"].startswith(owner):
        return None  # what the object is called there is not known
    called = f"{name['name']} = {owner}{helper.function.rpartition('.')[2]}({optimizer})"
    return calls[0].place, f"# below line {calls[0].place.line}:\n{called}"


def _made_below(optimization: Optimization, row: Row) -> str:
    """The line that makes the scheduler, to be moved; in words where it is not known."""
    own = own_statement.at(optimization.process, optimization.process.site(row["made_at"]))
    line = own.dedented(own.text) if own is not None and own.is_whole else "...  # the line that makes the scheduler"
    return f"# below the line that makes the optimizer which steps, with that optimizer:\n{line}"


_JUDGES: Final[tuple[Callable[[Optimization, Sequence[Row], Limits], Mismatch | None], ...]] = (
    _runs_ahead,
    _milestones_of_epochs,
    _lags_behind,
    _never_warm,
    lengths_in_batches.mismatch,
    _never_stepped,
    _begun_early,
    plateaus.wrong_way,
    plateaus.watches_no_number,
)


def _is_stepped_in_script(optimization: Optimization, row: Row) -> bool:
    """Whether a line of the script steps the scheduler, and that alone: it is the one to move. Where a framework steps
    it beside the optimizer, it follows what the script returns."""
    place, made = optimization.process.site(row["site"]), optimization.process.site(row["made_at"])
    alone = place is not None and _STEPS.search(place.source) is not None and place != optimization.step_location
    return alone and (made is None or made.function != CONFIGURE)


def _line(place: Location | None, says: re.Pattern[str] | None = None) -> str:
    """The number of a line, for a sentence; empty where it does not say this, as one that calls a framework."""
    return f" (line {place.line})" if place is not None and (says is None or says.search(place.source)) else ""


def _last_rate(optimization: Optimization) -> str:
    return number(float(optimization.steps["lr"][-1]))


def _climbs(rate: Floats) -> bool:
    return bool((np.diff(rate) >= 0).all()) and bool(rate[-1] > rate[0])


def _rises(rate: Floats) -> bool:
    return bool((np.diff(rate) > 0).any())


def _epochs(optimization: Optimization) -> int | None:
    """Passes over a loader; without one the evaluation passes, if there are several; None if neither is known."""
    if optimization.steps.has("loader") and np.isfinite(optimization.steps["loader"]).any():
        return int((optimization.steps["loader_first"] == 1).sum())
    after = optimization.process.evals["after_step"]
    return len(np.unique(after[after > 0])) or None

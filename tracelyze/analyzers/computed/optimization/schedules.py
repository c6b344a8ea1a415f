"""Learning-rate schedulers against the steps they were made for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.diagnosis import Confidence, Evidence, Finding, Mark, Severity
from tracelyze.formatting import number, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Location

Row = dict[str, Any]
RETURNING = ("CosineAnnealingLR",)  # beyond their length they climb again
OWN_RATE = ("OneCycleLR", "CyclicLR")  # are given rates, whatever the optimizer was made with
LATE = ("SWALR",)  # made for the last part of a training, which may end before
DECAYING = ("ExponentialLR", "StepLR")  # multiply the rate again and again, without an end
PER_STEP = 0.9  # share of the steps: GradScaler skips some, and then a scheduler is not stepped either
FEWEST_EPOCHS = 3  # one or two may be a trial of the script
ABOUT = 1.25  # a length that counts batches may leave out the last, short batch of each epoch, or warm-up
MATCH = 1e-3  # of a value: what is logged may be the mean of batches of unlike size
ALMOST = 0.2  # of its length, or of its rate: a schedule that ends there has not been gone through
UNITS = (
    "for epoch in range(epochs):\n    for batch in loader:\n        train_step(batch)\n"
    "        scheduler.step()  # here, if its length counts batches\n"
    "    # scheduler.step()  # or only here, if it counts epochs"
)

LIGHTNING: Final = (
    'return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}\n'
    '# "interval": "epoch", which Lightning takes without it, if the length of the schedule counts epochs'
)
"""The end of configure_optimizers, from which Lightning steps the scheduler itself."""

_GIVEN_RATE: Final = re.compile(r"\b(lr|max_lr)\s*=\s*\d[\d._]*(?:e[-+]?\d+)?(?=\s*[,)])", re.IGNORECASE)


def last_rows(process: Process) -> list[Row]:
    """What is known last of each scheduler."""
    return list({row["scheduler"]: row for row in process.tables["schedules"].records()}.values())


def rate_location(optimization: Optimization, raised: bool = False) -> Location | None:
    """The line that gives an optimizer its rate: its construction; that of its scheduler, where the scheduler is given
    a rate of its own, or has `raised` the optimizer's. The line of the step, where a framework makes both."""
    rows = [row for row in last_rows(optimization.process) if row["optimizer"] == optimization.optimizer]
    outer = [row for row in rows if not row["inner"]]
    scheduler = outer[0] if len(outer) == 1 and (raised or outer[0]["name"] in OWN_RATE) else None
    if scheduler is not None:
        return optimization.process.site(scheduler["made_at"]) or optimization.step_location
    return (None if raised else optimization.made_at) or optimization.step_location


def with_rate(optimization: Optimization, rate: float) -> str:
    """An example that sets this rate: the line that gives it, where that says it in numbers."""
    place = rate_location(optimization)
    line = place.source.strip() if place else ""
    if len(_GIVEN_RATE.findall(line)) == 1 and line.count("(") == line.count(")"):
        return _GIVEN_RATE.sub(rf"\g<1>={rate:.2g}", line)
    if "OneCycleLR" in line:
        return f"scheduler = OneCycleLR(optimizer, max_lr={rate:.2g}, total_steps=total_steps)"
    name = optimization.facts.get("name")
    by_name = f"optimizer = torch.optim.{name}(model.parameters(), lr={rate:.2g})"
    return by_name if name else f'for group in optimizer.param_groups:\n    group["lr"] = {rate:.2g}'


def runs_ahead(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A scheduler that is stepped per batch and whose length counts epochs: it is over many times over."""
    epochs = _epochs(optimization)
    for row in rows:
        per_step = row["steps"] >= PER_STEP * len(optimization.steps)
        horizon = row["horizon"]
        if per_step and horizon and row["name"] in (*RETURNING, "PolynomialLR"):
            counts_epochs = epochs is not None and epochs >= FEWEST_EPOCHS and abs(horizon - epochs) <= 1
            counts_epochs |= epochs is None and horizon <= limits["few"]
            if counts_epochs and row["steps"] >= limits["apart"] * horizon:
                return row
    return None


def cause_of_zero(optimization: Optimization, row: Row | None) -> tuple[str, str, str, bool]:
    """Why a rate ends at zero, what to do, an example, and whether the call of the scheduler's step is to change."""
    by_script = row is not None and optimization.process.site(row["site"]) is not None  # and not by a framework
    if row and by_script and row["name"] in DECAYING and row["steps"] >= PER_STEP * len(optimization.steps):
        cause = f" {row['name']} multiplies the rate again and again, and is stepped with every batch."
        return cause, "Step it once per epoch, or let it decay as much more slowly.", UNITS, True
    cause = ""
    if row and row["horizon"]:
        cause = f" {row['name']} lasts {row['horizon']:,} steps, and was stepped {row['steps']:,} times."
    fix = "Give the schedule the number of steps that the training really makes, in the unit in which it is stepped."
    code = "scheduler = CosineAnnealingLR(optimizer, T_max=epochs * len(loader))  # stepped after every batch"
    return cause, fix, code, False


def lags_behind(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A scheduler that is stepped per epoch and whose length counts batches: it hardly begins."""
    count = len(optimization.steps)
    if optimization.process.exit.kind != "finished" or len(rows) != 1:
        return None
    row = rows[0]
    if not 1 < row["steps"] <= count / limits["apart"]:
        return None
    if row["horizon"]:
        counts_batches = count / ABOUT <= row["horizon"] <= count * ABOUT
        return row if counts_batches and row["steps"] <= ALMOST * row["horizon"] else None
    rate = optimization.steps["lr"][np.isfinite(optimization.steps["lr"])]
    climbs = bool((np.diff(rate) >= 0).all()) and rate[-1] > rate[0]
    warming = row["name"] == "LambdaLR" and climbs and rate[-1] <= ALMOST * (row["base_lr"] or 0.0)
    return row if warming else None


def never_warm(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A warm-up that is stepped with every step and is longer than the training, which came to its end."""
    rate = optimization.steps["lr"][np.isfinite(optimization.steps["lr"])]
    if optimization.process.exit.kind != "finished" or len(rows) != 1 or len(rate) < limits["idle"]:
        return None
    row = rows[0]
    climbs = bool((np.diff(rate) >= 0).all()) and rate[-1] > rate[len(rate) // 2] > rate[0]
    warming = climbs and 0 < rate[-1] <= ALMOST * (row["base_lr"] or 0.0)
    return row if warming and row["steps"] >= PER_STEP * len(optimization.steps) else None


def never_stepped(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A scheduler that was made and never stepped, by a training of several epochs that came to its end."""
    epochs = _epochs(optimization)
    long = len(optimization.steps) >= limits["idle"] * (FEWEST_EPOCHS if epochs is None else 1)
    long = long and (epochs is None or epochs >= FEWEST_EPOCHS)
    if optimization.process.exit.kind != "finished" or not long or any(row["steps"] for row in rows):
        return None
    rows = [row for row in rows if row["name"] not in LATE]
    rate = optimization.steps["lr"][np.isfinite(optimization.steps["lr"])]
    return rows[0] if len(rows) == 1 and len(rate) and rate.min() == rate.max() else None


def begun_early(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A scheduler that was stepped once before the first step of its optimizer, and then once with each of them (or
    more rarely), so that its first rate is never used. One that begins at zero is helped over that on purpose."""
    count = len(optimization.steps)
    for row in rows:
        from_zero = (row["first_lr"] or 0.0) <= limits["zero"] * (row["base_lr"] or 0.0)
        once_more = row["steps"] == count  # beside the early one: begun on purpose
        if row["early"] == 1 and row["steps"] > 1 and not from_zero and not once_more and row["lowest_lr"] is not None:
            return row
    return None


def wrong_way(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A ReduceLROnPlateau that cuts the rate while what it watches gets better: a loss that falls under "max", or a
    share of right answers that rises under "min"."""
    evals = optimization.process.evals
    for row in rows:
        first, last = row["watched_first"], row["watched_last"]
        if first is None or last is None or row["steps"] < FEWEST_EPOCHS or not row["lowest_lr"]:
            continue
        if row["lowest_lr"] > limits["cut"] * row["highest_lr"]:
            continue
        losses, counts = evals["loss"], evals["samples"]
        a_loss = bool(np.isclose(losses[np.isfinite(losses)], last, rtol=MATCH, atol=0.0).any())
        if row["mode"] == "max" and a_loss and 0 < last <= limits["better"] * first:
            return row
        counts = np.unique(counts[np.isfinite(counts) & (counts >= limits["samples"])])
        whole = [all(_is_whole(value * count) for value in (first, last)) for count in counts]
        if row["mode"] == "min" and not a_loss and any(whole) and 0 <= first <= limits["better"] * last <= last <= 1:
            return row
    return None


def leap(optimization: Optimization, limits: Limits) -> int | None:
    """The row from which on the rate is far above all rates before it, if the losses after that are far above theirs.

    Restarts and cycles come back to a rate that was there before, and a warm-up climbs in small steps.
    """
    rate, loss = optimization.steps["lr"], optimization.steps["loss"]
    highest = np.fmax.accumulate(np.nan_to_num(rate))
    above = (highest[:-1] > 0) & (rate[1:] >= limits["leap"] * highest[:-1])
    rows = np.flatnonzero(above) + 1
    rows = rows[rows >= limits["steps"]]
    if not len(rows):
        return None
    row, around = int(rows[0]), int(limits["steps"]) // 2
    before, after = loss[row - around : row + 1], loss[row + 1 : row + 1 + around]  # a loss comes before its step
    if not np.isfinite(before).all() or len(after) < around // 2 or np.median(before) <= 0:
        return None
    broken = bool(np.isfinite(after).any()) and not np.isfinite(after).all()
    higher = np.median(after) >= limits["harm"] * np.median(before) and np.median(after) > before.max()
    return row if broken or higher else None


def _is_whole(value: float) -> bool:
    return abs(value - round(value)) <= MATCH


def _epochs(optimization: Optimization) -> int | None:
    """Passes over a loader; without one the evaluation passes, if there are several; None if neither is known."""
    if optimization.steps.has("loader") and np.isfinite(optimization.steps["loader"]).any():
        return int((optimization.steps["loader_first"] == 1).sum())
    after = optimization.process.evals["after_step"]
    return len(np.unique(after[after > 0])) or None


def of_another_optimizer(optimization: Optimization, rows: list[Row], limits: Limits) -> Row | None:
    """A scheduler whose optimizer never steps while this one, with the same tensors, keeps its rate."""
    rate = optimization.steps["lr"][np.isfinite(optimization.steps["lr"])]
    scheduled = any(row["optimizer"] is not None for row in rows)
    if len(optimization.process.optimizations) != 1 or rate.min() != rate.max() or scheduled:
        return None
    moved = [row for row in rows if row["shares_parameters"] and row["steps"] > 1 and row["lowest_lr"] != rate[-1]]
    return moved[0] if moved and len(optimization.steps) >= limits["steps"] else None


def words(optimization: Optimization, row: Row, judge: Any) -> tuple[str, str, str]:
    """Title, what happened, and what to do, for one of the judges above."""
    count, last = len(optimization.steps), number(float(optimization.steps["lr"][-1]))
    if judge is runs_ahead:
        return (
            f"{row['name']} counts {row['horizon']:,} epochs but is stepped after every batch",
            (
                f"Its length is {row['horizon']:,}, and it was stepped {row['steps']:,} times: the rate falls to its "
                f"end within {plural(row['horizon'], 'batch')} and does not follow the training from there on."
            ),
            "Step it once per epoch, or give it the number of batches of the whole training.",
        )
    if judge is lags_behind:
        length = f"for {plural(row['horizon'], 'step')}" if row["horizon"] else "to be stepped more often"
        return (
            f"{row['name']} is stepped only {plural(row['steps'], 'time')} in {count:,} steps",
            (
                f"It is made {length}, and the training stepped it only every {count // row['steps']:,} optimizer "
                f"steps. The rate ends at {last}, of {number(row['base_lr'] or 0.0)} that it was to reach or to start "
                "from."
            ),
            "Step it after every optimizer step, or make its length count epochs.",
        )
    if judge is begun_early:
        return (
            f"{row['name']} is stepped before the optimizer: its first rate is never used",
            (
                "The first step of the scheduler came before the first step of the optimizer, so the rate of "
                f"{number(row['first_lr'] or 0.0)} with which the schedule begins was never used, and every later "
                "one comes a turn too soon. torch warns of it once."
            ),
            "Call scheduler.step() after optimizer.step(), at the end of the batch or of the epoch.",
        )
    if judge is never_warm:
        return (
            f"The warm-up of {row['name']} is longer than the training: the rate only reaches {last}",
            (
                f"In {count:,} steps the rate climbed all the time and reached {last}, of "
                f"{number(row['base_lr'] or 0.0)} that it was to warm up to."
            ),
            "Make the warm-up a few percent of the steps that the training really makes.",
        )
    if judge is wrong_way:
        falls = row["mode"] == "max"
        return (
            f"{row['name']} in mode {row['mode']} cuts the rate while what it watches gets better",
            (
                f"It watches {'a loss' if falls else 'a share of right answers'}, which went from "
                f"{number(row['watched_first'])} to {number(row['watched_last'])}, and takes that for a plateau: it "
                f"cut the rate from {number(row['highest_lr'])} to {number(row['lowest_lr'])}."
            ),
            (
                f'Use mode="{"min" if falls else "max"}" for a value that is to '
                f"{'fall, such as a loss' if falls else 'rise, such as an accuracy'}."
            ),
        )
    return (
        f"{row['name']} is never stepped: the learning rate stays at {last}",
        f"In {count:,} steps scheduler.step() was not called once, so the schedule has no effect.",
        "Call scheduler.step() after every epoch, or after every optimizer step, as its length counts.",
    )


def finding(
    optimization: Optimization,
    row: Row | None,
    rule: str,
    *,
    title: str,
    what: str,
    fix: str,
    code: str,
    evidence: list[Evidence],
    first: int = 0,
    severity: Severity = "warning",
    confidence: Confidence | None = None,
    at_step: bool = False,
) -> Finding:
    """A finding about the rate from row `first` of the steps on. `at_step`: the call of the scheduler's step is to
    change, not its construction."""
    begin = timing.step_at(optimization, first)
    affected = np.arange(len(optimization.steps)) >= first
    stepped = (optimization.process.site(row["site"]) if row else None) or optimization.step_location
    made = optimization.process.site(row["made_at"]) if row and not at_step else None
    marks = [Mark(float(begin), "from here on")] if first else []
    rates = pictures.over_steps(optimization, "Learning rate", "rate", {"learning rate": "lr"}, marks)
    return Finding(
        rule=rule,
        severity=severity,
        confidence=confidence or ("certain" if severity == "critical" or first else "likely"),
        title=title,
        summary=what,
        fix=fix,
        fix_code=LIGHTNING if made and made.function == "configure_optimizers" else code,
        first_step=begin,
        last_step=timing.last_step(optimization),
        first_second=timing.second_at(optimization, first),
        evidence=evidence,
        cost=timing.cost_of(optimization, affected) if first or severity == "critical" else None,
        location=made or stepped,
        seen_at=stepped,
        charts=rates + pictures.loss(optimization),
        false_alarm="A pause of the training that is planned, or a part of a longer schedule.",
    )


def leap_finding(optimization: Optimization, at: int, row: Row | None, rule: str, limits: Limits) -> Finding:
    """The finding about a leap of the rate at this row of the steps, by this scheduler, or by the script itself."""
    rate, step = optimization.steps["lr"], timing.step_at(optimization, at)
    highest, leapt = float(np.nanmax(rate[:at])), float(rate[at])
    return finding(
        optimization,
        row,
        rule,
        title=f"The learning rate leaps from {number(highest)} to {number(leapt)} at step {step:,}; the loss follows",
        what=f"{row['name'] if row else 'The script'} sets a rate that is {number(leapt / highest)} times the highest "
        "before it, from one step to the next, and the losses that follow are far above those before.",
        fix="Look at what the schedule gives for this step: a division by almost zero, a counter that starts anew, or "
        "a factor that is applied to a rate which it has changed already.",
        code="lr_lambda = lambda step: min((step + 1) / warmup, (warmup / (step + 1)) ** 0.5)  # never above 1",
        evidence=[Evidence("rate over the highest before", leapt / highest, "", limits["leap"], limits.source("leap"))],
        first=at,
        confidence="likely",
    )

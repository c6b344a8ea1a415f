"""autocast-not-applied: an autocast region is open, and the matrix products run in float32 all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

CASTING = (1, 2)  # to float16, to bfloat16


def check(process: Process, limits: Limits) -> Outcome:
    """The dtype that linear layers and convolutions put out under autocast; and regions that hold the loss alone."""
    optimization = process.longest
    on = np.isin(optimization.steps["autocast"], CASTING)
    calls = [row for row in process.tables["loss_calls"].records() if row["training"] and row["autocast"] is not None]
    around = [row for row in calls if row["autocast"] in CASTING]
    if not on.any():
        if len(around) >= max(limits["calls"], limits["share"] * len(calls)):
            return [_around_the_loss(process, optimization, float(around[0]["site"] or np.nan), len(around), limits)]
        return Skipped("no training forward ran under autocast", "not-applicable")
    if on.mean() < limits["share"]:
        return Passed("autocast is on in a part of the steps")
    products = [row for row in process.tables["activations"].records() if row["inputs"] and row["outputs"]]
    if len(products) < limits["looks"]:
        return Skipped("no linear layer or convolution was looked at")
    work = np.array([float(row["elements"]) * float(row["inputs"]) for row in products])
    wide = np.array([row["dtype"] in ("float32", "float64") for row in products])
    share = float(work[wide].sum() / work.sum())
    if share < limits["wide"]:
        return Passed(f"{percent(1 - share)} of the work in linear layers and convolutions runs in 16 bits")
    names = list(dict.fromkeys(row["module"] for row, is_wide in zip(products, wide, strict=True) if is_wide))
    return [_inside(optimization, names, share, limits)]


def _inside(optimization: Optimization, names: list[str], share: float, limits: Limits) -> Finding:
    shown = listed(names, most=3)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Autocast is on, and {percent(share)} of the matrix products run in float32",
        summary=(
            f"The training forward runs under autocast, but {shown} put out float32: {percent(share)} of the work in "
            "linear layers and convolutions is what it would be without. An inner region with enabled=False, a "
            "region for another kind of device, or a function of torch that autocast does not know does that."
        ),
        fix="Look for autocast(enabled=False) around these modules, and name the device that the tensors are on.",
        fix_code="with torch.autocast(x.device.type, dtype=torch.bfloat16):\n    out = model(x)",
        first_step=timing.step_at(optimization, 0),
        evidence=[
            Evidence("work in float32", share, "share", limits["wide"], limits.source("wide")),
            Evidence("modules", shown),
        ],
        location=optimization.backward_location,
        false_alarm="A model that must compute in float32, in a program that opens the region for others.",
    )


def _around_the_loss(process: Process, optimization: Optimization, site: float, calls: int, limits: Limits) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title="The autocast region holds the loss, and not the model",
        summary=(
            f"The loss is computed under autocast ({plural(calls, 'call')} seen), and the model is "
            "called outside of it: all of its products run in float32, and the region buys nothing. (Most losses are "
            "computed in float32 under autocast as well.)"
        ),
        fix="Call the model inside of the region.",
        fix_code="with torch.autocast(x.device.type, dtype=torch.bfloat16):\n    out = model(x)\n"
        "    loss = criterion(out, y)",
        first_step=timing.step_at(optimization, 0),
        evidence=[
            Evidence("losses under autocast", calls, "calls", limits["calls"], limits.source("calls")),
            Evidence("training forwards under autocast", 0, "forwards"),
        ],
        location=process.site(site) or optimization.loss_location,
        false_alarm="A model that must compute in float32, with a loss that may not.",
    )


RULE = Rule(
    id="autocast-not-applied",
    family="precision",
    severity="warning",
    title="Autocast without effect",
    about="Autocast pays where matrix products run in 16 bits. A region that does not reach them changes nothing.",
    check=check,
    verify="Record the run again: linear layers and convolutions put out 16-bit numbers.",
    excluded=(
        "Norms, losses and softmax, which autocast keeps in float32: only matrix products were counted.",
        "A head that is kept in float32 on purpose: it is a small part of the work.",
    ),
    absent="No training forward ran under autocast.",
    needs=(("steps.autocast", "activations.dtype"), ("steps.autocast", "loss_calls.autocast")),
    thresholds=(
        Threshold("share", 0.9, "share", "of the steps or calls: as the line is written"),
        Threshold("wide", 0.5, "share", "of the work; a head in float32 by choice is less than half"),
        Threshold("looks", 4, "measurements", "at layers with products"),
        Threshold("calls", 5, "calls", "one may be a test"),
    ),
    not_when="enabled=False, norms and losses in float32, a small head in float32.",
    references=("https://docs.pytorch.org/docs/stable/amp.html",),
)

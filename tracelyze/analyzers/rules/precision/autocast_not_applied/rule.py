"""autocast-not-applied: an autocast region is open, and the matrix products run in float32 all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.rule import Limits, Outcome, Passed, Rule, Skipped, Threshold
from tracelyze.analyzers.rules.precision.autocast_not_applied import products as own_products
from tracelyze.analyzers.rules.precision.autocast_not_applied import regions, uncast_products
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import listed, percent, plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

CASTING = (1, 2)  # to float16, to bfloat16
NEEDED = ("activations.dtype", "loss_calls.autocast", "loss_graphs.products_work")


def check(process: Process, limits: Limits) -> Outcome:
    """The dtype that products put out under autocast; and regions that hold the loss alone."""
    optimization = process.longest
    on = np.isin(optimization.steps["autocast"], CASTING)
    calls = uncast_products.of_steps(process, process.tables["loss_calls"].records())
    calls = [row for row in calls if row["training"] and row["autocast"] is not None]
    around = [row for row in calls if row["autocast"] in CASTING]
    if not on.any():
        if len(around) >= max(limits["calls"], limits["share"] * len(calls)):
            return [_around_the_loss(process, optimization, float(around[0]["site"] or np.nan), len(around), limits)]
        return Skipped("no training forward ran under autocast", "not-applicable")
    if on.mean() < limits["share"]:
        return Passed("autocast is on in a part of the steps")
    products = uncast_products.looked_at(process, on)
    behind = uncast_products.behind_losses(process, on, products)
    enough = behind is not None and behind.losses >= limits["losses"]
    if len(products) < limits["looks"] and not enough:
        return Skipped("no linear layer or convolution was looked at")
    work, wide = uncast_products.of_layers(products)
    share = float(work[wide].sum() / work.sum()) if len(work) else 0.0
    if len(products) < limits["looks"] or share < limits["wide"]:
        if behind is not None and enough and behind.share >= limits["wide"]:
            return [_without_layers(optimization, behind, limits)]
        share = share if behind is None or len(products) >= limits["looks"] else behind.share
        return Passed(f"{percent(1 - share)} of the work in products that were looked at runs in 16 bits")
    names = list(dict.fromkeys(row["module"] for row, is_wide in zip(products, wide, strict=True) if is_wide))
    return [_inside(optimization, names, share, limits)]


def _inside(optimization: Optimization, names: list[str], share: float, limits: Limits) -> Finding:
    shown, off = listed(names, most=3), regions.away(optimization)
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title=f"Autocast is on, and {percent(share)} of the matrix products run in float32",
        summary=(
            f"The training forward runs under autocast, but {shown} put out float32: {percent(share)} of the work in "
            "linear layers and convolutions runs as it would without autocast. Possible causes: an inner region with "
            "enabled=False, a region for another device type, or a torch function that autocast does not cover."
        ),
        fix=off.fix,
        fix_code=off.code,
        first_step=timing.step_at(optimization, 0),
        evidence=[
            Evidence("work in float32", share, "share", *limits.against("wide")),
            Evidence("modules", shown),
        ],
        location=off.place or optimization.backward_location,
        seen_at=optimization.backward_location,
        false_alarm="A model that must compute in float32, in a program that opens the region for other models.",
    )


def _without_layers(optimization: Optimization, behind: uncast_products.Products, limits: Limits) -> Finding:
    line = script_lines.only(optimization.process, "in-place-product")
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="likely",
        title=f"Autocast is on, and {percent(behind.share)} of the matrix products run in float32",
        summary=(
            f"The training forward runs under autocast, but {percent(behind.share)} of the work in its matrix products "
            "gives results in float32. No linear layer or convolution makes these products. Autocast reaches functions "
            "that return a new tensor. Products in place (addmm_, baddbmm_), into a given tensor (out=), or within a "
            "function with a backward of its own run in the types that they find."
        ),
        fix="Write the product so that it returns a new tensor, as F.linear, torch.addmm and @ do.",
        fix_code=own_products.anew(optimization.process, line) or own_products.SKETCH,
        first_step=timing.step_at(optimization, 0),
        evidence=[
            Evidence("work in float32", behind.share, "share", *limits.against("wide")),
            Evidence("losses looked at", behind.losses, "losses", *limits.against("losses")),
        ],
        location=line or optimization.backward_location,
        seen_at=optimization.backward_location if line else None,
        false_alarm="Products that must be computed in float32, in a region opened for what is around them.",
    )


def _around_the_loss(process: Process, optimization: Optimization, site: float, calls: int, limits: Limits) -> Finding:
    return Finding(
        rule=RULE.id,
        severity="warning",
        confidence="certain",
        title="The autocast region covers the loss but not the model",
        summary=(
            f"The loss is computed under autocast ({plural(calls, 'call')} seen), but the model is called outside it: "
            "the region does not reach its matrix products, and gains nothing. (Under autocast, most losses run in "
            "float32 anyway.)"
        ),
        fix="Call the model inside the region.",
        fix_code=own_products.within(process, process.site(site) or optimization.loss_location) or own_products.REGION,
        first_step=timing.step_at(optimization, 0),
        evidence=[
            Evidence("losses under autocast", calls, "calls", *limits.against("calls")),
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
    about="Autocast pays off when matrix products run in 16 bits. A region that does not cover them changes nothing.",
    check=check,
    verify="Record the run again: matrix products and convolutions output 16-bit numbers.",
    excluded=(
        "Norms, losses and softmax, which autocast keeps in float32: only matrix products were counted.",
        "A head that is kept in float32 on purpose: it is a small part of the work.",
    ),
    absent="No training forward ran under autocast.",
    needs=tuple(("steps.autocast", one) for one in NEEDED),
    thresholds=(
        Threshold("share", 0.9, "share", "of the steps or calls: as the line is written"),
        Threshold("wide", 0.5, "share", "of the work; a head in float32 by choice is less than half"),
        Threshold("looks", 4, "measurements", "at layers with products"),
        Threshold("losses", 3, "losses", "of the first few, whose graphs are walked from end to end"),
        Threshold("calls", 5, "calls", "one may be a test"),
    ),
    not_when="enabled=False, norms and losses in float32, a small head in float32.",
    references=("https://docs.pytorch.org/docs/stable/amp.html",),
)

"""Training data in the order of their labels: what is said of it, and the line that should have mixed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.computed.data import validation
from tracelyze.analyzers.evidence import pictures
from tracelyze.analyzers.rules.data.no_shuffle import drawn_orders, label_order, reading_order
from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import loader_arguments, own_expressions
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]

_ONE: Final = "most batches hold one of them"


def finding(process: Process, rule: str, loader: Row, rows: list[Row], spread: float, limits: Limits) -> Finding:
    """The finding about batches with these labels, which cover a `spread` of their range each. `loader`: its row, empty
    where no loader made them."""
    least, source = limits.against("batches")
    first = rows[0]
    by, rows = _in_order(process, loader, rows)
    shown = label_order.shown(rows[:: len(rows) // 4])
    read = f"The loader reads {loader['dataset']}" if loader else "The data are read, by no loader,"
    # `spread` is a median, and a batch may lie on the border of two labels.
    held = f"half of the batches cover at most {percent(spread)} of their range" if spread else _ONE
    training = validation.training_loaders(process).tolist()
    fix, code, diff, place, setting = loader_arguments.shuffling(process, loader, training)
    place = place or script_lines.batches(process) or process.site(first.get("site"))
    unused = drawn_orders.thrown_away(process)
    if unused is not None:
        place, diff = unused
        fix = "Use the order that this line draws: it returns a new one, and leaves what it is given as it is."
    return Finding(
        rule=rule,
        severity="critical",
        confidence="certain" if loader and reading_order.keeps_it(loader) else "likely",
        title="Training data are sorted by label and never shuffled",
        summary=(
            f"{read} in the order of the labels: {held} (labels of some batches, {by}: {shown}). Each batch pulls "
            "the network towards the labels that it holds, and the last batches of an epoch win."
        ),
        fix=fix,
        fix_code="order = rng.permutation(order)"
        if unused is not None
        else code
        if loader
        else own_expressions.in_a_new_order(place),
        first_step=int(first["step"] or 0) + 1,
        evidence=[
            Evidence("sampler", loader.get("sampler") or "none", role="setting"),
            Evidence("range of labels within a batch", spread, "share", *limits.against("width"), role="most"),
            Evidence("batches looked at", len(rows), "batches", least, source, role="basis"),
        ],
        location=place,
        seen_at=process.site(loader["site"] if loader else first.get("site")),
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="An order that is the point of the training, such as a curriculum from class to class.",
        diff=diff,
        setting=setting if unused is None else None,
    )


def _in_order(process: Process, loader: Row, rows: list[Row]) -> tuple[str, list[Row]]:
    """The batches by their places in a pass, where each pass has the same order; else by their steps. In words, too."""
    at = np.array([row["step"] or 0 for row in rows])
    if not loader or not process.optimizations or not reading_order.keeps_it(loader):
        return "by step", [rows[one] for one in np.argsort(at, kind="stable")]
    steps = process.longest.steps
    begins = np.flatnonzero((steps["loader"] == loader["loader"]) & (steps["loader_first"] == 1))
    if not len(begins) or at.min() < begins[0]:
        return "by step", [rows[one] for one in np.argsort(at, kind="stable")]
    places = at - begins[np.searchsorted(begins, at, side="right") - 1]
    return "in the order of a pass", [rows[one] for one in np.argsort(places, kind="stable")]

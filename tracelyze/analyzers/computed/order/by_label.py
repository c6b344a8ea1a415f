"""Training data in the order of their labels: what is said of it, and the line that should have mixed them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracelyze.analyzers.computed.data import label_order, validation
from tracelyze.analyzers.computed.order import reading_order
from tracelyze.analyzers.evidence import pictures, script_lines
from tracelyze.analyzers.evidence.editing import loader_arguments, own_expressions
from tracelyze.analyzers.evidence.editing.remade import drawn_orders
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.rule import Limits

Row = dict[str, Any]


def finding(process: Process, rule: str, loader: Row, rows: list[Row], spread: float, limits: Limits) -> Finding:
    """The finding about batches with these labels, which cover a `spread` of their range each. `loader`: its row, empty
    where no loader made them."""
    least, source = limits.against("batches")
    shown = label_order.shown(rows[:: len(rows) // 4])
    read = f"The loader reads {loader['dataset']}" if loader else "The data are read, by no loader,"
    held = f"covers {percent(spread)} of their range" if spread else "holds one of them"
    training = validation.training_loaders(process).tolist()
    fix, code, diff, place, setting = loader_arguments.shuffling(process, loader, training)
    place = place or script_lines.batches(process) or process.site(rows[0].get("site"))
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
            f"{read} in the order of the labels: a batch {held} (labels of some batches: {shown}). Each batch pulls "
            "the network towards the labels that it holds, and the last batches of an epoch win."
        ),
        fix=fix,
        fix_code="order = rng.permutation(order)"
        if unused is not None
        else code
        if loader
        else own_expressions.in_a_new_order(place),
        first_step=int(rows[0]["step"] or 0) + 1,
        evidence=[
            Evidence("sampler", loader.get("sampler") or "none", role="setting"),
            Evidence("range of labels within a batch", spread, "share", *limits.against("width"), role="most"),
            Evidence("batches looked at", len(rows), "batches", least, source, role="basis"),
        ],
        location=place,
        seen_at=process.site(loader["site"] if loader else rows[0].get("site")),
        charts=pictures.loss(process.longest) if process.optimizations else [],
        false_alarm="An order that is the point of the training, such as a curriculum from class to class.",
        diff=diff,
        setting=setting if unused is None else None,
    )

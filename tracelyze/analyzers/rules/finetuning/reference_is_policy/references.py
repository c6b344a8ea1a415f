"""How the reference of a preference loss comes to have the trained model's weights, and what gives it its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.rules.finetuning.reference_is_policy import own_copies
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.remedy import Remedy, example_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

SAME: Final = "are one and the same module"
SHARED: Final = "share the memory of their weights"
EQUAL: Final = "are equal at every measurement, although they are trained"

_WRITTEN_OVER: Final = (
    "Give the reference its weights once, before training: what loads the trained weights into it at every step "
    "belongs in front of the loop."
)
_ASSIGNED: Final = (
    "Give the reference copies: assign=True in line {} makes the trained model's own tensors its parameters. Or drop "
    "assign=True, where the reference has parameters of its own already."
)
_SHALLOW: Final = "Copy all of the model before training, for a reference in eval mode and without gradients."
_COPY: Final = (
    "Keep a copy of the model from before training, in eval mode and without gradients. With adapters, compute the "
    "reference with the adapters disabled instead."
)


def how_alike(measured: list[dict[str, Any]]) -> str:
    """What the two models have in common, as a predicate: one of SAME, SHARED and EQUAL. `measured`: rows of the table
    references in which they are alike."""
    if any(row["same"] for row in measured):
        return SAME
    return SHARED if any(row["shared"] == 1 for row in measured) else EQUAL


def remedy(process: Process, how: str, compared: Location | None, looks: float) -> Remedy:
    """What gives the reference weights of its own. `compared`: the line that asks the reference; `looks`: loads of the
    trained weights from which on they are made in the loop."""
    made = own_copies.made(process)
    general = Remedy(_COPY, own_copies.of_model(process, made, compared), made or compared)
    if how == EQUAL:
        written = _written_over(process, looks)
        once = f"{written.source}  # once, in front of the loop, and not in it" if written else ""
        return Remedy(_WRITTEN_OVER, once, written) if written else general
    assigned = own_copies.assigned(process) if how == SHARED else None
    if assigned:
        edit = line_edits.given_copies(process, assigned)
        return Remedy(_ASSIGNED.format(assigned.line), example_of(edit) if edit else "", assigned, edit)
    deep = own_copies.deep(process, made) if how == SHARED else None
    if deep:
        return Remedy(_SHALLOW, example_of(deep), made, deep, own_copies.shallow(deep))
    wrapped = own_copies.wrapped(process, compared) if how == SHARED and not made else None
    return Remedy(wrapped.fix, general.code, wrapped.place, why=wrapped.why) if wrapped else general


def _written_over(process: Process, looks: float) -> Location | None:
    """The only line that loads weights of another module again and again as training goes on."""
    loads = process.tables["loads"]
    sites = [row["site"] for row in loads.records() if row["from_other"] and (row["step"] or 0) > 0]
    return process.site(sites[0]) if len(sites) >= looks and len(set(sites)) == 1 else None

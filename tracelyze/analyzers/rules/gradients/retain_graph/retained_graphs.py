"""What to change where backwards with retain_graph=True pile up graphs: the backward, and what keeps their tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.rules.gradients.retain_graph import one_backward
from tracelyze.analyzers.script import carried_states, kept_tensors, line_edits
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.storing import averages, handed_over
from tracelyze.analyzers.script.remedy import Remedy, example_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.script.kept_tensors import Kept
    from tracelyze.diagnosis import Diff

LAST: Final = "loss.backward()  # the last one of the step; those before it may need retain_graph=True"
_UNKNOWN: Final = "something from every step is kept, for example a loss in a list."
_DETACH: Final = (
    "Drop retain_graph=True from the last backward of the step, and detach what the loop keeps, or carries over to the "
    "next step."
)


def remedy(optimization: Optimization) -> Remedy:
    """By the lines that keep a tensor; else by the state that calls of the model take and return; else in general."""
    stored = kept_tensors.lines(optimization)
    state = "" if stored else carried_states.carried(optimization.process)
    if state:
        return of_a_state(optimization, state)
    backward, shared = optimization.backward_location, one_backward.may_be_shared(optimization)
    edit = None if shared else line_edits.without_retained_graph(optimization.process, backward)
    why = f"{kept_tensors.culprits(stored)} beyond its step." if stored else _UNKNOWN
    fix = _DETACH
    if len(stored) == 1 and (carries := _that_carries(optimization, stored[0], edit)) is not None:
        return carries
    if len(stored) == 1:
        handed = handed_over.to(optimization, stored[0].location)
        why, fix = why + (handed.told if handed else ""), _of_a_line(optimization, stored[0])
        fix += handed.instead if handed else ""
    code = example_of(edit) if edit else LAST
    return Remedy(fix, code, diff=edit, why=why)


def _that_carries(optimization: Optimization, kept: Kept, edit: Diff | None) -> Remedy | None:
    """Of a line that makes a value of what it was at the step before: the loss may be computed from it, and a backward
    that frees its graph would then fail at the next step, unless the value before is detached."""
    own = own_statement.at(optimization.process, kept.location)
    carried = averages.of_itself(own) if own is not None else ""
    backward = optimization.backward_location
    if own is None or not carried or backward is None or kept.diff is not None:
        return None
    line = f"line {kept.location.line}{f' of {kept.location.file}' * (backward.file != kept.location.file)}"
    why = (
        f"{line} makes `{carried}` of its value at the step before, with the graph of that, so that each backward may "
        "run through all earlier steps."
    )
    fix = (
        f"Detach what {line} takes of the step before (`{carried}`), then drop retain_graph=True from the backward in "
        f"line {backward.line}. Without the first, that backward may fail at the second step."
    )
    last = example_of(edit) if edit else LAST
    code = f"# in place of {line}:\n{averages.without_past(own, carried)}\n# in place of line {backward.line}:\n{last}"
    return Remedy(fix, code, kept.location, why=why)


def _of_a_line(optimization: Optimization, kept: Kept) -> str:
    """What to do, with the line that keeps a tensor as it stores it without its graph, where that is known."""
    line, backward = kept.location, optimization.backward_location
    elsewhere = backward is None or backward.file != line.file
    added = [text.strip() for text in kept.diff.added] if kept.diff else []
    freed = added or kept_tensors.guarded(optimization, [kept]).split("\n")
    instead = f": `{freed[0]}`" if len(freed) == 1 and freed[0] else ""
    place = f"line {line.line}{f' of {line.file}' * elsewhere}"
    return f"Drop retain_graph=True from the last backward of the step, and detach what {place} keeps{instead}."


def of_a_state(optimization: Optimization, state: str = "") -> Remedy:
    """The script's own backward, and behind it the state without its graph; in general where no state is known."""
    process = optimization.process
    state = state or carried_states.carried(process)
    edit = line_edits.without_retained_graph(process, optimization.backward_location)
    backward = example_of(edit) if edit else "loss.backward()"
    goes_on = f"`{state}` carries" if state else "Something that goes on from step to step, as a hidden state, carries"
    why = (
        f"{goes_on} its graph along, so each backward runs through earlier steps, too: retain_graph=True only silences "
        "the error that reports it."
    )
    what = f"`{state}`" if state else "what goes on to the next step"
    fix = (
        f"Drop retain_graph=True from the backward, and detach {what} after it: otherwise the next step's backward "
        "fails."
    )
    detached = carried_states.detached(process, state or "hidden")
    return Remedy(fix, f"{backward}\n{detached}", why=why)

"""The finding about tensors that backward reaches and no optimizer holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.computed.gradients.trainable import tensor_names
from tracelyze.analyzers.computed.schedules import schedulers
from tracelyze.analyzers.evidence import pictures, timing
from tracelyze.analyzers.rules.updates.frozen_parameters.unheld import batch_norms, causes
from tracelyze.analyzers.rules.updates.frozen_parameters.unheld.causes import Cause
from tracelyze.analyzers.script import script_lines
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import plural

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process

_SCHEDULED: Final = (
    "# above the line that makes the scheduler, which keeps the groups that it finds (move it down, if need be):"
)
FIX_ANEW: Final = "Make these layers once, in __init__ of the module, and have forward call them."
_ANEW: Final = (
    "# in __init__, in place of the line that makes it in forward; with its own sizes and name:\n"
    "self.layer = nn.Linear(64, 64)\n"
    "# in forward:\n"
    "h = self.layer(h)"
)
_MADE_ANEW: Final = (
    "They are made anew for every backward, as where forward builds a layer or an nn.Parameter: what a step computes "
    "for them is lost with them."
)
NAMED: Final = 45
"""Characters of the names that a title has room for."""


def _title(names: str, count: int) -> str:
    """Names one or two tensors, counts more of them."""
    known = tensor_names.each(names)
    named = len(known) == count <= 2 and len(names) <= NAMED
    who = " and ".join(known) if named else f"{plural(count, 'tensor')} with gradients"
    return f"{who} {'is' if count == 1 else 'are'} in no optimizer and never {'trains' if count == 1 else 'train'}"


def says_of(process: Process, missed: dict[str, Any], orphans: dict[str, Any] | None) -> bool:
    """Whether tensors that no backward reached are those of a part that another one replaced: the finding about the
    new part says so."""
    if not orphans or orphans["missed"] != missed["missed"] or not tensor_names.is_nameless(missed["names"] or ""):
        return False
    return script_lines.replaced(process, tensor_names.each(orphans["names"] or "")) is not None


def _beside_schedulers(process: Process, code: str) -> str:
    """The example with where its scheduler is to be made: some kinds break with a group that comes after them, or take
    its rate for another."""
    first, known = causes.HELD.split("\n")[1], schedulers.last_rows(process)
    return code.replace(first, f"{_SCHEDULED}\n{first}", 1) if known and "scheduler" not in code else code


def _beside_others(process: Process, code: str) -> str:
    """The example where several optimizers step the model: what another one holds must not get a second one."""
    own = causes.HELD.split("\n")[1]
    several = (
        "every = [optimizer]  # and all other optimizers of the model: what one of them holds gets no second one\n"
        + own.replace("for group in optimizer.", "for one in every for group in one.")
    )
    return code.replace(own, several, 1) if len(process.optimizations) > 1 else code


def _where_returned(optimization: Optimization, code: str) -> str:
    """The example with where it goes, if the line that makes the optimizer returns it: nothing runs below."""
    made = optimization.made_at
    returns = made is not None and made.source.startswith("return ")
    named = f"# give the optimizer of line {made.line} a name, and return it below this" if made is not None else ""
    return code.replace(causes.BELOW, named) if returns else code


def finding(process: Process, row: dict[str, Any], rule: str, replaced: bool) -> Finding:
    """What is wrong, from a row of the table reach without optimizer.

    `replaced`: an optimizer holds tensors of modules that are not called, as if these had taken their place. A network
    that is trained nowhere, behind one that is, may only measure: that is worth knowing, no more. So may batch
    normalisations be left out on purpose.
    """
    looks = [one for one in process.tables["reach"].records() if one["optimizer"] is None and one["names"]]
    where = timing.placed(process, [max(0, one["step"] - 1) for one in looks or [row]])
    optimization = where.optimization or process.longest
    count = row["missed"] or row["short_lived"]
    fixed = replaced or not row["missed"] or row["fed_by_trained"] < row["missed"] or row["shared_model"] > 0
    what = "Backward computes their gradients, but no optimizer step changes them."
    what = "Backward computes its gradient, but no optimizer step changes it." if count == 1 else what
    cause = causes.cause(optimization, row, replaced)
    if not replaced and batch_norms.alone(process, str(row["names"] or ""), count):
        fixed, cause = False, cause._replace(why=batch_norms.LEFT_OUT)
    if not row["missed"]:
        place = process.location("forward") or optimization.backward_location
        what, cause = _MADE_ANEW, Cause("", FIX_ANEW, _ANEW, place)
    return Finding(
        rule=rule,
        severity="warning" if fixed else "info",
        confidence="certain",
        title=_title(str(row["names"] or ""), count),
        summary=(
            f"Backward reaches {tensor_names.in_a_sentence(str(row['names'] or 'parameters'))}, which no optimizer "
            f"holds. {what}" + (f" {cause.why}" if cause.why else "")
        ),
        fix=cause.fix,
        fix_code=_beside_others(process, _beside_schedulers(process, _where_returned(optimization, cause.code))),
        diff=cause.diff,
        first_step=1,
        last_step=timing.last_step(optimization),
        trainings=[where.name] if where.name else [],
        evidence=[
            Evidence("tensors in no optimizer", count, "tensors", 0, "backward reaches only what is to be trained"),
            Evidence("their elements", row["missed_elements"] or None, "", role="basis"),
            Evidence("tensors that optimizers hold", row["held"], "tensors"),
        ],
        location=cause.place or optimization.made_at or optimization.backward_location,
        seen_at=optimization.backward_location,
        charts=pictures.loss(optimization),
        false_alarm="A network used only to measure (a perceptual loss), or a part kept fixed without marking it as "
        "frozen.",
        verify="Record the run again: an optimizer holds every trainable tensor that a backward reaches.",
    )

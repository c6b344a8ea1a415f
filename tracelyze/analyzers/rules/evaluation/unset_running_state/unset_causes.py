"""Why a call found unset state, what came of it, and what to do: of several causes, the first that is known.

A checkpoint that lacks the state, an average that leaves it out, a model that is made anew, parameters that begin so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracelyze.analyzers.computed import normalisation_layers as layers
from tracelyze.analyzers.rules.evaluation.unset_running_state import averaged_parameters, begun_unset, unset_calls
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process


class Told(NamedTuple):
    """What came of the call, and what to do. `is_target`: training learns from the model's answers, which follow those
    of another one; `begins`: parameters begin from them."""

    said: str
    remedy: Remedy
    is_target: bool = False
    begins: bool = False


def measured(process: Process, row: dict[str, Any]) -> Told:
    """Of a model that was measured so after training had begun: why, and what sets its state."""
    much = "little" if row["modules"] and row["modules"] < row["of"] else "nothing"
    said = f"What was measured that way says {much} about the weights. "
    fix, code = unset_calls.remedy(process, row, serves=False, trained_so=False)
    load = unset_calls.lacking_load(process, row)
    if load is not None:
        said += f"load_state_dict missed {load['missing']} of its {load['expected']} tensors and set the others."
        return Told(said, Remedy(fix, code, process.site(load["site"])))
    averaged = unset_calls.averaged_at(process, row["model"])
    if averaged is not None:
        said += unset_calls.why_unset(process, row, averaged)
        mixed = averaged_parameters.of(process, row["model"], is_average=True)
        known = Remedy(mixed.fix, mixed.code, averaged, mixed.diff) if mixed else Remedy(fix, code, averaged)
        return Told(said, known)
    anew = unset_calls.made_anew(process, row)
    if anew is not None:
        return Told(said + anew.said, Remedy(anew.fix, anew.code, anew.place))
    return Told(said + unset_calls.why_unset(process, row, None), Remedy(fix, code))


def unmeasured(process: Process, row: dict[str, Any], serves: bool, trained_so: bool) -> Told:
    """Of a model that was called so before training, or serves that of another one, or is trained in the same mode."""
    early = unset_calls.before_training(process, row)
    load = unset_calls.lacking_load(process, row)
    begun = begun_unset.of(process, row) if early and not trained_so else None
    said = begun.said if begun else unset_calls.harm_without_measurement(process, early, serves, trained_so)
    mixed = averaged_parameters.of(process, row["model"]) if serves and load is None else None
    said += mixed.said if mixed is not None else ""
    if begun is not None:
        begins = Remedy(begun.fix, begun.code, begun.place, begun.diff)
        return Told(said, begins, is_target=mixed is not None, begins=True)
    if mixed is not None:
        place = layers.frozen_at(process) if trained_so else mixed.place
        return Told(said, Remedy(mixed.fix, mixed.code, place, mixed.diff), is_target=True)
    anew = None if trained_so or load is not None else unset_calls.made_anew(process, row)
    if anew is not None:
        return Told(said, Remedy(anew.fix, anew.code, anew.place))
    loaded = process.site(load["site"]) if load is not None else None
    fix, code = unset_calls.remedy(process, row, serves, trained_so)
    return Told(said, Remedy(fix, code, (layers.frozen_at(process) if trained_so else None) or loaded))

"""Gradient accumulation, as far as it shows: why some loops with several backwards per step cannot be judged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import recorded_text

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.recorded.table import Mask, Table
    from tracelyze.diagnosis import Location

SEVERAL_OPTIMIZERS: Final = "several optimizers train together, and which backward belongs to which is not known"
NOT_PER_BATCH: Final = (
    "a step has several backwards, but not one per batch of a loader or per input of the model: they may be "
    "different losses, or two passes over the same batch"
)
NEAR: Final = 3  # lines: a scheduler and a scaler may be between the step and its zero_grad
SCALE_MATTERS: Final = ("SGD", "ASGD", "ByHand")
"""Optimizers whose steps are as long as the gradient; Adam and its kin divide that out."""
_EVENS_OUT: Final = ("Adadelta", "Adafactor", "Adagrad", "RMSprop", "Rprop", "Lion", "Muon", "LAMB", "Lamb", "LARS")

_MANUAL: Final = (
    " With automatic_optimization = False, Lightning clears gradients before it validates, and at no step: "
    "training_step has to."
)
_CLEARING: Final = ("zero_grad", "clear-text")  # roles of lines
_SAME: Final = 1e-3  # of a loss: bfloat16 aside, sums in another order differ by far less, divisors by far more
_LOOKS: Final = 3  # steps: one or two may agree by chance
_HALF: Final = 0.5  # of the steps: looks at every second step, or fewer, may miss clearings as regularly as they come


def evens_out(name: str) -> bool:
    """Whether an optimizer of this class is known to divide out a factor of its gradients. A class of the script's own
    may do anything."""
    return name in _EVENS_OUT or "adam" in name.lower()


def one_each(optimization: Optimization) -> Mask:
    """Steps whose backwards each went through a batch of its own, shape [steps]: one of a loader or, where one line of
    the script makes all backwards, one input of the model, whatever fed it. Several lines may be several losses."""
    steps = optimization.steps
    backwards = steps["backwards"]
    from_loader = steps["loader_batches"] == backwards
    one_line = len(optimization.process.locations("backward")) == 1
    return np.asarray(from_loader | (one_line & (steps["microbatches"] == backwards)), dtype=bool)


def backwards(optimization: Optimization) -> list[Location]:
    """The lines of the backwards; of one of several trainings its own alone: a loop may pre-train what a framework
    trains later."""
    place = optimization.backward_location if optimization.process.training else None
    return [place] if place is not None else optimization.process.locations("backward")


def carries(optimization: Optimization) -> float | None:
    """Share of the steps that used gradients of an earlier step, on whatever tensors; None where nobody looked."""
    carried = optimization.steps["grads_carried"]
    known = np.isfinite(carried) & (optimization.steps["parameters"] > np.nan_to_num(optimization.steps["grads_none"]))
    return float((carried[known] > 0).mean()) if known.any() else None


@dataclass(frozen=True)
class Cleared:
    """How often gradients are cleared, and the line that clears them, if it is the only one. `every`: steps from one
    time to the next, where these are always as many, else 0."""

    how: Literal["never", "no-longer", "rarely"]
    line: Location | None = None
    every: int = 0

    @property
    def said(self) -> str:
        """In words, behind "gradients are"."""
        if self.how != "rarely":
            return f"{'never' if self.how == 'never' else 'no longer'} cleared"
        return f"cleared only every {self.every:,} steps" if self.every else "cleared only now and then"


def rarely_cleared(optimization: Optimization, first: int, cleared: Mask) -> Cleared:
    """How often gradients are cleared that most steps reuse. `first`: the row of the first step with old gradients;
    `cleared`: steps after it that had none of them, shape [steps]."""
    at, known = timing.numbers(optimization)[cleared], optimization.steps.known("grads_carried")
    if not len(at) and not was_cleared_before(optimization, first):
        return Cleared("never")
    gaps = np.unique(np.diff(at))
    regular = len(gaps) == 1 and float(known.mean()) > _HALF
    lines = {one.file_line: one for role in _CLEARING for one in reversed(optimization.process.locations(role))}
    alone = len(lines) == 1 and len(optimization.process.optimizations) == 1
    line = next(iter(lines.values())) if alone else None
    return Cleared("rarely" if len(at) else "no-longer", line, int(gaps[0]) if regular else 0)


def was_cleared_before(optimization: Optimization, first: int) -> bool:
    """Whether a step before the row `first` was seen to begin without any gradient that the step before it had used:
    then something cleared them. What a loss scaler skips uses none, and tensors that get gradients later had none."""
    steps = optimization.steps
    present = steps["parameters"] - np.nan_to_num(steps["grads_none"])
    used = timing.trained_steps(optimization) & (present > 0)
    clean = used & (steps["grads_carried"] == 0)
    clean[first:] = False
    return bool((clean[1:] & used[:-1] & (present[1:] >= present[first])).any())


def by_hand_in_lightning(optimization: Optimization) -> str:
    """A sentence about who clears gradients, where the script calls the backward of Lightning, which optimizes nothing
    by itself then."""
    backward = optimization.backward_location
    return _MANUAL if backward is not None and "manual_backward(" in backward.source else ""


def cleared_for_validation(optimization: Optimization) -> Mask:
    """Steps without old gradients that are the first behind a validation, shape [steps]: Lightning clears all gradients
    before it validates, which says nothing of what the loop clears."""
    steps, evals = optimization.steps, optimization.process.evals
    begun = evals["time_start"][np.isfinite(evals["time_start"])]
    time, found = steps["time"], np.zeros(len(steps), dtype=bool)
    if np.isfinite(time).all():
        behind = np.searchsorted(time, begun, side="right")
        found[behind[behind < len(steps)]] = True
    return np.asarray(found & (steps["grads_carried"] == 0), dtype=bool)


def another_is_cleared(optimization: Optimization, share: float) -> bool:
    """Whether an optimizer beside this one has gradients that are cleared in all but `share` of its steps."""
    others = [carries(one) for one in optimization.process.optimizations if one is not optimization]
    return any(other is not None and other <= share for other in others)


def at_least_one_each(optimization: Optimization) -> Mask:
    """Steps with a batch for every backward, or more: batches may be left out. Shape [steps]."""
    steps = optimization.steps
    return np.asarray(one_each(optimization) | (steps["loader_batches"] >= steps["backwards"]), dtype=bool)


def cleared_after_steps_only(optimization: Optimization) -> bool:
    """Whether the text says that gradients are cleared behind a step and nowhere else in the loop over batches: one
    zero_grad stands behind the only step, at its depth, and others of its function above that loop.

    A loop that is called for each epoch may be cleared by who calls it: that is known where the function makes the
    optimizer, or where every zero_grad that ran stands in it.
    """
    process = optimization.process
    steps, clears, made = (process.locations(role) for role in ("step", "zero_grad", "optimizer"))
    if len(steps) != 1 or not clears:
        return False
    step = steps[0]
    if any(one.file_function != step.file_function for one in (*clears, *(made if len(clears) == 1 else ()))):
        return False
    text = recorded_text.around(process, step)
    behind = [one for one in clears if 0 < one.line - step.line <= NEAR]
    above = [one for one in clears if one not in behind]
    if len(behind) != 1 or any(one.line > step.line or not text.get(one.line) for one in above):
        return False
    between = [text.get(number, "") for number in range(step.line, behind[0].line + 1)]
    depths = {recorded_text.indent_of(one) for one in between if one.strip()}
    return all(between) and len(depths) == 1 and all(_above_its_loop(text, one.line, step.line) for one in above)


def cleared_as_they_begin(optimization: Optimization) -> Mask:
    """Steps in which a pass over the data begins, where zero_grad stands at several lines: what was left over of the
    pass before may be cleared there. Shape [steps]."""
    several = len(optimization.process.locations("zero_grad")) > 1
    return np.asarray((optimization.steps["loader_first"] == 1) & several, dtype=bool)


def _above_its_loop(text: dict[int, str], clear: int, step: int) -> bool:
    """Whether a loop begins between a zero_grad and the step, at the depth of the former."""
    depth = recorded_text.indent_of(text[clear])
    between = (text.get(number, "") for number in range(clear + 1, step))
    return any(re.match(r"\s*(?:async )?for\b", line) and recorded_text.indent_of(line) == depth for line in between)


def cut_short(optimization: Optimization, most: float) -> Mask:
    """Steps with fewer backwards than `most`, without the last step of each pass over the data. Shape [steps].

    Where passes are not known, only windows of several lengths count: the last one of a pass has the same length every
    time.
    """
    steps = optimization.steps
    short = np.asarray(steps["backwards"] < most, dtype=bool)
    short[-1:] = False  # The run may have been stopped there.
    begins = steps["loader_first"] == 1
    if begins.any():
        short[:-1] &= ~begins[1:]
    elif len(np.unique(steps["backwards"][short])) < 2:
        short[:] = False
    return short


def losses_are_means(optimization: Optimization, alike: Mask, share: float) -> bool:
    """Whether what reaches the backwards of the steps that are `alike` is a whole mean over its targets: by the graph
    of the loss, else by its value, which is that of the loss function. A cross-entropy with label smoothing, or with a
    weight for each class, has a graph of several terms."""
    means = optimization.steps["loss_is_mean"][alike & optimization.steps.known("loss_is_mean")]
    if len(means) > 0 and float((means == 1).mean()) >= share:
        return True
    same = _as_the_function_gave_them(optimization, alike)
    return len(same) >= _LOOKS and float(same.mean()) >= share


def _as_the_function_gave_them(optimization: Optimization, alike: Mask) -> Mask:
    """The steps whose losses were trained on just as the loss function gave them, as means: of the steps that are
    alike, and all of whose losses were looked at."""
    given: dict[int, list[float]] = {}
    for row in optimization.process.tables["loss_calls"].records():
        if row["training"] and row["step"] is not None:
            value = row["value"] if row["reduction"] == "mean" and row["value"] is not None else np.nan
            given.setdefault(int(row["step"]), []).append(value)
    steps = optimization.steps
    backwards, losses = steps["backwards"], steps["loss"]
    known = [step for step, values in given.items() if step < len(steps) and len(values) == backwards[step]]
    known = [step for step in known if alike[step] and np.isfinite([losses[step], *given[step]]).all()]
    return np.array([abs(np.mean(given[step]) - losses[step]) <= _SAME * losses[step] for step in known], dtype=bool)


def clips(steps: Table) -> bool:
    """Whether gradients are clipped to a norm; to an infinite one they are measured alone, as the Trainer of
    transformers does under max_grad_norm=0. Of recordings that lack the norm, whether clipping was called."""
    called = np.nan_to_num(steps["clips"]) > 0
    most = steps["clip_max_norm"]
    return bool((called & ~np.isinf(most)).any())


def cut(steps: Table) -> float:
    """The share of the steps whose gradients were longer than they were clipped to."""
    if not (steps.has("clip_max_norm") and steps.has("grad_norm")):
        return 0.0
    known = np.isfinite(steps["grad_norm"]) & (np.nan_to_num(steps["clips"]) > 0)
    return float((steps["grad_norm"][known] > steps["clip_max_norm"][known]).mean()) if known.any() else 0.0

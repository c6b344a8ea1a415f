"""A dimension of size 1 that one side of a loss has and the other has not: take it off, or add it to the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tracelyze.analyzers.computed.data import loss_calls
from tracelyze.analyzers.rules.objective.loss_broadcast import differences, engines
from tracelyze.analyzers.script import line_edits
from tracelyze.analyzers.script.remedy import Remedy

if TYPE_CHECKING:
    from tracelyze.analyzers.computed.data.loss_calls import Line
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

SHAPED_AS_THE_PREDICTION = "gaussian_nll_loss"  # the variance that it is given beside prediction and target
TAKE_OFF = "Give both the same shape before the loss: remove the dimension of size 1 from the {side}."
ADD = (
    "Give both the same shape before the loss: add a dimension of size 1 to the target. The loss takes several outputs "
    "of the model, which may all have it."
)


class Extra(NamedTuple):
    """The dimension of size 1: whether the prediction has it or the target, and which it is there."""

    of_prediction: bool
    dimension: int
    longer: str  # the shape of the side that has it
    shorter: str

    @property
    def side(self) -> str:
        """The side that has it."""
        return "prediction" if self.of_prediction else "target"


def of(row: dict[str, Any]) -> Extra:
    """The dimension by which the two sides of a call of a loss differ: the last one, if that has size 1."""
    given, target = (loss_calls.sizes(row[name]) for name in ("input_shape", "target_shape"))
    shapes = [loss_calls.shown(row[name]) for name in ("input_shape", "target_shape")]
    of_prediction = len(given) > len(target)
    sizes = given if of_prediction else target
    longer, shorter = shapes if of_prediction else reversed(shapes)
    return Extra(of_prediction, -1 if sizes[-1] == 1 else sizes.index(1), longer, shorter)


def remedy(process: Process, line: Line, row: dict[str, Any]) -> Remedy:
    """What to write at the line of a loss whose sides differ by such a dimension."""
    extra = of(row)
    by_engine = engines.shaped(process, line.location, line.training, extra.dimension, extra.of_prediction)
    if by_engine is not None:
        return by_engine
    if line.function == SHAPED_AS_THE_PREDICTION and extra.of_prediction:
        added = differences.with_dimension(process, line.location, extra.dimension)
        return _added(extra, added or f"target = target.unsqueeze({extra.dimension})", None)
    place, edit = _taken_off(process, line, extra)
    if edit is None and extra.of_prediction:
        added = differences.with_dimension(process, place or line.location, extra.dimension)
        if added:
            return _added(extra, added, place)
    code = f"{extra.side} = {extra.side}.squeeze({extra.dimension})  # {extra.longer} -> {extra.shorter}"
    if line.function != loss_calls.WRITTEN_OUT:
        code += f"\nloss = nn.functional.{line.function}(prediction, target)"
    return Remedy(TAKE_OFF.format(side=extra.side), code, place, edit)


def _taken_off(process: Process, line: Line, extra: Extra) -> tuple[Location | None, Diff | None]:
    """The line where a loss that is written out takes the difference, and the statement with the dimension taken off
    the side that has it; each None where it is not known."""
    if line.function != loss_calls.WRITTEN_OUT:
        argument = 0 if extra.of_prediction else 1
        return None, line_edits.squeezed(process, line.location, argument, extra.dimension)
    place = differences.of(process, loss_calls.computed_at(process, line))
    return place, differences.squeezed(process, place, extra.of_prediction, extra.dimension)


def _added(extra: Extra, code: str, place: Location | None) -> Remedy:
    return Remedy(ADD, f"{code}  # {extra.shorter} -> {extra.longer}", place)

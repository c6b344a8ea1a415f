"""A mode that Lightning's fit() finds and keeps: where to switch to train mode before it.

Since version 2.2 it calls no train() of its own, and a validation puts back what it found.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script.editing import own_statement, trainer_examples
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_STEP: Final = "training_step"
_CALLED_BY_FIT: Final = re.compile(
    r"(?:on_|configure_|training_|validation_|optimizer_|(?:setup|forward|prepare_data|(?:train|val)_dataloader)$)"
)
"""Methods of a LightningModule or a callback in which a call of eval() undoes one that is made before fit()."""


class FoundByFit(NamedTuple):
    """The line that calls fit(), and how the script calls the model that it is given."""

    place: Location
    model: str
    diff: Diff | None

    @property
    def fix(self) -> str:
        """What to change."""
        return (
            f"Call {self.model}.train() before fit(): since version 2.2 Lightning keeps the mode that fit() finds, and "
            "puts it back after each validation."
        )

    @property
    def code(self) -> str:
        """The call above fit()."""
        return f"{self.model}.train()\n{self.place.source}"


def before(process: Process, forward: Location | None) -> FoundByFit | None:
    """Where fit() makes the steps of a training_step that calls the model, and is given it under a name; None where
    something that it calls may switch to eval mode."""
    if forward is None or forward.function != _STEP or trainer_examples.trainer_of(process)[1] != "fit":
        return None
    if any(_CALLED_BY_FIT.match(one.function) for one in process.locations("eval-mode")):
        return None
    place = (process.locations("step") or process.locations("backward"))[0]
    own = own_statement.at(process, place)
    call = own.only_call("fit") if own is not None else None
    if own is None or call is None:
        return None
    given = [*call.args[:1], *(one.value for one in call.keywords if one.arg == "model")]
    if len(given) != 1 or not isinstance(given[0], ast.Name | ast.Attribute):
        return None
    model = ast.unparse(given[0])
    return FoundByFit(place.at(own.line, own.text), model,
                      own.preceded_by(f"{model}.train()"))  # fmt: skip

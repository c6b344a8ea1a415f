"""The running sum of losses that a line logs, as the script names it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, trainer_examples
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_DIVIDED: Final = re.compile(r"(?<![\w.])([A-Za-z_][\w.]*) / ")
_LOGS: Final = re.compile(r"\bself\.log(?:_dict)?\(")
_AT_LOG: Final = ("Reset the running sum to 0 after logging it.", "{} = 0.0  # right behind the line that logs it")
_AT_EPOCH: Final = ("Reset the running sum to 0 where an epoch begins.", "{} = 0.0  # where an epoch begins")
_IN_LIGHTNING: Final = (
    "Reset the running sum to 0 where an epoch begins: Lightning calls on_train_epoch_start() there.",
    "def on_train_epoch_start(self):  # of the LightningModule\n    {} = 0.0",
)


class Reset(NamedTuple):
    """What resets the sum, in words and as an example. `place`: the line that logs it."""

    fix: str
    code: str
    place: Location | None


def reset(process: Process, at_epochs: bool) -> Reset:
    """What resets the sum behind each line that logs it, or where an epoch begins."""
    by_fit = trainer_examples.trainer_of(process)[1] == "fit"
    fix, code = (_IN_LIGHTNING if by_fit else _AT_EPOCH) if at_epochs else _AT_LOG
    return Reset(fix, code.format(sum_at(process)), _logged_at(process))


def sum_at(process: Process) -> str:
    """The name of the sum that a line logs, as `writer.add_scalar("loss", running_loss / count, step)`, or that a line
    above it divides, as `mean = self.running_loss / count`."""
    place = _logged_at(process)
    text = recorded_text.around(process, place) if place else {}
    own = own_statement.at(process, place)
    logs = own.text if own is not None else place.source if place else ""
    lines = [logs, *(text[number] for number in sorted(text, reverse=True) if place and number < place.line)]
    named = (_DIVIDED.findall(line) for line in lines)
    return next((names[0] for names in named if len(names) == 1), "running_loss")


def _logged_at(process: Process) -> Location | None:
    """The line that logs; where Lightning's loop calls the logger, the only one near the loss that logs a quotient."""
    place, loss = process.location("report"), process.longest.loss_location
    if place is None or loss is None or not re.search(r"\.fit\(", place.source):
        return place
    text = recorded_text.around(process, loss)
    lines = [at for at, line in text.items() if _LOGS.search(line) and _DIVIDED.search(line)]
    return loss.at(lines[0], text[lines[0]]) if len(lines) == 1 else place

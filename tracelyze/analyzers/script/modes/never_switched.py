"""A validation that never puts its model into eval mode, where training itself puts it back into train mode: one call
of eval() is missing, and no other."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.modes import another_model

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.diagnosis import Diff, Location

_TRAINS: Final = re.compile(r"(?P<model>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\.train\(\s*(?:(?:mode\s*=\s*)?True\s*)?\)\s*$")
_HEAD: Final = re.compile(r"(?:async )?(?:for|while|if|elif|else|try|except|with|def|class)\b")
_DEFINITION: Final = re.compile(r"(?:async )?(?:def|class)\b")
_LOOP: Final = re.compile(r"(?:async )?(?:for|while)\b")


class Missing(NamedTuple):
    """The call that is missing, where it belongs, and the line of the training that switches back."""

    diff: Diff
    call: str
    back: Location

    @property
    def fix(self) -> str:
        """What to change."""
        back = f"Line {self.back.line} calls {code_of(self.back.source).strip()} before training goes on."
        return f"Call {self.call} before each validation. {back}"


def of(process: Process, seen_at: Location | None, begins: Location | None, judged: Mask) -> Missing | None:
    """`seen_at`: the line that calls the model; `begins`: the first statement of its function, which does not train;
    `judged`: rows of evals, shape [evals]."""
    after = len(np.unique(process.evals["after_step"][judged]))
    own, back = own_statement.at(process, seen_at), _back(process, after)
    if own is None or back is None or begins is None or len(np.unique(process.evals["model"][judged])) > 1:
        return None
    model = another_model.model_of(own.parsed)
    text = recorded_text.of_function(process, begins)
    made = re.compile(rf"\s*(?:for .*)?{re.escape(model)}\b.*(?:(?<![=!<>])=(?!=)| in )")
    if not model or another_model.is_function(process, model) or any(made.match(line) for line in text.values()):
        return None
    first = own_statement.at(process, begins)
    diff = first.preceded_by(f"{model}.eval()") if first is not None else None
    return Missing(diff, f"{model}.eval()", back) if diff is not None else None


def _back(process: Process, after: int) -> Location | None:
    """The only line that puts the model which training calls into train mode in each step, or in each epoch where no
    validation is more frequent; `after`: steps that validations came after."""
    found = [
        back
        for back in process.locations("train-mode")
        for call in process.locations("training-call")
        if back.file_function == call.file_function
        and back.line < call.line
        and _runs_again(process, back, call, after)
    ]
    return found[0] if len({one.file_line for one in found}) == 1 else None


def _runs_again(process: Process, back: Location, call: Location, after: int) -> bool:
    switch = _TRAINS.match(code_of(back.source).strip())
    if switch is None or not re.search(rf"(?<![\w.]){re.escape(switch['model'])}\(", call.source):
        return False
    text = recorded_text.of_function(process, back)
    depth = recorded_text.indent_of(text.get(back.line, ""))
    around = _heads(text, back.line, depth)
    if not around or any(not (_LOOP.match(head) or _DEFINITION.match(head)) for head in around):
        return False  # it may not have run, or where it stands is not known
    below = [text.get(at) for at in range(back.line, call.line)]
    if any(line is None for line in below):
        return _as_rare_as_epochs(process, after) and _in_an_epoch(process, back, text, depth)
    heads = [line.strip() for line in below if line and line.strip()]
    if not any(_LOOP.match(one) for one in heads):
        return True
    return _as_rare_as_epochs(process, after) and _in_an_epoch(process, back, text, depth)


def _heads(text: dict[int, str], number: int, depth: int) -> list[str]:
    """The heads of the blocks around a line, from the innermost to the function's definition; empty where a line of
    the function above it is not known."""
    found = []
    for at in range(number - 1, 0, -1):
        if at not in text:
            return []
        line = text[at]
        if line.strip() and recorded_text.indent_of(line) < depth and _HEAD.match(line.strip()):
            found.append(line.strip())
            depth = recorded_text.indent_of(line)
            if _DEFINITION.match(line.strip()):
                return found
    return []


def _in_an_epoch(process: Process, back: Location, text: dict[int, str], depth: int) -> bool:
    """Whether the only loop over epochs holds the line, or stands in another function, which calls this one."""
    loops = process.locations("epochs")
    if len(loops) != 1:
        return False
    (loop,) = loops
    if loop.file_function != back.file_function:
        return True
    return loop.line < back.line and recorded_text.indent_of(text.get(loop.line, " " * depth)) < depth


def _as_rare_as_epochs(process: Process, after: int) -> bool:
    planned = [row["value"] for row in process.events_of("epochs-planned")]
    return len(planned) == 1 and after <= planned[0]

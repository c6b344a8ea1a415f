"""The script's own line that writes a file, with the state of the model that is trained in place of another one's."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import own_statement
from tracelyze.analyzers.evidence.editing.parsed_line import name_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

EXAMPLE: Final = "torch.save(model.state_dict(), path)  # model: the one whose parameters the optimizer was given"
TO_GO_ON: Final = 'torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)'
_OTHERS: Final = re.compile(
    r"opt|sched|scaler|epoch|step|config|args|metric|loss|score|best|acc|iter|seed|rng|time|version", re.IGNORECASE
)


def shown(to_go_on: bool) -> str:
    """An example of a file to go on from, or of one that holds weights alone."""
    return TO_GO_ON if to_go_on else EXAMPLE


def of_model(process: Process, place: Location | None, else_shown: str = EXAMPLE) -> str:
    """The line, with the only part that may be the weights replaced; `else_shown` where several may be."""
    own = own_statement.at(process, place)
    call = own.only_call("save") if own is not None else None
    if own is None or call is None or not call.args or not own.is_whole:
        return else_shown
    saved = call.args[0]
    if isinstance(saved, ast.Dict):
        pairs = zip(saved.keys, saved.values, strict=True)
        kept = [value for key, value in pairs if isinstance(key, ast.Constant) and not _OTHERS.search(str(key.value))]
        saved = kept[0] if len(kept) == 1 else saved
    states = isinstance(saved, ast.Call) and name_of(saved.func) == "state_dict"
    if not isinstance(saved, ast.Name | ast.Attribute) and not states:
        return else_shown
    return own.dedented(own.parsed.with_parts({saved: "model.state_dict()"}))

"""Methods of a callback that have a name which their framework does not call."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_DEFINED: Final = r"\s*def {name}\s*\(\s*self\s*,\s*(?P<first>\w+)\s*(?::[^,]*)?,\s*(?P<second>\w+)"
_NEAR: Final = 0.8  # of two names, as difflib measures it: an ending or a word more, or one letter wrong
_LIGHTNING: Final = (
    *(f"on_{part}_{when}" for part in ("fit", "train", "test", "validation", "predict") for when in ("start", "end")),
    *(
        f"on_{part}_{unit}_{when}"
        for part in ("train", "test", "validation", "predict")
        for unit in ("batch", "epoch")
        for when in ("start", "end")
    ),
    *("on_sanity_check_start", "on_sanity_check_end", "on_exception", "on_save_checkpoint", "on_load_checkpoint"),
    *("on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_before_zero_grad"),
)
_TRANSFORMERS: Final = (
    *("on_init_end", "on_train_begin", "on_train_end", "on_epoch_begin", "on_epoch_end", "on_step_begin"),
    *("on_step_end", "on_substep_end", "on_optimizer_step", "on_pre_optimizer_step", "on_evaluate", "on_predict"),
    *("on_save", "on_log", "on_prediction_step", "on_push_begin"),
)
_FRAMEWORKS: Final = {
    ("trainer", "pl_module"): ("Lightning", _LIGHTNING, "on_train_batch_end"),
    ("trainer", "module"): ("Lightning", _LIGHTNING, "on_train_batch_end"),
    ("args", "state"): ("the Trainer", _TRANSFORMERS, "on_step_end"),
}
"""Frameworks by the first arguments of their callbacks: names, what they call, and the hook of every step."""


class Misspelt(NamedTuple):
    """The line that defines the method, its edit, and words about it."""

    place: Location
    diff: Diff
    fix: str


def misspelt(process: Process, line: Location | None) -> Misspelt | None:
    """The method that holds this line, if a framework gives its arguments to hooks, none of which has its name, and no
    recorded line calls it. Its edit has the hook of the nearest name, else the one of every step."""
    name = line.function.rpartition(".")[2] if line is not None else ""
    if line is None or not name.startswith("on_"):
        return None
    defined = re.compile(_DEFINED.format(name=re.escape(name)))
    heads = [(at, text) for at, text in recorded_text.of_function(process, line).items() if defined.match(text)]
    if len(heads) != 1 or recorded_text.matching(process, re.compile(rf"(?<!def )\b{re.escape(name)}\s*\(")):
        return None
    ((at, text),) = heads
    found = defined.match(text)
    framework, hooks, of_steps = _FRAMEWORKS.get((found["first"], found["second"]) if found else ("", ""), ("", (), ""))
    if not framework or name in hooks:
        return None
    hook = next(iter(difflib.get_close_matches(name, hooks, n=1, cutoff=_NEAR)), of_steps)
    place = line.at(at, text)
    fix = f"Name it {hook}: {framework} has no hook {name}, so that line {line.line} runs only if the script calls it."
    return Misspelt(place, Diff(line.file, at, [text], [text.replace(name, hook, 1)]), fix)

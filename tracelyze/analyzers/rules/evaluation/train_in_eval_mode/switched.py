"""How a model came to be trained in eval mode, in words that hold for what was recorded of it, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.formatting import percent

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

FIX: Final = "Switch back to train mode after every validation, before the next training forward."
FIX_CODE: Final = "model.train()  # after every validation, and before the first step"
FIX_AT_THE_START: Final = "Call train() on the model before the first step."
FIX_IN_EACH_EPOCH: Final = (
    "Call train() on the model in front of its training forward, or after every evaluation: one call before the first "
    "step holds until the next evaluation."
)
_ALL: Final = percent(1.0)


def title(optimization: Optimization, share: float, begin: int, flipped: bool) -> str:
    """`share`: of the steps from `begin` on; `flipped`: the model was in train mode before."""
    of = timing.name_of(optimization)
    if not flipped and _is_all(share) and begin == timing.step_at(optimization, 0):
        return f"The model{of} trains in eval mode from the first step"
    if _is_all(share):
        return f"The model{of} has trained in eval mode since step {begin:,}"
    return f"{percent(share)} of the steps{of} since step {begin:,} trained in eval mode"


def _is_all(share: float) -> bool:
    """Whether the share reads as 100%."""
    return percent(share) == _ALL


def into_eval_mode(process: Process) -> Location | None:
    """The only line that puts a model into eval mode, where it does not name another model than the trained one."""
    line = script_lines.into_eval_mode(process)
    links = process.tables.get("links")
    held = {row["model"] for row in (links.records() if links is not None else ())} - {None}
    others = {row["called_as"] for row in process.models.records() if held and row["model"] not in held} - {None}
    of_another = line is not None and any(line.source.startswith(f"{name}.eval(") for name in others)
    return None if of_another else line


def said(optimization: Optimization, first: int, share: float, line: Location | None) -> str:
    """Who switched a model that had been in train mode; `first`: the row of the first step in eval mode."""
    by = f"Line {line.line} switched it" if line is not None else "It was switched"
    if line is None and _follows_a_validation(optimization, first):
        by = "A validation switched it"
    return f"{by} to eval mode, and it was {'never' if _is_all(share) else 'only sometimes'} switched back."


def at_the_start(optimization: Optimization, line: Location | None) -> str:
    """How a model that no step ran in train mode came to be in eval mode; `line`: the only one that calls eval()."""
    evals, begun = optimization.process.evals, optimization.steps["time"][0]
    before = (evals["time_start"] < begun) & (evals["trained"] == 1) & (evals["model_in_train"] == 0)
    if before.any():
        where = f" (line {line.line})" if line is not None else ""
        return f"It was evaluated in eval mode before the first step{where}, and not switched back."
    loaded = any("from_pretrained" in text for text in recorded_text.everything(optimization.process))
    return "No step ran in train mode." + " Models loaded with from_pretrained start in eval mode." * loaded


def fix_at_the_start(optimization: Optimization) -> str:
    """What to do there: evaluations between the steps would undo a single call."""
    evals, begun, ended = optimization.process.evals, *optimization.steps["time"][[0, -1]]
    between = (evals["time_start"] > begun) & (evals["time_start"] < ended)
    again = (between & (evals["trained"] == 1) & (evals["model_in_train"] == 0)).any()
    return FIX_IN_EACH_EPOCH if again else FIX_AT_THE_START


def _follows_a_validation(optimization: Optimization, first: int) -> bool:
    """Whether a trained model was evaluated in eval mode between this step and the one before."""
    evals, times = optimization.process.evals, optimization.steps["time"]
    begin, end = times[first - 1] if first else -np.inf, times[first]
    between = (evals["time_start"] >= begin) & (evals["time_start"] <= end)
    return bool((between & (evals["trained"] == 1) & (evals["model_in_train"] == 0)).any())

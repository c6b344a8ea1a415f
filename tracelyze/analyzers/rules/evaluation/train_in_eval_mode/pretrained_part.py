"""A pretrained part of a model that is trained as from_pretrained left it: in eval mode, with its dropout off."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from tracelyze.analyzers.evidence import timing
from tracelyze.analyzers.script.editing import own_statement, trainer_examples
from tracelyze.diagnosis import Evidence, Finding
from tracelyze.formatting import share_of

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Mask
    from tracelyze.analyzers.rule import Limits
    from tracelyze.diagnosis import Diff, Location


def find(optimization: Optimization, rule: str, limits: Limits) -> Finding | None:
    """One that most of its parameters' gradients reach, while no step turns on what drops in it."""
    process, steps = optimization.process, optimization.steps
    rows = [json.loads(row["text"]) | {"name": row["name"]} for row in process.events_of("pretrained-mode")]
    own = [row for row in rows if row["optimizer"] == optimization.optimizer]
    if not own:
        return None
    row = own[0]
    known = np.isfinite(steps["modules_in_train"]) & (np.nan_to_num(steps["modules_sensitive"]) > 0)
    off = known & (steps["modules_sensitive"] - steps["modules_in_train"] >= row["modules"])
    share = float(off.sum()) / max(1.0, float(known.sum()))
    if int(off.sum()) < limits["steps"] or share < limits["share"]:
        return None
    return _finding(optimization, rule, limits, row, off, share)


def _finding(
    optimization: Optimization, rule: str, limits: Limits, row: dict[str, Any], off: Mask, share: float
) -> Finding:
    place = optimization.process.site(row["site"])
    code, diff = _back(optimization.process, place)
    fits = trainer_examples.trainer_of(optimization.process)[1] == "fit"
    by_fit = " Lightning's fit() calls none since version 2.2." if fits else ""
    where, name = np.flatnonzero(off), row["name"]
    dropping = "module of it that drops" if row["modules"] == 1 else f"{row['modules']} modules of it that drop"
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{name} trains in eval mode, as from_pretrained left it",
        summary=(
            f"from_pretrained returns a model in eval mode. {name} was still in it in {share_of(share, 'steps')}, "
            f"while its parameters were trained: the {dropping} values in train mode dropped none. Nothing has called "
            f"train() since then on it, or on a model that holds it.{by_fit}"
        ),
        fix="Call train() of what from_pretrained returns, or of the whole model before the first step.",
        fix_code=code,
        diff=diff,
        first_step=timing.step_at(optimization, int(where[0])),
        last_step=timing.step_at(optimization, int(where[-1])),
        evidence=[
            Evidence("steps in which it was in eval mode", share, "share", *limits.against("share")),
            Evidence("modules of it that drop values in train mode", row["modules"], "modules", role="basis"),
        ],
        location=place,
        seen_at=optimization.backward_location,
        false_alarm="A pretrained part that is tuned without dropout on purpose.",
    )


def _back(process: Process, place: Location | None) -> tuple[str, Diff | None]:
    """The line that loads, and train() of what it assigns."""
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign) or not own.only_call("from_pretrained"):
        return "model.train()  # after from_pretrained, before the first step", None
    if len(statement.targets) != 1 or not isinstance(statement.targets[0], ast.Name | ast.Attribute):
        return "model.train()  # after from_pretrained, before the first step", None
    text = f"{own.text}\n{own.indent}{ast.unparse(statement.targets[0])}.train()"
    return own.dedented(text), own.changed(text)

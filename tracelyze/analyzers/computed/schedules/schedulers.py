"""What is known of each learning-rate scheduler, and the line that gives an optimizer its rate."""

from __future__ import annotations

import ast
import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from tracelyze.analyzers.script.editing import own_statement, trainer_examples
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Setting

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.analyzers.recorded.table import Floats
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

Row = dict[str, Any]
"""One scheduler: a row of the table schedules."""

_OWN_RATE: Final = ("OneCycleLR", "CyclicLR")  # are given rates, whatever the optimizer was made with
_RATES: Final = ("lr", "max_lr")
_SMALL: Final = 0.1  # of the optimizer's rate, all the time: what the line says is then not what the steps use


def last_rows(process: Process) -> list[Row]:
    """What is known last of each scheduler."""
    return list({row["scheduler"]: row for row in process.tables["schedules"].records()}.values())


def outer(optimization: Optimization) -> Row | None:
    """The only scheduler of an optimizer that no other scheduler holds."""
    rows = [row for row in last_rows(optimization.process) if row["optimizer"] == optimization.optimizer]
    alone = [row for row in rows if not row["inner"]]
    return alone[0] if len(alone) == 1 else None


def known_rates(optimization: Optimization) -> Floats:
    """The known rates, in the order of the steps."""
    rate = optimization.steps["lr"]
    return rate[np.isfinite(rate)]


def small_factor(optimization: Optimization) -> float | None:
    """The highest factor by which the scheduler multiplies the rate that the optimizer was made with, where that is
    small; None where it is not, or nothing is multiplied."""
    row = outer(optimization)
    if row is None or row["name"] in _OWN_RATE or not row["base_lr"] or not row["highest_lr"]:
        return None
    factor = float(row["highest_lr"]) / float(row["base_lr"])
    return factor if factor < _SMALL else None


def rate_location(optimization: Optimization, raised: bool = False) -> Location | None:
    """The line that gives an optimizer its rate: its construction; that of its scheduler, where the scheduler is given
    a rate of its own, or has `raised` the optimizer's. The line of the step, where a framework makes both."""
    scheduler = outer(optimization)
    if scheduler is not None and (raised or scheduler["name"] in _OWN_RATE):
        return optimization.process.site(scheduler["made_at"]) or optimization.step_location
    return (None if raised else optimization.made_at) or optimization.step_location


def edit_of_rate(optimization: Optimization, rate: float) -> Diff | None:
    """The statement that gives the rate, with this rate, where it says the rate in numbers."""
    own = own_statement.at(optimization.process, rate_location(optimization))
    given = _given_rate(optimization, own) if own is not None else None
    if own is None or given is None or not _is_number(given) or small_factor(optimization):
        return None
    return own.changed(own.parsed.with_parts({given: f"{rate:.2g}"}))


def setting_of_rate(optimization: Optimization, rate: float) -> Setting | None:
    """The rate as a setting of the script, which is to be this: the optimizer has it, a warm-up or a cycle goes from
    or up to it."""
    if small_factor(optimization):
        return None
    known = optimization.steps["lr"]
    known = known[np.isfinite(known)]
    options = optimization.facts.get("options")
    made = json.loads(str(options)) if options else {}
    given = [made.get(name) for name in ("lr", "initial_lr", "max_lr")] if isinstance(made, dict) else []
    used = [float(known[0]), float(known.max())] if len(known) else []
    return Setting(_RATES, tuple(float(one) for one in (*used, *given) if isinstance(one, int | float)), f"{rate:.2g}")


def given_rate(optimization: Optimization) -> float:
    """The rate that the script gives: what its only scheduler starts from or climbs to, else the usual one; 0 where
    none is known."""
    row, known = outer(optimization), optimization.steps["lr"]
    known = known[np.isfinite(known)]
    return float((row["base_lr"] if row is not None else None) or (np.median(known) if len(known) else 0.0))


def with_rate(optimization: Optimization, rate: float, given_now: float | None = None) -> str:
    """An example that sets this rate: the statement that gives it, with all else that it says; where it gives none, or
    one for each group, the rates of all groups by the same factor, right after the optimizer was made. `given_now`:
    the rate in place of which this one is, if that is not the usual one of the steps."""
    own = own_statement.at(optimization.process, rate_location(optimization))
    given = _given_rate(optimization, own) if own is not None else None
    multiplied = bool(small_factor(optimization))
    if own is not None and given is not None and own.is_whole and not multiplied:
        return own.dedented(own.parsed.with_parts({given: f"{rate:.2g}"}))
    name, now = optimization.facts.get("name"), optimization.steps["lr"]
    now = now[np.isfinite(now) & (now > 0)]
    if name and (trainer_examples.trainer_of(optimization.process)[0] or not len(now)):
        return f"optimizer = torch.optim.{name}(model.parameters(), lr={rate:.2g})"
    if not len(now):
        return f'for group in optimizer.param_groups:\n    group["lr"] = {rate:.2g}'
    below = "# right below the line that makes the optimizer, above that of a scheduler:\n"
    factor = rate / (given_now or float(np.median(now)))
    return f'{below}for group in optimizer.param_groups:\n    group["lr"] *= {factor:.2g}'


def _given_rate(optimization: Optimization, own: OwnStatement) -> ast.expr | None:
    """What the statement gives as the only rate, where no group has one of its own."""
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)]
    keys = [node.value for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Constant)]
    given = [one.value for call in calls for one in call.keywords if one.arg in _RATES]
    made = own.only_call(str(optimization.facts.get("name")))
    if not given and made is not None and len(made.args) > 1:
        given = made.args[1:2]  # torch's optimizers all take their rate there
    one = given[0] if len(given) == 1 and "lr" not in keys else None
    if isinstance(one, ast.Call):  # of a function of the script's, not of a tensor that holds the rate
        return None if name_of(one.func) in ("tensor", "as_tensor", "Tensor") else one
    return one if isinstance(one, ast.Constant | ast.Name | ast.Attribute | ast.BinOp) else None


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) in (int, float)

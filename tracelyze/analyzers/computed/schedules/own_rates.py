"""A rate for each parameter group, where one was set for all."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.diagnosis import Diff, Location

OF_GROUP: Final = r"""\[["']lr["']\]\s*=(?!=)"""  # as each group is given its rate
EXAMPLE: Final = """# right below the line that makes the optimizer:
rates = [group["lr"] for group in optimizer.param_groups]

# where the rate is set, which is a factor now, such as 0.1 for a tenth:
for group, rate in zip(optimizer.param_groups, rates):
    group["lr"] = rate * factor"""


OF_CYCLE: Final = """# where the scheduler is made, with its other arguments as they are:
scheduler = OneCycleLR(optimizer, max_lr=[group["lr"] for group in optimizer.param_groups])"""
OF_IGNITE: Final = ("PiecewiseLinear", "LinearCyclicalScheduler", "CosineAnnealingScheduler")
OF_EACH: Final = "Have get_lr() return a rate for each group, made of the group's own base rate."
BY_BASE: Final = """# in get_lr(), where factor is what a rate is multiplied by:
return [base * factor for base in self.base_lrs]"""
FIX: Final = "Give the scheduler a rate for each group, or scale each group's own rate instead of setting one for all."
BY_HAND: Final = "Scale each group's own rate instead of setting one for all."


def set_at(process: Process) -> Location | None:
    """The only line of the script that gives groups their rate; or that makes a scheduler of ignite, which sets a
    parameter by its name in all groups."""
    return script_lines.only(process, "rate-text", OF_GROUP) or script_lines.only(process, "rate-scheduler")


def remedy(
    process: Process,
    place: Location | None,
    defined: Location | None = None,
    scheduler: str | None = None,
    lowest: bool = False,
) -> tuple[str, str]:
    """What to do, and an example: for a scheduler of ignite the line that makes it, for one group. `defined`: where a
    scheduler of the script's own defines its rates; `scheduler`: the class of the one that sets them;
    `lowest`: the one rate is that of the slowest group, and not of the fastest."""
    if defined is not None:
        return OF_EACH, BY_BASE
    if scheduler == "OneCycleLR":
        return FIX, OF_CYCLE
    own = own_statement.at(process, place)
    text = own.with_argument(OF_IGNITE, "param_group_index", "0") if own is not None else ""
    if own is None or not text:
        return (FIX if scheduler else BY_HAND), (own is not None and _in_proportion(own, lowest)) or EXAMPLE
    fix = (
        "Make a scheduler of its own for each parameter group, with the rates of that group and its param_group_index, "
        "and attach each to the engine, as this one is."
    )
    others = "another one, by another name, for each further group"
    return fix, f"# for the first group, with its rates; {others}\n{own.dedented(text)}"


def _in_proportion(own: OwnStatement, lowest: bool) -> str:
    """The statement that gives a group its rate, for groups whose rates keep their ratio; empty where it is another."""
    made = own.parsed.statement
    target = made.targets[0] if isinstance(made, ast.Assign) and len(made.targets) == 1 else None
    if not isinstance(made, ast.Assign) or not isinstance(target, ast.Subscript) or not own.is_whole:
        return ""
    group, rate = ast.unparse(target.value), own.parsed.operand(made.value)
    if not isinstance(target.value, ast.Name) or {group, "base", "rates"} & {ast.unparse(one) for one in _names(made)}:
        return ""
    which, scale = ("lowest", "min(rates)") if lowest else ("highest", "max(rates)")
    return (
        "# right below the line that makes the optimizer:\n"
        'rates = [group["lr"] for group in optimizer.param_groups]\n\n'
        f"# in place of the loop around line {own.line}: the {which} rate is what all get today\n"
        f'for {group}, base in zip(optimizer.param_groups, rates):\n    {group}["lr"] = {rate} * base / {scale}'
    )


def _names(made: ast.Assign) -> list[ast.Name]:
    return [one for one in ast.walk(made.value) if isinstance(one, ast.Name)]


def who(set_at: Location | None) -> str:
    """Who sets the rate, where no scheduler does; `set_at`: the only line of the script that sets one."""
    return f"line {set_at.line}" if set_at is not None else "the script"


def of_groups(process: Process, made_at: Location | None) -> Diff | None:
    """The line that makes a OneCycleLR, with the rates that the optimizer's groups were given as the highest ones."""
    own = own_statement.at(process, made_at) or own_statement.begun_at(process, made_at)
    call = own.only_call("OneCycleLR") if own is not None else None
    if own is None or call is None:
        return None
    if own.begun and len(call.args) < 2 and not any(one.arg == "max_lr" for one in call.keywords):
        return None  # the lines that were not recorded may give it
    named = [one.value for one in call.keywords if one.arg == "optimizer"]
    optimizer = [*call.args[:1], *named][:1]
    if not optimizer or not isinstance(optimizer[0], ast.Name | ast.Attribute):
        return None
    rates = f"[group['lr'] for group in {own.parsed.text_of(optimizer[0])}.param_groups]"
    return own.changed(own.parsed.with_argument(call, "max_lr", rates, position=1))

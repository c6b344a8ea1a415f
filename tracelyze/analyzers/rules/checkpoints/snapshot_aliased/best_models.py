"""A model that is kept as the best so far by its name alone: `best_model = model` is the model that trains on, and
`best = [p.data for p in model.parameters()]` are its tensors."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

import numpy as np

from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.remedy import example_of
from tracelyze.diagnosis import Evidence, Finding

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_MODEL: Final = re.compile(r"^(?:self\.)?_?(?:model|net|network|policy|classifier|encoder)$")
_NONE: Final = re.compile(r"=\s*None\b")
_ASKED: Final = re.compile(r"\bis (?:not )?None\b")
_ALL: Final = re.compile(r"\b(?:named_)?parameters\(\)|\bstate_dict\(\)\.(?:items|values)\(\)")
_SAME_MEMORY: Final = re.compile(r"(?:\w+|\(\w+\))(?:\.data|\.detach\(\))*")


def lines(process: Process) -> list[Location]:
    """The lines that do so while the only model of the program trains, where every line that keeps the best does.

    With a second optimizer, as in a search, the best model may be one whose training is over.
    """
    kept = process.locations("best")
    if not kept or len(process.optimizers) != 1 or not _trains_on(process):
        return []
    used = [one for one in process.locations("best-used") if not _ASKED.search(one.source)]
    named = [(one, _assigned(one) or _of_weights(process, one)[0]) for one in kept]
    plain = [one for one, name in named if name]
    names = {name.rpartition(".")[2] for _, name in named if name}
    others = [one for one in kept if one not in plain and _speaks_of(one, names) and not _NONE.search(one.source)]
    if any("load_state_dict" in one.source for one in used if _speaks_of(one, names)):  # it is given the best weights
        return []
    return plain if any(_speaks_of(one, names) for one in used) and not others else []


def _speaks_of(line: Location, names: set[str]) -> bool:
    return any(re.search(rf"\b{re.escape(name)}\b", line.source) for name in names)


def _trains_on(process: Process) -> bool:
    """Whether steps followed a validation."""
    after = process.evals["after_step"]
    after = after[np.isfinite(after)]
    return bool(len(after)) and float(np.min(after)) < len(process.steps)


def _assigned(line: Location) -> str | None:
    """The name to which the line gives a model that has a name of its own."""
    parsed = parsed_line.parse(line.source.strip())
    statement = parsed.statement if parsed is not None else None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    both = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts)
    pairs = zip(target.elts, value.elts, strict=True) if both else [(target, value)]  # type: ignore[attr-defined]
    for name, given in pairs:
        if _MODEL.match(ast.unparse(given)) and "best" in ast.unparse(name):
            return ast.unparse(name)
    return None


def _of_weights(process: Process, line: Location) -> tuple[str, Diff | None]:
    """The name to which a statement gives a list or dictionary of all of a model's tensors, where it copies none of
    them, and the statement that does; empty where it does not."""
    own = own_statement.at(process, line)
    statement = own.parsed.statement if own is not None else None
    if own is None or not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return "", None
    target, value = own.parsed.text_of(statement.targets[0]), statement.value
    if not isinstance(value, ast.ListComp | ast.DictComp) or "best" not in target or len(value.generators) != 1:
        return "", None
    one = value.value if isinstance(value, ast.DictComp) else value.elt
    text = own.parsed.text_of(one)
    if not _ALL.search(own.parsed.text_of(value.generators[0].iter)) or not _SAME_MEMORY.fullmatch(text):
        return "", None
    copied = f"{text if '.' in text else f'{text}.detach()'}.clone()"
    return target, own.changed(own.parsed.with_parts({one: copied}))


def finding(process: Process, kept: list[Location], rule: str) -> Finding:
    """`kept`: the lines that keep the best model."""
    line = kept[0]
    after = process.evals["after_step"]
    first = int(np.nanmin(after))
    weights, diff = _of_weights(process, line)
    if weights:
        return Finding(
            rule=rule,
            severity="warning",
            confidence="likely",
            title=f"{weights[:30]} holds the model's own tensors, which keep training",
            summary=(
                f"Line {line.line} collects the tensors themselves and copies none: .data and .detach() share their "
                f"memory. The program trains one model, and continues past its first validation after step {first:,}: "
                f"{weights} always has the weights of the last step, whenever it was set, and loading them back "
                "changes nothing."
            ),
            fix="Copy each tensor when you keep it.",
            fix_code=(diff and example_of(diff)) or line.source,
            diff=diff,
            first_step=first,
            evidence=[Evidence("lines that keep the best weights without copying", len(kept), "lines")],
            location=line,
            false_alarm="A second name that is meant to follow the model.",
        )
    name = _assigned(line) or "the best model"
    plain = re.match(r"(\s*)([\w.]+) = ([\w.]+)$", line.source)
    copied = f"{plain[2]} = copy.deepcopy({plain[3]})" if plain else None
    return Finding(
        rule=rule,
        severity="warning",
        confidence="likely",
        title=f"{name[:30]} is the model itself and keeps training with it",
        summary=(
            f"Line {line.line} gives the model a second name and copies nothing. The program trains one model, and "
            f"continues past its first validation after step {first:,}: {name} always has the weights of the last "
            "step, whenever it was set."
        ),
        fix="Keep a copy of the model, or of its weights.",
        fix_code=f"import copy\n\n{copied or 'best_model = copy.deepcopy(model)'}",
        first_step=first,
        evidence=[Evidence("lines that keep the best model without copying", len(kept), "lines")],
        location=line,
        false_alarm="A second name that is meant to follow the model.",
    )

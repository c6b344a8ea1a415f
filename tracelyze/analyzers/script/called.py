"""What the script calls its optimizers and models: a class alone does not tell two of them apart."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.script.editing import parsed_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_MADE: Final = re.compile(r"\s*(?:self\.)?([A-Za-z_][\w.]*)\s*(?::[^=]+)?=(?!=)\s*[A-Za-z_][\w.]*\s*\(")
_CALLED: Final = re.compile(r"(?<![\w.])((?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\s*\(")
_CALLS: Final = ("training-call", "forward")


def assigned(line: Location | None) -> str | None:
    """The variable or attribute to which a line assigns the one thing that it makes: `opt = Adam(...)`."""
    found = _MADE.match(line.source) if line is not None else None
    return found.group(1) if found is not None else None


def optimizer(optimization: Optimization) -> str:
    """ "opt (Adam)"; where the script's name for it is not known, or others have it too, "Adam (optimizer 1)"."""
    kind = optimization.facts.get("name") or "an optimizer"
    names = [assigned(one.made_at) for one in optimization.process.optimizations]
    own = assigned(optimization.made_at)
    if own is None or names.count(own) > 1:
        return f"{kind} (optimizer {optimization.optimizer})"
    return f"{own} ({kind})"


def model(process: Process, number: float | int | None, optimization: Optimization | None = None) -> str | None:
    """ "teacher (Sequential)"; the class alone where no name is known that this model has for itself. `optimization`:
    the training in which it is to have that name."""
    rows = {row["model"]: row for row in process.models.records()}
    row = rows.get(number)
    if row is None:
        return None
    names = [one["called_as"] for one in rows.values()]
    own = name_in(process, number, optimization)
    own = None if own is None or names.count(own) > 1 else own.removeprefix("self.")
    return f"{own} ({row['name']})" if own else row["name"]


def name_in(process: Process, number: float | int | None, optimization: Optimization | None) -> str | None:
    """The name by which the script calls a model in the training of this optimizer. One that an earlier optimizer
    trained as well may have had another name then: its name here is that of the only other thing which a line calls
    that calls models and nothing else."""
    rows = {row["model"]: row for row in process.models.records()}
    row = rows.get(number, {})
    own: str | None = row.get("called_as")
    facts = optimization.facts if optimization is not None else {}
    if own is None or facts.get("made_at") is None or not _trained_before(process, row, facts):
        return own
    here = [one for one in process.sites.records() if one["role"] in _CALLS and one["site"] > facts["made_at"]]
    called = [names for one in here for names in _calls_of(one["source"] or "")]
    if any(own in names for names in called):
        return own
    alone = {names[0] for names in called if len(names) == 1} - {one["called_as"] for one in rows.values()}
    return alone.pop() if len(alone) == 1 else None


def _calls_of(source: str) -> list[list[str]]:
    """What a line calls, apart for each of the values that it assigns side by side: `s, t = small(x), large(x)`."""
    parsed = parsed_line.parse(source)
    value = getattr(parsed.statement, "value", None) if parsed is not None else None
    texts = [ast.unparse(one) for one in value.elts] if isinstance(value, ast.Tuple) else [source]
    return [_CALLED.findall(text) for text in texts if ")(" not in text]


def _trained_before(process: Process, model: dict[str, Any], facts: Mapping[str, Any]) -> bool:
    """Whether an earlier optimizer held all tensors of a model; of one that is gone, whether it held as many."""
    held = model["parameters"] or 1
    gone = [one for one in process.optimizers.records() if one["optimizer"] < facts["optimizer"]]
    return (facts.get("shares") or 0) >= held or held in [one["parameters"] for one in gone]


def within(process: Process, part: float | int | None, optimization: Optimization | None) -> str | None:
    """What the model whose weights an optimizer holds calls a part of it, which is called by itself as well: the only
    module that is made of the same layers in the same lines, or the only one of these that is a teacher by name."""
    if optimization is None:
        return None
    held = [optimization.facts.get(column) for column in ("parameters", "elements")]
    rows = {row["model"]: row for row in process.models.records()}
    whole = [one for one, row in rows.items() if [row["parameters"], row["elements"]] == held and one != part]
    if len(whole) != 1 or part not in rows:
        return None
    made: dict[int, dict[str, tuple[str, int | None]]] = {}
    for row in process.tables["modules"].shared_records():
        made.setdefault(row["model"], {})[row["module"] or ""] = row["kind"], row["made_at"]
    own, layers = made.get(int(part or 0), {}), made.get(whole[0], {})
    alike = [name for name in layers if name and _below(layers, name) == own]
    alike = alike if len(alike) == 1 else [name for name in alike if "teacher" in name.lower()]
    return alike[0] if len(alike) == 1 else None


def _below(layers: dict[str, tuple[str, int | None]], holder: str) -> dict[str, tuple[str, int | None]]:
    inside = {name.removeprefix(f"{holder}."): one for name, one in layers.items() if name.startswith(f"{holder}.")}
    return {"": layers[holder], **inside}

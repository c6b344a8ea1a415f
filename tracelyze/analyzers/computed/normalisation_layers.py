"""The lines that make batch normalisations, with their momentum, and those that keep them as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import edits, recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location


_DEFAULT: Final = "0.1"  # of the momentum, and the third argument of all of these
_NORMS: Final = ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm")


def normalisation(process: Process, model: object = None) -> Location | None:
    """The line that makes the first batch normalisation, of this model if one is given."""
    rows = process.tables["modules"].records()
    made = [row for row in rows if "BatchNorm" in str(row["kind"]) and model in (None, row["model"])]
    if made or model is not None:  # a layer of an nn.Sequential that one line makes has no row of its own
        return process.site(made[0]["made_at"]) if made else None
    called = [row["module"] for row in process.tables["activations"].records() if "BatchNorm" in str(row["kind"])]
    return process.module_location(called[0]) if called else None


def with_default_momentum(process: Process) -> tuple[list[Location], Diff | None, str]:
    """The lines that make batch normalisations with a momentum of the script's own; those lines with the default, where
    they stand together, and an example of the first. No line where the momentum is set elsewhere."""
    rows = [row for row in process.tables["modules"].records() if "BatchNorm" in str(row["kind"])]
    sites = [process.site(row["made_at"]) for row in rows]
    made = list(dict.fromkeys(one for one in sites if one is not None and "momentum" in one.source))
    kind = rows[0]["kind"] if rows else "BatchNorm1d"
    code = f"norm = nn.{kind}(channels, momentum={_DEFAULT})"
    parts: list[Diff] = []
    for place in made:
        own = own_statement.at(process, place)
        changed = own.with_argument(_NORMS, "momentum", _DEFAULT, 2) if own is not None else ""
        edit = own.changed(changed) if own is not None else None
        if own is not None and changed and place == made[0]:
            code = own.dedented(changed)
        parts += [edit] if edit is not None else []
    same = len({one.file_function for one in made}) == 1
    whole = edits.together(process, made[0], parts) if same and len(parts) == len(made) else None
    return made, whole, code


def frozen_at(process: Process) -> Location | None:
    """The only line that keeps normalisations as they are: one in a method `train` of the script that calls eval(), or
    in a function that asks whether a module is one; where a single line applies that function, this one."""
    lines = process.locations("eval-mode")
    own = [one for one in lines if one.function == "train"] or [one for one in lines if _asks_for_norms(process, one)]
    if len(own) != 1:
        return None
    applied = recorded_text.matching(process, re.compile(rf"\.apply\(\s*(?:\w+\.)*{re.escape(own[0].function)}\s*\)"))
    return applied[0] if len(applied) == 1 else own[0]


def _asks_for_norms(process: Process, place: Location) -> bool:
    """Whether the function of a line chooses modules by a class of normalisations."""
    texts = recorded_text.of_function(process, place).values()
    return any(re.search(r"\bisinstance\(.*Norm|__name__.*Norm|Norm.*__name__", text) for text in texts)

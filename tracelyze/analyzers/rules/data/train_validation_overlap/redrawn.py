"""A function of the script that splits anew, without a seed, at each call: one call takes the training part of its
split, another one the validation part of another split. So does `setup()` of Lightning's data modules, which `fit()`
calls, and `validate()` or `test()` again."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Diff, Location

_SEEDS: Final = ("seed", "random_state", "generator", "shuffle")  # the last one as far as it says that nothing is drawn
_OF_METHOD, _OF_FUNCTION = ("seed", "0"), ("random_state", "0")  # of datasets, and of scikit-learn
_OF_TORCH: Final = ("generator", "torch.Generator().manual_seed(0)")
_PART: Final = re.compile(r"(?:train|val|test|dev|eval|held)\w*", re.IGNORECASE)
_STAGE: Final = re.compile(r"\.(?P<stage>fit|validate|test)\(")
_SHOWN: Final = 4


class Redrawn(NamedTuple):
    """What to change, in words, and the edit that gives the split a seed."""

    fix: str
    edit: Diff


def at(process: Process, split: Location | None, read: Location | None) -> Redrawn | None:
    """Where the line that splits says no seed, and its function is called for more than one part of the data, or by
    Lightning for more than one stage. `read`: the line in which samples of the training were evaluated."""
    own = own_statement.at(process, split)
    call = own.only_call("random_split", "train_test_split") if own is not None else None
    if split is None or own is None or call is None or split.function in ("", script_lines.MODULE):
        return None
    if any(one.arg in (None, *_SEEDS) for one in call.keywords):
        return None
    if split.file_function in process.functions("seed", "reseed"):  # what is drawn there may be the same each time
        return None
    name = parsed_line.name_of(call.func)
    by_method = isinstance(call.func, ast.Attribute) and name == "train_test_split"
    argument, seed = _OF_TORCH if name == "random_split" else _OF_METHOD if by_method else _OF_FUNCTION
    edit = own.changed(own.with_argument((name,), argument, seed))
    if edit is None:
        return None
    called, stages = _for_parts(process, split) or _for_halves(process, split), _stages(process, split)
    if len(called) > 1:
        lines = sorted(set(called))
        where = f"line{'s' * (len(lines) > 1)} {listed([str(one) for one in lines], most=_SHOWN)}"
        return Redrawn(
            f"Line {split.line} draws another split at each call of {_name(split)} ({where}): give it a seed, or "
            "split once and take both parts of that.",
            edit,
        )
    stage = _STAGE.search(read.source) if read is not None else None
    if len(stages) > 1 and stage is not None and stage["stage"] != "fit":
        by = listed([f"{one}()" for one in stages], most=_SHOWN)
        return Redrawn(
            f"Line {split.line} draws another split each time that setup() is called, as {by} do: give it a seed, or "
            "split in __init__.",
            edit,
        )
    return None


def _stages(process: Process, split: Location) -> list[str]:
    """The methods of a trainer that call the setup() of a data module, in which the data are split for every stage."""
    if _name(split) != "setup":
        return []
    text = recorded_text.of_function(process, split)
    if any(re.search(r"\bstage\b|\bhasattr\b|\bis None\b", line) for at, line in text.items() if "def " not in line):
        return []
    called = [found["stage"] for one in process.locations("loader") if (found := _STAGE.search(one.source))]
    return list(dict.fromkeys(called)) if "fit" in called else []


def _for_parts(process: Process, split: Location) -> list[int]:
    """The lines that call the function, once for each call, if each call is for a part of its own and of the same
    data: no argument differs but one, which says the part."""
    calls = _calls(process, split)
    forms, parts = set(), set()
    for _, _, call in calls:
        given = _given(call)
        said = [(name, one) for name, one in given if _says_part(name, one)]
        if len(said) != 1:
            return []
        forms.add(tuple((name, ast.dump(one)) for name, one in given if (name, one) not in said))
        parts.add(ast.dump(said[0][1]))
    return [number for number, _, _ in calls] if len(forms) == 1 and len(parts) == len(calls) else []


def _for_halves(process: Process, split: Location) -> list[int]:
    """The lines that call the function, once for each call, if each call is given the same, and takes a part of its own
    of what is returned: `train, _ = split()` here, `_, held = split()` there."""
    calls = [(number, line, call) for number, line, call in _calls(process, split) if _is_own(call)]
    forms = {tuple((name, ast.dump(one)) for name, one in _given(call)) for _, _, call in calls}
    parts = {_taken(line, call) for _, line, call in calls}
    apart = None not in parts and len(parts) == len(calls)
    return [number for number, _, _ in calls] if len(forms) == 1 and apart else []


def _calls(process: Process, split: Location) -> list[tuple[int, ParsedLine, ast.Call]]:
    """The recorded calls of functions that are called like the one that splits, in its file."""
    calls: list[tuple[int, ParsedLine, ast.Call]] = []
    for number, text in sorted(recorded_text.of_file(process, split.file).items()):
        line = parsed_line.parse(text.strip())
        calls += [(number, line, one) for one in line.calls(_name(split))] if line is not None else []
    return calls


def _name(split: Location) -> str:
    """What the function is called that the split stands in."""
    return split.function.rpartition(".")[2]


def _given(call: ast.Call) -> list[tuple[str, ast.expr]]:
    """The arguments, with their names where they have any."""
    return [("", one) for one in call.args] + [(one.arg or "", one.value) for one in call.keywords]


def _is_own(call: ast.Call) -> bool:
    """Whether it calls a function by its name, or a method of the same object: texts have a split(), too."""
    return isinstance(call.func, ast.Name) or ast.unparse(call.func).startswith("self.")


def _taken(line: ParsedLine, call: ast.Call) -> int | None:
    """Which part the line takes of what the call returns, by its number; None where it takes all, or several."""
    statement = line.statement
    targets = statement.targets if isinstance(statement, ast.Assign) and statement.value is call else []
    if len(targets) == 1 and isinstance(targets[0], ast.Tuple):
        names = [one.id if isinstance(one, ast.Name) else "" for one in targets[0].elts]
        kept = [at for at, name in enumerate(names) if not name.startswith("_")]
        return kept[0] if len(kept) == 1 else None
    numbers = [one.slice for one in ast.walk(line.tree) if isinstance(one, ast.Subscript) and one.value is call]
    number = numbers[0].value if numbers and isinstance(numbers[0], ast.Constant) else None
    return number if isinstance(number, int) else None


def _says_part(name: str, given: ast.expr) -> bool:
    """Whether an argument says which part of the data is asked for: "train", or train=False."""
    if not isinstance(given, ast.Constant):
        return False
    if isinstance(given.value, bool):
        return not name or _PART.search(name) is not None
    return isinstance(given.value, str) and _PART.fullmatch(given.value) is not None

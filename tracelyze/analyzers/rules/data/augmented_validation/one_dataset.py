"""A dataset object that a script splits, so that training and validation share its transforms: the line that splits,
and validation with an object of its own in the script's words."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.parsed_line import name_of
from tracelyze.diagnosis import Diff

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Location

FIX: Final = "Give validation its own dataset without the random transforms; split the indices, not the object."
OWN_FIX: Final = "Make the validation dataset without the random transforms."
OWN_EXAMPLE: Final = "val = make_dataset(plain_transform)  # as it is made today, but for the transforms"
EXAMPLE: Final = (
    "train_indices, val_indices = torch.utils.data.random_split(range(size), [0.8, 0.2])  # size: samples in all\n"
    "train = Subset(make_dataset(train_transform), train_indices)\n"
    "val = Subset(make_dataset(plain_transform), val_indices)"
)
_VALIDATES: Final = re.compile(r"val|test|dev|eval|held", re.IGNORECASE)
_TRANSFORMS: Final = re.compile(r"transforms?$", re.IGNORECASE)
_SWITCHES: Final = re.compile(r"aug", re.IGNORECASE)


@dataclass(frozen=True)
class Switched:
    """A line that makes a dataset which augments unless it is told otherwise, and that line with the switch off."""

    said: str
    fix: str
    diff: Diff


def switched_on(process: Process, dataset: str, made: Location | None) -> Switched | None:
    """Where the line that makes the validation set leaves the only argument of its class that switches augmentation on
    as it is by default, or gives it as True."""
    rows = [row for row in process.sites.records() if row["role"] == "augmented" and row["own_name"] == dataset]
    switches = {(str(row["name"]), str(row["value"])) for row in rows}
    line = recorded_text.line_at(process, made) if made is not None and len(switches) == 1 else None
    call = _call_in(line[1], dataset) if line is not None else None
    if made is None or line is None or call is None:
        return None
    ((name, place),) = switches
    (indent, text), (given, begin, end) = line, call
    named = [one for one in given.keywords if one.arg in (name, None)]
    if any(isinstance(one, ast.Starred) for one in given.args) or 0 <= int(place) < len(given.args):
        return None
    if named:
        value = named[0].value
        if not isinstance(value, ast.Constant) or value.value is not True or len(named) > 1:
            return None
        changed = re.sub(rf"\b{name}\s*=\s*True\b", f"{name}=False", text[begin:end])
        said = f" Line {made.line} makes it with {name}=True."
    else:
        before = text[begin : end - 1].rstrip().rstrip(",") + (", " if given.args or given.keywords else "")
        changed = f"{before}{name}=False)"
        said = f" Line {made.line} leaves {name} at its default, True."
    edit = Diff(made.file, made.line, [indent + text], [indent + text[:begin] + changed + text[end:]])
    return Switched(said, f"Give the validation set {name}=False in line {made.line}.", edit)


def _call_in(text: str, dataset: str) -> tuple[ast.Call, int, int] | None:
    """The only call of the class in a line, and where it begins and ends there; None where it goes on below."""
    starts = [one.start() for one in re.finditer(rf"(?<![\w.]){re.escape(dataset)}\(", text)]
    for end in (at + 1 for at, sign in enumerate(text) if sign == ")" and len(starts) == 1 and at > starts[0]):
        try:
            tree = ast.parse(text[starts[0] : end], mode="eval").body
        except SyntaxError:
            continue
        return (tree, starts[0], end) if isinstance(tree, ast.Call) else None
    return None


def split(process: Process) -> Location | None:
    """The only line that has a function split datasets."""
    return script_lines.only(process, "split", r"\brandom_split\s*\(")


def given(process: Process, loader: Location | None) -> Location | None:
    """The only line that gives the loader's dataset, or the one it takes a part of, the name of a validation set."""
    own = own_statement.at(process, loader)
    call = own.only_call("DataLoader") if own is not None else None
    read = call.args[0] if call is not None and call.args else None
    if isinstance(read, ast.Call) and name_of(read.func) == "Subset" and read.args:
        read = read.args[0]
    if not isinstance(read, ast.Name) or not _VALIDATES.search(read.id):
        return None
    return script_lines.only(process, "data", rf"^{read.id}\s*(?::[^=]+)?=(?!=)")


def example(process: Process, dataset: str, loader: Location | None = None) -> str:
    """Another object for the validation part, by the lines that make the dataset and split it, or that make the
    loader which validates; else a sketch."""
    line, made = split(process), script_lines.only(process, "data", rf"\b{re.escape(dataset)}\s*\(")
    apart = _by_samplers(process, dataset, loader) if line is None else ""
    if apart:
        return apart
    divided = own_statement.at(process, line)
    object_ = own_statement.at(process, made)
    parts = _parts(divided.parsed) if divided is not None else None
    plain = _without_transforms(object_.parsed, dataset, parts[0]) if parts and object_ is not None else ""
    if line is None or not parts or not plain:
        return EXAMPLE
    own = f"{parts[1]} = Subset({plain}, {parts[1]}.indices)"
    return f"# right below line {line.line}, the split, which stays as it is\n{own}"


def _by_samplers(process: Process, dataset: str, loader: Location | None) -> str:
    """The loader that validates on a part of the dataset by its sampler, with an object of its own; empty where the
    only line that makes the one it is given is not known."""
    own = own_statement.at(process, loader)
    call = own.only_call("DataLoader") if own is not None else None
    given = call.args[0] if call is not None and call.args else None
    sampled = call is not None and any(one.arg in ("sampler", "batch_sampler") for one in call.keywords)
    if own is None or loader is None or not isinstance(given, ast.Name) or not sampled:
        return ""
    assigned = rf"^{given.id}\s*=(?!=).*\b{re.escape(dataset)}\s*\("
    object_ = own_statement.at(process, script_lines.only(process, "data", assigned))
    plain = _without_transforms(object_.parsed, dataset, given.id) if object_ is not None else ""
    if not plain:
        return ""
    return f"plain = {plain}\n{own.dedented(own.parsed.with_parts({given: 'plain'}))}  # in place of line {loader.line}"


def _parts(line: ParsedLine) -> tuple[str, str] | None:
    """What is split, and the one part that validates by its name."""
    calls = line.calls("random_split")
    whole = calls[0].args[0] if len(calls) == 1 and calls[0].args else None
    targets = line.statement.targets if isinstance(line.statement, ast.Assign) else []
    names = targets[0].elts if len(targets) == 1 and isinstance(targets[0], ast.Tuple) else []
    parts = [line.text_of(one) for one in names if _VALIDATES.search(line.text_of(one))]
    return (line.text_of(whole), parts[0]) if whole is not None and len(parts) == 1 else None


def _without_transforms(line: ParsedLine, dataset: str, whole: str) -> str:
    """The call that makes the dataset which is split, with its transform left to the reader or its switch turned off;
    empty where an argument of this kind is not named, or there are several."""
    targets = line.statement.targets if isinstance(line.statement, ast.Assign) else []
    if [line.text_of(one) for one in targets] != [whole]:
        return ""
    calls = [one for one in line.calls(dataset) if name_of(one.func) == dataset]
    found: list[tuple[ast.expr, str]] = []
    for one in calls[0].keywords if len(calls) == 1 else []:
        if _TRANSFORMS.search(one.arg or "") and "target" not in str(one.arg):
            found.append((one.value, "plain_transform"))
        elif _SWITCHES.search(one.arg or "") and isinstance(one.value, ast.Constant) and one.value.value is True:
            found.append((one.value, "False"))
    if len(found) != 1:
        return ""
    changed = line.with_parts(dict(found))
    return changed[changed.index("=") + 1 :].strip()

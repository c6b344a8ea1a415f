"""The line that makes a DataLoader, with other arguments: none that torch refuses beside those that it is given."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.datasets import loader_helpers
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.parsed_line import ParsedLine, name_of
from tracelyze.diagnosis import Diff, Location, Setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement

POSITIONS: Final = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn", "pin_memory",
    "drop_last", "timeout", "worker_init_fn", "multiprocessing_context", "generator",
)  # fmt: skip
_EXCLUDED: Final = {
    "shuffle": ("sampler", "batch_sampler"), "sampler": ("batch_sampler",), "drop_last": ("batch_sampler",),
}  # fmt: skip
"""Arguments beside which torch takes no other value of this one: it raises a ValueError."""
_SAMPLERS: Final = ("sampler", "batch_sampler")
_REPLACES: Final = {"batch_sampler": ("batch_size", "shuffle", "sampler", "drop_last"), "sampler": ("shuffle",)}
_DRAWN_BY_TORCH: Final = ("RandomSampler", "SequentialSampler", "_InfiniteConstantSampler", "", None)
IN_RANKS: Final = (
    "Have the sampler of the training data shuffle (shuffle=True, which is its default), and tell it each epoch; that "
    "of the validation data may stay as it is."
)
IN_RANKS_CODE: Final = "sampler = DistributedSampler(dataset, shuffle=True)  # of the training data"
EACH_EPOCH: Final = "loader.sampler.set_epoch(epoch)  # the first line in the loop over epochs"


def with_arguments(
    process: Process, made_at: Location | None, wanted: Mapping[str, str], dropped: str = "", computed: bool = False
) -> Diff | None:
    """The line with these arguments set, and one taken away, where the whole call stands on it and takes them; of one
    that is `computed` there an example alone may say what it has to be."""
    own = own_statement.at(process, made_at)
    text = _told(own, wanted, dropped, computed) if own is not None else None
    return own.changed(text) if own is not None else None


def _told(own: OwnStatement, wanted: Mapping[str, str], dropped: str, computed: bool) -> str | None:
    """The statement with these arguments set: each where it stands, and new ones behind the others."""
    line, call = own.parsed, _only_call(own.parsed)
    given = _given(call) if call else None
    if call is None or given is None:
        return None
    known = ast.Constant | ast.Name | ast.Attribute
    if not computed and any(name in given and not isinstance(given[name], known) for name in wanted):
        return None  # what is computed was meant
    if any(_is_set(given, other) for name in wanted for other in _EXCLUDED.get(name, ()) if other != dropped):
        return None
    if dropped in given:
        return _anew(own, call, wanted, dropped)
    told = line.with_parts({given[name]: value for name, value in wanted.items() if name in given})
    for name, value in wanted.items():
        again = parsed_line.parse(told) if name not in given else None
        same = _only_call(again) if again is not None else None
        more = again.with_argument(same, name, value) if again is not None and same is not None else None
        if name not in given and more is None:
            return _anew(own, call, wanted, dropped)
        told = more or told
    return told


def _anew(own: OwnStatement, call: ast.Call, wanted: Mapping[str, str], dropped: str) -> str | None:
    """The same with all arguments written on one line, which would lose a comment between them."""
    line, given = own.parsed, _given(call) or {}
    if "\n" in own.text and "#" in own.text:
        return None
    placed = POSITIONS[: len(call.args)]
    if dropped in placed[:-1]:
        return None  # those behind it would move
    arguments = [_written(line, at, one, wanted) for at, one in zip(placed, call.args, strict=True) if at != dropped]
    kept = [one for one in call.keywords if one.arg != dropped]
    arguments += [f"{one.arg}={_written(line, one.arg or '', one.value, wanted)}" for one in kept]
    arguments += [f"{name}={value}" for name, value in wanted.items() if name not in given]
    return line.with_parts({call: f"{line.text_of(call.func)}({', '.join(arguments)})"})


def example(process: Process, loader: Mapping[str, Any], given: Mapping[str, object], dropped: str = "") -> str:
    """The script's own statement that makes the loader, with these arguments added; without it a call that is given
    what this loader (a row of the table loaders) was."""
    place = process.site(loader.get("made_at"))
    own = own_statement.at(process, place)
    told = _told(own, {name: str(value) for name, value in given.items()}, dropped, True) if own is not None else None
    if own is not None and told and told != own.text and own.stands:
        return own.dedented(told)
    if own is not None and not given and own.parsed.calls("DataLoader"):
        return own.dedented(own.text)
    if own is None and place is not None and given:
        begun = _begun(process, place, {name: str(value) for name, value in given.items()}, dropped)
        if begun:
            return begun
    samplers = {} if "sampler" in given else own_sampler(process, loader)
    return of_row({**loader, "sampler": ""} if "sampler" in given else loader, **samplers, **given)


def _begun(process: Process, place: Location, wanted: Mapping[str, str], dropped: str) -> str:
    """The beginning of a call that is longer than what was recorded of it, with these arguments; empty where it is not
    known so far, or would be written anew, which would lose the rest."""
    own = own_statement.begun_at(process, place)
    told = _told(own, wanted, dropped, True) if own is not None else None
    if own is None or not told or "\n" not in told.removesuffix("\n)") or not told.endswith("\n)"):
        return ""
    lines = own.dedented(told).split("\n")
    inside = lines[-2][: len(lines[-2]) - len(lines[-2].lstrip())]
    lines[-2] = lines[-2] if lines[-2].endswith(",") else f"{lines[-2]},"
    return "\n".join([*lines[:-1], f"{inside}# its other arguments, as they are", ")"])


def of_row(loader: Mapping[str, Any], **given: object) -> str:
    """`loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2)`, from a row of the table loaders.

    Whoever pastes it must not lose what the loader was told before: the size of a batch, the order, a sampler.
    """
    arguments: dict[str, object] = {}
    if isinstance(loader.get("batch_size"), int):
        arguments["batch_size"] = loader["batch_size"]
    if loader.get("sampler") == "RandomSampler":
        arguments["shuffle"] = True
    elif loader.get("sampler") not in _DRAWN_BY_TORCH:
        arguments["sampler"] = "sampler"
    if loader.get("collated_by") is not None:
        arguments["collate_fn"] = "collate_fn"
    if loader.get("num_workers"):
        arguments["num_workers"] = loader["num_workers"]
    arguments |= {name: True for name in ("pin_memory", "drop_last") if loader.get(name)}
    excluded = next((others for name, others in _REPLACES.items() if name in given), ())
    arguments = {name: value for name, value in arguments.items() if name not in excluded} | given
    said = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return f"loader = DataLoader(dataset, {said})" if said else "loader = DataLoader(dataset)"


class Shuffling(NamedTuple):
    """What makes a loader shuffle: in words, as an example, and as an edit. `place`: the line that says in which order
    it reads, which makes its DistributedSampler, asks a function for a loader that shuffles or does not, or makes the
    loader; `setting`: shuffle=False as a setting of the script."""

    fix: str
    code: str
    diff: Diff | None
    place: Location | None
    setting: Setting | None


def shuffled(process: Process, loader: Mapping[str, Any], training: Iterable[float]) -> Diff | None:
    """shuffle=True at the line that makes this loader (a row of the table loaders); None where it makes one of another
    number than those of `training`, which may be the validation's, or where it says who is to draw the order."""
    place = process.site(loader.get("made_at"))
    line = parsed_line.of(place)
    call = _only_call(line) if line else None
    given = _given(call) if line and call else None
    if line is None or given is None or _has_others(process, loader, "made_at", training):
        return None
    if not isinstance(given.get("shuffle", ast.Constant(value=False)), ast.Constant):
        return None  # an option of the script's, or the parameter of a function that makes others, too
    named = {one.arg: one.value for one in call.keywords} if call else {}
    dataset, sampler = given.get("dataset"), named.get("sampler")
    if dataset and isinstance(sampler, ast.Call) and name_of(sampler.func) == "SequentialSampler":
        same = [line.text_of(one) for one in sampler.args] == [line.text_of(dataset)]
        return with_arguments(process, place, {"shuffle": "True"}, dropped="sampler") if same else None
    return with_arguments(process, place, {"shuffle": "True"})


def shuffling(process: Process, loader: Mapping[str, Any], training: Iterable[float]) -> Shuffling:
    """:func:`shuffled`; another sampler where the loader is given one, or another call of the script's own function."""
    place = process.loader_location(loader)
    if "Distributed" in str(loader.get("sampler")):
        made = distributed_sampler(process, loader)
        code = f"{made[1] if made else IN_RANKS_CODE}\n{EACH_EPOCH}"
        return Shuffling(IN_RANKS, code, None, made[0] if made else place, None)
    others = _has_others(process, loader, "called_at", training)
    asked = loader_helpers.asking(process, loader, "shuffle", POSITIONS.index("shuffle"), "True", others)
    told = asked is not None or _has_others(process, loader, "made_at", training)
    setting, place = None if told else Setting(("shuffle",), (False,), "True"), asked.place if asked else place
    diff = shuffled(process, loader, training)
    drawn = _drawn(process, loader) if diff is None else ""
    if drawn:
        return Shuffling("Draw the order anew in each epoch, by the sampler that does.", drawn, None, place, setting)
    if diff is None and has_sampler(process, loader):
        fix = "Give the loader a sampler that shuffles: it takes no shuffle=True beside a sampler."
        imported = "from torch.utils.data import DataLoader, RandomSampler\n\n"
        given = f"dataset, batch_size={loader.get('batch_size') or 32}, sampler=RandomSampler(dataset)"
        return Shuffling(fix, f"{imported}loader = DataLoader({given})", None, place, setting)
    fix = "Shuffle the training data, and leave the validation data as they are."
    if asked is not None and asked.code:
        return Shuffling(fix, asked.code, asked.diff, place, setting)
    return Shuffling(fix, example(process, loader, {"shuffle": "True"}), diff, place, setting)


def _has_others(process: Process, loader: Mapping[str, Any], line: str, training: Iterable[float]) -> bool:
    """Whether the line that makes a loader (`made_at`), or asks a function for it (`called_at`), does so for another
    one than those of `training`."""
    alike = {one["loader"] for one in process.loaders.records() if one[line] == loader.get(line)}
    return bool(alike - set(training))


def _drawn(process: Process, loader: Mapping[str, Any]) -> str:
    """The script's own statement with a RandomSampler in place of its SequentialSampler; empty without one."""
    own = own_statement.at(process, process.site(loader.get("made_at")))
    call = own.only_call("SequentialSampler") if own is not None else None
    if own is None or call is None:
        return ""
    holder = f"{own.parsed.text_of(call.func.value)}." if isinstance(call.func, ast.Attribute) else ""
    imported = "" if holder else "from torch.utils.data import RandomSampler  # at the top of the file\n\n"
    return imported + own.dedented(own.parsed.with_parts({call.func: f"{holder}RandomSampler"}))


def distributed_sampler(process: Process, loader: Mapping[str, Any]) -> tuple[Location, str] | None:
    """Where the function that makes a loader makes its DistributedSampler, and that line with shuffle=True; None where
    it makes none, or several."""
    place = process.site(loader.get("made_at"))
    lines = recorded_text.of_function(process, place) if place else {}
    at = [number for number, line in lines.items() if "DistributedSampler(" in line]
    given = own_sampler(process, loader).get("sampler", "")
    at = [number for number in at if re.match(rf"\s*{re.escape(given)}\s*=", lines[number])] or at
    if place is None or len(at) != 1:
        return None
    here = place.at(at[0], lines[at[0]])
    own = own_statement.at(process, here)
    text = own.with_argument(("DistributedSampler",), "shuffle", "True", 3) if own is not None else ""
    return (here, own.dedented(text)) if own is not None and text else None


def has_sampler(process: Process, loader: Mapping[str, Any]) -> bool:
    """Whether the line that makes the loader, or one of the lines after it, names a sampler."""
    return bool(own_sampler(process, loader))


def dataset_of(made_at: Location | None) -> str | None:
    """What the call that makes the loader is given as its data set, as it is written there."""
    line = parsed_line.of(made_at)
    call = _only_call(line) if line else None
    given = _given(call) if call else None
    return line.text_of(given["dataset"]) if line and given and "dataset" in given else None


def own_sampler(process: Process, loader: Mapping[str, Any]) -> dict[str, str]:
    """The sampler that the call which makes the loader is given, as it is written there: with all that it was told,
    as how many samples it draws; empty without one."""
    place = process.site(loader.get("made_at"))
    excerpt = recorded_text.excerpt_of(process, place) if place else None
    if place is None or excerpt is None:
        return {}
    text = "\n".join(excerpt.lines[place.line - excerpt.first_line :])
    text = text[max(text.find("DataLoader("), 0) :]
    call = text[: _end_of_call(text)]
    line = parsed_line.parse(call)
    made = _only_call(line) if line else None
    given = _given(made) if made else None
    if line is None or given is None:
        found = next((name for name in _SAMPLERS if re.search(rf"\b{name}=", call)), None)
        return {found: found} if found else {}
    return {name: line.text_of(given[name]) for name in _SAMPLERS if _is_set(given, name)}


def _end_of_call(text: str) -> int:
    """Where the brackets that the text opens are closed again; its end where they are not."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 0 and character in ")]}":
            return at + 1
    return len(text)


def _only_call(line: ParsedLine) -> ast.Call | None:
    """The only call in the line that makes a loader; of several it is not known which one it is."""
    calls = line.calls("DataLoader")
    among = any(isinstance(node, ast.comprehension) for node in ast.walk(line.tree))
    return calls[0] if len(calls) == 1 and not among else None


def _given(call: ast.Call) -> dict[str, ast.expr] | None:
    """The arguments by their names; None where `*sequence` or `**options` sets some."""
    starred = any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords)
    if starred or len(call.args) > len(POSITIONS):
        return None
    named = {one.arg: one.value for one in call.keywords if one.arg is not None}
    return dict(zip(POSITIONS, call.args, strict=False)) | named


def _is_set(given: Mapping[str, ast.expr], name: str) -> bool:
    value = given.get(name)
    return value is not None and not (isinstance(value, ast.Constant) and value.value is None)


def _written(line: ParsedLine, name: str, value: ast.expr, wanted: Mapping[str, str]) -> str:
    return wanted.get(name) or line.text_of(value)

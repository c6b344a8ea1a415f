"""An example in the program's own words: its names for model, optimizer, loss, scaler, scheduler and loaders, and the
lines with which it computes the loss and makes its optimizer.

Names are read off the lines that were recorded. One that the lines do not tell, or tell in two ways, stays the usual
one: whoever pastes the example then sees that it is not theirs.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line, stepped, trainer_examples, unknown_names
from tracelyze.analyzers.script.editing.optimizers import returned

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_NAME: Final = r"(?P<name>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)"
_HOLDER: Final = r"(?P<holder>[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?)"
_SCALER: Final = r"(?:self\.)?\w*[Ss]caler\w*"
_BACKWARD: Final = re.compile(rf"{_NAME}\.backward\(\)|{_SCALER}\.scale\((?P<scaled>[A-Za-z_]\w*)\)\.backward\(\)")
_PASSED_BACKWARD: Final = re.compile(rf"{_HOLDER}\.(?P<method>backward|manual_backward)\((?P<name>[A-Za-z_]\w*)\)")
_STEP: Final = re.compile(rf"{_NAME}\.step\((?:closure)?\)|{_SCALER}\.step\((?P<scaled>[A-Za-z_][\w.]*)\)")
_SCHEDULE: Final = re.compile(rf"(?<![\w.])(?!{_SCALER}\.){_NAME}\.step\(")
_SCALES: Final = re.compile(rf"\b(?P<name>{_SCALER})\.(?:scale|step|unscale_)\(")
_PARAMETERS: Final = re.compile(r"(?P<name>[A-Za-z_][\w.]*)\.(?:named_)?parameters\(\)")
_STATES: Final = re.compile(r"\b((?!opt|sched)[A-Za-z_]\w*(?:\.(?!opt|sched)[A-Za-z_]\w*)?)\.load_state_dict\(")
_TOKENIZER: Final = re.compile(
    r"\bDataCollator\w*\((?:tokenizer=)?([A-Za-z_]\w*)[,)]|\b(?:tokenizer|processing_class)=([A-Za-z_][\w.]*)"
    r"|\b([A-Za-z_][\w.]*)\.(?:pad|eos|bos)_token(?:_id)?\b"
    r"|^\s*([A-Za-z_][\w.]*) = \w*Tokenizer\w*(?:\.from_pretrained)?\("
)
_COPIES: Final = re.compile(r"\b(?P<to>[A-Za-z_][\w.]*)\.load_state_dict\(\s*(?P<of>[A-Za-z_][\w.]*)\.state_dict\(")
_LOOP: Final = re.compile(
    rf"(?:async )?for (?P<target>.+?) in (?:enumerate\(|tqdm\()*{_NAME}(?:, (?:start=)?\d+)?\)*:(?:\s.*)?"
)
_DATASET: Final = re.compile(
    rf"(?:^|;)\s*(?P<loader>[A-Za-z_][\w.]*)\s*=\s*(?:[\w.]+\.)?DataLoader\((?:{_NAME}(?:,|\)\s*(?:$|;)))?"
)
_LOSS_LINE: Final = re.compile(
    r"(?P<indent>[ \t]*)loss = criterion\(model\((?:x|inputs)\), (?:y|targets)\)(?=$|  #)", re.MULTILINE
)
OPTIMIZER_LINE: Final = "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)"
_PLAIN_BACKWARD: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<loss>loss|\(loss / [^()\n]+\))\.backward\(\)", re.MULTILINE
)
_PLAIN_CLIP: Final = re.compile(r"^(?P<indent>[ \t]*)(?:norm = )?torch\.nn\.utils\.clip_grad_norm_\(", re.MULTILINE)
_ACCELERATOR: Final = re.compile(r"accelerator$", re.IGNORECASE)
_CLIPPED: Final = re.compile(
    r"^(?P<indent>[ \t]*)(?P<norm>norm = )?torch\.nn\.utils\.clip_grad_norm_\((?P<rest>.*)$", re.MULTILINE
)
_PLAIN_STEP: Final = re.compile(r"^(?P<indent>[ \t]*)optimizer\.step\(\)", re.MULTILINE)
_TEXT: Final = re.compile(r"""(?P<string>(?P<f>f?)(?:"[^"\n]*"|'[^'\n]*'))|(?P<comment>\#[^\n]*)""")
_OF_ALL: Final = re.compile(r"if id\(p\) not in held|if p\.requires_grad")
"""In an example that goes over all parameters of a model."""
_EPOCHS: Final = "for epoch in range(epochs):"
_OVER_EPOCHS: Final = re.compile(r"for (?P<name>[A-Za-z]\w*) in [^#]+:")
_FORWARD_LINES: Final = 5  # lines above the loss among which the model is called


@dataclass(frozen=True)
class _Known:
    """What the program calls things; `forward` are the lines that compute the loss, without their indentation."""

    names: dict[str, str]
    passes_backward: tuple[str, str] | None
    forward: list[str]
    optimizer_line: str
    scales: str


def in_example(code: str, process: Process, location: Location | None) -> str:
    """The example with the program's own names; `location` is the place at which it will be pasted."""
    if not code or not len(process.sites):
        return code
    code = _over_own_epochs(trainer_examples.in_example(code, process), process, location)
    known, before = _known(process, location, code), code
    if known.optimizer_line:
        code = code.replace(OPTIMIZER_LINE, known.optimizer_line)
    if known.forward:
        code = _LOSS_LINE.sub(lambda found: "\n".join(found["indent"] + line for line in known.forward), code)
    if known.scales and "scaler" not in code:
        code = _scaled(code, unscale=known.scales != "unscaled")
    names = {name: own for name, own in known.names.items() if _can_be_renamed(name, own, code, before)}
    code = _renamed(code, names)
    if known.passes_backward:
        code = _passed(code, names.get("loss", "loss"), *known.passes_backward)
        code = _clipped_by(code, known.passes_backward[0])
    return code


def _known(process: Process, location: Location | None, code: str) -> _Known:
    backward = _told(process, "backward", _BACKWARD, location)
    passed = _matches(process, "backward", _PASSED_BACKWARD, location)
    ways = {(match["holder"], match["method"]) for match in passed}
    loss = backward or _told(process, "backward", _PASSED_BACKWARD, location)
    model = model_at(process, location)
    model = _whole(process, location, model) if _OF_ALL.search(code) else model
    names = {
        "loss": loss if "." not in loss or "loss = " not in code else "",
        "model": model,
        "optimizer": _told(process, "step", _STEP, location),
        "scheduler": _told(process, "schedule", _SCHEDULE, location),
        "scaler": _told(process, "backward", _SCALES, location) or _told(process, "step", _SCALES, location),
        "tokenizer": _tokenizer(process, location) if "tokenizer" in code else "",
        **_loaders(process, location, code),
    }
    names = {
        name: "" if own.startswith("self.") and not _has_self(process, location) else own for name, own in names.items()
    }
    if names["model"] == "self" and location is not None and _names_model(location.source):
        names["model"] = ""  # outside of its class, as where a Trainer is given it
    forward = _forward(process, loss, model)
    there = [location.source, *recorded_text.of_function(process, location).values()] if location else []
    batch = _batch(forward, model).items()  # but for names that the place's function gives to something of its own
    names |= {name: own for name, own in batch if not any(re.search(rf"(?<![\w.]){name}\b", one) for one in there)}
    return _Known(
        {name: own for name, own in names.items() if own and own != name},
        ways.pop() if len(ways) == 1 and not backward else None,
        forward,
        _construction(process),
        _scales(process),
    )


def _over_own_epochs(code: str, process: Process, location: Location | None) -> str:
    """With the program's own loop over epochs, where the example has one and will be pasted into the same function."""
    loops = process.locations("epochs")
    if _EPOCHS not in code or location is None or len(loops) != 1 or loops[0].file_function != location.file_function:
        return code
    own = _OVER_EPOCHS.fullmatch(loops[0].source)
    if own is None:
        return code
    return _renamed(code, {"epoch": own["name"]}).replace(f"for {own['name']} in range(epochs):", own[0])


def _has_self(process: Process, location: Location | None) -> bool:
    """Whether the place lies in a method, as far as its lines were recorded: elsewhere an object's own attribute, as
    those of an optimizer around another one, is nobody's."""
    there = recorded_text.of_function(process, location).values() if location is not None else ()
    return not there or any(re.search(r"(?<![\w.])self\b", line) for line in there)


def _names_model(line: str) -> bool:
    return re.search(r"(?<![\w.\"'])model\b(?!=(?!=))", line) is not None


def _told(process: Process, role: str, pattern: re.Pattern[str], location: Location | None) -> str:
    """The one name that lines of this role tell: at the place itself, in its function, or else anywhere."""
    names = {stepped.called(match) for match in _matches(process, role, pattern, location)}
    return names.pop() if len(names) == 1 else ""


def _tokenizer(process: Process, location: Location | None) -> str:
    """What the recorded lines call the tokenizer: in the place's function, or else anywhere."""
    near = list(recorded_text.around(process, location).values()) if location else []
    every = [one.source for one in recorded_text.lines(process)]
    for lines in (near, every):
        names = {next(filter(None, found.groups())) for line in lines for found in _TOKENIZER.finditer(line)}
        names = {one for one in names if one != "None" and not one.endswith("config")}  # which hold such ids as well
        if names:
            return names.pop() if len(names) == 1 else ""
    return ""


def _matches(process: Process, role: str, pattern: re.Pattern[str], location: Location | None) -> list[re.Match[str]]:
    lines = process.locations(role)
    found = [(line, one) for line in lines for one in stepped.meant(process, role, pattern.finditer(line.source))]
    nearer: tuple[Callable[[Location], bool], ...] = (
        lambda line: bool(location and line.file_line == location.file_line),
        lambda line: bool(location and line.file_function == location.file_function),
    )
    for near in nearer:
        if any(near(line) for line, _ in found):
            return [match for line, match in found if near(line)]
    telling = {line.file_line for line, _ in found}
    return [match for _, match in found] if telling == {line.file_line for line in lines} else []


def model_at(process: Process, location: Location | None) -> str:
    """The model whose states the place takes or loads, or whose parameters it names; else the one that the optimizer's
    parameters are taken of, where that is also called: a part of a model mostly is not."""
    copies = _COPIES.search(location.source) if location else None
    if copies is not None and copies["of"] != copies["to"]:
        return copies["of"]
    for pattern in (_STATES, _PARAMETERS) if location and copies is None else ():
        named = _outside(pattern, location.source) if location else []
        if len(named) == 1:
            return str(named[0])
    found = trained(process)
    plain = {name.removeprefix("self.") for name in found}
    if len(plain) != 1 or found == {"self"}:
        return "self" if found == {"self"} else ""
    name = plain.pop()
    there = "\n".join(recorded_text.of_function(process, location).values()) if location else ""
    everywhere = "\n".join(one.source for one in recorded_text.lines(process))
    bare = rf"(?<![\w.\"']){re.escape(name)}\b(?!=(?!=))"
    kept = re.findall(rf"self\.{re.escape(name)}\b[^=\n]*=(?!=)(.*)", everywhere)
    held = f"self.{name}" in found or not kept or any(re.search(bare, line) for line in kept)  # else of another class
    held = held and f"self.{name}" in everywhere and "self." in there and not re.search(bare, there)
    if held or (_calls(f"self.{name}", there) and not _calls(name, there)):
        return f"self.{name}"
    if name != "model" and _calls("model", there) and not re.search(bare, there):
        return ""  # the name of another function, where this one calls it as the example does
    return name if name in found and _calls(name, everywhere) else ""  # another class may have no such attribute


def _whole(process: Process, location: Location | None, model: str) -> str:
    """The model that a part belongs to: what an optimizer does not hold is in none of the parts that its line names."""
    if location is not None and location.function.rpartition(".")[2] == returned.CONFIGURE:
        return "self"
    holder, everywhere = model.rpartition(".")[0], "\n".join(one.source for one in recorded_text.lines(process))
    return holder if holder and _calls(holder, everywhere) else model


def trained(process: Process) -> set[str]:
    """What lines that make an optimizer, or that clip, take parameters of."""
    lines = [line for role in ("optimizer", "clip") for line in process.locations(role)]
    return {name for line in lines for name in _outside(_PARAMETERS, line.source)}


def _outside(pattern: re.Pattern[str], line: str) -> list[str]:
    """What a pattern names in a line, without variables that are known within a comprehension alone."""
    within = set() if line.lstrip().startswith(("for ", "async for ")) else set(unknown_names.comprehended(line))
    return [str(name) for name in pattern.findall(line) if str(name).split(".")[0] not in within]


def _calls(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}\(", text) is not None


def _loaders(process: Process, location: Location | None, code: str) -> dict[str, str]:
    """The loader that the place makes or the training runs through, another one, and the first one's data set.

    Where the example makes a loader, its name is that of the line which makes it: in another function it may be an
    argument's.
    """
    lines = process.locations("dataloader")
    made = {m["loader"]: m["name"] or "" for line in lines for m in _DATASET.finditer(line.source)}
    here = list(_DATASET.finditer(location.source)) if location else []
    if len(here) == 1:
        return {"loader": here[0]["loader"], "dataset": here[0]["name"] or ""}
    trained: set[str] = set()
    other: set[str] = set()
    for line, trains in _loops(process):
        match = _LOOP.fullmatch(line.source)
        if match is None:
            return {}
        (trained if trains else other).add(match["name"])
    if len(trained) != 1:
        return {}
    loader = trained.pop()
    others = {name for name in other if name in made and name != loader}
    return {
        "loader": loader if loader in made or "loader = " not in code else "",
        "val_loader": others.pop() if len(others) == 1 else "",
        "dataset": made.get(loader, ""),
    }


def _loops(process: Process) -> list[tuple[Location, bool]]:
    """The lines that go through loaders, and whether it is one that feeds the training; where that is not recorded,
    whether a backward stands in the same function."""
    rows = [row for row in process.loaders.records() if row["site"] is not None]
    places = [(place, row["loader"]) for row in rows if (place := process.site(row["site"])) is not None]
    if places:
        feeding = set(process.steps["loader"].tolist())
        return [(place, loader in feeding) for place, loader in places]
    functions = process.functions("backward")
    return [(line, line.file_function in functions) for line in process.locations("loader")]


def _forward(process: Process, loss: str, model: str) -> list[str]:
    """The lines from the call of the model to the loss, where they stand together at one depth."""
    places = [line for line in process.locations("loss") if re.match(rf"{re.escape(loss)} ?=(?!=)", line.source)]
    trained = process.functions("backward")
    places = [line for line in places if line.file_function in trained]
    if len(places) != 1 or not loss or not model:
        return []
    lines, at = recorded_text.around(process, places[0]), places[0].line
    taken: list[str] = []
    indent = recorded_text.indent_of(lines.get(at, ""))
    for number in range(at, at - _FORWARD_LINES, -1):
        line = lines.get(number, "")
        if recorded_text.indent_of(line) != indent or not parsed_line.parse(line.strip()):  # several, or a part of one
            return []
        taken.insert(0, line.strip())
        if _calls(model, line):
            return taken
    return []


def _batch(forward: list[str], model: str) -> dict[str, str]:
    """What the model is called with and the loss compares with, where both are plain names."""
    called = forward and re.search(rf"(?<![\w.]){re.escape(model)}\((?P<inputs>[A-Za-z_]\w*)\)", forward[0])
    compared = forward and re.search(r", (?P<targets>[A-Za-z_]\w*)\)$", forward[-1])
    return {"inputs": called["inputs"], "targets": compared["targets"]} if called and compared else {}


def _construction(process: Process) -> str:
    """The only statement that makes an optimizer, where it is one: an assignment, or what a function returns."""
    places = {line.file_line: line for line in process.locations("optimizer")}
    own = own_statement.at(process, next(iter(places.values()))) if len(places) == 1 else None
    made = own.parsed.statement if own is not None else None
    whole = isinstance(made, ast.Assign | ast.Return) and isinstance(made.value, ast.Call)
    return own.dedented(own.text) if own is not None and whole else ""


def _can_be_renamed(name: str, own: str, code: str, before: str) -> bool:
    """No parameter of a function in the example has the name, the example calls nothing else by the program's name
    (`before`: as it was without lines of the program), and nothing is assigned to `self`."""
    taken = re.search(rf"\bdef \w+\([^)]*\b{name}\b", code)
    taken = taken or re.search(rf"(?<![\w.]){re.escape(own)}(?!\w)(?!=(?!=))", _TEXT.sub("", before))
    return not taken and not (own == "self" and re.search(rf"(?<![\w.]){name}(?:, [\w.]+)* = ", code))


def _renamed(code: str, names: dict[str, str]) -> str:
    """The code with other names: not in strings, and in comments only where a name is clearly code."""
    if not names:
        return code
    either = "|".join(map(re.escape, names))
    plain = re.compile(rf"(?<![\w.])(?P<name>{either})(?!\w)(?!=(?!=))")
    used = re.compile(rf"(?<![\w.])(?P<name>{either})(?=\.[A-Za-z_]|\()")

    def own(found: re.Match[str]) -> str:
        return names[found["name"]]

    parts, end = [], 0
    for text in _TEXT.finditer(code):
        parts.append(plain.sub(own, code[end : text.start()]))
        if text["comment"]:
            parts.append(used.sub(own, text[0]))
        else:
            filled = re.compile(r"\{[^{}]*\}")
            parts.append(filled.sub(lambda field: plain.sub(own, field[0]), text[0]) if text["f"] else text[0])
        end = text.end()
    return "".join([*parts, plain.sub(own, code[end:])])


def _passed(code: str, loss: str, holder: str, method: str) -> str:
    """`accelerator.backward(loss)` in place of `loss.backward()`, where the program makes its backwards so."""
    call = re.compile(rf"(?<![\w.)])(?P<loss>{loss}|\({loss} / [^()\n]+\))\.backward\(\)")
    return call.sub(lambda found: f"{holder}.{method}({found['loss'].strip('()')})", code)


def _clipped_by(code: str, holder: str) -> str:
    """`accelerator.clip_grad_norm_` in place of torch's, which knows nothing of the loss scale; without a name for the
    norm only once the gradients of a step are complete, as `accelerator.accumulate` leaves it to the script."""
    if not _ACCELERATOR.search(holder) or "error_if_nonfinite" in code:  # Accelerate's does not take that
        return code

    def clip(found: re.Match[str]) -> str:
        head, call = found["indent"], f"{holder}.clip_grad_norm_({found['rest']}"
        return (
            f"{head}{found['norm']}{call}" if found["norm"] else f"{head}if {holder}.sync_gradients:\n{head}    {call}"
        )

    return _CLIPPED.sub(clip, code)


def _scales(process: Process) -> str:
    """Whether every backward is that of a scaled loss, and whether gradients are unscaled before they are clipped."""
    lines = process.locations("backward")
    if not lines or not all(_SCALES.search(line.source) for line in lines):
        return ""
    unscaled = any(".unscale_(" in one.source for one in recorded_text.lines(process))
    return "unscaled" if unscaled else "scaled"


def _scaled(code: str, unscale: bool) -> str:
    """The example with a GradScaler, where the program has one: what scales, unscales and steps."""
    code = _PLAIN_BACKWARD.sub(lambda one: f"{one['indent']}scaler.scale({one['loss'].strip('()')}).backward()", code)
    if unscale:
        code = _PLAIN_CLIP.sub(r"\g<indent>scaler.unscale_(optimizer)\n\g<0>", code)
    return _PLAIN_STEP.sub(r"\g<indent>scaler.step(optimizer)\n\g<indent>scaler.update()", code)

"""Trainable tensors that all are exactly zero: where two such factors are multiplied, neither gets a gradient."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

_FEWEST: Final = 2  # tensors: the factors of one product
_FILLS: Final = re.compile(
    r"^(?!.*(?:\.grad\b|\bbias\b)).*(?:\bzeros_\(|\.zero_\(\)|\bParameter\(.*\bzeros(?:_like)?\(|\bzeros(?:_like)?\()"
    r"|\b(?:constant_\([^()]*,\s*(?:val=)?|fill_\(\s*)0(?:\.0*)?\s*\)"
)
_ADAPTERS: Final = re.compile(r"^(?P<head>.*lora_)(?P<factor>[AB])(?P<rest>\b.*|_.*)$")
_OVER_NAMES: Final = re.compile(r"\s*for (?P<name>\w+), \w+ in .*named_parameters\(")
_ONE_FACTOR: Final = "Let only one factor of each product begin at zero, and the other at random{of}."
_OF_LORA: Final = ": lora_B at zero, and lora_A as it is made"
_EXAMPLE: Final = """torch.nn.init.kaiming_uniform_(one_factor, a=5**0.5)  # at random
torch.nn.init.zeros_(other_factor)  # so that their product begins at zero"""
_EXAMPLE_OF_LORA: Final = """for name, parameter in model.named_parameters():  # before training
    if "lora_A" in name:
        torch.nn.init.kaiming_uniform_(parameter, a=5**0.5)"""


class Zeros(NamedTuple):
    """What is said of them, the remedy with an example, and the lines that fill them, where these are known."""

    said: str
    fix: str
    code: str
    place: Location | None


def of(optimization: Optimization) -> Zeros | None:
    """Where each trainable tensor that was looked at was exactly zero at every look, and its gradient, too."""
    table = optimization.process.tables["parameters"]
    rows = table["optimizer"] == optimization.optimizer
    names = [name or "" for name, own in zip(table.text("parameter"), rows, strict=True) if own]
    zero = (table["weight_norm"][rows] == 0) & (table["grad_norm"][rows] == 0)
    count = len(set(names))
    if count < _FEWEST or not bool(np.all(zero)):
        return None
    lines = _filling(optimization.process)
    several = len(lines) > 1
    numbers = listed([str(one.line) for one in lines], most=3)
    where = f" Line{'s' * several} {numbers} fill{'s' * (not several)} with zeros." if lines else ""
    said = (
        f"All {count:,} trainable tensors that were looked at were exactly zero, from the first step to the last. "
        f"Where one factor that is zero is multiplied by another, neither gets a gradient.{where}"
    )
    adapters = _pairs(names)
    place = lines[0] if lines else None
    code = (_for_adapters(optimization.process, place) or _EXAMPLE_OF_LORA) if adapters else _EXAMPLE
    return Zeros(said, _ONE_FACTOR.format(of=_OF_LORA * adapters), code, place)


def _filling(process: Process) -> list[Location]:
    """The lines of one place that fill with zeros; empty where there are none, or several places."""
    found = [one for role in ("zero-fill", "fill") for one in process.locations(role) if _FILLS.search(one.source)]
    found = sorted({one.file_line: one for one in found}.values(), key=lambda one: one.line)
    return found if script_lines.only_of(found) is not None else []


def _pairs(names: list[str]) -> bool:
    """Whether each tensor is a factor of a LoRA adapter, and its partner is among them."""
    matches = [_ADAPTERS.match(name) for name in names]
    ends = {(one["head"], one["rest"], one["factor"]) for one in matches if one is not None}
    return None not in matches and all((head, rest, "AB"[part == "A"]) in ends for head, rest, part in ends)


def _for_adapters(process: Process, place: Location | None) -> str:
    """The script's own statement under a condition, where it stands in a loop over parameters and their names."""
    own = own_statement.at(process, place)
    lines = recorded_text.of_function(process, place) if place is not None else {}
    loops = [match for at, text in lines.items() if place and at < place.line and (match := _OVER_NAMES.match(text))]
    if own is None or len(loops) != 1:
        return ""
    return f'if "lora_B" in {loops[0]["name"]}:\n    {own.dedented(own.text)}'

"""Layers that came into a model after its optimizer was given all that it held."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.diagnosis import Location


_TARGET: Final = re.compile(r"(?P<name>(?:self\.)?\w+)(?:\.\w+)*\s*(?::[^=]+)?=(?!=)")
_PARAMETRIZED: Final = ".parametrizations."  # in the names that torch.nn.utils.parametrize gives


class AddedLater(NamedTuple):
    """`given`: what the optimizer was made of, as it is written; the line that makes it, and the one that makes the
    layers, where they are known."""

    given: str
    optimizer: Location
    made_at: Location | None
    code: str = ""
    """The optimizer's own line, where each of the tensors took the place of a weight, as weight_norm has it."""

    @property
    def said(self) -> str:
        does = "puts them in the place of weights" if self.code else "makes their layers"
        where = f" Line {self.made_at.line} {does}." if self.made_at is not None else ""
        return (
            f"Line {self.optimizer.line} makes the optimizer of `{self.given}`, all that the model held by then: these "
            f"came into it later.{where}"
        )

    @property
    def fix(self) -> str:
        if self.code:
            return (
                f"Parametrize the layers (weight_norm, spectral_norm) before line {self.optimizer.line} makes the "
                "optimizer: it holds the weights that were replaced, which nothing uses any more."
            )
        return (
            f"Add all layers before line {self.optimizer.line} makes the optimizer, or give it those that come later. "
            "Set requires_grad_(False) on parameters that should stay fixed."
        )


class AddedBelow(NamedTuple):
    """The line that makes the layers, in the function that has made the optimizer above it."""

    made_at: Location
    optimizer: Location

    @property
    def said(self) -> str:
        return f"Line {self.made_at.line} makes their layers only after line {self.optimizer.line} made the optimizer."

    @property
    def fix(self) -> str:
        return (
            f"Make the optimizer below line {self.made_at.line}, of what the model holds by then, or give it the new "
            "parameters there. Set requires_grad_(False) on parameters that should stay fixed."
        )

    def are_taken_by(self, code: str) -> bool:
        """Whether statements that make the optimizer are given all parameters of what the line assigns, or is a part
        of: moved below the line, they take the new ones, too."""
        own = _TARGET.match(self.made_at.source)
        takes = rf"(?<![\w.]){re.escape(own['name'])}\.(?:named_)?parameters\(" if own else "$."
        return re.search(takes, code) is not None

    def with_names(self, code: str) -> str:
        """An example about `model` and `optimizer`, with the names that these have in the two lines."""
        for name, place in (("model", self.made_at), ("optimizer", self.optimizer)):
            own = _TARGET.match(place.source)
            code = re.sub(rf"\b{name}\.", f"{own['name']}.", code) if own else code
        return code


def below(optimization: Optimization, names: Sequence[str]) -> AddedBelow | None:
    """Where one line makes all modules that have these tensors, below the optimizer, in the same function and no deeper
    than it stands: what is made in a branch or a loop may be made at any time."""
    process, optimizer = optimization.process, optimization.made_at
    places = {process.module_location(name.rpartition(".")[0]) for name in names}
    place = places.pop() if len(places) == 1 else None
    if (
        place is None
        or optimizer is None
        or place.file_function != optimizer.file_function
        or place.line <= optimizer.line
    ):
        return None
    lines = recorded_text.around(process, place) | recorded_text.around(process, optimizer)
    depths = [recorded_text.indent_of(lines[one.line]) for one in (optimizer, place) if one.line in lines]
    return AddedBelow(place, optimizer) if len(depths) == 2 and depths[0] == depths[1] else None


def of(optimization: Optimization, names: Sequence[str]) -> AddedLater | None:
    """Where the optimizer was made of `model.parameters()` and nothing else, and the model is called by that name now,
    with these tensors registered in it."""
    process = optimization.process
    own = own_statement.at(process, optimization.made_at)
    calls = [node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)] if own is not None else []
    asked = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "parameters"]
    if own is None or optimization.made_at is None or len(asked) != 1 or not isinstance(asked[0].func, ast.Attribute):
        return None
    whole = any(one.args and one.args[0] is asked[0] for one in calls)
    given, model = own.parsed.text_of(asked[0]), own.parsed.text_of(asked[0].func.value)
    called = {one["model"]: str(one["called_as"] or "") for one in process.models.records()}
    same = [number for number, name in called.items() if _last(name) == _last(model)]
    if not whole or len(called) != 1 or len(same) != 1:
        return None
    registered = {str(row["module"]) for row in process.tables["modules"].records()} - {""}
    if not all(any(name.startswith(f"{one}.") for one in registered) for name in names):
        return None
    places = {process.module_location(name.rpartition(".")[0]) for name in names}
    made_at = places.pop() if len(places) == 1 else None
    replaced = all(_PARAMETRIZED in f".{name}" for name in names)
    code = f"{own.dedented(own.text)}  # here: below the line that parametrizes the model" if replaced else ""
    return AddedLater(given, optimization.made_at, made_at, code)


def _last(name: str) -> str:
    return name.rpartition(".")[2]

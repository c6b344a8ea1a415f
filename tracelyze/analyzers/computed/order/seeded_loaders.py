"""Loaders that a line makes anew for each pass: the line that seeds, each time again, what draws their order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.evidence.editing import loader_arguments, own_statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_OF_TORCH: Final = re.compile(
    r"\b(?:torch\.(?:random\.)?manual_seed|seed_everything|set_seed)\s*\(|(?<![\w.])manual_seed\("
)


class Seeded(NamedTuple):
    """That line, why the order repeats, what to change, and an example."""

    line: Location
    why: str
    fix: str
    code: str


def of(process: Process, loader: Mapping[str, Any]) -> Seeded | None:
    """The only line that seeds where the loader (a row of the table loaders) is made, after the loop over epochs has
    begun: the generator that the loader is given, or torch as a whole where it is given none."""
    made = process.site(loader.get("made_at"))
    own = own_statement.at(process, made)
    call = own.only_call("DataLoader") if own is not None else None
    if made is None or own is None or call is None or any(one.arg is None for one in call.keywords):
        return None
    given = next((own.parsed.text_of(one.value) for one in call.keywords if one.arg == "generator"), None)
    lines = {one.file_line: one for role in ("seed", "reseed") for one in process.locations(role)}
    each = [one for one in lines.values() if one.file_function == made.file_function and one.line <= made.line]
    before = [one.line for one in process.locations("epochs") if one.file_function == made.file_function]
    each = [one for one in each if all(line < one.line for line in before)]
    if given is None:
        found = [one for one in each if _OF_TORCH.search(one.source)]
        what = "seeds torch, from which the order is drawn,"
        fix = "Run line {0} once, above the loop over epochs. Or let its seed depend on the epoch."
    else:
        named = re.compile(rf"{re.escape(given)}(?:\s*:[^=]+)?\s*=(?!=)|{re.escape(given)}\.manual_seed\s*\(")
        found = [one for one in each if named.match(one.source.strip())] if given.isidentifier() else []
        what = "seeds the generator that the order is drawn from,"
        fix = (
            "Make the generator of line {0} and its loader once, above the loop over epochs. Or let its seed depend on "
            "the epoch."
        )
    if len(found) != 1:
        return None
    (line,) = found
    once = "once, above the loop over epochs" + "; hand it over as an argument" * (given is not None)
    return Seeded(
        line,
        why=f"The loader is made anew for each pass, and each time line {line.line} {what} with the same seed.",
        fix=fix.format(line.line),
        code=f"{line.source.strip()}  # {once}",
    )


def example(process: Process, loader: Mapping[str, Any]) -> str:
    """What makes the loader, as a statement that may stand above the loop over epochs: none that returns it, and no
    head of a loop over it."""
    own = own_statement.at(process, process.site(loader.get("made_at")))
    code = loader_arguments.example(process, loader, {})
    moves = own is None or (own.is_whole and not own.text.startswith(("return", "yield")))
    return code if moves else loader_arguments.of_row(loader, **loader_arguments.own_sampler(process, loader))

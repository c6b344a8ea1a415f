"""Loaders that a line makes anew for each pass: the line that seeds, each time again, what draws their order."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import loader_arguments, own_statement, trainer_examples

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

_OF_TORCH: Final = re.compile(
    r"\b(?:torch\.(?:random\.)?manual_seed|seed_everything|set_seed)\s*\(|(?<![\w.])manual_seed\("
)
_METHOD: Final = re.compile(r"\s*def train_dataloader\(self\)")


class Seeded(NamedTuple):
    """That line, why the order repeats, what to change, and an example or an edit."""

    line: Location
    why: str
    fix: str
    code: str
    diff: Diff | None = None


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
    why = f"The loader is made anew for each pass, and each time line {line.line} {what} with the same seed."
    if _is_called_by_fit(process, made):
        fix = f"The Trainer calls {made.function} for each epoch: add its number to the seed of line {line.line}."
        code, diff = _with_epoch(process, line)
        return Seeded(line, why, fix, code, diff)
    once = "once, above the loop over epochs" + "; hand it over as an argument" * (given is not None)
    return Seeded(
        line,
        why=why,
        fix=fix.format(line.line),
        code=f"{line.source.strip()}  # {once}",
    )


def _is_called_by_fit(process: Process, made: Location) -> bool:
    """Whether the line stands in the method that Lightning's `fit`, which makes the steps, asks for a loader."""
    _, method = trainer_examples.trainer_of(process)
    heads = recorded_text.around(process, made).values()
    return method == "fit" and made.function == "train_dataloader" and any(_METHOD.match(one) for one in heads)


def _with_epoch(process: Process, line: Location) -> tuple[str, Diff | None]:
    """The line with the number of the epoch added to its seed, as an example and as an edit."""
    own = own_statement.at(process, line)
    call = own.only_call("manual_seed", "seed_everything", "set_seed") if own is not None else None
    if own is None or call is None or not call.args:
        return "seed + self.trainer.current_epoch  # in place of the seed", None
    (seed, *_) = call.args
    edited = own.parsed.with_parts({seed: f"{own.parsed.operand(seed)} + self.trainer.current_epoch"})
    return own.dedented(edited), own.changed(edited)


def example(process: Process, loader: Mapping[str, Any]) -> str:
    """What makes the loader, as a statement that may stand above the loop over epochs: none that returns it, and no
    head of a loop over it."""
    own = own_statement.at(process, process.site(loader.get("made_at")))
    code = loader_arguments.example(process, loader, {})
    moves = own is None or (own.is_whole and not own.text.startswith(("return", "yield")))
    return code if moves else loader_arguments.of_row(loader, **loader_arguments.own_sampler(process, loader))

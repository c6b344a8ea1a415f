"""What to do about what puts the generator of a loader's order back, pass after pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tracelyze.analyzers.rules.data.same_order_every_epoch import seeded_loaders
from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.editing import loader_arguments, own_statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff, Location

OWN: Final = """# for numbers that repeat on purpose: a generator of their own, made where they are drawn
generator = torch.Generator().manual_seed(0)
noise = torch.randn(x.shape, generator=generator)"""
_OWN_GENERATOR: Final = "torch.Generator().manual_seed(0)"
_ORDERS: Final = frozenset({"generator", "sampler", "batch_sampler"})  # arguments that bring an order of their own


class Advice(NamedTuple):
    """Why the order repeats, what to change, and an example or an edit."""

    why: str
    fix: str
    code: str
    diff: Diff | None = None


def advice(process: Process, loader: Mapping[str, Any], seeds: Location | None, anew: bool) -> Advice:
    """`seeds`: the line that puts the generator back, where it is known; `anew`: whether each pass has a loader of its
    own."""
    if seeds is not None:
        why = f"Line {seeds.line} puts the generator of the order back before each pass."
        return Advice(why, *_of_line(process, seeds))
    made = "The loader is made anew for each pass, and before that" if anew else "Before each pass"
    why = f"{made} something puts the generator of the order back: torch.manual_seed, or a generator made anew."
    own = loader_arguments.own_sampler(process, loader)
    if anew or own:
        fix = "Seed once, before the first epoch" + ", and make one loader for all epochs" * anew + "."
        what = "all once, the sampler and its generator too" if own else "both once"
        once = seeded_loaders.example(process, loader)
        return Advice(why, fix, f"# {what}, above the loop over epochs:\ntorch.manual_seed(0)\n{once}")
    diff = _with_generator(process, loader)
    if diff is not None:
        why = (
            "Before each pass something puts torch's generator back, from which the order is drawn: torch.manual_seed, "
            "or a state that is set again."
        )
        fix = "Give the loader a generator of its own, which nothing else seeds. Or seed torch once, before all epochs."
        return Advice(why, fix, "", diff)
    code = "torch.manual_seed(0)  # once, above the loop over epochs, and nowhere below it"
    return Advice(why, "Seed once, before the first epoch, and nowhere in it.", code)


def _with_generator(process: Process, loader: Mapping[str, Any]) -> Diff | None:
    """The line that makes the loader with a generator of its own; None where it may draw from another one."""
    place = process.site(loader.get("made_at"))
    own = own_statement.at(process, place)
    call = own.only_call("DataLoader") if own is not None else None
    given = {one.arg for one in call.keywords} if call is not None else _ORDERS
    known = place is not None and recorded_text.names_torch(process, place.file)
    if not known or None in given or given & _ORDERS or loader.get("sampler") != "RandomSampler":
        return None
    return loader_arguments.with_arguments(process, place, {"generator": _OWN_GENERATOR})


def _of_line(process: Process, line: Location) -> tuple[str, str]:
    """Words and an example. A line in a method that a framework calls is often meant for numbers of a validation."""
    if script_lines.each_epoch(process, line):
        fix = f"Take line {line.line} out: seed once, before the first epoch. "
        same = "What should draw the same numbers each time, as a validation, gets a generator of its own"
        return f"{fix}{same}, or runs within torch.random.fork_rng().", OWN
    already = _seeded_before(process, line)
    if already is not None:
        return f"Take line {line.line} out: line {already.line} seeds in the same way before the first epoch.", ""
    return f"Seed once, before the first epoch, and no longer on line {line.line}.", script_lines.moved_up(line)


def _seeded_before(process: Process, line: Location) -> Location | None:
    """The only other line that says the same, in a function of that file that makes the loader or the optimizer."""
    once = process.functions("dataloader", "optimizer")
    same = [one for one in process.locations("seed") if one.source == line.source and one.file == line.file]
    others = [one for one in same if one.line != line.line and one.function != line.function]
    return script_lines.only_of([one for one in others if one.file_function in once])

"""What to do about a line that puts the generator of a loader's order back, pass after pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

OWN: Final = """# for numbers that repeat on purpose: a generator of their own, made where they are drawn
generator = torch.Generator().manual_seed(0)
noise = torch.randn(x.shape, generator=generator)"""


def advice(process: Process, line: Location) -> tuple[str, str]:
    """Words and an example. A line in a method that a framework calls is often meant for numbers of a validation."""
    if script_lines.each_epoch(line):
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

"""What to do about a line that puts the generator of a loader's order back, pass after pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from tracelyze.diagnosis import Location

OWN: Final = """# for numbers that repeat on purpose: a generator of their own, made where they are drawn
generator = torch.Generator().manual_seed(0)
noise = torch.randn(x.shape, generator=generator)"""


def advice(line: Location) -> tuple[str, str]:
    """Words and an example. A line in a method that a framework calls is often meant for numbers of a validation."""
    if script_lines.each_epoch(line):
        fix = f"Take line {line.line} out: seed once, before the first epoch. "
        same = "What should draw the same numbers each time, as a validation, gets a generator of its own"
        return f"{fix}{same}, or runs within torch.random.fork_rng().", OWN
    return f"Seed once, before the first epoch, and no longer on line {line.line}.", script_lines.moved_up(line)

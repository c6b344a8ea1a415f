"""What the graph of the first loss that was no number says of it: the operation that made it, or a broken weight."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence import script_lines

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_LOGARITHM: Final = (
    "Compute it without leaving the logarithms: torch.logsumexp for the logarithm of a sum of exponentials, "
    "log_softmax for that of a softmax, and the losses that take logits. Elsewhere keep what goes in away from 0."
)
_LOGARITHM_CODE: Final = """\
# in place of torch.log((weights * densities).sum(-1)):
log_likelihood = torch.logsumexp(log_weights + log_densities, dim=-1)
# elsewhere:
log_p = torch.log(p.clamp_min(1e-8))
"""
_DIVISION: Final = (
    "Divide by what cannot be 0: leave out what has nothing to be divided by, as an empty mask, or bound the divisor "
    "from below."
)
_DIVISION_CODE: Final = "mean = (values * mask).sum() / mask.sum().clamp_min(1)\nratio = a / b.clamp_min(1e-8)\n"
_EXP: Final = "Bound what goes into it, or subtract the largest first, as torch.softmax and torch.logsumexp do."
_FIX: Final = {
    "log": (_LOGARITHM, _LOGARITHM_CODE),
    "division": (_DIVISION, _DIVISION_CODE),
    "exp": (_EXP, "scale = torch.exp(log_scale.clamp(-10.0, 10.0))\n"),
    "sqrt": ("Keep what goes in above 0.", "std = torch.sqrt(variance.clamp_min(1e-8))\n"),
}


@dataclass(frozen=True)
class Broken:
    """`operations`: in the collector's words (nonfinite_operations.py); `weight`: one that was not finite before.
    `reaches`: nothing chooses among their results before the loss."""

    operations: list[str]
    weight: str
    reaches: bool

    @property
    def told(self) -> str:
        """A sentence; empty where the graph showed nothing."""
        if self.weight:
            return f"{self.weight} was not finite any more when this loss was computed."
        if not self.operations:
            return ""
        either = " or ".join(("an " if re.match("[ae]|rsqrt", one) else "a ") + one for one in self.operations)
        return f"{either[:1].upper()}{either[1:]} {'made it' if self.reaches else 'can have made it'}."

    @property
    def fix(self) -> tuple[str, str] | None:
        """What to do about the only operation, and an example."""
        return _FIX.get(self._name) if len(self.operations) == 1 else None

    @property
    def _name(self) -> str:
        name = re.split(r" (?:of|by)\b", self.operations[0])[0]
        return "log" if name.startswith("log") else name


def seen(process: Process, step: int) -> Broken:
    """What is known of the loss of this step (the first is 1)."""
    for row in process.events.records():
        if row["kind"] == "nonfinite-loss" and row["step"] == step - 1:
            operations = [one for one in (row["text"] or "").split(", ") if one]
            return Broken(operations, row["name"] or "", row["value"] == 1)
    return Broken([], "", False)


def line(process: Process, step: int) -> Location | None:
    """The line that the operation stands in, as it was called a step later; else the script's only one. Of gradients
    that were not finite first, the line of what can have made them so."""
    broken = seen(process, step)
    if not broken.operations:
        return script_lines.singular(process, step)
    return process.location("nonfinite") or script_lines.singular_of(process, broken.operations)

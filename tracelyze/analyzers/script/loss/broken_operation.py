"""What the graph of the first loss that was no number says of it: the operation that made it, or a broken weight."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import script_lines
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.editing.remade import finite
from tracelyze.analyzers.script.loss import filled_rows
from tracelyze.analyzers.script.settings import made_losses
from tracelyze.formatting import listed

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.analyzers.script.editing.own_statement import OwnStatement
    from tracelyze.analyzers.script.editing.parsed_line import ParsedLine
    from tracelyze.diagnosis import Location

_MASKED: Final = "softmax of a row that is masked throughout"
"""What the collector calls it (signals/loss/nonfinite_operations.py)."""
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
_UNDERFLOWN: Final = (
    "Compute it without leaving the logarithms: keep what goes into exp as it is, subtract the logarithm of what the "
    "exponentials are divided by, and take torch.logsumexp in place of the sum and its logarithm. A clamp before the "
    "logarithm is no remedy: such samples then teach nothing."
)
_UNDERFLOWN_CODE: Final = """\
# log_densities: what goes into exp, less the logarithm of its divisor
# in place of torch.log((weights * densities).sum(-1)):
log_likelihood = torch.logsumexp(torch.log(weights) + log_densities, dim=-1)
"""
_BETTER: Final = "  # or stay in logarithms"
_COMPLEMENT: Final = (
    "Where a sigmoid makes p, compute the loss on its logits z: binary_cross_entropy_with_logits, or logsigmoid(z) for "
    "log(p) and logsigmoid(-z) for log(1 - p). Elsewhere keep p 1e-6 away from 1: float32 holds 1 - 1e-8 as 1, so that "
    "a clamp there does nothing, and log(1 - p) is log(0)."
)
_COMPLEMENT_CODE: Final = """\
# z are the logits, p = torch.sigmoid(z):
log_p, log_not_p = torch.nn.functional.logsigmoid(z), torch.nn.functional.logsigmoid(-z)
# where there are only probabilities:
p = p.clamp(1e-6, 1 - 1e-6)
"""
_OF_LOGITS: Final = (
    "Compute it from the logits that the sigmoid is taken of, as binary_cross_entropy_with_logits does: logsigmoid(z) "
    "is log(p), and logsigmoid(-z) is log(1 - p). A clamp of p at 1e-8 does nothing: float32 holds 1 - 1e-8 as 1."
)
_DIVISION: Final = (
    "Divide by what cannot be 0: leave out what has nothing to be divided by, as an empty mask, or bound the divisor "
    "from below. A quotient grows as a bound shrinks: take one that is not tiny beside the usual divisors."
)
_DIVISION_CODE: Final = (
    "mean = (values * mask).sum() / mask.sum().clamp_min(1)\n"
    "ratio = a / b.clamp_min(0.01)  # of b that is never negative, and about 1\n"
)
_EXP: Final = "Bound what goes into it, or subtract the largest first, as torch.softmax and torch.logsumexp do."
_SOFTMAX: Final = (
    "Leave each row a score: see that no sample comes without anything, where samples are cut, filtered or dropped at "
    "random, or give a row without a score zeros for its weights."
)
_SOFTMAX_CODE: Final = """\
# in place of the fill and the softmax; mask: True where there is something, False where the row is filled up
scores = scores.masked_fill(~mask & mask.any(-1, keepdim=True), float("-inf"))
weights = torch.softmax(scores, dim=-1) * mask
"""
_SPREAD: Final = (
    "A spread is divided by the number of values less one, 0 for a single value. Leave such groups out, or take one "
    "that a single value has, too."
)
_SPREAD_CODE: Final = "spread = values.std(0, unbiased=False).clamp_min(1e-3)  # 0 of a single value, and no NaN\n"
_CTC: Final = (
    "Let the network put out more time steps: pool and stride less along that dimension. A target needs one for each "
    "label, and another between two equal ones. If such targets are few, leave them out, or set zero_infinity=True: "
    "their loss and their gradients are then 0, and nothing is learned of them."
)
_LOGARITHM_OF_DATA: Final = (
    "Look at the samples whose target is -Inf, such as the logarithm of a size or count that is 0: leave them out, or "
    "keep what the logarithm is taken of above 0."
)
_LOGARITHM_OF_DATA_CODE: Final = "target = torch.log(size.clamp_min(1e-8))\n"
_TARGET: Final = (
    "Look at the samples whose target is not finite: leave them out of the loss, or mend what makes their targets, as "
    "a division by 0."
)
_TARGET_CODE: Final = "known = torch.isfinite(target)\nloss = criterion(prediction[known], target[known])\n"
_ROOT: Final = (
    "Have what goes in be above 0: let the network put out a positive number (exp, softplus), or bound it, which gives "
    "what lies below the bound no gradient."
)
_FIX: Final = {
    "ctc_loss": (_CTC, "loss = F.ctc_loss(log_probs, targets, input_lengths, target_lengths, zero_infinity=True)\n"),
    "std": (_SPREAD, _SPREAD_CODE),
    "var": (_SPREAD, _SPREAD_CODE.replace("std(", "var(")),
    "log": (_LOGARITHM, _LOGARITHM_CODE),
    "division": (_DIVISION, _DIVISION_CODE),
    "exp": (_EXP, "scale = torch.exp(log_scale.clamp(-10.0, 10.0))\n"),
    "softmax": (_SOFTMAX, _SOFTMAX_CODE),
    "sqrt": (_ROOT, "std = torch.sqrt(variance.clamp_min(1e-8))\n"),
}


@dataclass(frozen=True)
class Broken:
    """`operations`: in the collector's words (nonfinite_operations.py); `weight`: one that was not finite before.
    `target`: what one held that was not finite. `reaches`: nothing chooses among their results before the loss."""

    operations: list[str]
    weight: str
    reaches: bool
    target: str = ""

    @property
    def told(self) -> str:
        """A sentence; empty where the graph showed nothing."""
        if self.weight:
            return f"{self.weight} was not finite any more when this loss was computed."
        made = "made it" if self.reaches else "can have made it"
        if self.target:
            return f"A target held {self.target}, which {made}; no gradient passes through what computed it."
        if not self.operations:
            return ""
        either = " or ".join(("an " if re.match("[ae]|rsqrt", one) else "a ") + one for one in self.operations)
        return f"{either[:1].upper()}{either[1:]} {made}."

    def fix(self, process: Process, place: Location | None) -> tuple[str, str] | None:
        """What to do about the only operation, and an example; `place`: the line that it stands in."""
        own = own_statement.at(process, place)
        if self.target:
            if self.target != "-Inf":
                return _TARGET, _TARGET_CODE
            return _LOGARITHM_OF_DATA, (finite.logarithms(own) if own is not None else "") or _LOGARITHM_OF_DATA_CODE
        if len(self.operations) == 1 and self._name == "ctc_loss":
            return _CTC, _past_infinity(process, place, own) or _FIX["ctc_loss"][1]
        return self._remedy(process, place)

    def _remedy(self, process: Process, place: Location | None) -> tuple[str, str] | None:
        if len(self.operations) != 1:
            return None
        own = own_statement.at(process, place)
        if "exponentials" in self.operations[0]:
            return _UNDERFLOWN, _UNDERFLOWN_CODE
        if self._name == "log" and own is not None and _of_complement(own.parsed):
            of_logits = finite.log_sigmoids(process, place)
            return (_OF_LOGITS, of_logits) if of_logits else (_COMPLEMENT, _COMPLEMENT_CODE)
        told = _FIX.get(self._name)
        if told is None or own is None:
            return told
        bounded = {"log": finite.logarithms, "division": finite.counted, "sqrt": finite.roots}.get(self._name)
        code = bounded(own) if bounded is not None else ""
        return told[0], f"{code}{_BETTER * (self._name == 'log')}" if code else told[1]

    @property
    def _name(self) -> str:
        name = re.split(r" (?:of|by)\b", self.operations[0])[0]
        return "log" if name.startswith("log") else name


def fix(process: Process, step: int) -> tuple[str, str] | None:
    """What to do about the only operation that made the loss of this step no number, and an example."""
    broken, place = seen(process, step), _computed(process, step)
    found = broken.fix(process, place)
    filled = filled_rows.of(process, place) if broken.operations == [_MASKED] and place is not None else None
    return (found[0], filled.code) if found and filled and filled.code else found


def logarithms(process: Process) -> str:
    """A sentence on the lines that take the logarithms of a step; empty where they are not known."""
    lines = sorted({one.line for one in process.locations("nonfinite")})
    if not lines:
        return ""
    if len(lines) == 1:
        return f" Line {lines[0]} takes the only logarithm of a step, and that of 0 is -Inf."
    return f" Lines {listed(map(str, lines), len(lines))} take the only logarithms of a step, and that of 0 is -Inf."


def _past_infinity(process: Process, place: Location | None, own: OwnStatement | None) -> str:
    """The statement that calls or makes the CTC loss with zero_infinity; empty where it is not known."""
    made = made_losses.made(process, place, ("CTCLoss",))
    stated = own if own is not None and own.only_call("ctc_loss") is not None else made and made[1]
    if stated is None or not stated.is_whole:
        return ""
    return stated.dedented(stated.with_argument(("ctc_loss", "CTCLoss"), "zero_infinity", "True"))


def _of_complement(place: ParsedLine) -> bool:
    """Whether a logarithm in it is taken of `1 - p`, to which nothing is added, or with log1p of `-p`."""
    for call in place.calls("log", "log2", "log10", "log1p"):
        by_function = parsed_line.is_function_of_torch(call.func)
        taken = call.args[0] if by_function and call.args else getattr(call.func, "value", None)
        if parsed_line.name_of(call.func) == "log1p":
            found = isinstance(taken, ast.UnaryOp) and isinstance(taken.op, ast.USub)
        else:
            found = _is_complement(taken)
        if found:
            return True
    return False


def _is_complement(node: ast.expr | None) -> bool:
    """Whether it is `1 - p`, and p no square."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub) or _is_square(node.right):
        return False
    return isinstance(node.left, ast.Constant) and node.left.value == 1


def _is_square(node: ast.expr) -> bool:
    """As in the density of what tanh has squashed, whose logarithm is not that of a probability."""
    if isinstance(node, ast.Call):
        return parsed_line.name_of(node.func) in ("pow", "square")
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow | ast.Mult)


def seen(process: Process, step: int) -> Broken:
    """What is known of the loss of this step (the first is 1)."""
    targets = {row["step"]: row for row in process.events_of("nonfinite-target")}
    for row in process.events_of("nonfinite-loss"):
        if row["step"] == step - 1:
            if step - 1 in targets:
                told = targets[step - 1]
                return Broken([], "", told["value"] == 1, str(told["text"]))
            operations = [one for one in (row["text"] or "").split(", ") if one]
            return Broken(operations, row["name"] or "", row["value"] == 1)
    return Broken([], "", False)


def line(process: Process, step: int) -> Location | None:
    """The line that the operation stands in, as it was called a step later; else the script's only one. Of a softmax
    over what a mask filled throughout, the line that fills. Of gradients that were not finite first, the line of what
    can have made them so."""
    place = _computed(process, step)
    filled = (
        filled_rows.of(process, place) if seen(process, step).operations == [_MASKED] and place is not None else None
    )
    return filled.place if filled is not None else place


def _computed(process: Process, step: int) -> Location | None:
    broken = seen(process, step)
    if broken.target:
        return script_lines.only(process, "nonfinite")
    if not broken.operations:
        return script_lines.singular(process, step)
    return process.location("nonfinite") or script_lines.singular_of(process, broken.operations)

"""What to change in a loss that the Trainer of transformers takes to be divided already."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.comments import code_of
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.analyzers.script.editing.remade import windows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

METHOD: Final = (
    "Say that your compute_loss returns a mean. Where a model accepts loss arguments (**kwargs), the Trainer of "
    "transformers expects a loss that was divided by num_items_in_batch, and divides it by nothing. Or return a sum "
    "over the targets, divided by num_items_in_batch."
)
OF_METHOD: Final = (
    "trainer.loss_is_scaled_for_ga = False  # before trainer.train(), transformers 5\n"
    "trainer.model_accepts_loss_kwargs = False  # instead of it, before version 5"
)
OR_SUMMED: Final = "# or, in compute_loss:\n"
FUNCTION: Final = (
    "Return a sum over the targets, divided by num_items_in_batch: the Trainer gives that number of all batches of a "
    "step to a compute_loss_func, and divides what it returns by nothing."
)
OF_FUNCTION: Final = 'return F.cross_entropy(logits, labels, reduction="sum") / num_items_in_batch'
_EVERY: Final = re.compile(r"%\s*(?P<every>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\s*(?:\)\s*)?==\s*\w+(?:\s*-\s*1)?\s*:")
_NAMED: Final = re.compile(
    r"\s*(?P<name>\w+)\s*=(?!=).*%\s*(?P<every>(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*)\s*\)?\s*[!=]=\s*\w+(?:\s*-\s*1)?\)?$"
)
_NAMES: Final = ("num_items_in_batch", "compute_loss_func")


def method(optimization: Optimization) -> Location | None:
    """The line of a method with the name that the Trainer of transformers calls, which computes the loss or calls the
    model."""
    process = optimization.process
    lines = [one for role in ("loss", "training-call") for one in process.locations(role)]
    return next((one for one in lines if one.function.rpartition(".")[2] == "compute_loss"), None)


def mean(optimization: Optimization) -> Location | None:
    """The only line of that method that takes the mean which it returns, as `loss = token_loss.mean()` does."""
    process = optimization.process
    found = [one for one in process.locations("trainer-mean") if _mean_returned(process, one) is not None]
    return found[0] if len(found) == 1 and method(optimization) is not None else None


def over_the_step(process: Process, place: Location | None) -> str:
    """The statement there with the sum over the targets of the whole step in place of the mean; empty at another."""
    own, call = own_statement.at(process, place), _mean_returned(process, place)
    if own is None or call is None or not isinstance(call.func, ast.Attribute):
        return ""
    each = own.parsed.text_of(call.func.value)
    return own.dedented(own.parsed.with_parts({call: f"{each}.sum() / num_items_in_batch"}))


def _mean_returned(process: Process, place: Location | None) -> ast.Call | None:
    """The mean over all elements that a whole statement returns, or assigns to what its function returns."""
    own = own_statement.at(process, place)
    statement = own.parsed.statement if own is not None and own.is_whole else None
    call = statement.value if isinstance(statement, ast.Return | ast.Assign) else None
    if place is None or not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr != "mean" or call.args or call.keywords:
        return None
    if isinstance(statement, ast.Assign):
        target = statement.targets[0]
        if len(statement.targets) != 1 or not isinstance(target, ast.Name):
            return None
        returns = re.compile(rf"\s*return\b.*\b{target.id}\b")
        if not any(map(returns.match, recorded_text.of_function(process, place).values())):
            return None
    return call


def remedy(optimization: Optimization, count: int) -> tuple[str, str]:
    """Words and an example, where so many batches make a step."""
    process, place = optimization.process, optimization.loss_location
    if method(optimization) is not None:
        summed = over_the_step(process, mean(optimization))
        return METHOD, f"{OF_METHOD}\n{OR_SUMMED}{summed}" if summed else OF_METHOD
    around = recorded_text.around(process, place).values() if place else ()
    if any(name in line for line in around for name in _NAMES):
        return FUNCTION, _summed(process, place) or OF_FUNCTION
    fix = (
        f"Divide the loss by {count}, the number of batches that a step accumulates, before backward. Leave the "
        "learning rate as it is, unless it was chosen to suit these sums."
    )
    return fix, f"(loss / {_counted(optimization) or count}).backward()"


def _counted(optimization: Optimization) -> str:
    """What the script calls the number of batches of a step, by the condition above its step: `self.every` of
    `if (i + 1) % self.every == 0:`, also if that has a name of its own. Empty where that is in another function than
    the backward, or no name."""
    place, backward = windows.counted(optimization), optimization.backward_location
    if place is None and backward is not None:
        return _named(recorded_text.of_function(optimization.process, backward).values())
    found = _EVERY.search(code_of(place.source)) if place is not None else None
    if place is None or found is None or backward is None or place.file_function != backward.file_function:
        return ""
    return found["every"]


def _named(lines: Iterable[str]) -> str:
    """`EVERY` of the only `last = (i + 1) % EVERY == 0` whose name is a condition in these lines."""
    texts = [code_of(line) for line in lines]
    found = [one for line in texts if (one := _NAMED.match(line))]
    asked = [one for one in found if any(re.match(rf"\s*if (?:not )?{one['name']}:", line) for line in texts)]
    return asked[0]["every"] if len(asked) == len(found) == 1 else ""


def _summed(process: Process, place: Location | None) -> str:
    """The script's own line with a sum in place of the mean; empty where it does not return or assign one call of a
    loss function of torch."""
    own = own_statement.at(process, place)
    parsed = own.parsed.statement if own is not None else None
    value = parsed.value if isinstance(parsed, ast.Return | ast.Assign) else None
    if own is None or not isinstance(value, ast.Call):
        return ""
    called = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    summed = own.with_argument((called,), "reduction", '"sum"') if called in _FUNCTIONS else ""
    return f"{own.dedented(summed)} / num_items_in_batch" if summed else ""


_FUNCTIONS: Final = ("cross_entropy", "nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss")

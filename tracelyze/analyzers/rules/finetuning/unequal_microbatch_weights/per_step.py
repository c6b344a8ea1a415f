"""A loss over the targets of a whole step: what to change in a loop that takes the mean over each micro-batch."""

from __future__ import annotations

import ast
import re
import textwrap
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.computed.data import texts
from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights import divided
from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights.of_microbatches import OF_TORCH
from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line
from tracelyze.analyzers.script.loss import of_trainer

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization
    from tracelyze.analyzers.rules.finetuning.unequal_microbatch_weights.divided import Divided
    from tracelyze.diagnosis import Location

IGNORED: Final = -100  # the ignore_index of torch, where none is given
OF_TRANSFORMERS: Final = (
    "tokens = sum((b['labels'][:, 1:] != -100).sum() for b in micro_batches)\n"
    "for b in micro_batches:\n    loss = model(**b, num_items_in_batch=tokens).loss\n    loss.backward()"
)
IN_COMPUTE_LOSS: Final = "# in compute_loss, which the Trainer gives the tokens of the whole step{}:\n"
OTHERS_STAY: Final = "; its other arguments stay as they are"
SUMMED: Final = "loss = F.cross_entropy(logits, labels, ignore_index=-100, reduction='sum') / num_items_in_batch"
COUNTED: Final = (
    "targets = sum(({y} != {ignored}).sum() for {counted} in micro_batches)  # before any backward; {ignored}: "
    "ignore_index\n"
)
OF_A_LOOP: Final = (
    "targets = sum(({y} != {ignored}).sum() for {counted} in micro_batches)  # {ignored}: the loss's ignore_index\n"
    "for {batch} in micro_batches:\n"
    "    loss = torch.nn.functional.cross_entropy({compared}, {given}reduction='sum')\n"
    "    (loss / targets).backward()"
)
OF_ACCELERATE: Final = (
    "import itertools  # at the top of the file\n\n"
    "batches = iter(loader)\n"
    "while micro_batches := list(itertools.islice(batches, {count})):\n"
    "    targets = sum(({y} != {ignored}).sum() for {counted} in micro_batches)  # {ignored}: the loss's ignore_index\n"
    "    for {batch} in micro_batches:\n"
    "        # as it stands above the loss today, without {holder}.accumulate()\n"
    "{loss}\n"
    "        {backward}\n"
    "    optimizer.step()  # and what else is done once a step"
)
BACKWARD: Final = "{holder}.backward({loss} * {count})  # it divides by {count}"


def divided_by(optimization: Optimization, count: int) -> str:
    """What to do about the number of micro-batches that each loss is divided by: Accelerate's backward does so where
    no line of the script does."""
    accelerate = _accelerate(optimization)
    if accelerate is None:
        return f" That counts all micro-batches: take back what divides each loss by {count}."
    return (
        f" {accelerate[0]}.backward() divides each loss by {count}: multiply by {count} first. Collect the batches of "
        "a step before you train on them: the number of targets is needed in the first backward."
    )


def example(optimization: Optimization, loss: Location | None, own: Divided | None, count: int) -> str:
    """The script's own loss over the targets of the step, where its line is known; `count`: by what each loss is
    divided besides, 0 if by nothing."""
    accelerate = _accelerate(optimization) if count else None
    if accelerate is None:
        return own.code if own is not None else _by_call(optimization, loss)
    holder, given = accelerate
    backward = BACKWARD.format(holder=holder, loss=given, count=count)
    if own is not None:
        return f"{own.code}\n{backward}"
    summed = divided.summed(optimization.process, loss, OF_TORCH, "targets")
    there = optimization.backward_location
    if not summed or loss is None or there is None or loss.file_function != there.file_function:
        divides = BACKWARD.format(holder=holder, loss="loss / targets", count=count)
        code = _by_call(optimization, loss).replace("(loss / targets).backward()", divides)
        code = code.replace("loss.backward()", BACKWARD.format(holder=holder, loss="loss", count=count))
        return code if "backward(" in code.partition("\n")[2] else f"{code}\n{backward}"
    words = _in_words(optimization)
    inside = textwrap.indent(summed, " " * 8)
    return OF_ACCELERATE.format(count=count, holder=holder, loss=inside, backward=backward, **words)


def _in_words(optimization: Optimization) -> dict[str, str]:
    """What the loop calls a batch, its inputs and its targets, and what of the targets does not count; how the loss
    compares them: of pictures the classes are in dimension 1, and what flattens them would mix them with places."""
    rows = [row for row in optimization.process.tables["loss_calls"].records() if row["training"]]
    values = {int(row["ignore_index"]) for row in rows if row["ignore_index"] is not None}
    ignored = values.pop() if len(values) == 1 else IGNORED
    places = any((row["input_shape"] or "").count("x") > 1 for row in rows)
    x, y = _fields(optimization)
    named = y.partition("[")[0] if "[" in y else ""
    return {
        "batch": named or f"{x}, {y}",
        "counted": named or f"_, {y}",
        "x": x,
        "y": y,
        "ignored": str(ignored),
        "compared": f"model({x}), {y}" if places else f"model({x}).flatten(0, -2), {y}.flatten()",
        "given": f"ignore_index={ignored}, " if ignored != IGNORED else "",
    }


def _fields(optimization: Optimization) -> tuple[str, str]:
    """The two names that the loop over batches gives the inputs and the targets; of a batch with two fields that have
    names, what it is asked for."""
    there = optimization.backward_location
    loops = optimization.process.locations("loader")
    places = [one for one in loops if there is not None and one.file_function == there.file_function]
    loop = parsed_line.of(places[0]) if len(places) == 1 else None
    target = loop.statement.target if loop is not None and isinstance(loop.statement, ast.For) else None
    names = [one.id for one in target.elts if isinstance(one, ast.Name)] if isinstance(target, ast.Tuple) else []
    if isinstance(target, ast.Tuple) and len(names) == len(target.elts) == 2:
        return names[0], names[1]
    rows = [row for row in optimization.process.tables["batches"].records() if row["trained"] and row["field"]]
    given = {str(row["field"]): str(row["dtype"]) for row in rows}
    whole = [name for name, dtype in given.items() if dtype.startswith("int") and name.isidentifier()]
    others = [name for name in given if name not in whole and name.isidentifier()]
    if len(given) == 2 and len(whole) == len(others) == 1:
        batch = target.id if isinstance(target, ast.Name) else "batch"
        return f'{batch}["{others[0]}"]', f'{batch}["{whole[0]}"]'
    return "x", "y"


def _by_call(optimization: Optimization, loss: Location | None) -> str:
    """For a loss that the Trainer of transformers asks for; for a loop with a model of theirs; for any other loop, by
    its own call of the loss where that is known."""
    place = optimization.loss_location
    over = of_trainer.over_the_step(optimization.process, loss)
    if over and loss == of_trainer.mean(optimization):
        return IN_COMPUTE_LOSS.format("") + over
    if place is not None and place.function.rpartition(".")[2] == "compute_loss":
        summed = divided.summed(optimization.process, loss, OF_TORCH, "num_items_in_batch")
        return IN_COMPUTE_LOSS.format("" if summed else OTHERS_STAY) + (summed or SUMMED)
    if texts.symbols(optimization.process, "end_symbol"):
        return OF_TRANSFORMERS
    summed = divided.summed(optimization.process, loss, OF_TORCH, "targets")
    words = _in_words(optimization)
    return (COUNTED.format(**words) + summed) if summed else OF_A_LOOP.format(**words)


def _accelerate(optimization: Optimization) -> tuple[str, str] | None:
    """What the script calls the accelerator that divides its losses, and what it gives its backward. Under accumulate()
    a step has as many backwards as gradient_accumulation_steps, which is what backward() divides by."""
    place = optimization.backward_location
    own = own_statement.at(optimization.process, place)
    call = own.only_call("backward") if own is not None else None
    if own is None or place is None or call is None or not isinstance(call.func, ast.Attribute) or len(call.args) != 1:
        return None
    holder = own.parsed.text_of(call.func.value)
    accumulates = re.compile(rf"\bwith {re.escape(holder)}\.accumulate\(")
    lines = recorded_text.of_function(optimization.process, place).values()
    known = any(accumulates.search(one) for one in lines) and isinstance(call.args[0], ast.Name)
    return (holder, own.parsed.text_of(call.args[0])) if known else None

"""What serves in place of batch normalisations over few samples: group normalisations, in the script's own statement
that makes them, or larger batches."""

from __future__ import annotations

import ast
import math
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from tracelyze.analyzers.script import recorded_text
from tracelyze.analyzers.script.editing import own_statement, parsed_line, trainer_examples

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Optimization, Process
    from tracelyze.diagnosis import Location

FIX: Final = "Use GroupNorm or LayerNorm, freeze BatchNorm in eval mode when fine-tuning, or enlarge micro-batches"
_IMPORTED: Final = "import math  # at the top of the file\n\n"
_CHANNELS: Final = 16  # of a group: Wu and He (2018), Group Normalization, table 3
_USUAL: Final = 32  # samples of a batch, in an example
_SIZE: Final = "# groups of about 16 channels\n"
_KNOWN: Final = re.compile(r"(?<![\w.])math\.\w")  # the file imports it
CODE: Final = (
    _IMPORTED
    + """groups = math.gcd(channels, max(1, channels // 16))  # of about 16 channels
nn.GroupNorm(groups, channels)  # for nn.BatchNorm2d(channels)"""
)


class Made(NamedTuple):
    """The line that makes the first of them, and an example."""

    place: Location
    code: str


def larger_batches(optimization: Optimization, samples: float) -> str:
    """Batches of a usual size, or of a Trainer, which takes their size when it is made, those that a step accumulates;
    and another norm in place of theirs."""
    counts, size = optimization.steps["backwards"], _USUAL
    if trainer_examples.trainer_of(optimization.process)[1] == "train":
        backwards = float(np.median(counts[counts > 0]))
        size = round(samples * backwards) if backwards > 1 else size
        given = f"per_device_train_batch_size={size}, gradient_accumulation_steps=1, dataloader_drop_last=True"
        code = f"TrainingArguments(output_dir, {given})  # in place of what it is given of these today"
    else:
        code = f"loader = DataLoader(dataset, batch_size={size}, shuffle=True, drop_last=True)"
    return f"{code}\n# or: nn.LayerNorm(features) instead of nn.BatchNorm1d(features)"


def in_place(process: Process, place: Location | None) -> Made | None:
    """The statement at a place with group normalisations in place of the batch normalisations; None where it names none
    with its channels."""
    own = own_statement.at(process, place)
    if own is None or place is None or not own.is_whole:
        return None
    parts: dict[ast.expr, str] = {}
    for call in (node for node in ast.walk(own.parsed.tree) if isinstance(node, ast.Call)):
        name = parsed_line.name_of(call.func)
        if name in ("BatchNorm1d", "BatchNorm2d", "BatchNorm3d") and call.args and parsed_line.is_operand(call.args[0]):
            channels = own.parsed.text_of(call.args[0])
            holder = own.parsed.text_of(call.func).removesuffix(name)
            parts[call] = f"{holder}GroupNorm({_groups(call.args[0], channels)}, {channels})"
    if not parts:
        return None
    made = own.parsed.with_parts(parts)
    known = any(_KNOWN.search(line) for line in recorded_text.of_file(process, place.file).values())
    return Made(place, ("" if known or "math." not in made else _IMPORTED) + _SIZE + own.dedented(made))


def _groups(channels: ast.expr, text: str) -> str:
    """How many groups: a number where that of the channels is written, else what computes it."""
    if isinstance(channels, ast.Constant) and isinstance(channels.value, int):
        return str(math.gcd(channels.value, max(1, channels.value // _CHANNELS)))
    return f"math.gcd({text}, max(1, {text} // {_CHANNELS}))"

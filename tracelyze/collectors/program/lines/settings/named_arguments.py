"""Lines of the script that hand a framework, or a loss, a setting by name: `TrainingArguments(learning_rate=3e-4)`.

Where a framework runs the loop, what a diagnosis asks to change is such an argument, and no line of a loop.
"""

from __future__ import annotations

import dis
import linecache
import re
from types import CodeType
from typing import Final

from tracelyze.collectors.program.lines.instructions import by_line

NAMES: Final = frozenset({
    "learning_rate", "detect_anomaly", "max_grad_norm", "gradient_clip_val", "max_completion_length", "response_length",
    "dataloader_num_workers", "fp16", "precision", "num_train_epochs", "max_epochs", "packing", "eval_dataset",
    "per_device_train_batch_size",
})  # fmt: skip
OF_LOSSES: Final = frozenset({"ignore_index"})  # given to a loss, in the loop or where the loss is made
OF_PROFILERS: Final = frozenset({"active", "activities", "on_trace_ready"})  # given to torch's, or to its schedule
OF_TEMPLATES: Final = frozenset({"assistant_only_loss"})  # has the chat template say what is a target
OF_TOKENIZERS: Final = frozenset({"additional_special_tokens", "extra_special_tokens"})
LOOKED_FOR: Final = NAMES | OF_LOSSES | OF_PROFILERS | OF_TEMPLATES | OF_TOKENIZERS
LONGEST_CALL: Final = 200  # lines
REWARDS: Final = "reward_funcs"  # the functions that trl's trainers call for rewards, whatever these are called


def lines(code: CodeType) -> list[int]:
    """Lines of a function at which a call is given one of these arguments, in order."""
    each = LOOKED_FOR.intersection(one for one in code.co_consts if type(one) is str)
    together = any(type(one) is tuple and LOOKED_FOR.intersection(one) for one in code.co_consts)
    if not (each or together):
        return []
    found: dict[int, None] = {}
    for _, one in by_line(code):
        # Names of a call that is given more than 15 arguments by name are put into a dictionary one by one.
        given = tuple(each) if one.opname == "CALL_FUNCTION_EX" else named_arguments(code, one)
        if LOOKED_FOR.isdisjoint(given) or one.positions is None:
            continue
        first, last = one.positions.lineno, one.positions.end_lineno
        if first is None or last is None:
            continue
        pattern = re.compile(rf"(?<![\w.])(?:{'|'.join(sorted(LOOKED_FOR.intersection(given)))})\s*=(?!=)")
        for line in range(first, min(last, first + LONGEST_CALL) + 1):
            if pattern.search(linecache.getline(code.co_filename, line)):
                found[line] = None
    return list(found)


def reward_functions(code: CodeType) -> set[str]:
    """Names of functions that a call in this one is given to compute rewards, alone or in a list."""
    consts = code.co_consts
    if not any(one == REWARDS or (type(one) is tuple and REWARDS in one) for one in consts):
        return set()
    numbers = [line for line, _ in by_line(code)]
    text = "".join(linecache.getline(code.co_filename, at) for at in range(min(numbers), max(numbers) + 1))
    given = re.findall(rf"\b{REWARDS}\s*=(?!=)\s*(\[[^\]]*\]|[\w.]+)(?!\w|\s*\()", text)
    unquoted = (re.sub(r"""(["']).*?\1""", "", one) for one in given)  # names of models of rewards
    return {name for one in unquoted for name in re.findall(r"(?<![.\w])[A-Za-z_]\w*(?![\w(.])", one)}


def named_arguments(code: CodeType, one: dis.Instruction) -> tuple[str, ...]:
    """The names by which the call that follows gives arguments; a constant that Python 3.11 and 3.12 do not resolve."""
    names = code.co_consts[one.arg] if one.opname == "KW_NAMES" and one.arg is not None else one.argval
    return names if type(names) is tuple else ()

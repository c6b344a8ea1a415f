"""Whether the script's recorded lines are about a library: an example in its words helps nobody who does not use it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

_TRANSFORMERS: Final = re.compile(
    r"\bfrom_pretrained\b|\bDataCollator|\bAuto(?:Model|Tokenizer)|Trainer\b|\btokenizer\b"
    r"|\b\w+(?:LMHeadModel|For(?:CausalLM|MaskedLM|ConditionalGeneration|\w+Classification))\b"
)
_PEFT: Final = re.compile(r"\bLoraConfig\b|\bget_peft_model\b|\bPeft|\bpeft\b")


def transformers(process: Process) -> bool:
    """Whether lines of the script use transformers or TRL."""
    return _says(process, _TRANSFORMERS)


def peft(process: Process) -> bool:
    """Whether lines of the script, or the modules that were made, are those of PEFT."""
    kinds = (str(row["kind"]) for row in process.tables["modules"].records())
    return _says(process, _PEFT) or any(kind.startswith("Peft") for kind in kinds)


def _says(process: Process, pattern: re.Pattern[str]) -> bool:
    texts = list(recorded_text.everything(process))
    return not texts or any(pattern.search(text) for text in texts)

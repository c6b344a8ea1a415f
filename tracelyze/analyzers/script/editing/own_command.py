"""The program's own command, in examples that say how to run it again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

EXAMPLE: Final = "python train.py"
"""What an example says where the command is not known."""
DEBUGGED: Final = "python -m pdb -c continue train.py"


def in_example(code: str, process: Process) -> str:
    """The example with the program's own script and arguments; as it is where a launcher started several ranks."""
    own = _script(process)
    if not own:
        return "" if code == DEBUGGED else code
    return code.replace(EXAMPLE, f"python {own}").replace(DEBUGGED, DEBUGGED.replace("train.py", own))


def _script(process: Process) -> str:
    """`train.py --lr 3e-4` of a single process that Python ran as a file; else empty."""
    words = process.facts.get("argv")
    if not isinstance(words, list) or not words or not all(isinstance(word, str) for word in words):
        return ""
    alone = process.world_size == 1
    return shlex.join(words) if alone and words[0].endswith(".py") else ""

"""The line that makes the samples or the batches of a training, and the lines by which they draw random numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import recorded_text, script_lines
from tracelyze.analyzers.script.comments import code_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Location

_GIVEN: Final = re.compile(r"[\w\])]\s*\(\s*([A-Za-z_]\w*)\s*[,)]")
_TAKEN: Final = re.compile(r"[\w\])]\s*\(\s*[A-Za-z_]\w*\[\s*([A-Za-z_]\w*)\s*\]")  # `model(x[pick])`
_NUMPY: Final = re.compile(r"\b(?:np|numpy|jnp)\.random\.|\bnpr\.")
_PYTHON: Final = re.compile(r"(?<![\w.])random\.\w+\s*\(")
_TORCH: Final = re.compile(r"\btorch\.\w+|\.(?:normal|uniform|bernoulli)_\s*\(")
_OF_ITS_OWN: Final = re.compile(r"\bgenerator\s*=|\b(?:self|cls)\.\w+\.\w+")


def sample(process: Process, loader: Mapping[str, Any]) -> Location | None:
    """The line that makes a sample of this loader, as far as it is the script's own."""
    return process.site(loader.get("sample_at")) or process.site(loader.get("read_by"))


def of_tensors(process: Process, loader: Mapping[str, Any]) -> Location | None:
    """The only line that makes a TensorDataset, where this loader reads one or a part of one: what it is given are the
    data as a whole."""
    if loader.get("dataset") not in ("TensorDataset", "Subset"):
        return None
    made = [one for one in process.locations("data") if "TensorDataset(" in one.source]
    return script_lines.only_of(made)


def of_a_generator(process: Process) -> Location | None:
    """The line that makes a batch numbers, in the only generator that gives a loop its batches, or in a function that
    it calls; None beside a loader, whose samples are made elsewhere."""
    fed = process.location("loader") is not None
    return None if fed or len(process.locations("batches")) != 1 else script_lines.only(process, "batch-sample")


def entering(process: Process) -> Location | None:
    """The line by which a batch enters a training without a loader: where its generator hands it out, or where the
    loop makes what the model is called with; else where it draws what to take, else the call itself."""
    handed = process.locations("yields")
    if len(handed) == 1:
        return handed[0]
    call = process.location("training-call")
    made = _made(process, call) if call is not None else None
    return made or script_lines.drawn_batches(process) or call


def _made(process: Process, call: Location) -> Location | None:
    """The line above the model's call, in its function and as far as it was recorded, that makes what it is given."""
    text = recorded_text.around(process, call)
    names = _GIVEN.findall(call.source) or _TAKEN.findall(call.source)
    for number in sorted((number for number in text if number < call.line), reverse=True):
        line = code_of(text[number]).strip()
        if line.startswith(("def ", "class ", "async def ")):
            return None
        for name in names:
            if re.match(rf"(?:for\s+)?(?:[\w, (]*,\s*\(?)?{name}\b(?:\s*,[\w, )]*)?\s*(?:=(?!=)|in\b)", line):
                return type(call)(call.file, number, call.function, line)
    return None


def draws(process: Process, generators: Iterable[str]) -> Location | None:
    """The line by which samples draw from one of these generators (as the table fetches names them); of several in one
    function the first, None where they stand in several."""
    lines = [one for one in process.locations("draws") if _kinds(one.source) & set(generators)]
    if len({one.file_function for one in lines}) > 1:
        return None
    return min(lines, key=lambda one: one.line, default=None)


def _kinds(source: str) -> set[str]:
    kinds = {"numpy": _NUMPY, "python": _PYTHON, "torch": _TORCH, "own": _OF_ITS_OWN}
    return {kind for kind, pattern in kinds.items() if pattern.search(source)} or {"own"}

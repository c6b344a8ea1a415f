"""Timesteps, the integers that give a denoising model the level of noise: which part of the schedule they cover."""

from __future__ import annotations

import inspect
import math
import re
from typing import Any

from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.model import noise_schedules
from tracelyze.collectors.signals.model.timesteps_inside import TimestepsInside
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute, unseen

ARGUMENT = noise_schedules.TIMESTEPS
BESIDE = "schedule beside the model"  # source of the range of timesteps that no argument of the model's holds
TABLE = re.compile(r"time|step|noise|t_?emb", re.IGNORECASE)
SAMPLED_STEPS = sorted({int(1.25**n) for n in range(56)})  # steps of the process: 45 in the first 230,000
TOLERANCE = 1  # schedules of T and T + 1 values stand side by side
LONGEST = 100_000  # steps of a schedule
LOOKS_INSIDE = 3  # forwards that are watched in vain before the model is taken to have no timesteps within it


class Timesteps(Signal):
    name = "timesteps"
    needs = UNSEEN
    columns = columns_of("timesteps", "step argument source range values distinct low high lowest highest")
    about = "Which part of its schedule of noise a denoising model is trained on."
    cost = "nothing where no model is given timesteps; else 100 us in a few dozen steps"
    pausable = ("forward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "timesteps")
        self._next: float = 1
        self._model: int | None = None  # number of the model that is watched
        self._inside: TimestepsInside | None = None  # watches the next forward: no argument of the model's holds them
        self._looks = -1  # forwards that were watched in vain; below zero where none is to be
        self._argument = ""
        self._source, self._range = "", 0
        self._values = 0
        self._met: Any = None  # [range + 1]: which timesteps have occurred

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.mode != GRAD or self.progress.steps < self._next or self._next == math.inf:
            return
        torch = self.torch
        if not may_compute(torch, torch.cuda.is_available()) or self._model not in (None, call.model.number):
            return
        module = call.model.module()
        if module is None:
            return
        found = _timesteps(torch, _unwrapped(module), args, kwargs)
        ranged = None
        if found is None:
            found, ranged = self._inside_or_beside(module, call)
            if found is None:
                return
        if self._model is None:
            self._model, self._argument = call.model.number, found[0]
            self._source, self._range = ranged or _range(torch, module)
        if self._range:
            with unseen(torch), torch.no_grad():
                self._sample(found[1].detach().long())

    def _inside_or_beside(self, module: Any, call: Call) -> tuple[tuple[str, Any] | None, tuple[str, int] | None]:
        """Timesteps that no argument of the model holds: drawn within its forward, or beside it; and their range."""
        torch = self.torch
        if self._inside is not None and self._inside.taken is not None:
            name, values, ranged = self._inside.taken
            fits = self._inside.named or len(values) == call.batch_size
            return ((name, values), ranged) if fits else (None, None)
        if self._looks < 0 and self._model is None and _may_draw(torch, module):
            self._looks = 0
        if self._looks >= 0 or (self._model is not None and self._source != BESIDE):
            return None, None
        found = noise_schedules.drawn_beside(torch, call.batch_size)
        if found is None or self._model is not None:
            return found, None
        source, length = _range(torch, module)
        return (found, (BESIDE, length)) if source == "schedule" else (None, None)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._pending.release()
        steps = self.progress.steps
        if steps > self._next:  # A step has begun since, whether there was something to sample or not.
            judged = self._range if self._model is not None else steps <= SAMPLED_STEPS[2] or self._looks >= 0
            self._next = next((step for step in SAMPLED_STEPS if step >= steps), math.inf) if judged else math.inf
        self._look_inside()
        if not self._pending.waiting:
            self.pause(self._next - (self._looks >= 0))

    def _look_inside(self) -> None:
        """Watch the modules within the next forward, if its timesteps are sampled and no argument holds them."""
        before, self._inside = self._inside, None
        if before is not None:
            self.context.next_call.take_back(before)
            self._looks += self._model is None
            if self._looks >= LOOKS_INSIDE and self._model is None:
                self._looks, self._next = -1, math.inf
        if self._looks < 0 or self.progress.steps < self._next or self._next == math.inf:
            return
        if self.context.next_call.watch is not None:  # by another signal, in this step
            self._next = self.progress.steps + 1
            return
        self._inside = TimestepsInside(self.torch, _timesteps, _is_table, _range)
        self.context.next_call.watch = self._inside

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _sample(self, values: Any) -> None:
        torch = self.torch
        if self._met is None:
            self._met = torch.zeros(self._range + 1, dtype=torch.bool, device=values.device)
        if self._met.device != values.device:
            return
        self._met.scatter_(0, values.clamp(0, self._range), True)
        self._values += int(values.numel())
        row = {"step": self.progress.steps, "argument": self._argument, "source": self._source, "range": self._range}
        row["values"] = self._values
        places = torch.arange(self._range + 1, device=values.device)
        lowest = places.masked_fill(~self._met, self._range).amin()
        highest = places.masked_fill(~self._met, 0).amax()
        numbers = {"distinct": self._met.sum(), "low": values.amin(), "high": values.amax()}
        self._pending.put([row], Readback.of_columns(torch, numbers | {"lowest": lowest, "highest": highest}))


def _unwrapped(module: Any) -> Any:
    """The module within DistributedDataParallel and torch.compile, whose arguments have names."""
    for _ in range(3):
        module = (
            module._modules.get("_orig_mod")
            or (module._modules.get("module") if "Parallel" in type(module).__name__ else None)
            or module
        )
    return module


def _timesteps(torch: Any, module: Any, args: Any, kwargs: Any) -> tuple[str, Any] | None:
    """Name and values of the argument that holds one timestep for each sample of another argument."""
    code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
    names = code.co_varnames[1 : code.co_argcount] if code is not None else ()
    given = [*zip(names, args, strict=False), *kwargs.items()]
    for inner in [one for _, one in given if type(one) is dict]:  # a batch that is handed over as it is
        given.extend(inner.items())
    tensors = [(name, one) for name, one in given if is_plain(torch, one) and one.dim()]
    samples = {one.shape[0] for _, one in tensors if one.dim() > 1 and one.is_floating_point()}
    for name, one in tensors:
        whole = one.dtype in (torch.int64, torch.int32) and one.dim() == 1 and one.numel()
        if whole and one.shape[0] in samples and isinstance(name, str) and ARGUMENT.fullmatch(name):
            return name, one
    return None


def _range(torch: Any, model: Any) -> tuple[str, int]:
    """Where the number of timesteps is known from, and that number; 0 if it is not, or schedules disagree."""
    found = noise_schedules.lengths(model)
    if found:
        agree = max(found) - min(found) <= TOLERANCE and max(found) <= LONGEST
        return "schedule", max(found) if agree else 0
    tables = [
        int(one.num_embeddings)
        for name, one in model.named_modules()
        if isinstance(one, torch.nn.Embedding) and _is_table(name)
    ]
    one = len(tables) == 1 and noise_schedules.SHORTEST <= tables[0] <= LONGEST
    named = noise_schedules.numbers(model) if not tables else set()
    if len(named) == 1 and max(named) <= LONGEST:
        return "number", named.pop()
    return "embedding", tables[0] if one else 0


def _may_draw(torch: Any, model: Any) -> bool:
    """Whether a module within it may be given timesteps that the model draws: by its name, or that of an argument."""
    for name, module in model.named_modules():
        code = getattr(inspect.unwrap(type(module).forward), "__code__", None)
        arguments = code.co_varnames[1 : code.co_argcount] if code is not None else ()
        if name and (_is_table(name) or any(ARGUMENT.fullmatch(one) for one in arguments)):
            return True
    return False


def _is_table(name: str) -> bool:
    """Whether an embedding of this name in the model is one of timesteps: called so, or as such an argument is."""
    return bool(TABLE.search(name) or ARGUMENT.fullmatch(name.rpartition(".")[2]))

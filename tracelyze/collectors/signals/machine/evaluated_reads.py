"""Numbers that the script reads back while it evaluates: a validation loss that it writes out is seen nowhere else.

From a call that evaluates up to the next one that trains, the methods of Tensor are found through the descriptors of
`reads`. Values in the host's memory are read there without an operation; those on a device are added up, and arrive
later.
"""

from __future__ import annotations

import ctypes
import math
from types import FrameType
from typing import Any, Final

from tracelyze.collectors.internals.private_names import FUNCTION_MODES, UNSEEN
from tracelyze.collectors.program.call import GRAD, Call, EvaluatedLosses
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.machine import reads
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

MAX_READS: Final = 200  # of one pass
FIRST: Final = 16  # passes that are all watched; of the later ones one in so many is
METHODS: Final = ("item", "__float__", "tolist")
HALVES: Final = {"float16": 0x7C00, "bfloat16": 0x7F80}  # the exponent's bits: all are set in what is no number


class EvaluatedReads(Signal):
    name = "evaluated_reads"
    needs = (FUNCTION_MODES, *UNSEEN)
    copied_columns = ()
    columns = ("evals.reads", "evals.read_sum", "evals.read_site")
    about = "Numbers that the script reads back in an evaluation (.item(), float()), such as a loss that it writes out."
    cost = "30 us an evaluation pass, 2 us a read, in the first passes and in one of 16"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._evaluated: EvaluatedLosses | None = None  # of the latest call of the pass that is watched
        self._readers = reads.Readers(self.torch)
        self._step = -1
        self._passes = 0
        self._left = 0  # reads that this pass may still note
        self._watches = False
        reads.unseen_by_compiler(self.torch, (EvaluatedReads._note, EvaluatedReads._add))

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if call.mode == GRAD and call.in_train:
            self._end()
            return
        if not self.progress.steps:
            return
        call.evaluated = call.evaluated or EvaluatedLosses()
        if call.step != self._step:
            self._step = call.step
            self._passes += 1
            if self._passes <= FIRST or self._passes % FIRST == 0:
                self._left = MAX_READS
                if not self._watches:
                    self._watches = True
                    reads.watch(self.torch, self)
            else:
                self._end()
        if self._watches:
            self._evaluated = call.evaluated

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        self._end()

    def finished(self) -> None:
        self._end()

    def _end(self) -> None:
        self._evaluated = None
        if self._watches:
            self._watches = False
            reads.unwatch(self)

    def _note(self, name: str, tensor: Any, frame: FrameType | None) -> None:
        """The method `name` of `tensor` was looked up by the code of `frame`. It raises nothing into it."""
        evaluated = self._evaluated
        if evaluated is None or name not in METHODS or self._left <= 0:
            return
        try:
            self._add(evaluated, tensor, frame)
        except Exception as error:  # what it was is not known: of a tensor that stands for others
            if raised_by_a_signal_handler(error):
                raise
            self._evaluated = None

    def _add(self, evaluated: EvaluatedLosses, tensor: Any, frame: FrameType | None) -> None:
        torch = self.torch
        if not is_plain(torch, tensor) or tensor.numel() != 1 or not tensor.is_floating_point():
            return
        frame = self._readers.script(frame)
        if frame is None:
            return
        self._left -= 1
        if tensor.is_cpu:
            value = _value(tensor)
            broken = value is not None and not math.isfinite(value) and math.isfinite(evaluated.read_sum)
            evaluated.read_sum += value or 0.0
        elif may_compute(torch, True):
            with torch.no_grad():
                value = tensor.detach().reshape(()).double()
                held = evaluated.read_on_device
                evaluated.read_on_device = value if held is None else held + value
            broken = False
        else:
            return
        evaluated.reads += 1
        if broken or evaluated.read_site is None:
            evaluated.read_site = self.program.sites.of(frame, "read-evaluated")


def _value(tensor: Any) -> float | None:
    """Its only element, read from memory; of halves only whether it is a number: 0 or NaN."""
    address, kind = tensor.data_ptr(), str(tensor.dtype).removeprefix("torch.")
    if not address:
        return None
    if kind == "float32":
        return ctypes.c_float.from_address(address).value
    if kind == "float64":
        return ctypes.c_double.from_address(address).value
    bits = HALVES.get(kind)
    whole = bits is not None and ctypes.c_uint16.from_address(address).value & bits == bits
    return math.nan if whole else 0.0

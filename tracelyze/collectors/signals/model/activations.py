"""What comes out of every module in one forward: mean, spread, size, zeros, and whether it is finite.

On a sampled step, and at the step after the loss was out of the ordinary, one training forward is watched through the
call of every module in it: nothing is registered on a module, and a forward that is not watched pays nothing. What a
compiled model does inside is not seen.
"""

from __future__ import annotations

import math
import sys
from time import perf_counter
from typing import Any

from tracelyze.collectors.cadence.decimation import Decimation
from tracelyze.collectors.internals.private_names import FRAMES, UNSEEN, find
from tracelyze.collectors.program.lines import definitions
from tracelyze.collectors.program.models import tensors_of
from tracelyze.collectors.program.modules import gate_parameters
from tracelyze.collectors.program.modules.gates import NUMBERS, Gates
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import ModuleWatch, SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.attention import taken_for_positions
from tracelyze.collectors.tensors.functional_activations import FunctionalActivations
from tracelyze.collectors.tensors.layers import RELUS, Products, Silence
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import as_reals, every_nth, is_plain, may_compute, unseen

ELEMENTS = 4096  # of an output that mean, spread and zeros are taken of
MAX_MODULES = 256  # of one forward: of larger models every so many-th, but all that are not finite
MAX_ALERTS = 20  # forwards watched because the loss was out of the ordinary
MAX_ROWS = 100_000
MAX_BROKEN = 4  # modules
AFTER = " after "  # in the name of a function that was called behind a module
FINITE, NAN, INFINITE, MINUS_INFINITE = 0, 1, 2, 3
PER_MODULE = 7  # numbers that are read back for each
Row = dict[str, Any]


class Activations(Signal):
    name = "activations"
    needs = UNSEEN
    columns = columns_of(
        "activations",
        "time step alert order module kind dtype elements mean std largest zeros dead inputs outputs fed_by nonfinite "
        "weights_finite called_at experts busiest busiest_share idle positions_first positions rows "
        "positions_outermost",
    )
    about = "Statistics of what every module of the model puts out, and the first whose output is not finite."
    cost = "40 us per module and sample"
    sampled = True
    every = 10
    first_steps = 2
    pausable = ("after_step",)
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "activations")
        self._alerts = 0
        self._rows = 0
        self._broken: set[str] = set()
        self._decimation = Decimation(self.meter)
        self.silence = Silence(self.torch)

    def opened(self) -> None:
        if self.context.next_call.watch is None:  # nobody else watches the first forward
            self.meter.decide(True)
            self.context.next_call.watch = _Forward(self, alert=False)

    def after_step(self, tracked: Tracked, row: Row) -> None:
        watch = self.context.next_call.watch
        if isinstance(watch, _Forward) and watch.error is not None:
            self.context.next_call.watch = None
            raise watch.error
        if self._pending.waiting:
            self._pending.release()
        if tracked is not next(iter(self.program.optimizers.active()), tracked):
            return
        alert = bool(self.progress.alert) and self._alerts < MAX_ALERTS
        wanted = self._decimation.due(tracked.count, alert) and self._rows < MAX_ROWS
        self._alerts += wanted and alert
        if wanted:
            self.context.next_call.watch = _Forward(self, alert)
        elif isinstance(watch, _Forward):  # another signal may be watching
            self.context.next_call.watch = None
        if not wanted and not self._pending.waiting:
            self.pause(self.progress.steps + self._decimation.steps_until_due(tracked.count) - 1)

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _watched(self, rows: list[Row], values: list[Any], kinds: dict[int, type], by: _Forward) -> None:
        """One forward was watched: `values` are PER_MODULE scalar tensors for each of its rows."""
        others = (model for _, model in self.program.calls.modules() if id(model) not in by.roots)
        beside = any(taken_for_positions.layers(self.torch, model) for model in others)
        self.context.next_call.watch = _Beside(self, by) if beside else None
        self._rows += len(rows)
        self._pending.put(rows, Readback(self.torch, values, lambda _row, read: self._read(rows, kinds, read)))

    def _read(self, rows: list[Row], kinds: dict[int, type], read: list[float]) -> None:
        """Fill the rows; and note how the script computes the first module whose output is not finite, in MAX_BROKEN
        modules of a run: those are the lines that a reader looks for."""
        fill(rows, read)
        broken = [row for row in rows if row["nonfinite"] in (NAN, INFINITE)]
        first = min(broken, key=lambda row: int(row["order"]), default=None)
        if first is None or str(first["module"]) in self._broken or len(self._broken) >= MAX_BROKEN:
            return
        name = str(first["module"])
        self._broken.add(name)
        classes = {str(row["module"]): kinds[row["order"]] for row in rows if is_of(kinds.get(row["order"]), row)}
        holders = [name]
        while holders[-1] and first["nonfinite"] == NAN:  # what a library's layer made NaN of was given to it
            called = holders[-1].rpartition(AFTER)[2]  # of a function: the module before, beside which it is called
            holders.append(called.rpartition(".")[0])
        for kind in (classes[one] for one in holders if one in classes):
            if definitions.forward_of(kind, name, self.program.sites):
                break


def is_of(kind: type | None, row: Row) -> bool:
    """Whether a row is that of the module of this class, and not of a function that was called behind it."""
    return kind is not None and kind.__name__ == row["kind"]


class _Forward(ModuleWatch):
    """Watches one training forward, the next one there is."""

    def __init__(self, signal: Activations, alert: bool) -> None:
        self.error: Exception | None = None
        self._signal = signal
        self._torch = signal.torch
        self.alert = alert
        self.roots: set[int] = set()  # identities of the models that were watched in this step
        self.order = 0
        self._rows: list[Row] = []
        self._kinds: dict[int, type] = {}  # classes of the modules, by their place among the calls
        self._values: list[Any] = []
        self._gates: Gates | None = None
        self._names: dict[int, str] = {}
        self._products = Products(self._torch)
        self._functions = FunctionalActivations()
        self._every = 1
        self._seconds = 0.0

    def begins(self, root: Any) -> _Forward | None:
        """Watch this call if it trains a model, and nobody compiles, traces or captures it."""
        torch = self._torch
        if self.error is not None or not (torch.is_grad_enabled() and root.training):
            return None
        if not (root._modules or root._parameters):  # a loss function
            return None
        if hasattr(root, "_orig_mod") or not may_compute(torch, torch.cuda.is_available()) or _compiles(torch):
            return None
        start = perf_counter()
        try:
            self._rows, self._values, self._kinds, self.order = [], [], {}, 0
            self.roots.add(id(root))
            self._products, self._functions = Products(self._torch), FunctionalActivations()
            self._names = {id(module): name for name, module in root.named_modules()}
            self._gates = Gates(torch, root)
            self._signal.program.direct_calls.begins()
            self._every = max(1, -(-len(self._names) // MAX_MODULES))
        except Exception as error:  # a model that hides its modules, say
            if raised_by_a_signal_handler(error):
                raise
            self.error = error
            return None
        self._seconds = perf_counter() - start
        return self

    def returned(self, module: Any, output: Any, args: Any = (), kwargs: Any = None) -> None:
        """A module within returned: containers are sampled like their contents, they may compute as well."""
        start = perf_counter()
        try:
            self.order += 1
            if self.error is None:
                self._signal.program.direct_calls.returned(module, sys._getframe(1).f_back)
                with unseen(self._torch):
                    if self._gates is not None:
                        self._gates.returned(module, output)
                    if self.order % self._every == 0:
                        self._sample(module, output, args, kwargs)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.error = error
        self._seconds += perf_counter() - start

    def ends(self, root: Any, output: Any) -> None:
        """The root returned, too."""
        self.returned(root, output)
        self._signal.program.direct_calls.ends(root)
        start = perf_counter()
        try:
            with unseen(self._torch):
                if self._rows and self.error is None:
                    self._sample_functions(output)
                    self._sample_gate_parameters(root, output)
                if self._rows and self.error is None and len({value.device for value in self._values}) == 1:
                    routed = self._gates.values() if self._gates is not None else []  # read back behind the values
                    self._signal._watched(self._rows, self._values + routed, self._kinds, self)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            self.error = error
        spent = self._seconds + perf_counter() - start
        self._signal.meter.spent(spent)
        self._signal.context.add_overhead(spent)
        self._names, self._rows, self._values, self._kinds, self._gates = {}, [], [], {}, None
        self._products, self._functions = Products(self._torch), FunctionalActivations()

    def _sample(self, module: Any, output: Any, args: Any, kwargs: Any) -> None:
        torch = self._torch
        found = [t for t in tensors_of(torch, output) if is_plain(torch, t) and t.is_floating_point() and t.numel()]
        if not found or not may_compute(torch):
            return
        tensor = found[0]
        name, kind = self._names.get(id(module)), type(module).__name__
        self._measure(module, tensor, kind in RELUS)
        row = self._products.facts(module, str(name), tensor) | {
            "time": self._signal.context.now(),
            "step": self._signal.progress.steps,
            "alert": self.alert,
            "order": self.order,
            "module": name,
            "kind": kind,
            "dtype": str(tensor.dtype).removeprefix("torch."),
            "elements": tensor.numel(),
        }
        if row.get("fed_by") is not None:
            row["called_at"] = self._signal.program.sites.called_by(sys._getframe(2), "layer")
        row |= taken_for_positions.facts(torch, module, args, kwargs)
        if self._gates is not None and (gate := self._gates.facts(module)):
            row |= gate
            with torch.no_grad():
                self._gates.called(module, tensor, gate["experts"])
        self._rows.append(row)
        self._kinds[self.order] = type(module)
        self._functions.returned(module, str(name), row, tensor)

    def _sample_functions(self, output: Any) -> None:
        """A row for each activation that is a function, with the place of the module that it follows."""
        outputs = [tensor for tensor in tensors_of(self._torch, output) if is_plain(self._torch, tensor)]
        for kind, before, result in self._functions.found(outputs):
            if is_plain(self._torch, result) and result.numel() and may_compute(self._torch):
                self._measure(before.module, result, kind in RELUS)
                place = {key: before.row[key] for key in ("time", "step", "alert", "order")}
                about = {"module": f"{kind}{AFTER}{before.name}", "kind": kind, "elements": result.numel()}
                self._rows.append(place | about | {"dtype": str(result.dtype).removeprefix("torch.")})

    def _sample_gate_parameters(self, root: Any, output: Any) -> None:
        """A row for each gate that is a matrix of the model's own, with the scores that it gave."""
        if self._gates is None or not self._gates.parameters:
            return
        outputs = [tensor for tensor in tensors_of(self._torch, output) if is_plain(self._torch, tensor)]
        for gate, given in gate_parameters.scores(self._torch, outputs, self._gates.parameters):
            if is_plain(self._torch, given) and given.numel() and may_compute(self._torch):
                self._measure(root, given, False)
                about = {"module": gate.name, "kind": "Parameter", "experts": gate.experts, "elements": given.numel()}
                place = {key: self._rows[0][key] for key in ("time", "step", "alert")}
                dtype = str(given.dtype).removeprefix("torch.")
                self._rows.append(place | about | {"order": self.order, "dtype": dtype})
                self._gates.called(gate.parameter, given, gate.experts)

    def _measure(self, module: Any, tensor: Any, is_relu: bool) -> None:
        """PER_MODULE scalars of an output, on its device. Dead units are counted by `module`."""
        torch = self._torch
        with torch.no_grad():
            values = every_nth(tensor, ELEMENTS).to(torch.float32).contiguous()
            deviation, mean = torch.std_mean(values, correction=0)
            there = torch.count_nonzero(values) / values.numel()
            total = tensor.detach().sum(dtype=torch.float32)
            dead = self._signal.silence.share(module, tensor, self._products.outputs) if is_relu else None
            dead = torch.full_like(total, math.nan) if dead is None else dead
            self._values += [mean, deviation, values.abs().amax(), there, total, self._own_weights(module, total), dead]

    def _own_weights(self, module: Any, total: Any) -> Any:
        """Sum of the module's own parameters on an alert, as a scalar on the device of `total`: are they finite?"""
        torch = self._torch
        weights = [p for p in module._parameters.values() if p is not None] if self.alert else []
        here = [p for p in weights if is_plain(torch, p) and p.device == total.device and p.numel()]
        sums = [as_reals(torch, p).sum(dtype=torch.float32) for p in here]
        return torch.stack(sums).sum() if sums else torch.zeros_like(total)


class _Beside(_Forward):
    """Behind the forward that was watched, watches those of other models in the same step: what their recurrences and
    attention take for positions, which only their inputs tell."""

    def __init__(self, signal: Activations, before: _Forward) -> None:
        super().__init__(signal, before.alert)
        self.roots, self.order = before.roots, before.order

    def begins(self, root: Any) -> _Forward | None:
        order, torch = self.order, self._torch
        if id(root) in self.roots or not (torch.is_grad_enabled() and taken_for_positions.layers(torch, root)):
            return None
        begun = super().begins(root)
        self.order, self._gates = order, None
        return begun

    def _sample(self, module: Any, output: Any, args: Any, kwargs: Any) -> None:
        if taken_for_positions.positions_first(self._torch, module) is not None:
            super()._sample(module, output, args, kwargs)

    def _sample_functions(self, output: Any) -> None:
        """None of them: the model's own numbers are not looked at."""


def fill(rows: list[Row], read: list[float]) -> None:
    """Put the numbers that came back from the device into their rows."""
    for index, row in enumerate(rows):
        mean, deviation, largest, there, total, weights, dead = read[PER_MODULE * index : PER_MODULE * (index + 1)]
        row |= {"mean": mean, "std": deviation, "largest": largest, "zeros": 1.0 - there}
        row["nonfinite"] = kind_of(total)
        if not math.isnan(dead):
            row["dead"] = dead
        if row["alert"]:
            row["weights_finite"] = math.isfinite(weights)
    routed = iter(read[PER_MODULE * len(rows) :])
    for row in rows:
        if "experts" in row:
            numbers = dict(zip(NUMBERS, routed, strict=False))
            row |= {name: number for name, number in numbers.items() if not math.isnan(number)}
            if "idle" not in row:
                row["experts"] = None  # It turned out to be no gate.


def kind_of(total: float) -> int:
    """What a sum says of its terms: all finite, a NaN among them (or Inf of both signs), Inf, or only minus Inf."""
    if math.isfinite(total):
        return FINITE
    if math.isnan(total):
        return NAN
    return INFINITE if total > 0 else MINUS_INFINITE


def _compiles(torch: Any) -> bool:
    """Whether a compiled function of the program is running: frames of ours would be compiled with it."""
    callback = find(torch, f"{FRAMES}.get_eval_frame_callback")
    return callback is not None and callback() not in (None, False)

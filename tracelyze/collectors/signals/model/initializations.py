"""How often weights were filled with random numbers before they were trained, and whether they were loaded before."""

from __future__ import annotations

import os
import re
import sys
import weakref
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity
from tracelyze.collectors.internals.own_frames import PACKAGE
from tracelyze.collectors.internals.private_names import SAVED, UNSEEN
from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.call_sites import is_library, script_frames
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.saved_files import unwrapped
from tracelyze.collectors.signals.checkpoints.loaded_values import LoadedValues
from tracelyze.collectors.signals.checkpoints.undone_loads import UndoneLoads
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.gradients.frozen import random_layers
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute

MAX_WEIGHTS = 20_000  # that are remembered
MAX_FILLS = 100_000  # that are looked at: a loop may fill a tensor at every step
MAX_LOADS = 20  # whose values are compared
INITIALISES = re.compile(r"(?!__)\w*(?:init|reset|fill)(?!\w*train)", re.IGNORECASE)  # names of what fills weights
LOOKS = 4  # at backwards, of which the first may be another model's
OFTEN = 3  # A module fills its weights as it is made, and a program may do so once more.


class _Weight:
    """A parameter that was filled, found again by its memory: `init.normal_(layer.weight.data)` hands over another."""

    def __init__(self, parameter: Any, elements: int) -> None:
        self.parameter = weakref.ref(parameter, self._gone)
        self.elements = elements
        self.fills = 0
        self.loaded = False
        self.since_loaded = 0
        self.again_by_script = False  # code of the script filled it once more, not a library that builds the model
        self.site: int | None = None
        self.filler: CodeType | None = None  # the script's function that had it filled once more, the last time
        self.filled_at = self.loaded_at = 0  # counted in fills
        self.values: Any = None  # the first few

    def _gone(self, parameter: Any) -> None:
        """Nothing of ours outlives the model."""
        self.values = None


class Initializations(Signal):
    name = "initializations"
    needs = (*UNSEEN, SAVED)
    columns = columns_of(
        "initializations",
        "step optimizer weights repeated most parameter site loaded overwritten overwritten_site beside",
    )
    about = (
        "How often weights were filled with random numbers before their first step; what was loaded before that; "
        "layers that are frozen as they were filled (events)."
    )
    cost = "5 us per weight that is filled, before it is trained; 20 us per weight that is loaded, a few times"
    inactive = ("forward", "before_backward", "after_step")
    pausable = ("forward", "before_backward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._weights: dict[int, _Weight] = {}  # by address; those that no optimizer has stepped yet
        self._stepped = SetByIdentity()
        self._fills_left = MAX_FILLS
        self._loads = 0
        self._values = LoadedValues(context, self._refilled, self._filled_along)
        self._undone = UndoneLoads(context)
        self._frozen: list[random_layers.Layer] = []  # until the next backwards show whether these are used
        self._pending = PendingRows(context.emit, "events")
        self._looks = 0
        self._torch_folder = os.path.dirname(self.torch.__file__) + os.sep

    def filled(self, tensor: Any) -> None:
        if not self._fills_left or not is_plain(self.torch, tensor):
            return
        self._fills_left -= 1
        elements, address = tensor.numel(), tensor.data_ptr()
        known = self._known(address, elements)
        if known is None:
            whole = type(tensor) is self.torch.nn.Parameter and tensor.dim() > 1  # Biases are often set to zero.
            if not whole or not address or len(self._weights) >= MAX_WEIGHTS or tensor in self._stepped:
                return
            known = self._weights[address] = _Weight(tensor, elements)
        known.fills += 1
        known.since_loaded += known.loaded
        known.again_by_script |= known.fills > 1 and self._filled_by_script()
        known.filler = self._filler() if known.fills > 1 or known.loaded else None
        known.filled_at = MAX_FILLS - self._fills_left
        known.values = random_layers.first_values(self.torch, tensor)
        if known.fills >= OFTEN or known.loaded:
            frame = self._caller()
            known.site = self.program.sites.of(_asking(frame) if known.loaded else frame, "initialization")

    def _caller(self) -> FrameType | None:
        """The frame that has a whole model initialised, where torch's `Module.apply` calls what fills weights."""
        frame: FrameType | None = sys._getframe(2)
        found = frame
        while frame is not None:
            if frame.f_code is self.torch.nn.Module.apply.__code__:
                found = frame.f_back
            frame = frame.f_back
        return found

    def _filler(self) -> CodeType | None:
        """The function of the script that has a weight filled, or a whole model; None for one of a library."""
        frame = self._caller()
        while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, self._torch_folder)):
            frame = frame.f_back
        return None if frame is None or is_library(frame.f_code.co_filename) else frame.f_code

    def _refilled(self, parameter: Any) -> tuple[bool, int | None]:
        """Whether a function of torch.nn.init filled a weight since it was loaded, and the line that did."""
        known = self._known(parameter.data_ptr(), parameter.numel())
        return (False, None) if known is None or not known.since_loaded else (True, known.site)

    def _filled_along(self, parameters: list[Any]) -> int:
        """How many weights that were not loaded a function of the script filled along with these, after their load."""
        found = [self._known(one.data_ptr(), one.numel()) for one in parameters]
        gone = [known for known in found if known is not None and known.since_loaded]
        return sum([not known.loaded and _filled_beside(known, gone) for known in self._weights.values()])

    def _filled_by_script(self) -> bool:
        """Whether the code that asked torch to fill a weight is the script's own."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith((PACKAGE, self._torch_folder)):
            frame = frame.f_back
        return frame is not None and not is_library(frame.f_code.co_filename)

    def vectors_taken(self, module: Any) -> None:
        """What it was given stands where a function of torch.nn.init would have filled it."""
        weight = module.weight
        self._given(weight)
        self._loaded(module, set(), "from_pretrained")

    def pretrained(self, module: Any, missing: set[str]) -> None:
        """Its weights came without being filled: it was made without memory, or its filling was switched off."""
        for name, one in module.named_parameters():
            if one.dim() > 1 and name not in missing:
                self._given(one)
        self._loaded(module, missing, "pretrained")

    def _given(self, weight: Any) -> None:
        """A weight that was made of values, and not filled."""
        if not self._fills_left or len(self._weights) >= MAX_WEIGHTS or not is_plain(self.torch, weight):
            return
        if (address := weight.data_ptr()) and self._known(address, weight.numel()) is None:
            self._weights[address] = _Weight(weight, weight.numel())

    def state_loading(self, module: Any, given: Any) -> None:
        self._undone.begins(module)

    def state_loaded(self, module: Any, given: Any, result: Any) -> None:
        self._undone.ends(module, self.program.sites.here("load_state_dict"))
        if self._undone.waits:
            self.activate()
            self.resume()
        self._loaded(module, set(getattr(result, "missing_keys", None) or ()), "load_state_dict")

    def _loaded(self, module: Any, missing: set[str], by: str) -> None:
        self._loads += 1
        if self._loads <= MAX_LOADS and not any(one in self._stepped for one in module.parameters()):
            row = {"name": type(module).__name__, "by": by, "site": self.program.sites.here(by)}
            self._values.keep(module, missing, row)
            self.activate()
            self.resume()
        if not self._weights:
            return
        filled = self._by_identity()
        for name, parameter in module.named_parameters():
            known = filled.get(id(parameter))
            if known is not None and name not in missing:
                known.loaded, known.since_loaded, known.loaded_at = True, 0, MAX_FILLS - self._fills_left

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        self._values.compare(call.model.module())
        self._undone.called(call)

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        if not self._frozen or not roots or roots[0].grad_fn is None:
            return
        layers = random_layers.within(roots[0].grad_fn, self._frozen)
        if layers and not may_compute(self.torch, layers[0].weight.is_cuda):
            return
        self._looks += 1
        if layers or self._looks >= LOOKS:
            self._frozen = []
        if layers:
            self._note(layers)

    def _note(self, layers: list[random_layers.Layer]) -> None:
        """An event with the names of those that still hold what they were filled with, once that can be read."""
        row = {"time": self.context.now(), "step": self.progress.steps, "kind": "random-and-frozen", "name": ""}

        def fill(late: dict[str, Any], changed: list[float]) -> None:
            names = [unwrapped(layer.name) for layer, other in zip(layers, changed, strict=True) if not other]
            late.update(name=names[0] if names else "", text=" ".join(names))

        self._pending.put([row], Readback(self.torch, random_layers.changed(self.torch, layers), fill))

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        self._values.release()
        self._undone.step_ended()
        self._pending.release()
        if not (self._values.waits or self._undone.waits or self._frozen or self._pending.waiting):
            self.pause()

    def finished(self) -> None:
        self._values.release(wait=True)
        self._undone.release(wait=True)
        self._pending.release(wait=True)

    def first_step(self, tracked: Tracked) -> None:
        self._values.compare(None)
        filled = self._by_identity()
        models = [model for _, model in self.program.calls.modules()]
        self._frozen, self._looks = random_layers.frozen(models, tracked.parameters(), filled), 0
        if self._frozen:
            self.activate()
            self.resume()
        weights = [(one, filled[id(one)]) for one in tracked.parameters() if id(one) in filled]
        for one in tracked.parameters():  # Units that are initialised again during training are another matter.
            self._stepped.add(one)
        self._weights = {
            address: known
            for address, known in self._weights.items()
            if (one := known.parameter()) is not None and one not in self._stepped
        }
        if not weights:
            return
        repeated = [(one, known) for one, known in weights if known.fills >= OFTEN and known.again_by_script]
        loaded = [known for _, known in weights if known.loaded]
        gone = [known for known in loaded if known.since_loaded]
        row: dict[str, Any] = {"step": self.progress.steps, "optimizer": tracked.index}
        row["weights"] = sum([known.fills > 0 for _, known in weights])
        row |= {"repeated": len(repeated), "loaded": len(loaded), "overwritten": len(gone)}
        row["most"] = max(known.fills for _, known in weights)
        if repeated:
            row["parameter"] = self.program.calls.parameter_name(repeated[0][0])
            row["site"] = repeated[-1][1].site
        if gone:
            row["overwritten_site"] = gone[-1].site
            row["beside"] = sum([not known.loaded and _filled_beside(known, gone) for _, known in weights])
        self.context.emit("initializations", row)

    def _known(self, address: int, elements: int) -> _Weight | None:
        """The weight at this address, unless it is gone or has moved, and another one is there now."""
        known = self._weights.get(address)
        parameter = known.parameter() if known is not None else None
        if known is None or parameter is None or known.elements != elements or parameter.data_ptr() != address:
            return None
        return known

    def _by_identity(self) -> dict[int, _Weight]:
        """The weights that are still there, by identity now: they may have moved to a device after they were filled."""
        return {id(p): known for known in self._weights.values() if (p := known.parameter()) is not None}


def _asking(frame: FrameType | None) -> FrameType | None:
    """The frame of the script that calls the function which initialises, however many of that kind call each other."""
    frame = next(script_frames(frame), None)
    while frame is not None and INITIALISES.match(frame.f_code.co_name):
        outer = frame.f_back
        if outer is None or is_library(outer.f_code.co_filename):
            break
        frame = outer
    return frame


def _filled_beside(weight: _Weight, gone: list[_Weight]) -> bool:
    """Whether a function of the script filled this weight and one that had been loaded, both after that load."""
    return weight.filler is not None and any(
        weight.filler is one.filler and weight.filled_at > one.loaded_at for one in gone
    )

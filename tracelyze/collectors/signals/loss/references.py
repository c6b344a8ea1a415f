"""What the trained model is compared with: calls without autograd on the very input that it is trained on.

A preference loss, a penalty on divergence or a distillation compares two models on one batch. Whether they are two is
seen in their weights: the same module, the same storage, or the same values in every sample.
"""

from __future__ import annotations

import math
import sys
from types import FrameType
from typing import Any

from tracelyze.collectors.cadence.search import Search
from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call import GRAD, Call
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.storage.pending import PendingRows
from tracelyze.collectors.tensors.readback import Readback
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain, may_compute, unseen

MAX_CALLS = 32  # of a step
MAX_SAMPLES = 500
FEW = 2  # steps of a later optimizer that are sampled, whatever it costs, in search of such a call
IN_VAIN = 5  # steps without such a call, after which none is expected before a model is called without autograd again
TENSORS, ELEMENTS = 8, 64  # of a model that are compared
IDS = 256  # of an input that are compared
Key = tuple[Any, ...]


class References(Signal):
    name = "references"
    needs = UNSEEN
    columns = columns_of("references", "step model reference same shared equal adapters_off site")
    about = "Models that are called without autograd on the input of the trained one: are they others than it?"
    cost = "10 us a call and 100 us a pair of models, in steps that are sampled"
    sampled = True
    every = 10
    first_steps = 5
    pausable = ("forward", "settled", "before_backward", "after_step")
    needs_every_step = True

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._pending = PendingRows(context.emit, "references")
        self._search = Search(self.meter)  # since an optimizer began, or since a pair was met first
        self._trained: list[tuple[Call, Key]] = []  # since the step before
        self._others: list[tuple[Call, Key, bool, int | None]] = []
        self._samples = 0
        self._met = False
        self._in_vain = 0
        self._next = True

    def forward(self, call: Call, args: Any, kwargs: Any) -> None:
        if not self._next or len(self._trained) + len(self._others) >= MAX_CALLS:
            return
        key = self._key(args, kwargs)
        if key is None:
            return
        if call.mode == GRAD:
            self._trained.append((call, key))
        else:
            self._others.append((call, key, _adapters_off(call.model.module()), self._place()))

    def settled(self, call: Call, trained: bool) -> None:
        if self._samples >= MAX_SAMPLES:
            self.pause()
        elif call.mode != GRAD:
            self._in_vain = 0

    def before_backward(self, roots: tuple[Any, ...]) -> None:
        seen: set[tuple[int, int]] = set()
        for other, key, off, site in self._others:
            for call, given in self._trained:
                pair = call.model.number, other.model.number
                if key == given and pair not in seen:
                    seen.add(pair)
                    self._compare(call, other, off, site)

    def first_step(self, tracked: Tracked) -> None:
        """An optimizer begins, maybe with another loss: a few of its steps are sampled, too."""
        if self.progress.steps > 1:
            self._met, self._in_vain = False, 0
            self._search.begin(self.progress.steps - (self.first_steps - FEW))
            self.resume()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if self._next:
            self._in_vain = 0 if self._others else self._in_vain + 1
        self._trained, self._others = [], []
        if self._pending.waiting:
            self._pending.release()
        steps, done = self.progress.steps, self._samples >= MAX_SAMPLES or self._in_vain >= IN_VAIN
        self._next = not done and self._search.due(steps)
        if not self._next and not self._pending.waiting:
            self.pause(math.inf if done else self._search.until)

    def finished(self) -> None:
        self._pending.release(wait=True)

    def _key(self, args: Any, kwargs: Any) -> Key | None:
        """What the input of a call is recognised by within a step: where it lies; of ids on the host, which are often
        made from the texts again for each model, what they are."""
        torch = self.torch
        given = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)), None)
        if given is None or not is_plain(torch, given) or given.numel() < 2 or not may_compute(torch):
            return None
        if given.device.type == "cpu" and not given.is_floating_point() and not given.is_complex():
            with unseen(torch), torch.no_grad():
                return (tuple(every_nth(given, IDS).tolist()), tuple(given.shape))
        return (given.data_ptr(), tuple(given.shape))

    def _place(self) -> int | None:
        """The line of the function with the backward that leads to this call; else the line of the call."""
        sites = self.program.sites
        backward = self.progress.backward_site
        place = sites.code(backward) if backward is not None else None
        frame: FrameType | None = sys._getframe(1)
        while place is not None and frame is not None and frame.f_code is not place[0]:
            frame = frame.f_back
        return sites.here("compared") if frame is None or place is None else sites.of(frame, "compared")

    def _compare(self, call: Call, other: Call, off: bool, site: int | None) -> None:
        torch, model, reference = self.torch, call.model.module(), other.model.module()
        if model is None or reference is None or not may_compute(torch, torch.cuda.is_available()):
            return
        self._samples += 1
        if not self._met:
            self._met = True
            self._search.begin(self.progress.steps)
        own = {name: p for name, p in model.named_parameters() if p.requires_grad and is_plain(torch, p) and p.numel()}
        step = max(1, len(own) // TENSORS)
        chosen = dict(list(own.items())[::step][:TENSORS])
        theirs = dict(reference.named_parameters())
        pairs = [(p, theirs[name]) for name, p in chosen.items() if name in theirs and theirs[name].shape == p.shape]
        if not pairs and {id(p) for p in own.values()} <= {id(q) for q in theirs.values()}:
            pairs = [(p, p) for p in chosen.values()]  # a part of the model, or a wrapper around it: names differ
        row = {
            "step": self.progress.steps,
            "model": call.model.number,
            "reference": other.model.number,
            "same": model is reference,
            "shared": sum(p.data_ptr() == q.data_ptr() for p, q in pairs) / max(1, len(pairs)),
            "adapters_off": off,
            "site": site,
        }
        if not pairs or not all(is_plain(torch, q) and q.device == p.device == pairs[0][0].device for p, q in pairs):
            self._pending.put([row])
            return
        with unseen(torch), torch.no_grad():
            equal = [(every_nth(p, ELEMENTS) == every_nth(q, ELEMENTS)).all() for p, q in pairs]
            share = torch.stack(equal).double().mean()
        self._pending.put([row], Readback.of_columns(torch, {"equal": share}))


def _adapters_off(module: Any) -> bool:
    """Whether adapters of the model are disabled now, as peft does it: it then is its own reference."""
    if module is None:
        return False
    return any(vars(part).get("_disable_adapters") is True for part in module.modules())

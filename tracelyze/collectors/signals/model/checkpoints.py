"""Files of weights: what a program writes into them, set beside the weights that it trains, and what it restores.

A few elements of each parameter are noted as training begins. When a file is written, the values in it are compared
with these and with the live ones: a file is read back by nobody here, and a save waits for the device anyway.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from types import CodeType, FrameType
from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity
from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call_sites import is_library
from tracelyze.collectors.program.lines import script_text
from tracelyze.collectors.program.lines.named_calls import with_inner
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.resumed_states import Resumed
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain, may_compute

ELEMENTS = 4  # of a parameter
MAX_PARAMETERS = 2000
MAX_SAVES = 20  # that are compared; of later ones those whose number is a power of two
MAX_LOADS = 20
MAX_SCHEDULERS = 100
DEEPEST = 3
OF_SCHEDULERS = frozenset({"base_lrs", "_step_count", "num_bad_epochs"})  # beside last_epoch, which loops count, too
PROGRESS = ("epoch", "step", "iter")  # what the keys of a file to go on from are called


class File:
    """What an object that is written or read holds. Objects of the program's own kinds are not asked what they hold."""

    def __init__(self, torch: Any, content: Any) -> None:
        self.tensors: dict[str, list[Any]] = {}  # by name: two models in one file may use the same names
        self.optimizer = self.scheduler = self.scaler = False
        self.groups: list[Any] = []  # of the first optimizer's state
        keys = [key for key in content if type(key) is str] if _is_mapping(content) else []
        self.keys = " ".join(sorted(keys)[:12]) if len(keys) <= 12 else ""
        self.progress = any(word in key.lower() for key in keys[:64] for word in PROGRESS)
        for holder in _holders(torch, content, DEEPEST):
            if issubclass(type(holder), torch.nn.Module):
                self._add(holder.named_parameters())
            elif {"state", "param_groups"} <= holder.keys():
                self.optimizer = True
                self.groups = self.groups or _plain(holder["param_groups"])
            elif "_last_lr" in holder or ("last_epoch" in holder and not OF_SCHEDULERS.isdisjoint(holder)):
                self.scheduler = True
            elif {"scale", "growth_factor"} <= holder.keys():
                self.scaler = True
            else:
                self._add(
                    (name, value)
                    for name, value in holder.items()
                    if type(name) is str and issubclass(type(value), torch.Tensor)
                )

    def _add(self, named: Iterable[tuple[str, Any]]) -> None:
        for name, tensor in named:
            self.tensors.setdefault(name, []).append(tensor)

    def all_tensors(self) -> list[Any]:
        return [one for ones in self.tensors.values() for one in ones]


def _plain(groups: Any) -> list[Any]:
    return groups if type(groups) is list and all(type(one) is dict for one in groups) else []


def _unwrapped(name: str) -> str:
    """The name of a tensor without what wrappers of the model put in front."""
    return name.removeprefix("module.").removeprefix("_orig_mod.")


def _unread(keys: str) -> list[str]:
    """Keys of a file that the program, as far as its functions are under way, writes and never reads."""
    codes: dict[int, CodeType] = {}
    frame: FrameType | None = sys._getframe(1)
    files: set[str] = set()
    while frame is not None:
        code = frame.f_code
        if not is_library(code.co_filename):
            files.add(code.co_filename)
            codes |= {id(one): one for one in with_inner(code)}
        frame = frame.f_back
    for file in files:
        codes |= {id(one): one for one in script_text.of_file(file).functions}
    return sorted(script_text.unread(set(keys.split()), list(codes.values())))


def _is_mapping(content: Any) -> bool:
    """Whether it is a dictionary that nothing but Python answers for."""
    return type(content) in (dict, OrderedDict, defaultdict)


def _holders(torch: Any, content: Any, depth: int) -> Iterator[Any]:
    """Mappings and modules within an object; not those within an optimizer's state."""
    if _is_mapping(content):
        yield content
        if {"state", "param_groups"} <= content.keys():
            return
        inner = list(content.values())[:4096]
    elif type(content) in (list, tuple):
        inner = list(content[:64])
    elif issubclass(type(content), torch.nn.Module):
        yield content
        return
    else:
        return
    if depth:
        for one in inner:
            yield from _holders(torch, one, depth - 1)


class Checkpoints(Signal):
    name = "checkpoints"
    needs = UNSEEN
    columns = tuple(
        f"checkpoints.{name}"
        for name in (
            "time", "step", "action", "file", "keys", "site", "tensors", "optimizer", "scheduler", "scaler", "progress",
            "held", "missing", "names", "compared", "untouched", "model_restored", "optimizer_restored",
            "scheduler_restored", "scaler_restored",
        )
    )  # fmt: skip
    inactive = ("after_step",)
    copied_columns = ()
    about = "What files of weights hold, beside the weights that are trained, and what of them is restored."
    cost = "10 us per tensor and file"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        # A few elements of each parameter, as training begins, and where those of a parameter are; gone with the last.
        self._first: Any = None
        self._places: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._living = 0
        self._saves = self._taken = self._loads = 0
        self._loaded: list[tuple[dict[str, Any], list[weakref.ref[Any]], Resumed]] = []
        self._resumed: list[tuple[dict[str, Any], Resumed]] = []  # no step since
        self._schedulers = SetByIdentity()

    def opened(self) -> None:
        modules = self.program.calls.modules()
        found = list(dict.fromkeys(p for _, module in modules for p in module.parameters()))[:MAX_PARAMETERS]
        if not found or not may_compute(self.torch, found[0].is_cuda):
            return
        found = [p for p in found if self._is_real(p) and p.device == found[0].device]
        if found:
            self._first = self._elements(found)
            self._places = {id(p): (weakref.ref(p, self._ended), index) for index, p in enumerate(found)}
            self._living = len(found)

    def _ended(self, _parameter: Any) -> None:
        """A parameter is gone."""
        self._living -= 1
        if not self._living:
            self._first = None

    def _is_real(self, tensor: Any) -> bool:
        """Whether its elements can be compared: they are there, and lose nothing (a warning) as real numbers."""
        return is_plain(self.torch, tensor) and bool(tensor.numel()) and not tensor.is_complex()

    def _elements(self, tensors: list[Any]) -> Any:
        """Shape [tensors, ELEMENTS]."""
        with self.torch.no_grad():
            some = [every_nth(tensor, ELEMENTS)[:ELEMENTS].float() for tensor in tensors]
            some = [one if one.numel() == ELEMENTS else self._padded(one) for one in some]
            return self.torch.stack(some)

    def _padded(self, some: Any) -> Any:
        return self.torch.nn.functional.pad(some, (0, ELEMENTS - some.numel()))

    def state_taken(self, module: Any, state: Any) -> None:
        """Files of other libraries are written of this, too."""
        if self.progress.steps and self._taken < 3:
            self._taken += 1
            self._put({"action": "state", "tensors": len(state) if _is_mapping(state) else 0})

    def file_saved(self, content: Any, name: str) -> None:
        self._saves += 1
        if self._saves > MAX_SAVES and self._saves & (self._saves - 1):
            return
        self._emit_loaded()
        file = File(self.torch, content)
        if file.tensors or file.optimizer:
            self._put(self._facts("save", file, name) | (self._compared(file) if self.progress.steps else {}))

    def _facts(self, action: str, file: File, name: str) -> dict[str, Any]:
        return {
            "action": action,
            "file": name,
            "keys": file.keys,
            "tensors": len(file.all_tensors()),
            "optimizer": file.optimizer,
            "scheduler": file.scheduler,
            "scaler": file.scaler,
            "progress": file.progress,
            "site": self.program.sites.here(action),
        }

    def _put(self, row: dict[str, Any]) -> None:
        self.context.emit("checkpoints", {"time": self.context.now(), "step": self.progress.steps} | row)

    def _compared(self, file: File) -> dict[str, Any]:
        """The tensors of a file beside those that are trained."""
        held = {id(p): p for one in self.program.optimizers.active() for p in one.parameters() if id(p) in self._places}
        held = {number: p for number, p in held.items() if self._places[number][0]() is p and self._is_real(p)}
        held = {number: p for number, p in held.items() if p.device == self._first.device}
        if not held or not may_compute(self.torch, self._first.is_cuda):
            return {}
        named: dict[int, str] = {}
        for _, module in self.program.calls.modules():
            for name, parameter in module.named_parameters():
                named.setdefault(id(parameter), _unwrapped(str(name)))
        there: dict[str, list[Any]] = {}
        for name, ones in file.tensors.items():
            there.setdefault(_unwrapped(name), []).extend(ones)
        same = {one.data_ptr() for one in file.all_tensors() if is_plain(self.torch, one) and one.numel()}
        parameters = list(held.values())
        live = self._elements(parameters)
        first = self._first[[self._places[id(p)][1] for p in parameters]]
        moved = (live != first).any(1).tolist()
        missing, compared = [], 0
        pairs: list[tuple[int, Any]] = []
        for index, parameter in enumerate(parameters):
            if not moved[index]:
                continue
            name = named.get(id(parameter), "")
            others = [one for one in there.get(name, ()) if one.shape == parameter.shape]
            if parameter.data_ptr() in same:
                compared += 1
            elif not others:
                missing.append(name or "unnamed")
            elif all(self._is_real(one) and one.dtype == parameter.dtype for one in others):
                device = (pairs[0][1] if pairs else others[0]).device
                if all(one.device == device for one in others):
                    pairs.extend((index, one) for one in others)
        changed: set[int] = set()  # one of the tensors of this name holds what training made of it
        if pairs:
            saved = self._elements([other for _, other in pairs]).to(first.device)
            start = first[[index for index, _ in pairs]]
            # Beside the tensor of another model that has this name, it is that one's start that must not be there.
            several = len({index for index, _ in pairs}) < len(pairs)
            as_before = ((saved[:, None] == start).all(2).any(1) if several else (saved == start).all(1)).tolist()
            changed = {index for (index, _), before in zip(pairs, as_before, strict=True) if not before}
        beside = {index for index, _ in pairs}
        compared += len(beside)
        untouched = len(beside - changed)
        return {
            "held": sum(moved),
            "missing": len(missing),
            "names": ", ".join(missing[:3]) or None,
            "compared": compared,
            "untouched": untouched,
        }

    def file_loaded(self, content: Any, name: str) -> None:
        self._loads += 1
        if self._loads > MAX_LOADS:
            return
        file = File(self.torch, content)
        if not file.tensors:
            return
        row = self._facts("load", file, name) | {"time": self.context.now(), "step": self.progress.steps}
        row |= dict.fromkeys(("model_restored", "optimizer_restored", "scheduler_restored", "scaler_restored"), False)
        resumed = Resumed(file.groups)
        self._loaded.append((row, [weakref.ref(one) for one in file.all_tensors()[:4]], resumed))
        self._resumed.append((row, resumed))
        self.activate()

    def state_loading(self, module: Any, given: Any) -> None:
        for row, _ in self._files_of(given):
            row["model_restored"], row["step"] = True, self.progress.steps

    def state_loaded(self, module: Any, given: Any, result: Any) -> None:
        for _, resumed in self._files_of(given):
            resumed.load(module)

    def _files_of(self, given: Any) -> list[tuple[dict[str, Any], Resumed]]:
        """The files that a state which is loaded comes from."""
        if not self._loaded or not _is_mapping(given):
            return []
        tensors = {id(one) for one in list(given.values())[:64]}
        return [
            (row, resumed)
            for row, some, resumed in self._loaded
            if any((one := ref()) is not None and id(one) in tensors for ref in some)
        ]

    def state_restored(self, role: str, owner: Any) -> None:
        for row, _, resumed in self._loaded:
            row[f"{role}_restored"] = True
            if role == "optimizer":
                resumed.take(owner)

    def scheduled(self, scheduler: Any, inner: bool, given: Any) -> None:
        if not inner and len(self._schedulers) < MAX_SCHEDULERS:
            self._schedulers.add(scheduler)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """The first step after a file was read shows what was made of it."""
        for read, resumed in self._resumed:
            if read["model_restored"]:
                facts = {"site": read["site"], "step": read["step"], "unread": _unread(read["keys"])}
                facts |= resumed.facts(tracked, list(self._schedulers))
                self.context.record_event("resumed", read["file"], json.dumps(facts))
        self._resumed = []

    def finished(self) -> None:
        self._emit_loaded()

    def _emit_loaded(self) -> None:
        """Emit the rows of files that were read, once a step since then has shown which of their states were used."""
        left = []
        for row, some, resumed in self._loaded:
            if self.progress.steps > row["step"]:
                self.context.emit("checkpoints", row)
            else:
                left.append((row, some, resumed))
        self._loaded = left

"""Files of weights: what a program writes into them, set beside the weights that it trains, and what it restores.

A few elements of each parameter are noted as training begins. When a file is written, the values in it are compared
with these and with the live ones: a file is read back by nobody here, and a save waits for the device anyway.
"""

from __future__ import annotations

import json
import sys
import weakref
from types import CodeType
from typing import Any

from tracelyze.collectors.internals.by_identity import SetByIdentity
from tracelyze.collectors.internals.private_names import UNSEEN
from tracelyze.collectors.program.call_sites import script_frames
from tracelyze.collectors.program.lines import script_text
from tracelyze.collectors.program.lines.named_calls import with_inner
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.program.resumed_states import Given, Resumed
from tracelyze.collectors.program.saved_files import File, Saves, is_mapping, of_adapted_models, unwrapped
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute
from tracelyze.collectors.tensors.starts import Start, is_real, running_statistics, some_elements

MAX_PARAMETERS = 2000
MAX_LOADS = 20
MAX_SCHEDULERS = 100
MAX_STARTS = 20  # of optimizers whose start is noted; of later ones those whose number is a power of two


def _unread(keys: str) -> list[str]:
    """Keys of a file that the program, as far as its functions are under way, writes and never reads."""
    codes: dict[int, CodeType] = {}
    files: set[str] = set()
    for frame in script_frames(sys._getframe(1)):
        files.add(frame.f_code.co_filename)
        codes |= {id(one): one for one in with_inner(frame.f_code)}
    for file in files:
        codes |= {id(one): one for one in script_text.of_file(file).functions}
    return sorted(script_text.unread(set(keys.split()), list(codes.values())))


class Checkpoints(Signal):
    name = "checkpoints"
    needs = UNSEEN
    columns = columns_of(
        "checkpoints",
        "time step action file keys site tensors optimizer scheduler scaler progress held missing names compared "
        "untouched statistics statistics_missing beside_adapters "
        "model_restored optimizer_restored scheduler_restored scaler_restored",
    )
    inactive = ("after_step",)
    copied_columns = ()
    about = "What files of weights hold, beside the weights that are trained, and what of them is restored."
    cost = "30 us per tensor and file"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        # What parameters held as the process began to train, and as optimizers that came later made their first steps.
        self._first: Start | None = None
        self._starts: dict[int, Start] = {}  # by number of the optimizer
        self._written: tuple[int, set[int]] = (0, set())  # identities of tensors in files of the same step
        self._saves = Saves()
        self._taken = self._loads = 0
        self._loaded: list[tuple[dict[str, Any], list[weakref.ref[Any]], Resumed]] = []
        self._resumed: list[tuple[dict[str, Any], Resumed]] = []  # no step since
        self._given = Given()
        self._schedulers = SetByIdentity()
        # Models that took in weights, after how many steps; after how many a file was read that counts epochs or steps.
        self._models: tuple[int, list[weakref.ref[Any]]] = (0, [])
        self._progress_read: int | None = None

    def opened(self) -> None:
        modules = [module for _, module in self.program.calls.modules()]
        self._first = self._noted([p for module in modules for p in module.parameters()], modules, 0)

    def _noted(self, parameters: list[Any], modules: list[Any], step: int) -> Start | None:
        """The start of these parameters, and of what these models keep of their batches."""
        found = list(dict.fromkeys(parameters))[:MAX_PARAMETERS]
        kept = [tensor for module in modules for _, tensor in running_statistics(self.torch, module)]
        found += list(dict.fromkeys(kept))[:MAX_PARAMETERS]
        if not found or not may_compute(self.torch, found[0].is_cuda):
            return None
        found = [p for p in found if is_real(self.torch, p) and p.device == found[0].device]
        return Start(self.torch, found, step) if found else None

    def before_first_step(self, tracked: Tracked) -> None:
        """What the first of all holds was noted as the process began to train; inside a backward it is too late."""
        steps, number = self.progress.steps, tracked.index
        if not steps or tracked.inside_backward or (number > MAX_STARTS and number & (number - 1)):
            return
        held = {id(p): p for group in tracked.optimizer.param_groups for p in group["params"]}
        models = [
            module for _, module in self.program.calls.modules() if any(id(p) in held for p in module.parameters())
        ]
        start = self._noted(list(held.values()), models, steps - tracked.count)
        if start is not None:
            self._starts = {key: one for key, one in self._starts.items() if not one.empty} | {number: start}

    def first_step(self, tracked: Tracked) -> None:
        """A first step that GradScaler skipped was not called, and has changed nothing."""
        if self.progress.steps > 1 and tracked.index not in self._starts:
            self.before_first_step(tracked)

    def state_taken(self, module: Any, state: Any) -> None:
        """Files of other libraries are written of this, too."""
        if self.progress.steps and self._taken < 3:
            self._taken += 1
            self._put({"action": "state", "tensors": len(state) if is_mapping(state) else 0})

    def file_saved(self, content: Any, name: str) -> None:
        if not self._saves.due(name):
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
        """The tensors of a file beside those that are trained when it is written."""
        names = self._names()
        under_way = self._under_way()
        if not names or not may_compute(self.torch, any(one.on_cuda for one in under_way)):
            return {}
        candidates = self._candidates(file, names)
        same = {one.data_ptr() for one in file.all_tensors() if is_plain(self.torch, one) and one.numel()}
        held: list[tuple[Any, Start, Start]] = []
        for tracked in under_way:
            own = [p for p in tracked.parameters() if id(p) in names and is_real(self.torch, p)]
            # What another training leaves on its own is no part of this file: a probe, a copy that is tuned for a test.
            if any(self._is_of_first(p) or p.data_ptr() in same or id(p) in candidates for p in own):
                held += [(p, *starts) for p in own if (starts := self._starts_of(p, tracked)) is not None]
        held = list({id(one[0]): one for one in held if one[0].device == held[0][0].device}.values())
        if not held:
            return {}
        now, before = some_elements(self.torch, [p for p, _, _ in held]), self._values([(p, at) for p, _, at in held])
        moved = [one for one, different in zip(held, (now != before).any(1).tolist(), strict=True) if different]
        there = {id(p) for p, _, _ in held if p.data_ptr() in same or id(p) in candidates}
        step, written = self._written
        written = there | written if step == self.progress.steps else there
        self._written = self.progress.steps, written
        lacking = [p for p, _, _ in moved if id(p) not in written]
        beside = of_adapted_models(self.program.calls.modules())
        lacking.sort(key=lambda p: id(p) not in beside)
        missing = [max(names[id(p)], key=len) for p in lacking]
        copies = [(p, first) for p, first, _ in moved if id(p) in there and p.data_ptr() not in same]
        pairs = self._comparable([(p, first, candidates[id(p)]) for p, first in copies])
        there_too = {id(p) for p, _, _ in pairs}
        return {
            "held": len(moved),
            "missing": len(missing),
            "names": ", ".join(missing[:3]) or None,
            "compared": len(there_too) + sum(p.data_ptr() in same for p, _, _ in moved),
            "untouched": len(there_too - self._changed(pairs)),
            "beside_adapters": sum([id(p) in beside for p in lacking]),
        } | self._statistics(file, same, {id(p) for p, _, _ in moved})

    def _statistics(self, file: File, same: set[int], moved: set[int]) -> dict[str, int]:
        """Running statistics that training has changed, of models all of whose parameters are in the file as they are.

        Averages are other values: their statistics are computed for them. Adapters leave out what they are put on.
        """
        there = file.by_names
        changed: dict[int, bool] = {}  # by identity: whether the file holds none of that model's
        for _, module in self.program.calls.modules():
            parameters = list(module.named_parameters())
            if not any(id(p) in moved for _, p in parameters):
                continue
            kept = self._changed_statistics(module)
            if kept and self._is_in(there, same, parameters):
                none = not any(t.data_ptr() in same or unwrapped(name) in there for name, t in kept)
                changed |= {id(t): none and changed.get(id(t), True) for _, t in kept}
        return {"statistics": len(changed), "statistics_missing": 0 if file.unnamed else sum(changed.values())}

    def _changed_statistics(self, module: Any) -> list[tuple[str, Any]]:
        """The running statistics of a model that are not what they were when they were noted last."""
        noted = [one for one in [self._first, *self._starts.values()] if one is not None][::-1]
        kept = [one for one in running_statistics(self.torch, module) if is_real(self.torch, one[1])]
        starts = [next((one for one in noted if one.place(tensor) is not None), None) for _, tensor in kept]
        known = [(*one, start) for one, start in zip(kept, starts, strict=True) if start is not None]
        known = [one for one in known if one[1].device == known[0][1].device]
        if not known:
            return []
        now = some_elements(self.torch, [tensor for _, tensor, _ in known])
        changed = (now != self._values([(tensor, start) for _, tensor, start in known])).any(1).tolist()
        return [(name, tensor) for (name, tensor, _), other in zip(known, changed, strict=True) if other]

    def _is_in(self, there: dict[str, list[Any]], same: set[int], parameters: list[tuple[str, Any]]) -> bool:
        """Whether a file holds each of these parameters with the values that it has now."""
        copies: list[tuple[Any, Any]] = []
        for name, p in parameters:
            if not is_real(self.torch, p):
                return False
            if p.data_ptr() not in same:
                alike = [one for one in there.get(unwrapped(name), ()) if one.shape == p.shape]
                if not alike or not is_real(self.torch, alike[0]):
                    return False
                copies.append((p, alike[0]))
        if not copies:
            return bool(parameters)
        if any(len({one.device for one in ones}) > 1 for ones in zip(*copies, strict=True)):
            return False
        now, saved = (some_elements(self.torch, list(ones)) for ones in zip(*copies, strict=True))
        return bool((now == saved.to(now.device)).all())

    def _comparable(self, copies: list[tuple[Any, Start, list[Any]]]) -> list[tuple[Any, Start, Any]]:
        """Parameters with each of the tensors of a file that may be copies of them; all of these are on one device."""
        pairs: list[tuple[Any, Start, Any]] = []
        for parameter, first, others in copies:
            place = (pairs[0][2] if pairs else others[0]).device
            fit = (is_real(self.torch, one) and one.dtype == parameter.dtype and one.device == place for one in others)
            if all(fit):
                pairs += [(parameter, first, one) for one in others]
        return pairs

    def _changed(self, pairs: list[tuple[Any, Start, Any]]) -> set[int]:
        """The parameters, by identity, of which the file holds values that are not those from before training."""
        if not pairs:
            return set()
        start = self._values([(parameter, first) for parameter, first, _ in pairs])
        saved = some_elements(self.torch, [other for _, _, other in pairs]).to(start.device)
        # Beside the tensor of another model that has this name, it is that one's start that must not be there.
        several = len({id(parameter) for parameter, _, _ in pairs}) < len(pairs)
        as_before = ((saved[:, None] == start).all(2).any(1) if several else (saved == start).all(1)).tolist()
        return {id(parameter) for (parameter, _, _), before in zip(pairs, as_before, strict=True) if not before}

    def _under_way(self) -> list[Tracked]:
        """The optimizers that still step, but for those that have not since the latest of them began."""
        active = self.program.optimizers.active()
        begun = {one.index: start.step for one in active if (start := self._starts.get(one.index)) is not None}
        latest = max(begun.values(), default=0)
        return [one for one in active if one.at_step > latest]

    def _starts_of(self, parameter: Any, tracked: Tracked) -> tuple[Start, Start] | None:
        """Where its values are from before any training, and from before this optimizer's steps."""
        noted = [self._first, *self._starts.values()]
        starts = [one for one in noted if one is not None and one.place(parameter) is not None]
        own = self._starts.get(tracked.index)
        return (starts[0], own if own in starts else starts[0]) if starts else None

    def _is_of_first(self, parameter: Any) -> bool:
        """Whether a model that was called before the first step of all holds it."""
        return self._first is not None and self._first.place(parameter) is not None

    def _values(self, noted: list[tuple[Any, Start]]) -> Any:
        """Shape [tensors, ELEMENTS]: what tensors held at a start."""
        return self.torch.stack([start.values[start.place(tensor)] for tensor, start in noted])

    def _names(self) -> dict[int, set[str]]:
        """What parameters are called in the models that were called, by identity."""
        names: dict[int, set[str]] = {}
        for _, module in self.program.calls.modules():
            for name, parameter in module.named_parameters():
                names.setdefault(id(parameter), set()).add(unwrapped(str(name)))
        return names

    def _candidates(self, file: File, names: dict[int, set[str]]) -> dict[int, list[Any]]:
        """Tensors of a file that may be copies of a parameter, by its identity: they have its name and its shape.

        What lies in the memory of another trained parameter, or holds just what that one holds now, is that one's.
        """
        torch = self.torch
        trained = {id(p): p for one in self.program.optimizers.tracked() for p in one.parameters() if id(p) in names}
        trained = {number: p for number, p in trained.items() if is_real(torch, p)}
        memory = {p.data_ptr(): number for number, p in trained.items()}
        there, whole = file.by_names, {unwrapped(name) for name in file.tensors}
        found: dict[int, dict[int, Any]] = {}
        claims: dict[int, tuple[Any, list[int]]] = {}  # by identity of the tensor in the file: who might be meant
        for number, p in trained.items():
            for name in names[number] & whole or names[number]:
                for one in there.get(name, ()):
                    at = memory.get(one.data_ptr(), number) if is_plain(torch, one) else number
                    if one.shape == p.shape and at == number and id(one) not in found.setdefault(number, {}):
                        found[number][id(one)] = one
                        claims.setdefault(id(one), (one, []))[1].append(number)
        several = [(one, trained[number]) for one, numbers in claims.values() if len(numbers) > 1 for number in numbers]
        several = [(one, p) for one, p in several if is_real(torch, one) and one.device == several[0][0].device]
        several = [(one, p) for one, p in several if p.device == several[0][1].device]
        if several:
            now = some_elements(torch, [p for _, p in several])
            same = (some_elements(torch, [one for one, _ in several]).to(now.device) == now).all(1).tolist()
            owners = {id(one): id(p) for (one, p), equal in zip(several, same, strict=True) if equal}
            for (one, p), equal in zip(several, same, strict=True):
                if not equal and id(one) in owners:
                    del found[id(p)][id(one)]
        return {number: list(ones.values()) for number, ones in found.items() if ones}

    def file_loaded(self, content: Any, name: str) -> None:
        self._loads += 1
        if self._loads > MAX_LOADS:
            return
        file = File(self.torch, content)
        if file.progress:
            self._progress_read = self.progress.steps
        if not file.tensors and not file.optimizer:
            return
        row = self._facts("load", file, name) | {"time": self.context.now(), "step": self.progress.steps}
        row |= dict.fromkeys(("model_restored", "optimizer_restored", "scheduler_restored", "scaler_restored"), False)
        resumed = Resumed(file.groups, file.moments)
        if not file.tensors and self._models[0] == self.progress.steps:
            for module in filter(None, (ref() for ref in self._models[1])):  # from a file of its own, read before
                row["model_restored"] = True
                resumed.load(module)
        self._loaded.append((row, [weakref.ref(one) for one in file.all_tensors()[:4]], resumed))
        self._resumed.append((row, resumed))
        self.activate()

    def state_loading(self, module: Any, given: Any) -> None:
        for row, _ in self._files_of(given):
            row["model_restored"], row["step"] = True, self.progress.steps

    def state_loaded(self, module: Any, given: Any, result: Any) -> None:
        if self._resumed:
            self._given.add(module, getattr(result, "missing_keys", None))
        for _, resumed in self._files_of(given):
            resumed.load(module)
        step, known = self._models
        if step != self.progress.steps:
            known = []
        if len(known) < MAX_LOADS:
            self._models = self.progress.steps, [*known, weakref.ref(module)]
        for row, resumed in self._resumed:
            if not row["tensors"] and row["step"] == self.progress.steps:  # of an optimizer alone
                row["model_restored"] = True
                resumed.load(module)

    def _files_of(self, given: Any) -> list[tuple[dict[str, Any], Resumed]]:
        """The files that a state which is loaded comes from."""
        if not self._loaded or not is_mapping(given):
            return []
        tensors = {id(one) for one in list(given.values())[:64]}
        return [
            (row, resumed)
            for row, some, resumed in self._loaded
            if any((one := ref()) is not None and id(one) in tensors for ref in some)
        ]

    def state_restored(self, role: str, owner: Any) -> None:
        for row, _, resumed in self._loaded:
            if role == "optimizer" and resumed.moments and is_mapping(owner.state) and not len(owner.state):
                continue  # its own, before it has any: accelerate's prepare() has it take that in on its device
            row[f"{role}_restored"] = True
            if role == "optimizer":
                resumed.take(owner)

    def scheduled(self, scheduler: Any, inner: bool, given: Any) -> None:
        if not inner and len(self._schedulers) < MAX_SCHEDULERS:
            self._schedulers.add(scheduler)

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        """The first step after a file was read shows what was made of it."""
        for read, resumed in self._resumed:
            read["progress"] |= not read["tensors"] and self._progress_read == read["step"]
            if read["model_restored"]:
                facts = {"site": read["site"], "step": read["step"], "unread": _unread(read["keys"])}
                facts |= resumed.facts(tracked, list(self._schedulers), self._given)
                self.context.record_event("resumed", read["file"], json.dumps(facts))
        self._resumed, self._given = [], Given()

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

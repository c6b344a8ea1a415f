"""Files of weights: what a program writes into them, set beside the weights that it trains, and what it restores."""

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
from tracelyze.collectors.program.saved_files import File, Saves, is_mapping
from tracelyze.collectors.signals.checkpoints.noted_starts import NotedStarts
from tracelyze.collectors.signals.checkpoints.written_values import Comparison
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of

MAX_LOADS = 20
MAX_SCHEDULERS = 100


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
        self._starts = NotedStarts(self.torch, self.program)
        self._comparison = Comparison(self.torch, self.program, self._starts)
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
        self._starts.note_all()

    def before_first_step(self, tracked: Tracked) -> None:
        """What the first of all holds was noted as the process began to train; inside a backward it is too late."""
        if self.progress.steps and not tracked.inside_backward:
            self._starts.note(tracked, self.progress.steps)

    def first_step(self, tracked: Tracked) -> None:
        """A first step that GradScaler skipped was not called, and has changed nothing."""
        if self.progress.steps > 1 and not self._starts.has(tracked):
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
            compared = self._comparison.of(file, self.progress.steps) if self.progress.steps else {}
            self._put(self._facts("save", file, name) | compared)

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

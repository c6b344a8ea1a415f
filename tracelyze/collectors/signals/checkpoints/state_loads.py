"""Weights that a model takes in by name: which of them were there, and whether they were its own all along."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from tracelyze.collectors.internals.by_identity import ByIdentity
from tracelyze.collectors.program.kept_states import KeptStates, Taken
from tracelyze.collectors.program.saved_files import File
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal, columns_of

ALL_OF = 20  # The first loads of a process are all compared, of later ones those whose number is a power of two.
MOST_KEPT = 20  # uses of kept states that are written down


class _Read(NamedTuple):
    """What torch.load has read from a file, and after how many steps."""

    step: int
    file: str
    shapes: dict[str, tuple[int, ...]]  # of its tensors, by name


class StateLoads(Signal):
    """A dictionary of `state_dict()` shares its tensors with the model: what was to be kept trains on."""

    name = "state_loads"
    columns = columns_of(
        "loads",
        "time step module name site given expected missing unexpected given_prefix expected_prefix renamed own "
        "taken_at taken_site from_other",
    )
    about = "What load_state_dict found and missed, and whether it was given the tensors that the model already had."
    cost = "2 us per tensor and load"

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._loads = 0
        self._modules: ByIdentity[int] = ByIdentity()
        self._latest: ByIdentity[Taken] = ByIdentity()
        self._kept = KeptStates(self.torch)
        self._kept_uses = 0
        self._own: list[str] | None = None  # tensors of the load that is going on which are the module's own
        self._files = self._takes = 0
        self._unchanged = False  # whether the tensors of the module that loads are as it handed them out
        self._read: _Read | None = None  # the file that was read last
        self._versions: ByIdentity[int | None] = ByIdentity()  # changes of a module's tensors when it handed them out

    def file_loaded(self, content: Any, name: str) -> None:
        self._files += 1
        if self._files <= ALL_OF:
            tensors = File(self.torch, content).tensors
            self._read = _Read(self.progress.steps, name, {key: tuple(ones[0].shape) for key, ones in tensors.items()})

    def state_taken(self, module: Any, state: Any) -> None:
        self._takes += 1
        if self._takes <= ALL_OF:
            self._versions[module] = _changes(module)
        # `accelerator.get_state_dict(model)` and Fabric's `model.state_dict()` hand on what torch's returns.
        line = self.program.sites.called_by(sys._getframe(1), "state_dict", handed_on="state_dict")
        taken = Taken(self.progress.steps, line)
        self._latest[module] = taken
        if isinstance(state, Mapping):
            self._kept.take(module, state, taken)

    def file_saved(self, content: Any, name: str) -> None:
        if self.progress.steps:
            self._used("save", File(self.torch, content).all_tensors(), name)

    def _used(self, use: str, tensors: list[Any], name: str) -> None:
        """The program saves or loads these tensors, which a module may have handed out some steps before."""
        kept = self._kept.use(tensors, self.progress.steps)
        if kept is not None and self._kept_uses < MOST_KEPT:
            self._kept_uses += 1
            kept |= {"use": use, "site": self.program.sites.here("save" if use == "save" else "load_state_dict")}
            self.context.record_event("kept-state", name, json.dumps(kept))

    def state_loading(self, module: Any, given: Any) -> None:
        self._own, self._unchanged = None, False
        self._loads += 1
        if self._read is not None and self._read.step == self.progress.steps:
            changes = _changes(module)
            self._unchanged = changes is not None and self._versions.get(module) == changes
        if (self._loads <= ALL_OF or self._loads & (self._loads - 1) == 0) and isinstance(given, Mapping):
            self._own = [name for name, one in _held(module) if name in given and self._is_same(one, given[name])]

    def state_loaded(self, module: Any, given: Any, result: Any) -> None:
        own, self._own = self._own, None
        missing, unexpected = getattr(result, "missing_keys", None), getattr(result, "unexpected_keys", None)
        if own is None or missing is None or unexpected is None:
            return
        missing = [*missing, *_lost_counters(module, given, missing)]
        context = self.context
        if module not in self._modules:
            self._modules[module] = len(self._modules)
        row = {
            "time": context.now(),
            "step": self.progress.steps,
            "module": self._modules[module],
            "name": type(module).__name__,
            "site": self.program.sites.here("load_state_dict"),
            "given": len(given),
            "expected": len(given) - len(unexpected) + len(missing),
            "missing": len(missing),
            "unexpected": len(unexpected),
            "own": len(own),
        }
        handed = self._kept.owner(given)
        if handed is not None and handed[0] is not None:
            row["from_other"] = handed[0] is not module
        taken = handed[1] if handed is not None else self._latest.get(module)
        if not own and self.progress.steps:  # into another model: a load of a module's own tensors is told by `own`
            self._used("load", list(given.values()), type(module).__name__)
        context.emit("loads", row | renaming(missing, unexpected) | (taken._asdict() if taken is not None else {}))
        if own and self._unchanged and not missing and not unexpected:
            self._merged(module, row | (taken._asdict() if taken is not None else {}), own)

    def _merged(self, module: Any, row: dict[str, Any], own: list[str]) -> None:
        """A module got its own state back, as it was handed out but for tensors of the file that was read just before.

        Had they been changed in place, they would have been averaged, say, or copied from the file one by one. `inner`:
        layers of another size in the file, before others that fit. At the end stands a head, which may be a new one.
        """
        read = self._read
        if read is None or not read.shapes or row.get("taken_at") != row["step"] or row.get("from_other"):
            return
        there = read.shapes
        held = dict(_held(module))
        of_others = [name for name in there if name not in held]
        taken = [place for place, name in enumerate(held) if name not in own]
        before = [name for name in list(held)[: max(taken, default=0)] if name in own and name in there]
        inner = [name for name in before if _other_inside(there[name], tuple(held[name].shape))]
        kept = {"module": row["module"], "name": row["name"], "site": row["site"], "kept": len(own)}
        kept |= {"expected": row["expected"], "file": read.file, "tensors": len(there), "inner": inner[:4]}
        kept |= {"layers": len(inner)} | renaming(own, of_others)
        self.context.record_event("kept-weights", row["name"], json.dumps(kept))

    def _is_same(self, tensor: Any, given: Any) -> bool:
        torch = self.torch
        plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and type(given) in (torch.Tensor, torch.nn.Parameter)
        if not plain or tensor.device != given.device or tensor.layout is not torch.strided:
            return False
        return given.layout is torch.strided and bool(tensor.data_ptr()) and tensor.data_ptr() == given.data_ptr()


def _held(module: Any) -> list[tuple[str, Any]]:
    return [*module.named_parameters(remove_duplicate=False), *module.named_buffers(remove_duplicate=False)]


def _lost_counters(module: Any, given: Any, missing: list[str]) -> list[str]:
    """The counters of batch normalisations that were given none of their state. Torch sets them to 0, and names them
    only where the state says that its version of the layer had one."""
    named = set(missing)
    counters = [name for name, _ in _held(module) if name.endswith("num_batches_tracked")]
    lost = [name for name in counters if name.replace("num_batches_tracked", "running_mean") in named]
    return [name for name in lost if name not in named and name not in given]


def _other_inside(shape: tuple[int, ...], own: tuple[int, ...]) -> bool:
    """Whether more differs than the number of outputs, as it does in a new head."""
    return len(shape) > 1 and shape[1:] != own[1:]


def _changes(module: Any) -> int | None:
    """How often the tensors of a module were changed in place, in all; None where they do not say."""
    try:
        return int(sum([tensor._version for _, tensor in _held(module)]))
    except RuntimeError:  # made in inference mode
        return None


def renaming(missing: list[str], unexpected: list[str]) -> dict[str, Any]:
    """The change of prefix by which most of the missing names would be found among the unexpected ones."""
    if not missing or not unexpected:
        return {}
    first = missing[0].split(".")
    there = set(unexpected)
    best: dict[str, Any] = {}
    for length in range(len(first)):
        ending = ".".join(first[length:])
        before = missing[0][: len(missing[0]) - len(ending)]
        for name in unexpected:
            if name == ending or name.endswith("." + ending):
                other = name[: len(name) - len(ending)]
                found = sum(m.startswith(before) and other + m[len(before) :] in there for m in missing)
                if found > best.get("renamed", 0):
                    best = {"given_prefix": other, "expected_prefix": before, "renamed": found}
        if best:
            return best
    return best

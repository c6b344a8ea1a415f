"""The tensors of a file that is written, set beside the weights that are trained then.

The values in it are compared with the live ones, and with those from before training. A file is read back by nobody
here, and a save waits for the device anyway.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tracelyze.collectors.program.program import Program
from tracelyze.collectors.program.saved_files import File, of_adapted_models, unwrapped
from tracelyze.collectors.signals.checkpoints.noted_starts import NotedStarts
from tracelyze.collectors.tensors.safe_computing import is_plain, may_compute
from tracelyze.collectors.tensors.starts import Start, is_real, running_statistics, some_elements


class Held(NamedTuple):
    """A parameter that an optimizer trains: where its values are from before any training, and from before its own."""

    parameter: Any
    first: Start
    own: Start


class Comparison:
    """What files hold of the weights that are trained. Identities of tensors are those of live ones."""

    def __init__(self, torch: Any, program: Program, starts: NotedStarts) -> None:
        self.torch, self.program, self._starts = torch, program, starts
        self._written: tuple[int, set[int]] = (0, set())  # identities of tensors in files of the same step

    def of(self, file: File, step: int) -> dict[str, Any]:
        """The columns of a file that is written after so many steps of the process; empty where nothing is trained."""
        names = self._names()
        under_way = self._starts.under_way()
        if not names or not may_compute(self.torch, any(one.on_cuda for one in under_way)):
            return {}
        same = {one.data_ptr() for one in file.all_tensors() if is_plain(self.torch, one) and one.numel()}
        candidates = self._candidates(file, names)
        held = self._trained(names, same, candidates)
        if not held:
            return {}
        moved = self._moved(held)
        there = {id(p) for p, _, _ in held if p.data_ptr() in same or id(p) in candidates}
        lacking = self._lacking(moved, there, step)
        beside = of_adapted_models(self.program.calls.modules())
        lacking.sort(key=lambda p: id(p) not in beside)
        copies = [(p, first) for p, first, _ in moved if id(p) in there and p.data_ptr() not in same]
        pairs = self._comparable([(p, first, candidates[id(p)]) for p, first in copies])
        compared = {id(p) for p, _, _ in pairs}
        return {
            "held": len(moved),
            "missing": len(lacking),
            "names": ", ".join(max(names[id(p)], key=len) for p in lacking[:3]) or None,
            "compared": len(compared) + sum(p.data_ptr() in same for p, _, _ in moved),
            "untouched": len(compared - self._changed(pairs)),
            "beside_adapters": sum([id(p) in beside for p in lacking]),
        } | self._statistics(file, same, {id(p) for p, _, _ in moved})

    def _trained(self, names: dict[int, set[str]], same: set[int], candidates: dict[int, list[Any]]) -> list[Held]:
        """The parameters of the trainings that this file is about, on one device.

        What another training leaves on its own is no part of this file: a probe, a copy that is tuned for a test.
        """
        held: list[Held] = []
        for tracked in self._starts.under_way():
            own = [p for p in tracked.parameters() if id(p) in names and is_real(self.torch, p)]
            if any(self._starts.is_of_first(p) or p.data_ptr() in same or id(p) in candidates for p in own):
                held += [Held(p, *starts) for p in own if (starts := self._starts.of(p, tracked)) is not None]
        held = [one for one in held if one.parameter.device == held[0].parameter.device]
        return list({id(one.parameter): one for one in held}.values())

    def _moved(self, held: list[Held]) -> list[Held]:
        """Those that are not what they were before their optimizer's steps."""
        now = some_elements(self.torch, [p for p, _, _ in held])
        before = self._starts.values([(p, own) for p, _, own in held])
        return [one for one, different in zip(held, (now != before).any(1).tolist(), strict=True) if different]

    def _lacking(self, moved: list[Held], there: set[int], step: int) -> list[Any]:
        """The parameters that neither this file holds nor another one that was written after the same step."""
        latest, written = self._written
        written = there | written if latest == step else there
        self._written = step, written
        return [p for p, _, _ in moved if id(p) not in written]

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
        noted = self._starts.all[::-1]
        kept = [one for one in running_statistics(self.torch, module) if is_real(self.torch, one[1])]
        starts = [next((one for one in noted if one.place(tensor) is not None), None) for _, tensor in kept]
        known = [(*one, start) for one, start in zip(kept, starts, strict=True) if start is not None]
        known = [one for one in known if one[1].device == known[0][1].device]
        if not known:
            return []
        now = some_elements(self.torch, [tensor for _, tensor, _ in known])
        changed = (now != self._starts.values([(tensor, start) for _, tensor, start in known])).any(1).tolist()
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
        start = self._starts.values([(parameter, first) for parameter, first, _ in pairs])
        saved = some_elements(self.torch, [other for _, _, other in pairs]).to(start.device)
        # Beside the tensor of another model that has this name, it is that one's start that must not be there.
        several = len({id(parameter) for parameter, _, _ in pairs}) < len(pairs)
        as_before = ((saved[:, None] == start).all(2).any(1) if several else (saved == start).all(1)).tolist()
        return {id(parameter) for (parameter, _, _), before in zip(pairs, as_before, strict=True) if not before}

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

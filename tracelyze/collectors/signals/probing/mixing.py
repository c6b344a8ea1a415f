"""Whether the samples of a batch reach each other's outputs: one sample is changed in a model in eval mode.

A sample is replaced by a neighbour of its own batch, so that what the model is given stays what its data are like. The
outputs of the other samples are compared, and so are those of each module, which finds where samples first meet.
"""

from __future__ import annotations

from typing import Any

from tracelyze.collectors.program.models import tensors_of
from tracelyze.collectors.signals.probing.copied_model import CopiedModel, NotCopied, RandomStates
from tracelyze.collectors.system.program_signals import raised_by_a_signal_handler
from tracelyze.collectors.tensors.attention.taken_for_positions import positions_first

FEWEST = 4  # samples: with fewer, "some of the others" and "all of them" are nearly the same
TOLERANCE = 1e-4  # of the largest output: kernels may add up in another order where shapes depend on the values


class _Module:
    """What one call of a module inside the model put out: a number for each sample."""

    def __init__(self, name: str, kind: str, values: Any, inputs: Any) -> None:
        self.name, self.kind, self.values, self.inputs = name, kind, values, inputs


class _Run:
    """One call of the model."""

    def __init__(self) -> None:
        self.outputs: list[Any] = []
        self.modules: list[_Module] = []
        self.shapes: set[tuple[int, ...]] = set()  # of the model's parameters
        self.along_samples: list[str] = []  # recurrences and attention that take the samples for positions
        self.along_others = 0  # and those that do not
        self.tables = False  # a table of positions along the other dimension, beside such attention


class Mixing:
    """The comparison for one call: `samples` of the batch lie along the dimension `along` of what it is given."""

    def __init__(
        self, torch: Any, copied: CopiedModel, states: RandomStates, samples: int, along: int, first: Any
    ) -> None:
        self._torch, self._copied, self._states = torch, copied, states
        self._samples, self._along = samples, along
        if samples < FEWEST:
            raise NotCopied(f"a batch of {samples}: too few samples to compare them")
        tensors = _given_tensors(torch, (copied.args, copied.kwargs))
        if any(_connects(torch, one, samples) for one in tensors if one.shape != first.shape):
            raise NotCopied("the model is given what connects samples, as a graph does")
        self._shape = tuple(first.shape)

    def compare(self) -> dict[str, Any]:
        """A row of the table mixings."""
        chosen = self._samples // 2 - 1
        base, moved = self._run(), self._run(chosen, chosen + 1)
        if not base.outputs:
            raise NotCopied("the model returns nothing that has a value for each sample")
        changed = self._changed(base, moved)
        other_base, other = self._run(other_stream=True), self._run(chosen, chosen - 1, other_stream=True)
        again = self._changed(other_base, other)
        row: dict[str, Any] = {
            "samples": self._samples,
            "along": self._along,
            "shape": "x".join(str(size) for size in self._shape),
            "others": int(sum(changed)) - changed[chosen],
            "same_others": changed == again,
            "repeats": self._changed(base, self._run()) == [False] * self._samples,
            "squares": any(list(one.shape).count(self._samples) > 1 for one in base.outputs),
            "along_samples": " ".join(base.along_samples) or None,
            "along_others": base.along_others,
            "position_table": base.tables,
        }
        if row["others"]:
            row["by_position"] = max(self._by_position(base, chosen, place) for place in (0, -1))
            row["halves"] = self._takes_half()
            row["module"], row["kind"] = self._where(base, moved, chosen)
        return row

    def _by_position(self, base: _Run, chosen: int, place: int) -> int:
        """How many others change at all where one position is replaced: the first or the last that differs.

        Not a bit may differ in the rest. One position of many moves what all samples share by very little.
        """
        changed = self._changed(base, self._run(chosen, chosen + 1, place), tolerance=0.0)
        return int(sum(changed)) - changed[chosen]

    def _run(
        self,
        sample: int | None = None,
        source: int = 0,
        place: int | None = None,
        other_stream: bool = False,
        half: bool = False,
    ) -> _Run:
        torch, states = self._torch, self._states
        (states.advance if other_stream else states.restore)()
        done, model = _Run(), self._copied.fresh(training=False)
        given = self._copied.given()
        if sample is not None:
            for tensor in self._of_samples(given):
                _replace(tensor.movedim(self._along, 0), sample, source, place)
        if half:
            given = _narrowed(torch, given, self._samples, self._along)
        done.shapes = {tuple(one.shape) for one in model.parameters()}
        for name, part in model.named_modules():
            part.register_forward_hook(_Watch(self, name, done), with_kwargs=True)
        with torch.enable_grad():  # without it, layers of transformers take a way past their own modules
            output = model(*given[0], **given[1])
        done.outputs = [one.detach() for one in tensors_of(torch, output) if self._has_samples(one)]
        return done

    def _has_samples(self, tensor: Any) -> bool:
        floating = bool(tensor.is_floating_point())
        return floating and tensor.dim() > self._along and tensor.shape[self._along] == self._samples

    def _of_samples(self, given: Any) -> list[Any]:
        return [
            one
            for one in _given_tensors(self._torch, given)
            if one.dim() > self._along and one.shape[self._along] == self._samples
        ]

    def _changed(self, base: _Run, other: _Run, tolerance: float = TOLERANCE) -> list[bool]:
        """For each sample, whether its outputs differ."""
        found = [False] * self._samples
        for one, two in zip(base.outputs, other.outputs, strict=True):
            if one.shape != two.shape:
                return [True] * self._samples
            rows = [x.movedim(self._along, 0).reshape(self._samples, -1).double() for x in (one, two)]
            if not rows[0].shape[1]:
                continue
            scale = float(rows[0].abs().nan_to_num(0.0, 0.0, 0.0).max())
            apart = (rows[0] - rows[1]).abs().amax(dim=1) > tolerance * scale
            found = [was or bool(now) for was, now in zip(found, apart.tolist(), strict=True)]
        return found

    def _takes_half(self) -> bool:
        try:
            self._run(half=True)
        except Exception as error:
            if raised_by_a_signal_handler(error):
                raise
            return False
        return True

    def _where(self, base: _Run, other: _Run, chosen: int) -> tuple[str | None, str | None]:
        """The first module that was given other samples as they were, and put them out changed."""
        for one, two in zip(base.modules, other.modules, strict=False):
            if one.name != two.name or one.values.shape != two.values.shape:
                return None, None
            if self._mixed(one.values, two.values, chosen) and not self._mixed(one.inputs, two.inputs, chosen):
                return one.name, one.kind
        return None, None

    def _mixed(self, one: Any, two: Any, chosen: int) -> bool:
        if one is None or two is None or one.shape != two.shape:
            return False
        apart = (one - two).abs() > TOLERANCE * one.abs().nan_to_num(0.0, 0.0, 0.0).max()
        apart[chosen] = False
        return bool(apart.any())

    def note(self, done: _Run, name: str, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        """A module within the model was called."""
        torch = self._torch
        given = next(iter(tensors_of(torch, [*args, *kwargs.values()])), None)
        made = next((one for one in tensors_of(torch, output) if self._has_samples(one)), None)
        if made is not None:
            inputs = self._per_sample(given) if given is not None and self._has_samples(given) else None
            done.modules.append(_Module(name, type(module).__name__, self._per_sample(made), inputs))
        first = positions_first(torch, module)
        if first is not None and given is not None and given.dim() == 3:
            positions = given.shape[0 if first else 1]
            others = given.shape[1 if first else 0]
            if positions == self._samples != others > 1:
                done.along_samples.append(f"{name or '-'}:{type(module).__name__}")
                table = (1, others, given.shape[2])  # added to every sample: what lies along its middle is a position
                done.tables |= not isinstance(module, torch.nn.RNNBase) and table in done.shapes
            elif others == self._samples:
                done.along_others += 1

    def _per_sample(self, tensor: Any) -> Any:
        flat = tensor.detach().movedim(self._along, 0).reshape(self._samples, -1).double()
        weights = _weights(self._torch, flat)
        return (flat * weights).sum(dim=1)


class _Watch:
    """A forward hook of a copied module."""

    def __init__(self, mixing: Mixing, name: str, done: _Run) -> None:
        self._mixing, self._name, self._done = mixing, name, done

    def __call__(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        self._mixing.note(self._done, self._name, module, args, kwargs, output)


def _weights(torch: Any, flat: Any) -> Any:
    """Weights by which values at other places count differently."""
    return torch.cos(torch.arange(flat.shape[1], device=flat.device, dtype=flat.dtype))


def _given_tensors(torch: Any, value: Any) -> list[Any]:
    """All tensors among arguments."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (tuple, list)):
        return [tensor for one in value for tensor in _given_tensors(torch, one)]
    return []


def _connects(torch: Any, tensor: Any, samples: int) -> bool:
    """Whether it may say which samples belong together: a square matrix, or pairs of whole numbers."""
    pairs = tensor.dim() == 2 and tensor.shape[0] == 2 != samples and tensor.dtype is torch.int64
    return bool(pairs or (tensor.dim() >= 2 and tensor.shape[0] == tensor.shape[1] == samples))


def _replace(tensor: Any, sample: int, source: int, place: int | None) -> None:
    """Put the sample `source` in the place of `sample`, or only the first (0) or last (-1) position that differs."""
    if place is None:
        tensor[sample] = tensor[source].clone()
    elif tensor.dim() > 1:
        differ = (tensor[sample] != tensor[source]).reshape(tensor.shape[1], -1).any(dim=1).nonzero()
        if len(differ):
            position = int(differ[place])
            tensor[sample, position] = tensor[source, position].clone()


def _narrowed(torch: Any, value: Any, samples: int, along: int) -> Any:
    """The arguments for the first half of the samples."""
    if isinstance(value, torch.Tensor):
        counts = value.dim() > along and value.shape[along] == samples
        return value.narrow(along, 0, samples // 2).contiguous() if counts else value
    if type(value) is dict:
        return {key: _narrowed(torch, one, samples, along) for key, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)([_narrowed(torch, one, samples, along) for one in value])
    return value

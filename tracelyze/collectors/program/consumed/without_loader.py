"""What is asked of a call that no loader feeds, and that may measure the model: on a held-out tensor, say."""

from __future__ import annotations

import sys
import weakref
from typing import Any

from tracelyze.collectors.program.call import Call
from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.lines import comparisons
from tracelyze.collectors.program.progress import Progress

MAX_INPUTS = 32  # tensors by which it is seen that the model is given one again
MAX_PATHS = 64  # ways to a call whose functions are read for a comparison
MAX_MISTAKEN = 200  # calls unlike those that train, and which train all the same: then batches vary, and none is asked


class WithoutLoader:
    """Calls without a loader: their inputs, the lines that compare their answers, and how they differ from training."""

    def __init__(self, torch: Any, sites: Sites, progress: Progress) -> None:
        self._torch, self._sites, self._progress = torch, sites, progress
        self._inputs: dict[tuple[int, int], tuple[weakref.ref[Any], int | None, int]] = {}  # by model and identity
        self._compared: dict[tuple[tuple[int, int], ...], int | None] = {}  # sites, by the lines that led to a call
        # Of the latest call, by model: backwards before it, its size, and whether it was unlike those that train.
        self._latest: dict[int, tuple[int, int | None, bool]] = {}
        self._trained: dict[int, int | None] = {}  # size of the latest call that a backward followed, by model
        self._mistaken = 0

    def was_given(self, call: Call, given: Any) -> bool:
        """Whether the model was given this very object after another step, and no value of it has changed since.

        A set that is held out as one tensor is, and a graph that the model always sees whole.
        """
        try:
            held = weakref.ref(given)
        except TypeError:  # None, a tuple, a dictionary
            return False
        plain = type(given) in (self._torch.Tensor, self._torch.nn.Parameter) and not given.is_inference()
        version = given._version if plain else None
        key = call.model.number, id(given)
        before = self._inputs.pop(key, None)
        again = before is not None and before[0]() is given and before[1] == version
        first = before[2] if before is not None and again else call.step
        self._inputs[key] = held, version, first
        if len(self._inputs) > MAX_INPUTS:
            self._inputs.pop(next(iter(self._inputs)), None)
        return first < call.step

    def line_that_compares(self, path: tuple[tuple[int, int], ...]) -> int | None:
        """The line that holds the answer of the model against something: read off the functions once for each path."""
        if path in self._compared or len(self._compared) >= MAX_PATHS:
            return self._compared.get(path)
        found = comparisons.after(sys._getframe(1))
        site = self._compared[path] = None if found is None else self._sites.at("measured", *found)
        return site

    def unlike_training(self, call: Call) -> bool:
        """Whether a call that is made as in training, with a graph and in train mode, is unlike those that train.

        It has another size than the latest one that a backward followed, or is the second of its size without a
        backward between. Whether it trains is known later, when the lines that led to it are gone.
        """
        number, size, backwards = call.model.number, call.batch_size, self._progress.backwards
        before = self._latest.get(number)
        unlike = False
        if before is not None:
            if backwards > before[0]:
                self._trained[number] = before[1]
                self._mistaken += before[2]
            again = backwards == before[0] and size == before[1]
            unlike = self._mistaken < MAX_MISTAKEN and (again or size != self._trained.get(number, size))
        self._latest[number] = backwards, size, unlike
        return unlike

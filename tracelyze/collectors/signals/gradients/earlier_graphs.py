"""What backwards that keep their graph run through besides: the graph of the step before, which a state that goes on
from step to step leads to, or one that was made once, in a step long ago or before the first.

Autograd numbers its nodes as they are made. The first such backwards are looked at, one for each step.
"""

from __future__ import annotations

from typing import Any, Final

from tracelyze.collectors.program.models import tensors_of
from tracelyze.collectors.program.saved_files import unwrapped
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.tensors import graphs

MAX_LOOKED_AT: Final = 6  # steps
MODELS: Final = 8
MODULES: Final = 200  # of one model
OF_TORCH: Final = ("_parameters", "_buffers", "_modules")
STEP_BEFORE, ONCE = "step before", "once"


class EarlierGraphs:
    """Told of each backward that keeps its graph, until it has seen one that runs through an earlier one."""

    def __init__(self, context: SignalContext) -> None:
        self._context = context
        self._newest: dict[int, int] = {}  # number of the newest node of the roots, by step
        self._held: dict[int, tuple[str, bool]] = {}  # by the number of its node: an attribute, and whether of several
        self.done = False

    def look(self, roots: tuple[Any, ...]) -> None:
        """Before such a backward runs."""
        step, number = self._context.progress.steps, graphs.latest_number(list(roots))
        if number is None:
            return
        earlier = sorted(last for at, last in self._newest.items() if at < step)
        if len(earlier) > 1 and step not in self._newest:
            self._walk(roots, *earlier[-2:])
        self.done = self.done or len(self._newest) >= MAX_LOOKED_AT
        self._newest[step] = max(number, self._newest.get(step, 0))
        self._held = {} if self.done else self._attributes()

    def _walk(self, roots: tuple[Any, ...], before: int, last: int) -> None:
        """Look for nodes of the step before, which are newer than `before` and no newer than `last`."""
        nodes = [one.grad_fn for one in roots if one.grad_fn is not None]
        numbers = [
            int(node._sequence_nr())
            for node in graphs.nodes_behind(nodes, graphs.MAX_NODES)
            if not hasattr(node, "variable") and hasattr(node, "_sequence_nr")
        ]
        if any(before < one <= last for one in numbers):
            names = {self._held[one] for one in numbers if one in self._held}
            name, several = names.pop() if len(names) == 1 else ("", False)
            self._context.record_event("earlier-graph", name, STEP_BEFORE, value=float(several))
            self.done = True
        elif any(one <= before for one in numbers):
            self._context.record_event("earlier-graph", "", ONCE)
            self.done = True

    def _attributes(self) -> dict[int, tuple[str, bool]]:
        """The attributes of called modules that hold a tensor with a graph, by the number of its node."""
        found = dict[int, tuple[str, bool]]()
        for _, model in self._context.program.calls.modules()[:MODELS]:
            for path, module in list(model.named_modules())[:MODULES]:
                for name, value in [*vars(module).items(), *module._buffers.items()]:
                    if name in OF_TORCH or not isinstance(value, (self._context.torch.Tensor, tuple, list, dict)):
                        continue
                    for tensor in tensors_of(self._context.torch, value):
                        if hasattr(tensor.grad_fn, "_sequence_nr"):
                            whole = unwrapped(f"{path}.{name}" if path else name)
                            found[int(tensor.grad_fn._sequence_nr())] = whole, tensor is not value
        return found

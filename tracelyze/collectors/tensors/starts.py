"""A few elements of each tensor as a training began, to be set beside those that it holds later."""

from __future__ import annotations

import weakref
from typing import Any

from tracelyze.collectors.internals.private_names import BATCH_NORM, find
from tracelyze.collectors.tensors.safe_computing import every_nth, is_plain

ELEMENTS = 4  # of a tensor


def is_real(torch: Any, tensor: Any) -> bool:
    """Whether its elements can be compared: they are there, and lose nothing (a warning) as real numbers."""
    return is_plain(torch, tensor) and bool(tensor.numel()) and not tensor.is_complex()


def some_elements(torch: Any, tensors: list[Any]) -> Any:
    """Shape [tensors, ELEMENTS]."""
    with torch.no_grad():
        some = [every_nth(tensor, ELEMENTS)[:ELEMENTS].float() for tensor in tensors]
        pad = torch.nn.functional.pad
        return torch.stack([one if one.numel() == ELEMENTS else pad(one, (0, ELEMENTS - one.numel())) for one in some])


def running_statistics(torch: Any, root: Any) -> list[tuple[str, Any]]:
    """Mean and variance that normalisations of a model keep of their batches, and hand out as its state, by name."""
    normalises = find(torch, BATCH_NORM)
    return [
        (f"{name}.{kept}" if name else kept, module._buffers[kept])
        for name, module in (root.named_modules() if normalises is not None else ())
        if isinstance(module, normalises)
        for kept in ("running_mean", "running_var")
        if module._buffers.get(kept) is not None and kept not in module._non_persistent_buffers_set
    ]


class Start:
    """Elements of tensors on one device, after so many steps. It holds none of the tensors, and is empty without them.

    `values` has the shape [tensors, ELEMENTS]; it is freed with the last of the tensors.
    """

    def __init__(self, torch: Any, tensors: list[Any], step: int) -> None:
        self.step = step
        self.values: Any = some_elements(torch, tensors)
        self._places = {id(one): (weakref.ref(one, self._ended), index) for index, one in enumerate(tensors)}
        self._living = len(tensors)

    def _ended(self, _tensor: Any) -> None:
        """A tensor is gone."""
        self._living -= 1
        if not self._living:
            self.values = None

    @property
    def empty(self) -> bool:
        """Whether all of its tensors are gone."""
        return self.values is None

    def place(self, tensor: Any) -> int | None:
        """The row of a tensor in `values`."""
        reference, index = self._places.get(id(tensor), (None, None))
        known = reference is not None and reference() is tensor and not self.empty
        return index if known and self.values.device == tensor.device else None

"""Importing it makes the recording take the steps of a CPU as it takes those of a device: losses are read later."""

import torch

from tracelyze.collectors.recording.fast_path.skippable import Skippable
from tracelyze.collectors.signals.loss import loss

loss._now_or_later = torch.Tensor.detach


def device(self, tracked, row):
    own = self.program.backwards.of_step
    known = all(isinstance(one.value, torch.Tensor) for one in own) and (len(own) > 1 or own[0].factor == 1.0)
    return torch.device("cpu") if self._nothing_else_goes_on(tracked, row) and own and known else None


Skippable.device = device

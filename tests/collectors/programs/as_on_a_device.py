"""Importing it makes the recording take the steps of a CPU as it takes those of a device: losses are read later."""

import torch

from tracelyze.collectors.recording.backwards import Backwards
from tracelyze.collectors.recording.fast_path.skippable import Skippable


def device(self, tracked, row):
    return torch.device("cpu") if self._nothing_else_goes_on(tracked, row) and "loss" in row else None


Skippable.device = device
Skippable.is_plain = lambda *_: False  # which a step on a device never is
_dispatch_begin = Backwards.dispatch_begin


def dispatch_begin(self, roots, skipped_loss=None):
    """Beside losses that were not skipped, which are numbers on a CPU, those that were are numbers too."""
    _dispatch_begin(self, roots, None if skipped_loss is None else float(skipped_loss))


Backwards.dispatch_begin = dispatch_begin

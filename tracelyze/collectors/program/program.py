"""The observed program as one object: everything in this folder that lives as long as a recording."""

from __future__ import annotations

from dataclasses import dataclass

from tracelyze.collectors.program.call_sites import Sites
from tracelyze.collectors.program.calls import Calls
from tracelyze.collectors.program.consumed.asides import Asides
from tracelyze.collectors.program.consumed.batches_in_hand import BatchesInHand
from tracelyze.collectors.program.consumed.input_order import InputOrder
from tracelyze.collectors.program.consumed.step_backwards import StepBackwards
from tracelyze.collectors.program.manual_updates import ManualUpdates
from tracelyze.collectors.program.modules.direct_calls import DirectCalls
from tracelyze.collectors.program.modules.fused_dropouts import FusedDropouts
from tracelyze.collectors.program.optimizers import Optimizers
from tracelyze.collectors.program.trainings import Trainings


@dataclass(frozen=True)
class Program:
    """What is known of the program that runs on one training thread."""

    sites: Sites
    calls: Calls
    optimizers: Optimizers
    trainings: Trainings
    batches: BatchesInHand
    backwards: StepBackwards
    manual_updates: ManualUpdates
    inputs: InputOrder
    fused_dropouts: FusedDropouts
    asides: Asides
    direct_calls: DirectCalls

"""What several rows of the table share: diagnoses with the same effects, ends of a process, reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tracelyze.diagnosis import EndCause

UNCLEARED: Final = ("missing-zero-grad", "partial-zero-grad")
"""They are there a step before they are seen: at the first step there are no old gradients to add to."""
BLOWN_UP: Final = (*UNCLEARED, "learning-rate-too-high", "exploding-gradients", "loss-divergence")
SUMMED: Final = "Summed micro-batches multiply the step by their number."
OVERWRITTEN: Final = "Gradients computed from other inputs than the loss, and labels from other batches, mislead."
STILL_SCALED: Final = "Steps with gradients that still contain the loss scale are too large by that factor."
THROWN: Final = "Updates that leap throw the weights away from what they had learned."
LEAPT: Final = "A schedule that raises the learning rate far above its earlier values throws training back."
OPEN: Final = ("constant-output", "loss-plateau")
"""They see that nothing is learned, and not why. Where a mechanism was found beside them, it is told first: a training
on random numbers that leaks memory is looked at for the leak."""
ONLY_SLOWS: Final = (
    "allocator-stalls", "dataloader-bottleneck", "debug-mode-left-on", "epoch-boundary-stall", "exposed-communication",
    "fp32-on-tensor-cores", "graph-breaks", "host-bound", "optimizer-for-loop", "pageable-copies", "slow-steps",
    "straggler", "sync-stalls", "throughput-decay", "too-many-workers",
)  # fmt: skip
"""They cost time. What spoils the result, or ends the run, is told before them, however long they take."""
NOT_MEMORY: Final[tuple[EndCause, ...]] = (
    "signal", "memory-unlikely", "xid", "segfault", "time-limit", "preempted", "node-failure",
)  # fmt: skip
"""What ended a process and was not memory."""
FOR_MEMORY: Final[tuple[EndCause, ...]] = ("memory-likely", "oom-kill", "memory-limit")
"""Ends that the system brought about because memory ran out, which a hang does not explain."""
SIZE_FOLLOWS: Final = ("clipping-freezes-updates", "clipping-always-active", "update-ratio")
"""Effects whose own repair is another learning rate or limit, which is wrong as soon as their cause is mended."""

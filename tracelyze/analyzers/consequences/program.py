"""What memory, speed, rewards and the end of the program follow from."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.consequences.declaration import AT_ONCE, Consequence
from tracelyze.analyzers.consequences.shared import FOR_MEMORY, NOT_MEMORY, UNCLEARED

ROWS: Final = (
    # memory and speed
    Consequence("memory-leak", ("retain-graph",), "Graphs that are retained are kept."),
    Consequence("host-memory-leak", ("memory-leak", "retain-graph"), "What is kept alive sits in host memory."),
    Consequence("out-of-memory", ("memory-leak", "memory-fragmentation"), "The memory is used up step by step."),
    Consequence("out-of-memory", ("eval-with-grad",), "Validation graphs take up the missing memory."),
    Consequence("memory-headroom", ("memory-leak", "memory-fragmentation"), "The memory is used up step by step."),
    Consequence("memory-headroom", ("out-of-memory",), "The memory is used up."),
    Consequence("memory-headroom", ("eval-with-grad",), "Graphs that nobody needs take memory."),
    Consequence("allocator-stalls", ("memory-fragmentation",), "The allocator frees and asks for memory again."),
    Consequence("slow-steps", ("epoch-boundary-stall", "dataloader-bottleneck"), "The slow steps wait for their data."),
    Consequence("slow-steps", ("memory-leak", "allocator-stalls"), "The slow steps wait for memory."),
    Consequence("slow-steps", ("straggler",), "All ranks wait for the slowest."),
    Consequence("slow-steps", ("graph-breaks",), "The slow steps compile."),
    Consequence("slow-steps", ("debug-mode-left-on",), "At the end of each window a profiler writes what it recorded."),
    Consequence("straggler", ("uneven-batches",), "A rank that has more to do takes longer."),
    Consequence("exposed-communication", ("straggler",), "All ranks wait for the slowest."),
    Consequence("host-bound", ("sync-stalls",), "A host that waits for the device cannot run ahead of it."),
    Consequence("host-bound", ("graph-breaks", "debug-mode-left-on"), "The host has more to do at each step."),
    Consequence("optimizer-for-loop", ("sync-stalls",), "A host that waits for the device cannot run ahead of it."),
    Consequence("throughput-decay", ("memory-leak", "retain-graph"), "Each step keeps more and goes over more."),
    Consequence("throughput-decay", ("dataloader-bottleneck",), "Steps wait longer for their data."),
    Consequence("throughput-decay", UNCLEARED, "Numbers that overflow or fall below the normal range compute slowly."),
    Consequence("too-many-workers", ("dataloader-bottleneck",), "More workers were added because of the wait."),
    Consequence("epoch-boundary-stall", ("too-many-workers",), "All workers begin an epoch at once, and take turns."),
    # reinforcement learning
    Consequence("entropy-collapse", ("learning-rate-too-high",), "Steps that overshoot make the policy deterministic."),
    Consequence("entropy-collapse", ("sampler-mismatch",), "The policy becomes confident in another policy's "
    "choices."),
    Consequence("zero-advantage", ("entropy-collapse",), "Completions that are all alike have the same reward."),
    Consequence("zero-advantage", ("completions-truncated",), "Answers that are cut off all have the same reward.",
                grave=True),
    Consequence("ratio-always-one",
                ("updates-not-applied", "frozen-parameters", "zero-gradients", "step-without-backward"),
                "A policy that does not change is still the one that acted."),
    Consequence("reward-collapse", ("sampler-mismatch",), "The policy learns from another policy's choices."),
    Consequence("reward-collapse", ("learning-rate-too-high", "entropy-collapse"),
                "A policy that no longer explores cannot recover."),
    Consequence("completions-truncated", ("reward-collapse",), "A policy that left what it knew ends no answer."),
    # how the program ended
    Consequence("crash", ("loss-nonfinite",), "The program checks for numbers that are not finite, or cannot use them.",
                AT_ONCE, ("no-numbers",)),
    Consequence("crash", (*UNCLEARED, "learning-rate-too-high"),
                "The program checks for a loss that went wrong, or cannot use its numbers.", unless=("no-numbers",)),
    Consequence("crash", ("rank-hang",), "The time-out ends the ranks that wait."),
    Consequence("killed", ("memory-leak", "host-memory-leak"), "The system kills what uses too much memory.",
                ended_by=NOT_MEMORY),
    Consequence("killed", ("rank-hang",), "A job that hangs is killed from outside.", ended_by=FOR_MEMORY),
    Consequence("killed", ("standstill",), "A program that stands still is killed from outside.", ended_by=FOR_MEMORY),
    Consequence("standstill", ("rank-hang",), "It waits for what another rank was to do."),
    Consequence("rank-hang", ("out-of-memory",), "The others wait for the rank that died.", AT_ONCE),
    Consequence("uneven-batches", ("rank-hang", "crash", "killed"), "A rank that is gone counts fewer batches."),
    Consequence("stops-short", ("learning-rate-schedule",), "The schedule ends the training before it has converged."),
)  # fmt: skip

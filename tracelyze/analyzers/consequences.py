"""What can follow from what: the causes of each diagnosis, how soon it follows on them, and why.

`causality` explains findings by this table, and the pages of the rules print it. A row holds where the cause is found,
began no later than the effect, and, where the effect follows `AT_ONCE`, was last seen shortly before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tracelyze.analyzers.rule import Declaration
    from tracelyze.diagnosis import EndCause


@dataclass(frozen=True)
class Delay:
    """For how long after a cause was last seen its effect may begin: `steps`, and a `share` of the run's steps."""

    steps: float
    share: float

    def reaches(self, cause_seen: int, effect_began: int, run_steps: int) -> bool:
        """Whether an effect that began at this step may still come from a cause that was last seen at that one."""
        return effect_began <= cause_seen + self.steps + self.share * run_steps


ANY_TIME: Final = Delay(float("inf"), 0.0)
"""The cause changes the weights, or what the program holds, for good."""
AT_ONCE: Final = Delay(50, 0.05)
"""The cause passes. 50 steps are five times what a momentum of 0.9 remembers; sampled signals and smoothed curves place
an onset within a twentieth of the run."""

UNCLEARED: Final = ("missing-zero-grad", "partial-zero-grad")
"""They are there a step before they are seen: at the first step there are no old gradients to add to."""
BLOWN_UP: Final = (*UNCLEARED, "learning-rate-too-high", "exploding-gradients", "loss-divergence")
SUMMED: Final = "Summed micro-batches multiply the step by their number."
OVERWRITTEN: Final = "Gradients computed from other inputs than the loss, and labels from other batches, mislead."
STILL_SCALED: Final = "Steps with gradients that still contain the loss scale are too large by that factor."
THROWN: Final = "Updates that leap throw the weights away from what they had learned."
LEAPT: Final = "A schedule that raises the learning rate far above its earlier values throws training back."
NO_NUMBERS: Final = (
    "AttributeError", "ConnectionError", "FileExistsError", "FileNotFoundError", "ImportError", "KeyError",
    "ModuleNotFoundError", "NameError", "NotImplementedError", "OSError", "PermissionError", "StopIteration",
    "TimeoutError", "TypeError", "UnboundLocalError", "cannot be multiplied", "expected scalar type", "same device",
    "size of tensor",
)  # fmt: skip
"""Exceptions and messages that speak of names, files, types and shapes: wrong numbers do not raise them."""
OPEN: Final = ("constant-output", "loss-plateau")
"""They see that nothing is learned, and not why. Where a mechanism was found beside them, it is told first: a training
on random numbers that leaks memory is looked at for the leak."""
ONLY_SLOWS: Final = (
    "allocator-stalls", "dataloader-bottleneck", "debug-mode-left-on", "epoch-boundary-stall", "exposed-communication",
    "fp32-on-tensor-cores", "graph-breaks", "host-bound", "optimizer-for-loop", "pageable-copies", "slow-steps",
    "straggler", "sync-stalls", "throughput-decay", "too-many-workers",
)  # fmt: skip
"""They cost time. What spoils the result, or ends the run, is told before them, however long they take."""
OTHERS_LEARNED: Final = "they count in its place"
"""Evidence of a constant output that says what keeps it constant: then it explains the plateau, and not the reverse."""
PADDING_SEEN: Final = "its mask leaves padding alone"
"""Evidence of a constant output that names a mask of attention as its reason: it explains the plateau as well."""
LEARNED_FROM: Final = "training learns from its answers"
"""Evidence of running statistics that were never set: they belong to a target network, whose answers are targets."""
SMALLER: Final = "they are too small"
"""Evidence of accumulated gradients that were divided too often: they have none of the effects of sums."""
NOT_MEMORY: Final[tuple[EndCause, ...]] = (
    "signal", "memory-unlikely", "xid", "segfault", "time-limit", "preempted", "node-failure",
)  # fmt: skip
"""What ended a process and was not memory."""
FOR_MEMORY: Final[tuple[EndCause, ...]] = ("memory-likely", "oom-kill", "memory-limit")
"""Ends that the system brought about because memory ran out, which a hang does not explain."""
SIZE_FOLLOWS: Final = ("clipping-freezes-updates", "clipping-always-active", "update-ratio")
"""Effects whose own repair is another learning rate or limit, which is wrong as soon as their cause is mended."""


@dataclass(frozen=True)
class Consequence:
    """`effect` can follow from each of `causes`, within `delay`, because of `why`.

    `unless`: an effect whose exception or message says one of these comes from something else; so does one that
    was `ended_by` one of these. `given`: a cause has this effect only where its evidence says this. `grave`: only a
    cause that is a warning or worse has this effect (one that is reported as information is harmless). `left_out`: the
    effect is another name for what the causes do, and is not reported beside one that is certain.
    """

    effect: str
    causes: tuple[str, ...]
    why: str
    delay: Delay = ANY_TIME
    unless: tuple[str, ...] = ()
    given: str = ""
    left_out: bool = False
    grave: bool = False
    ended_by: tuple[EndCause, ...] = ()


CONSEQUENCES: Final = (
    # gradients and updates
    Consequence("exploding-gradients", UNCLEARED, "Gradients that are not cleared add up from step to step."),
    Consequence("exploding-gradients", ("loss-divergence", "learning-rate-too-high", "update-spike"),
                "The further the weights are thrown, the steeper the loss is there."),
    Consequence("exploding-gradients", ("unscaled-accumulation",), SUMMED, grave=True),
    Consequence("exploding-gradients", ("learning-rate-schedule",), LEAPT, grave=True),
    Consequence("exploding-gradients", ("scaler-misuse",), STILL_SCALED),
    Consequence("gradient-spikes", ("no-shuffle",), "Each class in turn pulls the weights towards its own answer.",
                grave=True),
    Consequence("gradient-spikes", (*UNCLEARED, "exploding-gradients", "learning-rate-too-high"),
                "Weights that are thrown around hit steep regions of the loss again and again."),
    Consequence("gradient-spikes", ("learning-rate-schedule",), LEAPT, AT_ONCE, grave=True),
    Consequence("gradient-spikes", ("loss-spikes", "update-spike"),
                "Weights that got worse hit steep regions of the loss.", AT_ONCE, grave=True),
    Consequence("gradient-spikes", ("corrupted-copy",), OVERWRITTEN, grave=True),
    Consequence("gradient-spikes", ("fp16-overflow",), "Gradients close to the limit of float16 jump.", AT_ONCE),
    Consequence("vanishing-gradients", BLOWN_UP, "Weights that blew up leave saturated and dead units behind."),
    Consequence("vanishing-gradients", ("gradient-spikes",), "One large step can saturate or kill units.", AT_ONCE),
    Consequence("vanishing-gradients", ("dead-relu", "zero-gradients"), "Nothing flows back through dead units."),
    Consequence("vanishing-gradients", ("frozen-parameters",), "What is frozen or not reached has no gradient."),
    Consequence("vanishing-gradients",
                ("double-softmax", "double-sigmoid", "softmax-wrong-dim", "nll-of-probabilities", "loss-broadcast"),
                "A loss applied to the wrong thing is flat almost everywhere."),
    Consequence("vanishing-gradients", ("fp16-underflow",), "Gradients below the smallest float16 become zero."),
    Consequence("vanishing-gradients", ("learning-rate-schedule",), "A wrong rate saturates units."),
    Consequence("zero-gradients", ("labels-all-ignored", "zero-advantage"),
                "A loss without a target or an advantage has no gradient."),
    Consequence("zero-gradients", ("zero-grad-after-backward",), "They are cleared before the step uses them."),
    Consequence("zero-gradients", ("dead-relu",), "Nothing flows back through dead units."),
    Consequence("zero-gradients", (*UNCLEARED, "learning-rate-too-high"),
                "Weights that blew up leave units that are dead for every sample."),
    Consequence("zero-gradients", ("fp16-underflow",), "Gradients below the smallest float16 become zero."),
    Consequence("dead-relu", BLOWN_UP, "A step that is far too large pushes units below zero for every sample."),
    Consequence("dead-relu", ("unscaled-accumulation", "learning-rate-schedule"),
                "A step that is far too large pushes units below zero for every sample."),
    Consequence("dead-relu", ("gradient-spikes", "fp16-overflow"),
                "One step that is far too large pushes units below zero for every sample.", AT_ONCE),
    Consequence("dead-relu", ("vanishing-gradients",), "Where next to no signal is left, the biases decide alone."),
    Consequence("dead-relu", ("no-shuffle",),
                "Single-class batches push all weights the same way, step after step.", grave=True),
    Consequence("frozen-parameters", ("router-collapse",), "Experts that get no tokens have no gradient."),
    Consequence("frozen-parameters", ("zero-gradients",), "Parameters whose gradient is always zero never move."),
    Consequence("frozen-parameters", ("dead-relu",), "Nothing flows back through dead units."),
    Consequence("step-without-backward", ("zero-gradients",), "Nothing reached the parameters that the step updates."),
    Consequence("learning-rate-too-high", UNCLEARED,
                "Accumulating gradients eventually make any learning rate too high; the rate itself may be fine.",
                left_out=True),
    Consequence("learning-rate-too-high", ("unscaled-accumulation",), SUMMED, grave=True),
    Consequence("learning-rate-too-high", ("scaler-misuse",), STILL_SCALED),
    Consequence("learning-rate-too-high", ("update-spike",), THROWN),
    Consequence("learning-rate-too-high", ("no-shuffle",),
                "Each class in turn pulls the weights towards its own answer: a learning rate that suits mixed "
                "batches may be fine.", grave=True),
    Consequence("learning-rate-too-high", ("learning-rate-schedule",), "The schedule sets the rate that is too high."),
    Consequence("learning-rate-too-high", ("group-rate-overwritten",),
                "The group meant to have a small learning rate gets that of the others."),
    Consequence("learning-rate-too-high", ("nonfinite-input", "train-in-eval-mode"),
                "On broken data, or with stale statistics, a model blows up at otherwise fine learning rates."),
    Consequence("learning-rate-too-high", ("resume-discontinuity",),
                "Without the optimizer's state, the first steps are as large as those of a fresh training."),
    Consequence("update-ratio", (*BLOWN_UP, "learning-rate-schedule"), "The size of the updates follows from it."),
    Consequence("update-ratio", ("group-rate-overwritten",), "The rate of a group is not the one that was set."),
    Consequence("update-ratio",
                ("clipping-freezes-updates", "clip-before-unscale", "lost-updates", "scaler-misuse", "fp16-underflow"),
                "The gradients are cut or rounded away before they reach the weights."),
    Consequence("update-ratio",
                ("zero-gradients", "zero-grad-after-backward", "vanishing-gradients", "frozen-parameters",
                 "step-without-backward", "updates-not-applied"),
                "Without gradients, or without updates, the weights stay as they are."),
    # numbers that are no longer finite
    Consequence("nonfinite-gradients", ("labels-all-ignored", "nonfinite-input"),
                "NaN in, NaN out: it spreads to all that is computed from it.", AT_ONCE),
    Consequence("nonfinite-gradients", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("nonfinite-gradients", ("fp16-without-scaler",), "float16 overflows above 65,504."),
    Consequence("nonfinite-gradients", ("scaler-misuse",), STILL_SCALED),
    Consequence("loss-nonfinite",
                ("labels-all-ignored", "nonfinite-input", "nonfinite-gradients", "nonfinite-activations"),
                "NaN in, NaN out: it spreads to all that is computed from it.", AT_ONCE),
    Consequence("loss-nonfinite", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("loss-nonfinite", ("fp16-overflow", "fp16-without-scaler"), "float16 overflows above 65,504."),
    Consequence("loss-nonfinite", ("scaler-misuse",), STILL_SCALED),
    Consequence("nonfinite-activations", ("labels-all-ignored", "nonfinite-input"),
                "NaN in, NaN out: it spreads to all that is computed from it.", AT_ONCE),
    Consequence("nonfinite-activations", ("exploding-gradients", "learning-rate-too-high"),
                "Numbers that grow without bound overflow."),
    Consequence("nonfinite-activations", ("fp16-overflow", "fp16-without-scaler"), "float16 overflows above 65,504."),
    Consequence("fp16-overflow", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("fp16-overflow", ("scaler-misuse",), "A loss scale that is never updated keeps overflowing."),
    Consequence("fp16-underflow", ("fp16-without-scaler", "scaler-misuse"),
                "Without a loss scale small gradients fall below the smallest float16."),
    Consequence("fp16-underflow", ("fp16-overflow",), "Each overflow halves the loss scale until they underflow."),
    Consequence("lost-updates", ("fp16-without-scaler",), "float16 rounds small updates away."),
    # the loss
    Consequence("loss-divergence", (*UNCLEARED, "exploding-gradients", "learning-rate-too-high"),
                "Steps that overshoot raise the loss further each time."),
    Consequence("loss-divergence", ("unscaled-accumulation",), SUMMED, grave=True),
    Consequence("loss-divergence", ("learning-rate-schedule",), LEAPT, grave=True),
    Consequence("loss-divergence", ("corrupted-copy",), OVERWRITTEN, grave=True),
    Consequence("loss-divergence", ("scaler-misuse",), STILL_SCALED),
    Consequence("loss-divergence", ("update-ratio",), "What was learned is lost again."),
    Consequence("loss-divergence", ("fp16-overflow",), "Steps are skipped, or made with gradients that overflowed."),
    Consequence("loss-divergence", ("train-in-eval-mode",), "BatchNorm normalises with statistics that grow stale."),
    Consequence("loss-divergence", ("unset-running-state",),
                "A target network without its statistics answers on a scale of its own, and what learns from it "
                "follows it away.", given=LEARNED_FROM),
    Consequence("loss-divergence", ("no-shuffle",), "Each class in turn undoes what was learned of the others.",
                grave=True),
    Consequence("loss-divergence", ("resume-discontinuity", "group-rate-overwritten", "update-spike"),
                "Steps that are too large for these weights undo what was learned."),
    Consequence("loss-spikes", (*UNCLEARED, "exploding-gradients", "learning-rate-too-high"),
                "Steps that overshoot raise the loss."),
    Consequence("loss-spikes", ("learning-rate-schedule",), LEAPT, AT_ONCE, grave=True),
    Consequence("loss-spikes", ("update-spike",), THROWN, AT_ONCE),
    Consequence("loss-spikes", ("corrupted-copy",), OVERWRITTEN, grave=True),
    Consequence("loss-spikes", ("fp16-overflow",), "A step with gradients that overflowed raises the loss.", AT_ONCE),
    Consequence("loss-spikes", ("no-shuffle",), "The loss jumps where the next class begins.", grave=True),
    Consequence("loss-spikes", ("resume-discontinuity",), "The first steps after the restart undo what was learned.",
                AT_ONCE),
    Consequence("loss-plateau",
                ("zero-gradients", "zero-grad-after-backward", "vanishing-gradients", "frozen-parameters",
                 "updates-not-applied", "update-ratio", "clipping-freezes-updates", "clip-before-unscale",
                 "step-without-backward"),
                "Weights that do not move learn nothing."),
    Consequence("loss-plateau", ("scaler-misuse",),
                "Gradients that are too small or too large by the loss scale hardly move the weights, or throw them."),
    Consequence("loss-plateau", ("unset-running-state",),
                "Without normalisation, activations fade from layer to layer, and gradients with them."),
    Consequence("loss-plateau", ("new-tokens-untrained",), "Tokens whose rows stay random tell no targets apart."),
    Consequence("loss-plateau", ("linear-stack",), "Without a nonlinearity only a linear map can be learned."),
    Consequence("loss-plateau", ("learning-rate-schedule",), "At a learning rate near zero nothing is learned."),
    Consequence("loss-plateau", ("fp16-underflow", "fp16-without-scaler", "lost-updates"),
                "Updates that are rounded away have no effect."),
    Consequence("loss-plateau",
                (*UNCLEARED, "learning-rate-too-high", "dead-relu", "constant-output", "nonfinite-gradients"),
                "What the model says no longer depends on its input."),
    Consequence("loss-plateau",
                ("softmax-wrong-dim", "double-softmax", "double-sigmoid", "nll-of-probabilities", "loss-broadcast",
                 "batch-dimension-mismatch"),
                "The loss is flat, or lowest where every sample gets the same answer."),
    Consequence("loss-plateau", ("corrupted-copy",), OVERWRITTEN, grave=True),
    Consequence("loss-plateau", ("samples-mixed",), "Scrambled inputs say nothing about the targets."),
    Consequence("loss-plateau", ("reference-is-policy",), "A policy that is compared with itself has a constant loss."),
    Consequence("constant-output", ("dead-relu", "vanishing-gradients", "zero-gradients"),
                "Dead units output the same for every sample and do not learn."),
    Consequence("constant-output", BLOWN_UP,
                "Weights that blew up saturate the model: it gives the same output for every sample."),
    Consequence("constant-output", ("learning-rate-schedule",),
                "At a wrong learning rate little is learned, or it is lost again."),
    Consequence("constant-output", ("fp16-overflow", "loss-nonfinite", "nonfinite-gradients", "nonfinite-input"),
                "Non-finite numbers carry no information about the input."),
    Consequence("constant-output",
                ("softmax-wrong-dim", "double-sigmoid", "double-softmax", "nll-of-probabilities", "loss-broadcast",
                 "batch-dimension-mismatch"),
                "The loss is lowest, or flat, where every sample gets the same answer."),
    Consequence("constant-output", ("loss-plateau",),
                "If nothing is learned from the input, the mean of the targets is the best answer.",
                unless=(OTHERS_LEARNED, PADDING_SEEN)),
    Consequence("constant-output", ("class-imbalance",), "The commonest class is the cheapest answer."),
    Consequence("constant-output", ("padding-in-loss",), "Padding is the commonest target, and the cheapest answer."),
    Consequence("constant-output", ("no-shuffle",), "The class of the last batches is the cheapest answer.",
                grave=True),
    Consequence("constant-output", ("corrupted-copy",), OVERWRITTEN, grave=True),
    Consequence("constant-output", ("samples-mixed",), "Scrambled inputs say nothing about the targets."),
    Consequence("constant-output", ("unset-running-state",),
                "Without normalisation, activations fade from layer to layer, and with them what tells inputs apart.",
                grave=True),
    Consequence("constant-output", ("linear-stack",), "Where no linear map helps, the mean is the best answer."),
    Consequence("constant-output", ("teacher-trains",), "One answer to everything is how two models agree at once."),
    Consequence("constant-output", ("narrow-timesteps",),
                "If almost no noise is added, it cannot be told from the data: its mean is the best answer."),
    Consequence("constant-output", ("input-normalization", "batchnorm-small-batch"),
                "Differences between samples are lost in their scale."),
    Consequence("constant-output",
                ("frozen-parameters", "zero-grad-after-backward", "updates-not-applied", "lost-updates",
                 "step-without-backward", "update-ratio", "clip-before-unscale", "clipping-freezes-updates",
                 "fp16-underflow", "fp16-without-scaler", "scaler-misuse"),
                "A barely trained model predicts the mean."),
    # clipping
    Consequence("clipping-always-active", (*BLOWN_UP, "fp16-overflow", "loss-nonfinite"),
                "Norms that grew out of bounds are above every limit."),
    Consequence("clipping-always-active", ("clip-per-microbatch", "unscaled-accumulation"),
                "Summed micro-batches have larger gradient norms than the clip's limit was chosen for."),
    Consequence("clipping-always-active", ("clipping-freezes-updates",),
                "A limit far below every gradient norm is exceeded at every step."),
    Consequence("clipping-always-active", ("input-normalization",), "Large inputs make large gradients."),
    Consequence("clipping-freezes-updates", (*UNCLEARED, "unscaled-accumulation"),
                "Accumulated norms are cut to almost nothing by a limit chosen for single batches."),
    Consequence("clipping-freezes-updates", ("clip-before-unscale",), "The clip removes the loss scale."),
    Consequence("clip-before-unscale", ("scaler-misuse",), "Nothing unscales the gradients, before the clip or after.",
                grave=True),
    # evaluation and data
    Consequence("overfitting", ("eval-in-train-mode", "train-in-eval-mode", "batchnorm-in-validation", *UNCLEARED),
                "Something other than training for too long makes validation worse."),
    Consequence("overfitting", ("augmentation-repeats",), "Samples that never vary are memorised sooner."),
    Consequence("overfitting", ("no-shuffle",), "Each class in turn undoes what was learned of the others.",
                grave=True),
    Consequence("validation-fluctuation", ("eval-in-train-mode", "train-in-eval-mode", "batchnorm-in-validation"),
                "Dropout, or statistics of single batches, make validation noisy."),
    Consequence("validation-fluctuation", (*UNCLEARED, "learning-rate-too-high"),
                "Weights that are thrown around validate differently each time."),
    Consequence("validation-fluctuation", ("no-shuffle",), "The model knows the last class best.", grave=True),
    Consequence("validation-fluctuation", ("augmented-validation",), "Validation uses different samples each time."),
    Consequence("validation-fluctuation", ("batchnorm-small-batch",), "Statistics of small batches are noisy."),
    Consequence("validation-nonfinite",
                ("loss-nonfinite", "nonfinite-gradients", "nonfinite-activations", "nonfinite-input"),
                "NaN in, NaN out: it spreads to all that is computed from it."),
    Consequence("learning-rate-schedule", ("validation-nonfinite", "loss-nonfinite"),
                "A value that is not finite never improves, so the rate is cut.", grave=True),
    Consequence("validation-nonfinite", BLOWN_UP, "Numbers that grow without bound overflow."),
    Consequence("batchnorm-in-validation", ("eval-in-train-mode", "train-override-bypassed"),
                "BatchNorm in train mode absorbs the statistics of validation data."),
    Consequence("unset-running-state", ("train-in-eval-mode", "ema-not-updated", "weights-not-loaded"),
                "The statistics are never estimated, or never copied."),
    Consequence("unset-running-state", ("checkpoint-mismatch",),
                "Statistics that are not in the file stay unset in the model that loads it."),
    Consequence("augmentation-repeats", ("same-order-every-epoch", "duplicate-augmentation"),
                "The same seed draws the same augmentation."),
    Consequence("same-order-every-epoch", ("no-shuffle",), "What is never shuffled comes in its own order each time."),
    # weights that are kept, saved and loaded
    Consequence("checkpoint-mismatch",
                ("updates-not-applied", "zero-gradients", "zero-grad-after-backward", "ema-not-updated"),
                "What is saved cannot change if the weights do not."),
    Consequence("checkpoint-mismatch", ("teacher-trains",),
                "The optimizer also holds the teacher, which is not meant to be saved."),
    Consequence("resume-discontinuity", ("weights-not-loaded", "repeated-initialization", "checkpoint-mismatch"),
                "Training resumes from different weights than it had."),
    Consequence("no-checkpoint", ("resume-discontinuity",), "The file that lacks the optimizer's state is that one."),
    Consequence("reference-is-policy", ("snapshot-aliased",), "A copy that shares its memory is no reference."),
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
                AT_ONCE, NO_NUMBERS),
    Consequence("crash", (*UNCLEARED, "learning-rate-too-high"),
                "The program checks for a loss that went wrong, or cannot use its numbers.", unless=NO_NUMBERS),
    Consequence("crash", ("rank-hang",), "The time-out ends the ranks that wait."),
    Consequence("killed", ("memory-leak", "host-memory-leak"), "The system kills what uses too much memory.",
                ended_by=NOT_MEMORY),
    Consequence("killed", ("rank-hang",), "A job that hangs is killed from outside.", ended_by=FOR_MEMORY),
    Consequence("rank-hang", ("out-of-memory",), "The others wait for the rank that died.", AT_ONCE),
    Consequence("uneven-batches", ("rank-hang", "crash", "killed"), "A rank that is gone counts fewer batches."),
    Consequence("stops-short", ("learning-rate-schedule",), "The schedule ends the training before it has converged."),
)  # fmt: skip


def causes_of(effect: str) -> Iterator[tuple[str, Consequence]]:
    """Each cause of a diagnosis with its row, in the order of the table."""
    return ((cause, row) for row in CONSEQUENCES if row.effect == effect for cause in row.causes)


def effects_of(cause: str) -> Iterator[tuple[str, Consequence]]:
    """Each diagnosis that can follow from this one with its row, in the order of the table."""
    return ((row.effect, row) for row in CONSEQUENCES if cause in row.causes)


def with_declared(rules: Iterable[Declaration]) -> dict[str, dict[str, Consequence]]:
    """Row by cause for each of the rules: the table, and what rules from outside declare of themselves."""
    return {
        rule.id: dict(causes_of(rule.id))
        | {cause: Consequence(rule.id, (cause,), "The rule declares it.") for cause in rule.consequence_of}
        for rule in rules
    }

"""What validation, data, and weights that are kept, saved and loaded follow from."""

from __future__ import annotations

from typing import Final

from tracelyze.analyzers.consequences.declaration import Consequence
from tracelyze.analyzers.consequences.shared import BLOWN_UP, UNCLEARED

ROWS: Final = (
    # evaluation and data
    Consequence("overfitting", ("eval-in-train-mode", "train-in-eval-mode", "batchnorm-in-validation", *UNCLEARED),
                "Something other than training for too long makes validation worse."),
    Consequence("overfitting", ("input-normalization",), "Validation inputs of another range are nothing it knows.",
                given="two-ranges"),
    Consequence("loss-plateau", ("input-normalization",), "Validation inputs of another range are nothing it knows.",
                given="two-ranges", seen_by="in-validation"),
    Consequence("validation-fluctuation", ("input-normalization",),
                "Of inputs in a range that it never saw, a model's answers are arbitrary.", given="two-ranges"),
    Consequence("overfitting", ("unset-running-state",),
                "What is validated with such statistics says nothing about the weights."),
    Consequence("overfitting", ("augmentation-repeats",), "Samples that never vary are memorised sooner."),
    Consequence("overfitting", ("same-order-every-epoch",), "All passes see the same samples, and never the others.",
                given="left-early"),
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
    Consequence("validation-nonfinite", ("constant-output",),
                "A row without padding has nothing left to look at: a softmax over no position is NaN in eval mode.",
                given="padding-seen"),
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
)  # fmt: skip

"""What happens rarely in a training, a row each: the kinds of events, and their table."""

from __future__ import annotations

from typing import Final

from tracelyze.schema.declaration import Column, Table

EVENT_KINDS: Final = {
    "exception": "an uncaught exception ended the program",
    "thread-exception": "one ended a thread",
    "exit": "the program ended, or another one took its place",
    "collector-error": "a part of the recording failed and was switched off",
    "substitute": "a name that this torch lacks, and what stands for it",
    "cadence": "a signal is sampled less or more often from here on",
    "kept-graph": "gradients were asked for after a backward that kept its graph: it may be what that was kept for",
    "earlier-graph": "a backward that kept its graph ran through that of the step before, or one that was made once "
    "(text); name: the attribute of a module that leads there, value: 1 where it is one of several tensors",
    "nonfinite-gradient": "the first tensors whose gradient holds NaN or Inf",
    "nonfinite-loss": "a loss that holds NaN or Inf: which operation made it, or which weight was not finite before",
    "spoiled-weights": "operations of such a loss that can have made the gradients NaN which broke its weights before",
    "nonfinite-taken-in": "what a layer took in then was not finite before any gradient: its weight, and what it held",
    "nonfinite-target": "what a target of such a loss held that is not finite; value: 1 where nothing chooses among "
    "what was computed with it",
    "flat-loss": "operations without a derivative lie in every way from a loss to the parameters: which (name)",
    "empty-loss": "a loss of an evaluation is a mean over no elements, and so NaN",
    "loss-given-up": "the loop skipped a loss that was not finite",
    "policy-loss": "what a policy's loss does beside weighing log-probabilities, as JSON",
    "policy-choices": "how the odds were spread that a policy chose by, in the loss that weighs its choices, as JSON",
    "policy-deviation": "how widely a policy draws its continuous actions, beside rewards in variables, as JSON",
    "policy-rewards": "rewards in variables beside a policy's loss whose choices are not known, as JSON",
    "policy-rows": "which share of a policy's rows was trained on before, as JSON",
    "policy-acted": "how far the trained policy is from the one that acted, before the first update since, as JSON",
    "unstepped-optimizer": "no step of an optimizer whose tensors a backward reaches",
    "frozen-in-vain": "an attribute was set that was to freeze tensors and does not",
    "checkpointed-in-vain": "reentrant checkpointing was given no tensor that needs a gradient, with autograd on",
    "random-and-frozen": "matrices behind a loss are frozen as they were filled, beside others that were loaded: names",
    "kept-weights": "weights of a module that a load left as they were, as JSON",
    "kept-state": "weights that a module handed out were saved or loaded after steps that changed them, as JSON",
    "resumed": "who steps first after a model took in a file, with which rate and schedule, as JSON",
    "loaded-weights": "how much of what a load set was left when the weights were used first, as JSON",
    "undone-load": "the step after a load put back the weights that were there before it, as JSON",
    "pretrained-mode": "a model is trained in the eval mode that from_pretrained left it in, as JSON",
    "train-not-called": "its own train() that freezes parts was not called before training; value: 1 where eval() was "
    "called, 2 more where parameters are frozen, and statistics are not, and 4 more where it sets modes alone",
    "train-called": "it was called after all; value: 1 where only eval() called it, which froze parameters",
    "direct-forward": "forward() was called past the hooks (value: their number) of its module; they are named if the "
    "script defines all of them",
    "loader-wait": "a long wait for a DataLoader, and what its workers did, as JSON",
    "hooks": "hooks that the model's modules hold (value), where there are more than before, and the most frequent one",
    "loading": "the function that took most of the time of a batch of a loader (value), and how many us of it",
    "cache": "functools keeps results of a function without a bound: its arguments that hardly repeat, and the share "
    "of its calls that found a result (value)",
    "lone-row": "whose row a field holds that has one for all samples of a batch of a loader (value), as JSON",
    "exhausted-again": "an iterator that had ended was asked for more",
    "input-order": "what is known of the order of the inputs, as JSON",
    "epochs-planned": "how many rounds the loop over epochs is written for, in which the first step was made",
    "batches-planned": "how many rounds the only loop within it is written for, where no loader is in hand",
    "functional-gradients": "a loss is known from what was asked for its gradients, without a backward",
    "transformed": "a loss function was called within a transform of torch.func",
    "seeded": "a generator of random numbers was seeded",
    "drawn": "one was drawn from between steps, in how many",
    "log-ignored": "a value given to tracelyze.log that cannot be recorded",
    "stacks": "stacks of all threads while there was no progress",
}
"""What `kind` may be, and what a row of that kind says."""

EVENTS = Table(
    "events",
    "Things that happen rarely: exceptions, the exit, first non-finite gradients, errors of the collector.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before"),
        Column("kind", "string", "", "what happened", EVENT_KINDS),
        Column("name", "string", "", "class of the exception, how the process ended, parameter, or signal"),
        Column("value", "float64", "", "exit code, or a number that belongs to the kind"),
        Column("file", "string", "", "innermost line of the script, where there is one"),
        Column("line", "int32", "", ""),
        Column("source", "string", "", "that line"),
        Column("text", "string", "", "message or traceback"),
    ),
)

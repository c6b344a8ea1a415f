"""Tables of what a loss is made of and compared with, at which rates parts are followed, and what is compiled."""

from __future__ import annotations

from typing import Final

from tracelyze.schema.declaration import Column, Table

LOSS_GRAPHS: Final = Table(
    "loss_graphs",
    "Losses whose graph was looked at as their backward began: often at first, then now and then.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("site", "int32", "", "line of the script that called backward (table sites)"),
        Column("weights", "float64", "", "constants that log-probabilities of actions, or ratios, are multiplied by"),
        Column("weights_zero", "float64", "share", "of them, those that are exactly zero"),
        Column("weights_negative", "float64", "share", "of them, those below zero"),
        Column("softmaxes", "float64", "", "softmaxes behind the loss that were read (at the first looks)"),
        Column("masked_rows", "float64", "share", "rows of attention that a mask behind the softmax took weight from"),
        Column("masked_regularly", "float64", "", "1: the mask is one of the order or of whole positions; 0: another"),
    ),
)

REFERENCES: Final = Table(
    "references",
    "Pairs of models that were called on one input within a step, one of them without autograd, at some steps.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the one that was called with autograd (table models)"),
        Column("reference", "int16", "", "the one that was called without"),
        Column("same", "bool", "", "they are one module"),
        Column("shared", "float64", "share", "trainable tensors looked at that are in the storage of the other's"),
        Column("equal", "float64", "share", "of them, those whose values are those of the other's"),
        Column("adapters_off", "bool", "", "adapters were disabled in the call without autograd (peft)"),
    ),
)

GROUP_RATES: Final = Table(
    "group_rates",
    "Rates of parameter groups after some steps of an optimizer, where they differed when it was made.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("optimizer", "int16", "", "the optimizer (table optimizers)"),
        Column("steps", "int64", "", "its steps"),
        Column("made", "string", "", "rates that its groups were made with, as JSON"),
        Column("now", "string", "", "rates that they have now"),
        Column("scheduler", "string", "", "class of the scheduler that has stepped"),
        Column("site", "int32", "", "line of the script that makes it step (table sites)"),
    ),
)

NEW_ROWS: Final = Table(
    "new_rows",
    "Rows by which an embedding was made larger than it was before, after some steps: are they used, did they change?",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("parameter", "string", "", "name of the weight in the model"),
        Column("before", "int64", "", "rows that it had"),
        Column("rows", "int64", "", "rows that it has"),
        Column("trainable", "bool", "", "it requires a gradient"),
        Column("used", "float64", "", "new rows whose ids were met in inputs so far, without those that fill up rows"),
        Column("unchanged", "float64", "", "of them, those that are as they were at the first look, bit for bit"),
    ),
)

TIMESTEPS: Final = Table(
    "timesteps",
    "Timesteps that a denoising model was given, one for each sample, at some steps.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("argument", "string", "", "name of the argument of forward"),
        Column("source", "string", "", "where the range is known from: schedule, or embedding"),
        Column("range", "int64", "", "how many timesteps there are"),
        Column("values", "int64", "", "values that were looked at so far"),
        Column("distinct", "float64", "", "of them, different ones"),
        Column("low", "float64", "", "smallest value of this look"),
        Column("high", "float64", "", "its largest"),
        Column("lowest", "float64", "", "smallest value of all looks so far"),
        Column("highest", "float64", "", "their largest"),
    ),
)

COMPILATIONS: Final = Table(
    "compilations",
    "Functions that torch.compile has compiled, and lines at which it broke a graph, as torch._dynamo notes them.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done when it was read: a second later"),
        Column("kind", "string", "", "graph: a function was compiled; break: a line could not be (once per reason)"),
        Column("function", "string", "", "the function of the program; of what runs after a break, the whole one"),
        Column("resumed", "bool", "", "it is the part of that function that runs after a break"),
        Column("site", "int32", "", "the line: of the break, of the condition that failed, else where it begins"),
        Column("reason", "string", "", "of a break: what torch says; of a graph: the condition that failed before"),
        Column("operators", "int32", "", "in the graph"),
        Column("seconds", "float64", "s", "that compiling took"),
        Column("frame", "int32", "", "number that torch gives the function"),
        Column("again", "int32", "", "how often it had been compiled before"),
    ),
)

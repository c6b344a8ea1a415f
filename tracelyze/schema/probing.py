"""Tables of what is recorded only if it is asked for: a copy of the model called again (`collect --probe`)."""

from __future__ import annotations

from typing import Final

from tracelyze.schema.declaration import Column, Table

REPLAYS: Final = Table(
    "replays",
    "One forward and backward of the model, made twice by copies of it from the same state (collect --probe).",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the model (table models)"),
        Column("outputs", "float64", "share", "largest difference over the largest output; 0: all bits agree"),
        Column("gradients", "float64", "share", "the same of its gradients"),
        Column("module", "string", "", "the first module within it whose output differs; null: none does"),
        Column("kind", "string", "", "class of that module"),
        Column("site", "int32", "", "forward of the program's class that it is, or is a part of (table sites)"),
        Column("deterministic", "bool", "", "torch.use_deterministic_algorithms was on"),
        Column("device", "string", "", "kind of device: cpu, cuda"),
        Column("failed", "string", "", "why there is no answer; null: there is one"),
    ),
)

MIXINGS: Final = Table(
    "mixings",
    "One sample of a batch replaced by its neighbour, in a copy of the model in eval mode (collect --probe).",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the model (table models)"),
        Column("samples", "int32", "", "samples of the batch"),
        Column("along", "int8", "", "the dimension that they lie along, from 0"),
        Column("shape", "string", "", "sizes of the dimensions of what the model was given"),
        Column("loader", "bool", "", "a DataLoader handed out as many samples; false: taken to lie along the first"),
        Column("others", "int32", "", "other samples whose outputs changed"),
        Column("by_position", "int32", "", "the same where only one position or field of the sample was replaced"),
        Column("same_others", "bool", "", "with other content and random numbers the same samples change"),
        Column("repeats", "bool", "", "without any change the outputs stay what they were"),
        Column("squares", "bool", "", "an output has a value for each pair of samples"),
        Column("halves", "bool", "", "the model takes half of the batch as well"),
        Column("along_samples", "string", "", "recurrences and attention of torch that take samples for positions"),
        Column("along_others", "int32", "", "recurrences and attention of torch that do not"),
        Column(
            "position_table", "bool", "", "beside such attention a parameter [1, n, width], n not that of the samples"
        ),
        Column("module", "string", "", "the first module whose output mixes samples that its input does not mix"),
        Column("kind", "string", "", "class of that module"),
        Column("site", "int32", "", "forward of the program's class that it is, or is a part of (table sites)"),
        Column("failed", "string", "", "why there is no answer; null: there is one"),
    ),
)

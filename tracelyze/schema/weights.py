"""Tables of weights that are taken in by name, written into files and read from them."""

from __future__ import annotations

from tracelyze.schema.declaration import Column, Table

LOADS = Table(
    "loads",
    "One row per call of a module's load_state_dict that returned: the first 20 of a process, then now and then.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before"),
        Column("module", "int32", "", "identifier of the module"),
        Column("name", "string", "", "its class"),
        Column("site", "int32", "", "line of the script (table sites)"),
        Column("given", "int32", "tensors", "names in what was loaded"),
        Column("expected", "int32", "tensors", "names that the module has"),
        Column("missing", "int32", "tensors", "of those, names that were not given"),
        Column("unexpected", "int32", "tensors", "names given that the module does not have"),
        Column("given_prefix", "string", "", "with this beginning of the unexpected names"),
        Column("expected_prefix", "string", "", "replaced by this one"),
        Column("renamed", "int32", "tensors", "so many missing names would be found"),
        Column("own", "int32", "tensors", "given tensors that lie in the memory of the module's own"),
        Column("taken_at", "int64", "", "steps done when it handed out what it is given, or else when it last did"),
        Column("taken_site", "int32", "", "line of the script that asked for it; null if a library did (table sites)"),
        Column("from_other", "bool", "", "another module handed out what it is given; null if none is known to have"),
    ),
)

CHECKPOINTS = Table(
    "checkpoints",
    "Files of weights that torch.save wrote or torch.load read: the first 20 of each, then now and then.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before; of a load: when a model took it in"),
        Column("action", "string", "", "save, load, or state: a module handed out its weights by name"),
        Column("file", "string", "", "name of the file"),
        Column("keys", "string", "", "outermost keys of what it holds, if they are few"),
        Column("site", "int32", "", "line of the script (table sites)"),
        Column("tensors", "int32", "tensors", "tensors in it that have a name"),
        Column("optimizer", "bool", "", "it holds the state of an optimizer"),
        Column("scheduler", "bool", "", "it holds the state of a scheduler"),
        Column("scaler", "bool", "", "it holds the state of a GradScaler"),
        Column("progress", "bool", "", "it says how far the training is: an epoch, a step"),
        Column("held", "int32", "tensors", "save: trained tensors that have moved since training began"),
        Column("missing", "int32", "tensors", "save: of those, tensors that are not in the file"),
        Column("names", "string", "", "save: names of the first of these"),
        Column("compared", "int32", "tensors", "save: of those, tensors whose values were compared"),
        Column("untouched", "int32", "tensors", "save: of those, tensors that the file holds as training began"),
        Column(
            "statistics", "int32", "tensors", "save: running statistics that changed, of models whose weights it holds"
        ),
        Column("statistics_missing", "int32", "tensors", "save: of those, of models of which it holds none"),
        Column("beside_adapters", "int32", "tensors", "save: of the missing, those of a model with adapters of PEFT"),
        Column("model_restored", "bool", "", "load: a model took in its weights"),
        Column("optimizer_restored", "bool", "", "load: after it, an optimizer took in a state before the next step"),
        Column("scheduler_restored", "bool", "", "load: the same of a scheduler"),
        Column("scaler_restored", "bool", "", "load: the same of a GradScaler"),
    ),
)

INITIALIZATIONS = Table(
    "initializations",
    "Weights of an optimizer that functions of torch.nn.init filled with random numbers before its own first step.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done then"),
        Column("optimizer", "int16", "", "the optimizer (table optimizers)"),
        Column("weights", "int64", "tensors", "weights of two dimensions or more that were filled"),
        Column(
            "repeated", "int64", "tensors", "of them, those that were filled three times or more, not all by a library"
        ),
        Column("most", "int64", "", "how often that was which was filled most often"),
        Column("parameter", "string", "", "name in the model of one that was filled three times or more"),
        Column("site", "int32", "", "line of the script that filled one of these last (table sites)"),
        Column("loaded", "int64", "tensors", "weights that were filled and then loaded, or made by from_pretrained"),
        Column("overwritten", "int64", "tensors", "of these, those that were filled once more after that"),
        Column("overwritten_site", "int32", "", "line of the script that did so last"),
        Column(
            "beside",
            "int64",
            "tensors",
            "weights that were not loaded, and that the same functions of the script filled once more as well",
        ),
    ),
)

"""Tables of what a training did: its steps, evaluation passes, models, optimizers, loaders, lines, events."""

from __future__ import annotations

from typing import Final

from tracelyze.schema.declaration import Column, Table

AUTOCAST: Final = {0: "off", 1: "float16", 2: "bfloat16", 3: "other"}
SCALER_USE: Final = {0: "nothing", 1: "unscaled them only", 2: "made the step"}
GRAD_MODE: Final = {0: "no_grad", 1: "inference_mode", 2: "grad enabled", 3: "grad enabled, no graph came of it"}
NORM_SOURCE: Final = {
    1: "gradients as the optimizer step found them",
    2: "return value of the clip: before clipping",
    3: "the parts of them that this rank holds (FSDP2)",
    4: "gradients before they were clipped by value, or by another norm",
}

STEPS = Table(
    "steps",
    "One row per optimizer step, steps that GradScaler skipped included.",
    (
        Column("optimizer", "int16", "", "index of the optimizer in its process, in the order of their first steps"),
        Column("step", "int64", "", "number of this step of this optimizer, from 1"),
        Column("time", "float64", "s", "end of the step, on the process's monotonic clock (zero: process.json)"),
        Column("seconds", "float64", "s", "wall time since this optimizer's previous step ended"),
        Column("backward_seconds", "float64", "s", "host's time inside backward since then (steps of the full path)"),
        Column(
            "loss",
            "float64",
            "",
            "the script's own loss, unscaled: micro-batches averaged, terms added up, of a closure the first",
        ),
        Column("backwards", "int32", "", "backward passes since the gradients were last consumed"),
        Column("microbatches", "int32", "batches", "different inputs of the model that these backwards went back to"),
        Column("model_calls", "int32", "calls", "calls of models with autograd since the step before, used or not"),
        Column("loss_divisor", "float64", "", "constant by which each backward's loss was divided (sampled)"),
        Column(
            "loss_is_mean",
            "bool",
            "",
            "each is a mean over its batch, or a sum of such, constants aside (sampled)",
        ),
        Column("batch_size", "int32", "samples", "samples in the step's batches; without a loader, in its inputs"),
        Column("grad_norm", "float64", "", "global L2 norm of the gradients before clipping (sampled)"),
        Column("grad_norm_source", "int8", "", "where grad_norm was read", NORM_SOURCE),
        Column("clip_max_norm", "float64", "", "max_norm of the last gradient clipping of the step"),
        Column("clips", "int32", "", "gradient clippings since the previous step; null before the first"),
        Column("clipped_scaled", "bool", "", "the clip saw gradients still multiplied by the loss scale"),
        Column("parameters", "int32", "tensors", "trainable tensors that the optimizer holds (if looked at)"),
        Column("grads_none", "int32", "tensors", "trainable tensors whose gradient is None at the step"),
        Column("grads_zero", "int32", "tensors", "tensors whose gradient is exactly zero (with grad_norm)"),
        Column("grads_nonfinite", "int32", "tensors", "tensors whose gradient holds NaN or Inf (with grad_norm)"),
        Column("grads_carried", "int32", "tensors", "gradients that still held what an earlier step had consumed"),
        Column("grads_cleared", "int32", "tensors", "gradients that a backward had filled, cleared before the step"),
        Column("grads_discarded", "int32", "tensors", "gradients cleared between two backwards of the step"),
        Column("grads_mixed", "int32", "tensors", "at its step before: gradients added to those of another's step"),
        Column("grads_changes", "int32", "", "in-place changes of a gradient between backward and step; -1: replaced"),
        Column("lr", "float64", "", "learning rate of the first parameter group"),
        Column("scale", "float64", "", "GradScaler's loss scale in force at the step"),
        Column("losses_scaled", "int32", "losses", "losses that GradScaler scaled for the step, where one is used"),
        Column("scaler_use", "int8", "", "what GradScaler did with the gradients of the step", SCALER_USE),
        Column("scaler_new", "bool", "", "the step's GradScaler made none of the steps before"),
        Column("backwards_unscaled", "int32", "", "backwards of the step on a loss that no GradScaler had scaled"),
        Column("graph_retained", "bool", "", "the step's last backward kept its graph (retain_graph=True)"),
        Column("anomaly_mode", "bool", "", "autograd's anomaly detection was on at that backward"),
        Column("profiled", "bool", "", "a profiler was on at that backward"),
        Column("skipped", "bool", "", "GradScaler skipped the step because gradients overflowed"),
        Column("autocast", "int8", "", "autocast dtype at the training forward", AUTOCAST),
        Column("model_in_train", "bool", "", "the model was in train mode at the training forward"),
        Column("modules_sensitive", "int32", "modules", "mode-sensitive modules in it (Dropout, BatchNorm, ...)"),
        Column("modules_in_train", "int32", "modules", "how many of those were in train mode"),
        Column("loader", "int16", "", "DataLoader that fed the step (table loaders)"),
        Column("loader_wait", "float64", "s", "time waited for the loader: batches, start and stop of its workers"),
        Column("device_wait", "float64", "s", "time the device stood still while the host waited (CUDA events)"),
        Column("loader_batches", "int32", "batches", "batches fetched for the step"),
        Column("loader_first", "bool", "", "the wait contains an iterator's first batch (workers start)"),
        Column("host_rss", "int64", "bytes", "resident memory of the process at the end of the step"),
        Column("device_allocated", "int64", "bytes", "device memory in tensors at the end of the step"),
        Column("device_reserved", "int64", "bytes", "device memory held by the caching allocator"),
        Column("device_peak", "int64", "bytes", "peak device memory in tensors since the process began"),
        Column("device_retries", "int64", "", "refusals of the driver so far, upon which cached blocks were freed"),
        Column("device_seconds", "float64", "s", "device time between the ends of consecutive steps (CUDA events)"),
        Column("live_graphs", "int32", "graphs", "autograd graphs of earlier forwards that are still kept alive"),
        Column("overhead", "float64", "s", "time spent in the collector's own hooks since the previous step"),
    ),
)

EVALS = Table(
    "evals",
    "One row per evaluation pass: consecutive forwards whose outputs no backward consumed.",
    (
        Column("time_start", "float64", "s", "start of the first forward"),
        Column("time_end", "float64", "s", "end of the last forward"),
        Column("after_step", "int64", "", "optimizer steps (all optimizers) that were done before the pass"),
        Column("model", "int16", "", "the module that was called (table models)"),
        Column("trained", "bool", "", "an optimizer holds parameters of that module"),
        Column("optimizer", "int16", "", "that optimizer, the one that took the module up last (table optimizers)"),
        Column("forwards", "int32", "", "forward passes"),
        Column("samples", "int64", "samples", "first dimensions of the inputs, summed"),
        Column("grad_mode", "int8", "", "autograd mode of the forwards", GRAD_MODE),
        Column("model_in_train", "bool", "", "the module itself was in train mode"),
        Column("modules_sensitive", "int32", "modules", "mode-sensitive modules in it"),
        Column("modules_in_train", "int32", "modules", "how many of those were in train mode (largest over the pass)"),
        Column("modules", "string", "", "which kinds were in train mode"),
        Column("dropouts", "int32", "calls", "dropout functions that really dropped values during the pass"),
        Column(
            "repeats", "int32", "forwards", "which dropped values and got the tensor of the forward before it again"
        ),
        Column(
            "statistics", "int32", "calls", "batch normalisations of the pass that changed their running statistics"
        ),
        Column(
            "same_input", "int32", "forwards", "without a loader that got the very object of a pass after another step"
        ),
        Column("losses", "int32", "calls", "loss values computed during the pass"),
        Column("loss", "float64", "", "mean of those loss values"),
        Column("loss_is_whole", "bool", "", "in training one such value is the whole loss; false: a term of it"),
        Column("loader", "int16", "", "DataLoader whose batches were evaluated (table loaders)"),
        Column("site", "int32", "", "line of the script that called the model (table sites)"),
        Column("compared", "int32", "", "line that compares the model's answer, read off the script (table sites)"),
        Column("reads", "int32", "", "real numbers that the script read back in the pass, where that was watched"),
        Column("read_sum", "float64", "", "their sum: no number where one of them is none"),
        Column("read_site", "int32", "", "line that read the first of them that is no number, or else the first"),
        Column("purpose", "string", "", "validation, sanity check, test, predict, training: by the framework or a log"),
        Column("set", "string", "", "name of what was evaluated, where a log names several sets"),
    ),
)

UNSET = Table(
    "unset",
    "Calls of a model in eval mode whose running statistics or spectral norms were looked at: the first ones.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the module that was called (table models)"),
        Column("modules", "int32", "modules", "normalisations in eval mode that never saw a batch nor were loaded"),
        Column("of", "int32", "modules", "normalisations in eval mode"),
        Column(
            "spectral", "int32", "modules", "in eval mode with a spectral norm that no forward in train mode estimated"
        ),
        Column("call", "int32", "", "number of the sampled call of this model, from 1"),
        Column("training", "bool", "", "autograd was recording"),
    ),
)

COPIES = Table(
    "copies",
    "Models that no optimizer holds, of the shapes of a trained one, where they were called: some of their weights.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the copy (table models)"),
        Column("of", "int16", "", "the model that is trained (table models)"),
        Column("changed", "float64", "share", "its tensors looked at that differ from the sample before"),
        Column("moved", "float64", "", "distance of its weights from those of the first sample"),
        Column("of_moved", "float64", "", "the same of the trained model"),
        Column("apart", "float64", "", "distance of both from each other"),
    ),
)

PUT_IN = Table(
    "put_in",
    "Evaluations of a trained model, and its first call to train after them: some of its weights at both.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("model", "int16", "", "the model (table models)"),
        Column("changed", "float64", "share", "its tensors looked at that differ from those evaluated before"),
        Column("moved", "float64", "", "distance of the evaluated weights from those of the first sample"),
        Column("of_moved", "float64", "", "the same of those that train on"),
        Column("apart", "float64", "", "distance of both: 0 where the model is evaluated with its own weights"),
    ),
)

MODELS = Table(
    "models",
    "One row per outermost module that was called.",
    (
        Column("model", "int16", "", "identifier, referred to by evals"),
        Column("name", "string", "", "class of the module"),
        Column("parallel", "string", "", "class of torch.nn.parallel that it is, or is made of"),
        Column("called_as", "string", "", "variable or attribute by which the script calls it first, where it has one"),
        Column("parameters", "int32", "tensors", "parameter tensors"),
        Column("elements", "int64", "", "parameter elements"),
        Column("sensitive", "string", "", "kinds of mode-sensitive modules, with their number"),
        Column("momentum", "float64", "", "weight of the last batch in what its BatchNorms store, the largest of them"),
        Column("begin_symbol", "int64", "", "id that begins a text, as the model's configuration says (transformers)"),
        Column("end_symbol", "int64", "", "id that ends a text, by the same"),
    ),
)

MODULES = Table(
    "modules",
    "Modules of the models that were called: a row for each that was made in another line than the one that holds it.",
    (
        Column("model", "int16", "", "the module that was called (table models)"),
        Column("module", "string", "", "name of the module in it; empty for itself"),
        Column("kind", "string", "", "class of the module"),
        Column("made_at", "int32", "", "line of the script that makes it (table sites, role module)"),
    ),
)

OPTIMIZERS = Table(
    "optimizers",
    "One row per optimizer that stepped.",
    (
        Column("optimizer", "int16", "", "identifier, referred to by steps"),
        Column("name", "string", "", "class of the optimizer"),
        Column("groups", "int32", "", "parameter groups"),
        Column("parameters", "int32", "tensors", "parameter tensors"),
        Column("elements", "int64", "", "parameter elements"),
        Column("device", "string", "", "device of the parameters"),
        Column("dtype", "string", "", "dtypes of the parameters"),
        Column("site", "int32", "", "line of the script that makes it step (table sites)"),
        Column("backward_site", "int32", "", "line of the backward before its first step (table sites)"),
        Column("made_at", "int32", "", "line of the script that makes it; null where a call that trains does so"),
        Column("step_defined_at", "int32", "", "line that defines the step of the script's own kind of optimizer"),
        Column("shares", "int32", "tensors", "of them, tensors that another optimizer holds, which still stepped then"),
        Column("shares_with", "int16", "", "that optimizer"),
        Column("shared_names", "string", "", "names of the first of these tensors in the model that was called"),
        Column("options", "string", "", "learning rate, momentum, weight decay, ... of the first group, as JSON"),
        Column("other_options", "string", "", "of each further group, what differs from the first, as a list in JSON"),
        Column("empty_groups", "string", "", "groups without a tensor, counted from 0, as a list in JSON; else null"),
    ),
)

LINKS = Table(
    "links",
    "Pairs of optimizers that belong to one training (they share a model, or one backward ran through models of both), "
    "and pairs of an optimizer and a model whose parameters it holds.",
    (
        Column("time", "float64", "s", "when that was seen, on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before"),
        Column("optimizer", "int16", "", "one of the two (table optimizers)"),
        Column("other", "int16", "", "the other"),
        Column("model", "int16", "", "instead: a model whose parameters the optimizer holds (table models)"),
    ),
)

LOADERS = Table(
    "loaders",
    "One row per torch DataLoader that was iterated.",
    (
        Column("loader", "int16", "", "identifier, referred to by steps and evals"),
        Column("dataset", "string", "", "class of the dataset, or of the one that a Subset of it selects from"),
        Column("iterable", "bool", "", "the dataset is an IterableDataset"),
        Column("length", "int64", "batches", "batches per epoch, where known"),
        Column("batch_size", "int32", "samples", ""),
        Column("num_workers", "int32", "processes", ""),
        Column("pin_memory", "bool", "", ""),
        Column("persistent_workers", "bool", "", ""),
        Column("prefetch_factor", "int32", "batches", "batches each worker fetches ahead"),
        Column("drop_last", "bool", "", ""),
        Column("sampler", "string", "", "class of the sampler"),
        Column("shuffled", "bool", "", "it draws a new order for each pass; null where that is not known"),
        Column("takes_epoch", "string", "", "attribute of the loader that has a set_epoch, and is to shuffle"),
        Column("site", "int32", "", "line of the script that iterates the loader (table sites)"),
        Column("made_at", "int32", "", "line of the script that makes the loader (table sites, role dataloader)"),
        Column("called_at", "int32", "", "line of the script that calls the function of its own with that line"),
        Column("read_by", "int32", "", "line that defines its dataset's __getitem__ or __iter__; null if a library's"),
        Column("collated_by", "int32", "", "line of its collate_fn that takes the first sample, or defines it"),
        Column(
            "sample_at", "int32", "", "line that makes a sample the numbers that the model is given, as far as known"
        ),
        Column(
            "ignores_index", "bool", "", "its dataset's __getitem__ never reads the index; null where that is not known"
        ),
        Column("own_generator", "int32", "", "line in which __getitem__ seeds a generator for each sample alike"),
        Column("stored", "string", "", "shapes of the samples that such a dataset stores"),
        Column("stored_prints", "string", "", "fingerprints of some of these samples"),
        Column("early_rank", "string", "", "class of its sampler or data set, if that asked for the rank too early"),
        Column("open_file", "string", "", "attribute of its dataset that holds a file open as it is iterated first"),
        Column("open_kind", "string", "", "class of that file"),
        Column("opened_at", "int32", "", "line of the dataset's __init__ that fills this attribute"),
    ),
)

REACH = Table(
    "reach",
    "Trainable tensors and gradients, a few times in a run and at its end. Rows of an optimizer: what it holds and "
    "never had a gradient. Rows without one: what backward reached, is in no optimizer, and did not change since.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("optimizer", "int16", "", "the optimizer (table optimizers), null: tensors that none holds"),
        Column("steps", "int64", "", "its steps; backwards since an optimizer stepped first in rows without"),
        Column("held", "int32", "tensors", "trainable tensors that it holds; that any holds in rows without optimizer"),
        Column("held_elements", "int64", "", "their elements"),
        Column("missed", "int32", "tensors", "tensors that never had a gradient, or that no optimizer holds"),
        Column("missed_elements", "int64", "", "their elements"),
        Column("names", "string", "", "names of the first of them in the model that was called"),
        Column("shared_model", "int32", "tensors", "how many belong to a model that is trained otherwise, or to none"),
        Column("fed_by_trained", "int32", "tensors", "how many belong to a model whose input depends on trained ones"),
        Column("short_lived", "int32", "tensors", "tensors that are made anew for every backward"),
    ),
)

SCHEDULES = Table(
    "schedules",
    "Learning-rate schedulers, a few times in a run and at its end; the last row of each says most.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("scheduler", "int16", "", "identifier"),
        Column("name", "string", "", "class of the scheduler"),
        Column("optimizer", "int16", "", "optimizer whose rate it sets (table optimizers), null: it never stepped"),
        Column("shares_parameters", "bool", "", "that optimizer never stepped, another one holds the same tensors"),
        Column("inner", "bool", "", "another scheduler makes it step"),
        Column("steps", "int64", "", "its steps since training began"),
        Column("optimizer_steps", "int64", "", "steps of its optimizer"),
        Column("horizon", "int64", "", "steps of the scheduler that its settings make it last"),
        Column("base_lr", "float64", "", "rate that it starts from or climbs to, first parameter group"),
        Column("first_lr", "float64", "", "rate that it set when it was made, first parameter group"),
        Column("lowest_lr", "float64", "", "lowest rate that its steps set"),
        Column("highest_lr", "float64", "", "highest rate that its steps set"),
        Column("early", "int32", "", "its steps before the first one of its optimizer; that of its constructor aside"),
        Column("mode", "string", "", "of a ReduceLROnPlateau: min or max"),
        Column("watched_first", "float64", "", "the value that it watches, at its first step"),
        Column("watched_last", "float64", "", "that value at its latest step"),
        Column("watched_nonfinite", "int64", "", "its steps at which that value was NaN or infinite"),
        Column("site", "int32", "", "line of the script that makes it step (table sites)"),
        Column("made_at", "int32", "", "line of the script that makes it; null where a call that trains does so"),
    ),
)

SCALARS = Table(
    "scalars",
    "One row per value that the script logged with `tracelyze.log`, a framework in tracelyze's callback, or a logger.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before"),
        Column("own_step", "int64", "", "number of the step that the script or the framework gave"),
        Column("phase", "string", "", "train, eval or test; reported: a training loss that went to another logger"),
        Column("name", "string", "", "name of the value: loss, or what it was called; batch where only that was given"),
        Column("value", "float64", "", "the value; it may be NaN"),
        Column("batch", "string", "", "the batch, as the script identifies it"),
        Column("logger", "string", "", "the logger of another library that it was handed to"),
    ),
)

COLLECTIVES = Table(
    "collectives",
    "One row per collective that a rank had enqueued, from a dump of torch's Flight Recorder; before them one row per "
    "process group of the rank, without an operation.",
    (
        Column("time", "float64", "s", "when the dump was taken by the collector, on the process's clock"),
        Column("group", "string", "", "name of the process group"),
        Column("description", "string", "", "what the program calls it"),
        Column("members", "string", "", "rows of groups: its ranks, by their numbers in the job"),
        Column("enqueued", "int64", "", "rows of groups: number of the last collective that was enqueued"),
        Column("completed", "int64", "", "rows of groups: number of the last one that was seen to be complete"),
        Column("unseen", "int64", "", "rows of groups: sends and receives that the backend counts and does not record"),
        Column("sequence", "int64", "", "number of the collective in its group, the same on all its ranks"),
        Column("p2p", "bool", "", "a send or receive, which has numbers of its own"),
        Column("operation", "string", "", "all_reduce, all_to_all, send 0->1, ..."),
        Column("sizes", "string", "", "sizes of inputs and outputs"),
        Column("dtype", "string", "", "dtypes of the inputs"),
        Column("state", "string", "", "scheduled, started or completed"),
        Column("created", "float64", "s", "when it was enqueued, since 1970"),
        Column("thread", "string", "", "thread that enqueued it"),
        Column("stack", "string", "", "file, line and function that enqueued it, innermost first"),
    ),
)

WINDOWS = Table(
    "windows",
    "One row per window of torch.profiler; its trace is a file in the same folder.",
    (
        Column("first_step", "int64", "", "first step inside the window"),
        Column("last_step", "int64", "", "last step inside the window"),
        Column("file", "string", "", "Kineto trace, gzipped JSON"),
        Column("seconds", "float64", "s", "time that ending the window and writing it took"),
        Column("step_seconds", "float64", "s", "mean duration of a profiled step"),
    ),
)

SIGNALS = Table(
    "signals",
    "What became of every signal and what it has cost so far: a row each, every so often. The last one of each counts. "
    "Two are no signals: hooks is all time in the collector's hooks, the signals' included; writer its writing thread.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps done so far"),
        Column("signal", "string", "", "name of the signal"),
        Column("state", "string", "", "on, off (not wanted, or nothing to record), failed (an error of the collector)"),
        Column("reason", "string", "", "why it is off, or the error"),
        Column("traceback", "string", "", "of the error"),
        Column("seconds", "float64", "s", "time spent in it so far, estimated from a sample where it is always on"),
        Column("share", "float64", "share", "the same, of the time between the first and the last step"),
        Column("every", "int32", "steps", "steps from one sample of the signal to the next"),
        Column("looks", "int64", "", "samples it has taken"),
        Column("turned_down_at", "int64", "", "step since which the budget lets it sample less often than usual"),
        Column("why", "string", "", "the numbers behind that"),
    ),
)

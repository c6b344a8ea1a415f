"""The run directory: the contract between collectors and analyzers, declared as data.

    RUN/
      run.json                                  how the run was launched (written by `collect` or an importer)
      rank00000-attempt0-pid4711/               one folder per process that trained
        process.json                            who it was: rank, versions, devices, command, clock
        steps.arrows                            rows while the program runs (Arrow IPC stream, survives a kill)
        steps.parquet                           the same rows after a clean end, or after the first reader came by
        evals.parquet, events.parquet, ...      one file per table below; long runs add steps-00001.parquet, ...
        signals.txt                             Python stacks written when a fatal signal arrived
        stopped.txt                             why recording stopped early, blank if it did not
      trace-00000/                              instead of processes: a profiler's trace, by `import kineto`
        trace.json                              which file it was, its rank, its clock, what was wrong with it
        device.parquet, host.parquet, ...       one file per trace table below

A missing value (null) means "was not measured"; a NaN is a NaN of the training. The two are never mixed.
This module is plain standard library: it is imported inside the training process.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SCHEMA_VERSION: Final = 1
RUN_FILE: Final = "run.json"
PROCESS_FILE: Final = "process.json"
STREAM_SUFFIX: Final = ".arrows"
TABLE_SUFFIX: Final = ".parquet"
SIGNAL_FILE: Final = "signals.txt"
STOPPED_FILE: Final = "stopped.txt"

ColumnType = Literal["bool", "int8", "int16", "int32", "int64", "float64", "string"]


@dataclass(frozen=True)
class Column:
    """One column: its name, Arrow type, unit and meaning. `codes` names the values of an enumeration."""

    name: str
    type: ColumnType
    unit: str
    meaning: str
    codes: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """One table of the run directory."""

    name: str
    meaning: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column:
        """The column called `name`; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(f"{self.name} has no column {name!r}")


AUTOCAST: Final = {0: "off", 1: "float16", 2: "bfloat16", 3: "other"}
SCALER_USE: Final = {0: "nothing", 1: "unscaled them only", 2: "made the step"}
GRAD_MODE: Final = {0: "no_grad", 1: "inference_mode", 2: "grad enabled"}
NONFINITE: Final = {0: "finite", 1: "NaN, or Inf of both signs", 2: "Inf", 3: "minus Inf only"}
NORM_SOURCE: Final = {
    1: "gradients as the optimizer step found them",
    2: "return value of the clip: before clipping",
    3: "the parts of them that this rank holds (FSDP2)",
}

STEPS = Table(
    "steps",
    "One row per optimizer step, steps that GradScaler skipped included.",
    (
        Column("optimizer", "int16", "", "index of the optimizer in its process, in the order of their first steps"),
        Column("step", "int64", "", "number of this step of this optimizer, from 1"),
        Column("time", "float64", "s", "end of the step, on the process's monotonic clock (zero: process.json)"),
        Column("seconds", "float64", "s", "wall time since this optimizer's previous step ended"),
        Column("loss", "float64", "", "the script's own loss: unscaled, mean over the backwards of the step"),
        Column("backwards", "int32", "", "backward passes since the gradients were last consumed"),
        Column("loss_divisor", "float64", "", "constant by which each backward's loss was divided (sampled)"),
        Column("batch_size", "int32", "samples", "first dimension of the model's input, summed over the backwards"),
        Column("grad_norm", "float64", "", "global L2 norm of the gradients before clipping (sampled)"),
        Column("grad_norm_source", "int8", "", "where grad_norm was read", NORM_SOURCE),
        Column("clip_max_norm", "float64", "", "max_norm of the last gradient clipping of the step"),
        Column("clips", "int32", "", "gradient clippings since the previous step"),
        Column("clipped_scaled", "bool", "", "the clip saw gradients still multiplied by the loss scale"),
        Column("parameters", "int32", "tensors", "trainable tensors that the optimizer holds"),
        Column("grads_none", "int32", "tensors", "trainable tensors whose gradient is None at the step"),
        Column("grads_zero", "int32", "tensors", "tensors whose gradient is exactly zero (with grad_norm)"),
        Column("grads_nonfinite", "int32", "tensors", "tensors whose gradient holds NaN or Inf (with grad_norm)"),
        Column("grads_carried", "int32", "tensors", "gradients that still held what an earlier step had consumed"),
        Column("grads_cleared", "int32", "tensors", "gradients that a backward had filled, cleared before the step"),
        Column("grads_discarded", "int32", "tensors", "gradients cleared between two backwards of the step"),
        Column("lr", "float64", "", "learning rate of the first parameter group"),
        Column("scale", "float64", "", "GradScaler's loss scale in force at the step"),
        Column("losses_scaled", "int32", "losses", "losses that GradScaler scaled for the step, where one is used"),
        Column("scaler_use", "int8", "", "what GradScaler did with the gradients of the step", SCALER_USE),
        Column("graph_retained", "bool", "", "the step's last backward kept its graph (retain_graph=True)"),
        Column("anomaly_mode", "bool", "", "autograd's anomaly detection was on at that backward"),
        Column("profiled", "bool", "", "a profiler was on at that backward"),
        Column("skipped", "bool", "", "GradScaler skipped the step because gradients overflowed"),
        Column("autocast", "int8", "", "autocast dtype at the training forward", AUTOCAST),
        Column("model_in_train", "bool", "", "the model was in train mode at the training forward"),
        Column("modules_sensitive", "int32", "modules", "mode-sensitive modules in it (Dropout, BatchNorm, ...)"),
        Column("modules_in_train", "int32", "modules", "how many of those were in train mode"),
        Column("loader", "int16", "", "DataLoader that fed the step (table loaders)"),
        Column("loader_wait", "float64", "s", "time waited for the loader: for batches, for its workers to start and stop"),
        Column("device_wait", "float64", "s", "time the device stood still while the host waited (CUDA events)"),
        Column("loader_batches", "int32", "batches", "batches fetched for the step"),
        Column("loader_first", "bool", "", "the wait contains an iterator's first batch (workers start)"),
        Column("host_rss", "int64", "bytes", "resident memory of the process at the end of the step"),
        Column("device_allocated", "int64", "bytes", "device memory in tensors at the end of the step"),
        Column("device_reserved", "int64", "bytes", "device memory held by the caching allocator"),
        Column("device_peak", "int64", "bytes", "peak device memory in tensors since the process began"),
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
        Column("losses", "int32", "calls", "loss values computed during the pass"),
        Column("loss", "float64", "", "mean of those loss values"),
        Column("loader", "int16", "", "DataLoader whose batches were evaluated (table loaders)"),
        Column("site", "int32", "", "line of the script that called the model (table sites)"),
        Column("purpose", "string", "", "what a callback called it: validation, sanity check, test, predict"),
    ),
)

MODELS = Table(
    "models",
    "One row per outermost module that was called.",
    (
        Column("model", "int16", "", "identifier, referred to by evals"),
        Column("name", "string", "", "class of the module"),
        Column("parameters", "int32", "tensors", "parameter tensors"),
        Column("elements", "int64", "", "parameter elements"),
        Column("sensitive", "string", "", "kinds of mode-sensitive modules, with their number"),
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
        Column("options", "string", "", "learning rate, momentum, weight decay, ... of the first group, as JSON"),
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
        Column("dataset", "string", "", "class of the dataset"),
        Column("iterable", "bool", "", "the dataset is an IterableDataset"),
        Column("length", "int64", "batches", "batches per epoch, where known"),
        Column("batch_size", "int32", "samples", ""),
        Column("num_workers", "int32", "processes", ""),
        Column("pin_memory", "bool", "", ""),
        Column("persistent_workers", "bool", "", ""),
        Column("prefetch_factor", "int32", "batches", "batches each worker fetches ahead"),
        Column("drop_last", "bool", "", ""),
        Column("sampler", "string", "", "class of the sampler"),
        Column("site", "int32", "", "line of the script that iterates the loader (table sites)"),
        Column("made_at", "int32", "", "line of the script that makes the loader (table sites, role dataloader)"),
    ),
)

LOSS_CALLS = Table(
    "loss_calls",
    "Calls of torch's loss functions that were looked at: the first of each function, then one in many.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before the call"),
        Column("function", "string", "", "function of torch.nn.functional"),
        Column("site", "int32", "", "line of the script that calls it (table sites)"),
        Column("loader", "int16", "", "DataLoader whose batch was in hand (table loaders)"),
        Column("training", "bool", "", "autograd was recording and the input depends on something trainable"),
        Column("reduction", "string", "", "mean, sum or none"),
        Column("input_shape", "string", "", "sizes of the input, as in 32x10"),
        Column("target_shape", "string", "", "sizes of the target"),
        Column("target_integer", "bool", "", "the target holds integers (class indices)"),
        Column("made_by", "string", "", "autograd operation that made the input, views and casts aside: Softmax, ..."),
        Column("made_dim", "int8", "", "dimension that a softmax ran over, if it is still the same in the input"),
        Column("made_whole", "bool", "", "the input holds all values that the operation made"),
        Column("lowest", "float64", "", "smallest value of the input (first samples and positions)"),
        Column("highest", "float64", "", "largest value of them"),
        Column("sum_error", "float64", "", "largest distance of a sum over the classes from 1: 0 for probabilities"),
        Column("log_sum_error", "float64", "", "largest absolute logsumexp over the classes: 0 for log-probabilities"),
        Column("target_lowest", "float64", "", "smallest class or label in the batch, of one label per sample"),
        Column("target_highest", "float64", "", "largest of them"),
        Column("value", "float64", "", "the loss, where it is one number"),
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
    "Learning-rate schedulers, a few times in a run and at its end; the last row of each tells most.",
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
        Column("lowest_lr", "float64", "", "lowest rate that its steps set"),
        Column("highest_lr", "float64", "", "highest rate that its steps set"),
        Column("site", "int32", "", "line of the script that makes it step (table sites)"),
    ),
)

SITES = Table(
    "sites",
    "One row per line of the script that matters, once per line.",
    (
        Column("site", "int32", "", "identifier"),
        Column("role", "string", "", "what happens there: backward, step, zero_grad, read, loader, dataloader, ..."),
        Column("file", "string", "", "file of the script"),
        Column("line", "int32", "", "line number"),
        Column("function", "string", "", "function that contains it"),
        Column("source", "string", "", "the line itself"),
    ),
)

EVENTS = Table(
    "events",
    "Things that happen rarely: exceptions, the exit, first non-finite gradients, errors of the collector.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before"),
        Column("kind", "string", "", "exception, exit, nonfinite-gradient, stacks, loader-wait, cadence, ..."),
        Column("name", "string", "", "class of the exception, how the process ended, parameter, or signal"),
        Column("value", "float64", "", "exit code, or a number that belongs to the kind"),
        Column("file", "string", "", "innermost line of the script, where there is one"),
        Column("line", "int32", "", ""),
        Column("source", "string", "", "that line"),
        Column("text", "string", "", "message or traceback"),
    ),
)

SAMPLES = Table(
    "samples",
    "Once a second, from a thread: how the process and its machine are.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("wall", "float64", "s", "the host's clock at that moment, since 1970"),
        Column("step", "int64", "", "optimizer steps done so far"),
        Column("host_rss", "int64", "bytes", "resident memory of the process"),
        Column("host_pss", "int64", "bytes", "the same, pages shared with others counted in part (now and then)"),
        Column("host_uss", "int64", "bytes", "the same, pages of its own only (now and then)"),
        Column("host_swap", "int64", "bytes", "memory of the process that was swapped out (now and then)"),
        Column("host_available", "int64", "bytes", "memory that the machine, or the container, can still hand out"),
        Column("cpu_seconds", "float64", "s", "processor time the process has used"),
        Column("machine_cpu", "float64", "share", "processors of the machine that were busy since the last sample"),
        Column("cpu_throttled", "float64", "s", "time for which the container's processor limit stopped it, in all"),
        Column("faults_minor", "int64", "", "page faults of the process that needed no disk, in all"),
        Column("faults_major", "int64", "", "page faults of the process that had to wait for a disk, in all"),
        Column("swapped_in", "int64", "bytes", "memory that the machine read back from swap since it was started"),
        Column("disk_read", "int64", "bytes", "what the process has read from disks, not from the page cache, in all"),
        Column("children", "int32", "processes", "processes that it has started and that live: loader workers, mostly"),
        Column("children_rss", "int64", "bytes", "their resident memory, summed: shared pages count each time"),
        Column("children_pss", "int64", "bytes", "the same, shared pages counted in part (now and then)"),
        Column("children_uss", "int64", "bytes", "the same, pages of their own only (now and then)"),
        Column("children_cpu_seconds", "float64", "s", "processor time that the living ones have used"),
        Column("children_disk_read", "int64", "bytes", "what the living ones have read from disks"),
        Column("site", "int32", "", "line of the script at which the training thread was (table sites, role sampled)"),
        Column("innermost", "string", "", "innermost Python function at which it was: file, line, name"),
    ),
)

BATCHES = Table(
    "batches",
    "Some batches of every pass over a loader, chosen by their place in it: a row per field (inputs, targets, ...).",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps done before"),
        Column("loader", "int16", "", "DataLoader that handed it out (table loaders); null: none"),
        Column("epoch", "int32", "", "pass over that loader, from 0"),
        Column("batch", "int64", "", "place in the pass, from 0"),
        Column("trained", "bool", "", "the module call that followed was trained on; false: evaluated; null: no call"),
        Column("field", "string", "", "position or key in the batch"),
        Column("dtype", "string", "", "dtype of the elements"),
        Column("shape", "string", "", "sizes of the dimensions, samples first"),
        Column("mean", "float64", "", "mean of a spread of elements"),
        Column("std", "float64", "", "their standard deviation"),
        Column("min", "float64", "", "smallest of them"),
        Column("max", "float64", "", "largest of them"),
        Column("zeros", "float64", "share", "those that are exactly zero"),
        Column("nonfinite", "bool", "", "at least one of all elements is NaN or Inf"),
        Column("classes", "string", "", "integer targets, one per sample: how often each value occurs, as JSON"),
        Column("prints", "string", "", "prints of the first samples, equal for equal content; - for constant content"),
        Column("print", "string", "", "one print of all of these samples"),
    ),
)

ACTIVATIONS = Table(
    "activations",
    "What the modules of a model put out in some training forwards: a row per module and forward.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps done before"),
        Column("alert", "bool", "", "looked at because the loss was out of the ordinary a step before"),
        Column("order", "int32", "", "place among the module calls of the forward; contents before their container"),
        Column("module", "string", "", "name of the module in the model; empty for the model itself"),
        Column("kind", "string", "", "class of the module"),
        Column("dtype", "string", "", "dtype of its first output"),
        Column("elements", "int64", "", "elements of that output"),
        Column("mean", "float64", "", "mean of a spread of them"),
        Column("std", "float64", "", "their standard deviation"),
        Column("largest", "float64", "", "the largest of them, signs aside"),
        Column("zeros", "float64", "share", "those that are exactly zero"),
        Column("nonfinite", "int8", "", "whether all elements are finite", NONFINITE),
        Column("weights_finite", "bool", "", "the module's own parameters are (looked at on alert)"),
    ),
)

PARAMETERS = Table(
    "parameters",
    "Parameters, their gradients and their updates at some steps: a row per tensor and step. "
    "Norms of weights and updates, and shares, are estimated from up to 256 elements of each tensor.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "step of the optimizer, as in steps"),
        Column("optimizer", "int16", "", "the optimizer (table optimizers)"),
        Column("parameter", "string", "", "name of the tensor in the model"),
        Column("dtype", "string", "", "dtype of the weights"),
        Column("elements", "int64", "", "elements of the tensor"),
        Column("lr", "float64", "", "learning rate of its group"),
        Column("weight_norm", "float64", "", "L2 norm before the step"),
        Column("update_norm", "float64", "", "L2 norm of the difference that the step made"),
        Column("unchanged", "float64", "share", "elements that the step left as they were, bit for bit"),
        Column("unchanged_reached", "float64", "share", "the same, of those whose gradient was not zero"),
        Column("unchanged_since", "float64", "share", "elements that are as they were at the look before this one"),
        Column("since", "int64", "steps", "steps from that look to this one"),
        Column("grad_norm", "float64", "", "L2 norm of its gradient as the step found it (all elements)"),
        Column("grad_largest", "float64", "", "largest element of the gradient, signs aside (all elements)"),
        Column("grad_zeros", "float64", "share", "elements of the gradient that are exactly zero"),
        Column("grad_finite", "bool", "", "the gradient is finite (all elements)"),
        Column("closure", "bool", "", "backwards ran inside the step, so that the gradient is not the one it used"),
    ),
)

DEVICES = Table(
    "devices",
    "Once a second, for each GPU that the training uses: what the driver says of it (needs nvidia-ml-py).",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps done so far"),
        Column("device", "int16", "", "number of the device in torch"),
        Column("name", "string", "", "model of the device"),
        Column("busy", "float64", "share", "time in which at least one kernel ran, over the driver's last interval"),
        Column("memory_used", "int64", "bytes", "memory in use, by all processes"),
        Column("memory_total", "int64", "bytes", "memory of the device"),
        Column("power", "float64", "W", "power drawn"),
        Column("power_limit", "float64", "W", "power that it may draw"),
        Column("temperature", "float64", "deg C", "temperature of the chip"),
        Column("clock", "float64", "MHz", "clock of the multiprocessors"),
        Column("clock_max", "float64", "MHz", "the clock that they can have"),
        Column("slowed_by", "string", "", "why the clock is lower than it could be: heat, power; null if it is not"),
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
        Column("every", "int32", "steps", "steps from one look of a sampled signal to the next"),
        Column("looks", "int64", "", "looks it has taken"),
        Column("turned_down_at", "int64", "", "step since which the budget lets it look less often than usual"),
        Column("why", "string", "", "the numbers behind that"),
    ),
)

SCALARS = Table(
    "scalars",
    "One row per value that the script logged with `tracelyze.log`, or a framework through tracelyze's callback.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps (all optimizers) done before"),
        Column("own_step", "int64", "", "number of the step that the script or the framework gave"),
        Column("phase", "string", "", "train, eval or test"),
        Column("name", "string", "", "name of the value: loss, or what it was called; batch where only that was given"),
        Column("value", "float64", "", "the value; it may be NaN"),
        Column("batch", "string", "", "the batch, as the script identifies it"),
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

TABLES: Final[tuple[Table, ...]] = (
    STEPS, EVALS, MODELS, OPTIMIZERS, LINKS, LOADERS, LOSS_CALLS, REACH, SCHEDULES, SITES, EVENTS, SAMPLES, BATCHES,
    ACTIVATIONS, PARAMETERS, DEVICES, SIGNALS, SCALARS, WINDOWS,
)  # fmt: skip


TRACE_FILE: Final = "trace.json"

DEVICE = Table(
    "device",
    "One row per activity of a device (kernel, copy, fill), in order of their starts.",
    (
        Column("start", "float64", "us", "start, on the clock of the trace"),
        Column("end", "float64", "us", "end, on the same clock"),
        Column("correlation", "int64", "", "links to the launch that has the same number; -1: unknown"),
        Column("name", "int32", "", "label of the set `device name`"),
        Column("queue", "int16", "", "label of the set `queue`: process, device, stream"),
        Column("collective", "int16", "", "label of the set `collective`: what it is, its process group; 0: none"),
        Column("kind", "int8", "", "what it does", {1: "computes or communicates", 2: "copies", 3: "fills"}),
    ),
)
LAUNCHES = Table(
    "launches",
    "One row per call of the device's runtime that may have started device work, in order of `correlation`.",
    (
        Column("correlation", "int64", "", "number that the started work bears, too"),
        Column("start", "float64", "us", "when the call began"),
        Column("thread", "int32", "", "label of the set `thread`: process, thread"),
    ),
)
HOST = Table(
    "host",
    "One row per range of host activity, class by class. Of runtime calls, operators and communication calls only the "
    "outermost ranges of each thread are kept, of Python functions those of the program itself.",
    (
        Column("activity", "int8", "", "what the thread was doing: see the classes in analyzers/kineto/categories.py"),
        Column("start", "float64", "us", "start, on the clock of the trace"),
        Column("end", "float64", "us", "end, on the same clock"),
        Column("name", "int32", "", "label of the set `host name`; -1: not kept"),
        Column("thread", "int32", "", "label of the set `thread`: process, thread"),
    ),
)
MEMORY = Table(
    "memory",
    "One row per change of a device's memory, where the profiler recorded memory, in order of their times.",
    (
        Column("start", "float64", "us", "when it happened, on the clock of the trace"),
        Column("device", "int16", "", "number of the device"),
        Column("allocated", "int64", "bytes", "memory in tensors after it"),
        Column("reserved", "int64", "bytes", "memory that the caching allocator holds after it"),
    ),
)
LABELS = Table(
    "labels",
    "The texts behind the numbers of the other tables.",
    (
        Column("set", "string", "", "`device name`, `host name`, `queue`, `thread` or `collective`"),
        Column("number", "int32", "", "number within the set"),
        Column("text", "string", "", "the name; for queues, threads and collectives a JSON list"),
    ),
)

RANGES = Table(
    "ranges",
    "One row per range of host activity, nested ones included, in the order of the file: for a closer look at a step.",
    (
        Column("start", "float64", "us", "start, on the clock of the trace"),
        Column("end", "float64", "us", "end, on the same clock"),
        Column("category", "string", "", "category as the profiler has it: cpu_op, cuda_runtime, python_function, ..."),
        Column("name", "string", "", "operator, call, annotation or Python function"),
        Column("process", "string", "", "process, as JSON: a number or a text"),
        Column("thread", "string", "", "thread, as JSON: a number or a text"),
        Column("stack", "string", "", "Python stack, where the profiler recorded one"),
        Column("sequence", "int64", "", "number that an operator of the forward shares with its part of the backward"),
        Column("backward", "bool", "", "whether it belongs to a backward"),
    ),
)

TRACE_TABLES: Final[tuple[Table, ...]] = (DEVICE, LAUNCHES, HOST, MEMORY, LABELS, RANGES)
"""The tables of a folder into which `tracelyze import kineto` put one profiler trace, beside its TRACE_FILE."""


CHECKSUM: Final = b"crc32"


def checksum(batch: Any) -> bytes:
    """CRC-32 of the values in an Arrow record batch, which travels with it in a stream under :data:`CHECKSUM`.

    A power cut can leave a batch of the right length whose end are zeros: without this they would pass for values.
    """
    crc = 0
    for column in batch.columns:
        rows, (validity, *buffers) = len(column), column.buffers()
        if column.null_count:
            crc = zlib.crc32(memoryview(validity)[: (rows + 7) // 8], crc)
        if column.null_count == rows:
            continue
        if len(buffers) == 2:  # text: where each value ends, then all of them
            offsets = memoryview(buffers[0])[: 4 * (rows + 1)]
            crc = zlib.crc32(offsets, crc)
            if buffers[1] is not None:
                crc = zlib.crc32(memoryview(buffers[1])[: offsets.cast("B").cast("i")[rows]], crc)
        else:
            crc = zlib.crc32(memoryview(buffers[0])[: (rows * column.type.bit_width + 7) // 8], crc)
    return str(crc).encode()


def table(name: str) -> Table:
    """The table called `name`; KeyError if there is none."""
    for candidate in TABLES:
        if candidate.name == name:
            return candidate
    raise KeyError(f"the run directory has no table {name!r}")

"""Tables of what is sampled: the machine once a second, batches, activations, parameters."""

from __future__ import annotations

from typing import Final

from tracelyze.schema.declaration import Column, Table

NONFINITE: Final = {0: "finite", 1: "NaN, or Inf of both signs", 2: "Inf", 3: "minus Inf only"}

SAMPLES = Table(
    "samples",
    "Once a second, from a thread: how the process and its machine are.",
    (
        Column("time", "float64", "s", "on the process's monotonic clock"),
        Column("wall", "float64", "s", "the host's clock at that time, since 1970"),
        Column("step", "int64", "", "optimizer steps done so far"),
        Column("host_rss", "int64", "bytes", "resident memory of the process"),
        Column("host_files", "int64", "bytes", "of these, pages of files that are mapped: the page cache's"),
        Column("host_pss", "int64", "bytes", "the same, pages shared with others counted in part (now and then)"),
        Column("host_uss", "int64", "bytes", "the same, pages of its own only (now and then)"),
        Column("host_swap", "int64", "bytes", "memory of the process that was swapped out (now and then)"),
        Column("host_available", "int64", "bytes", "memory that the machine, or the container, can still hand out"),
        Column("cpu_seconds", "float64", "s", "processor time the process has used"),
        Column("cpu_limit", "float64", "s", "processor time at which the kernel ends the process; null: no limit"),
        Column("machine_cpu", "float64", "share", "processors of the machine that were busy since the last sample"),
        Column("cpu_throttled", "float64", "s", "time for which the container's processor limit stopped it, in all"),
        Column("delayed", "float64", "s", "time for which its main thread could run but no processor was free, in all"),
        Column("faults_minor", "int64", "", "page faults of the process that needed no disk, in all"),
        Column("faults_major", "int64", "", "page faults of the process that had to wait for a disk, in all"),
        Column("swapped_in", "int64", "bytes", "memory that the machine read back from swap since it was started"),
        Column("disk_read", "int64", "bytes", "what the process has read from disks, not from the page cache, in all"),
        Column("children", "int32", "processes", "processes that it has started and that live: loader workers, mostly"),
        Column("children_rss", "int64", "bytes", "their resident memory, summed: shared pages count each time"),
        Column("children_pss", "int64", "bytes", "the same, shared pages counted in part (now and then)"),
        Column("children_uss", "int64", "bytes", "the same, pages of their own only (now and then)"),
        Column("children_cpu_seconds", "float64", "s", "processor time that the living ones have used"),
        Column("children_delayed", "float64", "s", "time for which the living ones found no free processor, summed"),
        Column("children_disk_read", "int64", "bytes", "what the living ones have read from disks"),
        Column("site", "int32", "", "line of the script at which the training thread was (table sites, role sampled)"),
        Column("innermost", "string", "", "innermost Python function at which it was: file, line, name"),
        Column("waits", "string", "", "system call it waits in, or running; null: steps, forwards or backwards go on"),
        Column("woken", "int64", "", "the same: how often it has begun to wait, in all"),
        Column("thread_cpu", "float64", "s", "the same: processor time that it has used"),
        Column("below", "int32", "processes", "the same: processes that it has started and that live, with theirs"),
        Column("below_cpu", "float64", "s", "the same: processor time that these have used"),
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

BATCHES = Table(
    "batches",
    "Batches of every pass over a loader, by their place in it or an alert: a row per field (inputs, targets, ...).",
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
        Column("alert", "bool", "", "looked at because its loss was out of the ordinary, not by its place"),
    ),
)

INPUTS_IN_USE = Table(
    "inputs_in_use",
    "Inputs of the model that hold something else after the backward than when the model was called, though no "
    "operation of torch has written into them: a row per change, and one per argument at the end.",
    (
        Column("step", "int64", "", "optimizer steps (all optimizers) that were done before"),
        Column("module", "string", "", "class of the module that was given it"),
        Column("argument", "string", "", "position or name of the argument"),
        Column("shape", "string", "", "sizes of its dimensions; null at the end"),
        Column("dtype", "string", "", "dtype of its elements; null at the end"),
        Column("looks", "int64", "", "steps so far in which it was read twice"),
        Column("changed", "int64", "", "of them, those in which it had changed"),
        Column("saved", "int64", "", "of these, those in which autograd was seen to hold it for the backward"),
        Column("share", "float64", "share", "elements that had changed, of those that were read; null at the end"),
    ),
)

FETCHES = Table(
    "fetches",
    "Some passes over a loader, as whoever makes its batches noted them: a row per pass and worker.",
    (
        Column("time", "float64", "s", "end of the pass, on the process's monotonic clock"),
        Column("step", "int64", "", "optimizer steps done before its end"),
        Column("loader", "int16", "", "the DataLoader (table loaders)"),
        Column("epoch", "int32", "", "pass over that loader, from 0"),
        Column("worker", "int16", "", "number of the worker; null: the training process itself makes the batches"),
        Column("source", "int16", "", "the dataset object, below subsets of it: one number for each"),
        Column("batches", "int64", "", "batches that it made in this pass"),
        Column("moved", "string", "", "generators of random numbers that moved meanwhile: python numpy torch own"),
        Column("start", "string", "", "a print of the state in which each of these began the pass"),
        Column("second", "string", "", "the same before its second batch"),
        Column("memory", "string", "", "bytes of a worker's own after 1, 2, 4, ... batches since it began, as JSON"),
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
        Column(
            "dead", "float64", "share", "ReLU: units that were zero for all samples, in this sample and the one before"
        ),
        Column("inputs", "int32", "", "linear layers and convolutions: features or channels that go in"),
        Column("outputs", "int32", "", "the same, and batch normalisation: features or channels that come out"),
        Column("fed_by", "string", "", "the same: layer of this kind, with a bias, whose output went in as it was"),
        Column(
            "called_at", "int32", "", "the same, where one feeds it: line of the script that calls it (table sites)"
        ),
        Column("nonfinite", "int8", "", "whether all elements are finite", NONFINITE),
        Column("weights_finite", "bool", "", "the module's own parameters are (looked at on alert)"),
        Column("experts", "int32", "", "gates of a mixture of experts: how many there are"),
        Column("busiest", "float64", "", "the expert that is chosen for most tokens"),
        Column("busiest_share", "float64", "share", "of the tokens, those for which it is"),
        Column("idle", "float64", "experts", "those with less than a tenth of an even share of the tokens"),
        Column("positions_first", "bool", "", "recurrences and attention of torch: made without batch_first=True"),
        Column("positions", "int32", "", "the same: size of the dimension of its input that it takes for positions"),
        Column("rows", "int32", "", "the same: size of the dimension that it takes for samples"),
        Column(
            "positions_outermost",
            "bool",
            "",
            "the input is a view of a tensor of images, whose first dimension "
            "lies along the positions; false: along the samples",
        ),
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
        Column("dimensions", "int16", "", "dimensions of the tensor"),
        Column("lr", "float64", "", "learning rate of its group"),
        Column("weight_norm", "float64", "", "L2 norm before the step"),
        Column("update_norm", "float64", "", "L2 norm of the difference that the step made"),
        Column("unchanged", "float64", "share", "elements that the step left as they were, bit for bit"),
        Column("unchanged_reached", "float64", "share", "the same, of those whose gradient was not zero"),
        Column("unchanged_since", "float64", "share", "elements that are as they were in the sample before this one"),
        Column("since", "int64", "steps", "steps from that sample to this one"),
        Column("grad_norm", "float64", "", "L2 norm of its gradient as the step found it (all elements)"),
        Column("grad_largest", "float64", "", "largest element of the gradient, signs aside (all elements)"),
        Column("grad_usual", "float64", "", "median of the elements of the gradient that are not zero, signs aside"),
        Column("grad_zeros", "float64", "share", "elements of the gradient that are exactly zero"),
        Column("grad_finite", "bool", "", "the gradient is finite (all elements)"),
        Column("closure", "bool", "", "backwards ran inside the step, so that the gradient is not the one it used"),
    ),
)

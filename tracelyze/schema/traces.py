"""Tables of a folder into which a profiler trace was imported."""

from __future__ import annotations

from tracelyze.schema.declaration import Column, Table

_REPLAYS = {0: "starts one piece of work", 1: "starts a graph"}

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
        Column("replays", "int8", "", "whether it starts a recorded graph, whose work may bear no number", _REPLAYS),
    ),
)

HOST = Table(
    "host",
    "One row per range of host activity, class by class. Of runtime calls, operators and communication calls only the "
    "outermost ranges of each thread are kept, of Python functions those of the program itself.",
    (
        Column(
            "activity",
            "int8",
            "",
            "what the thread was doing: see the classes in analyzers/kineto/timeline/categories.py",
        ),
        Column("start", "float64", "us", "start, on the clock of the trace"),
        Column("end", "float64", "us", "end, on the same clock"),
        Column("name", "int32", "", "label of the set `host name`; -1: not kept"),
        Column("thread", "int32", "", "label of the set `thread`: process, thread"),
    ),
)

MEMORY = Table(
    "memory",
    "Changes of a device's memory, where the profiler recorded memory, in order of their times: those around a change "
    "of what is reserved, and those with more allocated than before.",
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
        Column("input_dims", "string", "", "sizes of its inputs, as JSON, where the profiler recorded them"),
    ),
)

SAID = Table(
    "said",
    "One row per activity of a device that says more of itself than its name: for a closer look at a step.",
    (
        Column("start", "float64", "us", "start, as in the table `device`"),
        Column("stream", "string", "", "its stream"),
        Column("text", "string", "", "grid and block of a kernel, bytes of a copy, elements of a collective"),
    ),
)

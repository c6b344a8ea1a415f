"""What an event is, from its category and its name: device work, or one of the classes of host activity.

The categories of all Kineto versions are known; an unknown category that carries a stream is device work, which is how
traces of new accelerators are read without a list.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final


class Kind(IntEnum):
    """Which table an event goes to."""

    IGNORED = 0
    KERNEL = 1
    COPY = 2
    SET = 3
    RUNTIME = 4
    OPERATOR = 5
    ANNOTATION = 6
    FRAME = 7
    UNKNOWN = 8


KINDS: Final[dict[str, Kind]] = {
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
    "gpu_memcpy": Kind.COPY,
    "memcpy": Kind.COPY,
    "gpu_memset": Kind.SET,
    "memset": Kind.SET,
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "user_annotation": Kind.ANNOTATION,
    "python_function": Kind.FRAME,
    "gpu_user_annotation": Kind.IGNORED,
    "overhead": Kind.IGNORED,
    "trace": Kind.IGNORED,
    "": Kind.IGNORED,
}
_RUNTIME: Final = re.compile(r"(^|_)(runtime|driver)$")
_MARKS: Final = re.compile(
    r"annotation|_sync$|_event$|instant|counter|correlation|profiler|overhead|collective_comm|insight"
)
_COPY: Final = re.compile(r"_memcpy$")
_SET: Final = re.compile(r"_memset$")


def kind_of(category: str) -> Kind:
    """The kind of an event with this category; UNKNOWN means that the event decides: device work has a stream, and a
    call that starts some has nothing but the number of what it starts."""
    lowered = category.lower()
    if lowered in KINDS:
        return KINDS[lowered]
    if _RUNTIME.search(lowered):
        return Kind.RUNTIME
    if _COPY.search(lowered) or _SET.search(lowered):
        return Kind.COPY if _COPY.search(lowered) else Kind.SET
    return Kind.IGNORED if _MARKS.search(lowered) else Kind.UNKNOWN


class Activity(IntEnum):
    """What the host is doing, in the order in which it explains an idle device: an earlier one covers a later one."""

    GARBAGE = 0
    INPUT = 1
    SYNC = 2
    ALLOCATOR = 3
    COPY = 4
    COMMUNICATION = 5
    CHECKPOINT = 6
    OPTIMIZER = 7
    RUNTIME = 8
    OPERATOR = 9
    PYTHON = 10
    STEP = 11
    DROPPED = 12


COVERAGE: Final = (Activity.RUNTIME, Activity.OPERATOR, Activity.COMMUNICATION)
"""Classes of which only outermost ranges are kept: there are millions, and nested ones explain nothing more."""

_LOADER: Final = re.compile(
    r"^enumerate\(DataLoader\)|DataLoaderIter\b|\b(train|val|test|predict)(_dataloader)?_next$|"
    r"wait[ _-]?for[ _-]?\w*batch|data[ _-]?(load(er|ing)?|fetch(ing)?|iter(ator)?|time)\b|batch[ _-]generator|"
    r"\b(load|fetch|next|get|read)[ _-]?((mini)?batch|data|samples?|inputs?)\b|input[ _-]pipeline",
    re.IGNORECASE,
)
_LOADER_FRAME: Final = re.compile(
    r"torch/utils/data/dataloader\.py\(\d+\): __(next|iter)__|nvidia/dali/plugin|ffcv/loader|"
    r"webdataset/\w+\.py\(\d+\): __iter__"
)
_MAKERS: Final = r"^(?:cuda|hip|cu|musa|mu|mc|cnrt|tops|(?:AscendCL@)?aclrt|mtia|ze|ur)(?:Ext)?"
"""What the calls of the runtimes begin with: NVIDIA, AMD, Moore Threads, MetaX, Cambricon, Enflame, Ascend, Meta,
Intel (two)."""

_SYNC_CALL: Final = re.compile(
    r"Synchroni[sz]e|^cnrt\w*Sync$|^ur(EventWait|QueueFinish)$|^hipMemcpyWithStream$|"
    r"^(cuda|cu|hip|musa|mc|cnrt|tops|(AscendCL@)?aclrt)Memcpy(2D|3D|HtoD|DtoH|ToSymbol|FromSymbol)?(_v\d)?$"
)
_ALLOCATOR: Final = re.compile(
    _MAKERS + r"(Malloc|Free|HostAlloc|HostFree|HostRegister|HostUnregister|HostMalloc|"
    r"Mem(Create|Map|Unmap|Release|AddressReserve|AddressFree|SetAccess|Alloc|Free)|USM(\w*Alloc|Free))"
)
_COPY_CALL: Final = re.compile(_MAKERS + r"(Mem(cpy|set)|EnqueueUSM(Memcpy|Fill)|CommandListAppendMemory(Copy|Fill))")
_COMMUNICATION: Final = re.compile(
    r"^(nccl|rccl|hccl|hcom|xccl|gloo|mpi|ucc|oneccl|mscclpp):|^c10d::|^_c10d_functional::|record_param_comms|^deep_ep::",
    re.IGNORECASE,
)
_OPTIMIZER: Final = re.compile(r"^Optimizer\.(step|zero_grad)#")
_CHECKPOINT: Final = re.compile(
    r"torch/serialization\.py\(\d+\): "
    r"save$|\bsave_(checkpoint|pretrained|state)|torch/distributed/checkpoint/\w+\.py\(\d+\): (async_)?save$|"
    r"tensorboard/writer\.py\(\d+\): (flush|add_\w+)$|wandb/sdk/wandb_run\.py\(\d+\): log$"
)
_SAVING: Final = re.compile(
    r"\bsave[ _-]?(checkpoint|pretrained|state|model)|\btorch\.save\b|ModelCheckpoint\b|"
    r"^\W*(checkpoint(ing)?|(sav|writ|stor)(e|ing)[ _-](a[ _-])?checkpoint)\W*$|checkpoint[ _-]sav(e|ing)\b",
    re.IGNORECASE,
)
"""Annotations of frameworks and programs. A "checkpoint" among other words may be one of activations."""

_GARBAGE: Final = re.compile(r"^Python GC$|^<built-in function collect>$")
"""The interpreter's own collection, as the profiler marks it on request, and a call of gc.collect."""

STEP_MARK: Final = re.compile(r"^ProfilerStep#?\s*(\d+)")
_NO_LAUNCH: Final = re.compile(
    r"Query|Synchroni[sz]e|EventWait|Queue(Finish|Flush|Sync)|DeviceSync$|Captur|Attribute|Occupancy|LastError|EventRecord|WaitEvent|Event(Create|Destroy|Elapsed)|"
    r"[GS]etDevice|Priorit|Malloc|Free|MemAlloc|USM\w*Alloc|INVALID|HostAlloc|HostRegister|ModuleLoad|GetFunction|Context|StreamCreate|StreamDestroy"
)
_REPLAY: Final = re.compile(r"Graph(Exec)?Launch|EnqueueCommandBuffer|^(AscendCL@)?aclmdlRIExecute")
_LIBRARY_FRAME: Final = re.compile(
    r"^(<|nn\.Module|torch/|torchvision/|numpy/|contextlib\.py|threading\.py|functools\.py|multiprocessing/|concurrent/|"
    r"importlib|.*(site-packages|dist-packages|lib/python\d))|^(?!.*\.py\(\d+\):)"
)


def activity_of(kind: Kind, name: str) -> Activity:
    """What a host event says about its thread."""
    if kind is Kind.FRAME:
        return _activity_of_frame(name)
    if kind is Kind.RUNTIME:
        if _SYNC_CALL.search(name):
            return Activity.SYNC
        if _ALLOCATOR.search(name):
            return Activity.ALLOCATOR
        return Activity.COPY if _COPY_CALL.search(name) else Activity.RUNTIME
    if STEP_MARK.match(name):
        return Activity.STEP
    if _COMMUNICATION.search(name):
        return Activity.COMMUNICATION
    if _OPTIMIZER.search(name):
        return Activity.OPTIMIZER
    if name.startswith("enumerate(DataLoader)") or (kind is Kind.ANNOTATION and _LOADER.search(name)):
        return Activity.INPUT
    if kind is Kind.ANNOTATION:
        return Activity.CHECKPOINT if _CHECKPOINT.search(name) or _SAVING.search(name) else Activity.PYTHON
    return Activity.OPERATOR


def _activity_of_frame(name: str) -> Activity:
    if _GARBAGE.search(name):
        return Activity.GARBAGE
    if _LOADER_FRAME.search(name):
        return Activity.INPUT
    if _CHECKPOINT.search(name):
        return Activity.CHECKPOINT
    return Activity.DROPPED if _LIBRARY_FRAME.search(name) else Activity.PYTHON


def may_launch(name: str) -> bool:
    """Whether a runtime call of this name can put work on a device: what cannot is not kept as a launch."""
    return _NO_LAUNCH.search(name) is None


def replays_graph(name: str) -> bool:
    """Whether a runtime call of this name starts a graph that was recorded before: many kernels by one call."""
    return _REPLAY.search(name) is not None

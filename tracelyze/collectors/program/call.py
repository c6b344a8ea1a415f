"""One outermost module call, and what becomes known of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tracelyze.collectors.program.consumed.batches_in_hand import Batch
from tracelyze.collectors.program.models import Model

NO_GRAD, INFERENCE, GRAD = 0, 1, 2
Input = tuple[str, Callable[[], Any]]  # the name of what a call was given, and a weak reference to its tensor


class SensitiveModules(NamedTuple):
    """The modules of a model that behave differently in train and eval mode, as a call found them."""

    number: int
    in_train: int
    kinds: str  # of those in train mode


NONE_SENSITIVE = SensitiveModules(0, 0, "")


class EvaluatedLosses:
    """The losses that a call in an evaluation led to, and the line of the script that made it."""

    __slots__ = (
        "compared", "count", "is_whole", "on_device", "path", "read_on_device", "read_site", "read_sum", "reads",
        "repeats", "same_input", "site", "total", "unread",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0  # of those that are on the CPU
        self.on_device: Any = None  # the sum of the others
        self.unread = False  # The losses were counted and not read: the call was skipped.
        self.repeats = False  # The same line had just given the model the same tensor, and values are dropped.
        self.same_input = False  # The model had been given the same object after an earlier step.
        self.compared: int | None = None  # line of the script that holds the answer against something
        self.reads = 0  # numbers that the script read back after it, before the next call
        self.read_sum = 0.0  # of those that are on the CPU
        self.read_on_device: Any = None  # the sum of the others
        self.read_site: int | None = None  # line of the first one that is no number, or of the first one
        self.is_whole: bool | None = None  # whether the loss is all that is optimized, and not one term of it
        self.site: int | None = None
        self.path: tuple[tuple[int, int], ...] = ()  # lines of the script that led to it, without a loader

    def again(self) -> EvaluatedLosses:
        """What is known of the losses of a call like this one, which was skipped."""
        new = EvaluatedLosses()
        new.site, new.path, new.compared, new.same_input = self.site, self.path, self.compared, self.same_input
        new.count, new.is_whole, new.unread = self.count, self.is_whole, self.count > 0
        return new


class Call:
    """One outermost module call. Holds no tensor and no module.

    Signals note here what they find out about a call, for other signals.
    """

    # Defaults on the class, because most calls keep most of them: a call is made at least once a step.
    holder: int | None = None  # the optimizer that held the model then (table optimizers)
    hooked = False
    assumed = False  # It is not watched: it is taken to train, as the calls before it did.
    replayed = False  # It was skipped, and dispatched later than it was made (recording/fast_path).
    of_earlier_step = False  # So late that a step of another optimizer had ended since.
    number = 0  # of the process's outermost module calls
    watched = 0
    trained = False
    dead = False
    graph: Callable[[], Any] | None = None  # of a replayed call: a weak reference to an object that dies with its graph
    given: Sequence[Input] = ()  # of a replayed call: the tensors that it was given
    input_key: tuple[Any, ...] | None = None  # by which the input of a replayed call is recognised, if it is known
    declared: tuple[int, str] | None = None  # number and purpose of the evaluation that a callback announced
    batch_size: int | None = None
    batch: Batch | None = None  # the batch of a loader that its input belongs to
    carries_on = False  # Its input has a graph: another call made it, such as the state of a recurrence.
    loader: int | None = None
    dropouts = 0
    statistics = 0  # batch normalisations in it that changed their running statistics
    given_loss: Any = None  # of a call in training, until a backward has run through it: a number, or a scalar
    in_train = False
    sensitive = NONE_SENSITIVE  # noted by the signal mode
    evaluated: EvaluatedLosses | None = None  # noted by the signal evaluation, where there is anything to note
    autocast = 0

    def __init__(self, model: Model, start: float, end: float, step: int, mode: int) -> None:
        self.model = model
        self.start = start
        self.end = end
        self.step = step
        self.mode = mode

    def graph_is_gone(self) -> bool:
        """Whether the autograd graph of its outputs has been freed."""
        return self.dead or (self.graph is not None and self.graph() is None)

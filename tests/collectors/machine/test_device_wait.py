"""How long a CUDA device stands still while the host waits for a batch, on a device that is simulated: a queue, a clock
and events that are stamped when the queue reaches them. Everything but CUDA's own events is the real thing."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracelyze.collectors.program.consumed.batches_in_hand import BatchesInHand
from tracelyze.collectors.program.progress import Progress
from tracelyze.collectors.signals.data.loader import MAX_UNUSED, Loader


class Device:
    """A clock of the host, and by stream the moment at which its queue runs empty. Seconds."""

    def __init__(self) -> None:
        self.now = 0.0
        self.free = {"main": 0.0, "side": 0.0}
        self.current = "main"
        self.capturing = False
        self.events = 0

    def launch(self, seconds: float) -> None:
        self.free[self.current] = max(self.free[self.current], self.now) + seconds

    def torch(self) -> Any:
        device = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                assert enable_timing
                device.events += 1

            def record(self, stream: str | None = None) -> None:
                self.stamp = max(device.now, device.free[stream or device.current])

            def query(self) -> bool:
                return device.now >= self.stamp

            def synchronize(self) -> None:
                assert self.query(), "the recorder waited for the device"

            def elapsed_time(self, other: Event) -> float:
                return 1000 * (other.stamp - self.stamp)

        return SimpleNamespace(
            Tensor=type("Tensor", (), {}),
            cuda=SimpleNamespace(
                Event=Event,
                current_stream=lambda: device.current,
                is_current_stream_capturing=lambda: device.capturing,
            ),
        )


class Source:
    """Stands for a DataLoader and its iterator."""

    dataset: tuple[()] = ()
    batch_sampler = sampler = ()
    batch_size, num_workers, pin_memory, persistent_workers = 8, 2, False, False
    prefetch_factor, drop_last = 2, False
    collate_fn = None


class Loop:
    """A training whose events are dispatched to the signal, on a simulated device."""

    def __init__(self, on_cuda: bool = True) -> None:
        self.device = Device()
        self.pairs: list[Any] = []
        self.progress = Progress()
        self.program = SimpleNamespace(
            sites=SimpleNamespace(here=lambda role: None),
            calls=SimpleNamespace(reached=[]),
            trainings=SimpleNamespace(several=False, current=None),
            batches=BatchesInHand(self.progress),
        )
        context: Any = SimpleNamespace(
            torch=self.device.torch(),
            progress=self.progress,
            program=self.program,
            fast_path=SimpleNamespace(on=False, leave=lambda: None),
            meter=lambda kind: None,
            emit=lambda table, row: None,
            defer=self.pairs.append,
            listeners_changed=lambda: None,
            pause=lambda signal, until: setattr(signal, "paused", True),
            resume=lambda meter: setattr(self.signal, "paused", False),
        )
        self.signal = Loader(context)
        self.tracked = SimpleNamespace(on_cuda=on_cuda, training=None)

    def open(self, source: Any = None) -> Any:
        iterator = Source()
        self.signal.iterate(source or Source(), iterator)
        return iterator

    def fetch(self, iterator: Any, seconds: float) -> None:
        if not self.signal.paused:  # on the CPU, and before the first step on a device
            self.signal.waiting(iterator)
        self.device.now += seconds
        self.signal.batch(iterator, seconds, None)

    def step(self, iterator: Any, loading: float, computing: float, host: float = 0.0) -> dict[str, Any]:
        self.fetch(iterator, loading)
        return self.update(computing, host)

    def backward(self, computing: float) -> None:
        """The batch in hand goes through the model, forward and backward."""
        self.progress.forwards += 1
        self.program.batches.used_by(None)
        self.signal.before_backward(())
        self.device.launch(computing)

    def update(self, computing: float, host: float = 0.0) -> dict[str, Any]:
        self.backward(computing)
        self.device.now += host
        row: dict[str, Any] = {}
        self.signal.after_step(self.tracked, row)
        return row

    def arrive(self, row: dict[str, Any]) -> dict[str, Any]:
        """Fills the row with what the device has delivered once it is done with everything."""
        self.device.now = max(self.device.now, *self.device.free.values())
        for pair in self.pairs:
            assert pair.arrived()
            pair.fill(row)
        self.pairs.clear()
        return row


def waits(loop: Loop, loading: float, computing: float, host: float = 0.0, steps: int = 5) -> list[float | None]:
    iterator = loop.open()
    rows = []
    for _ in range(steps):
        row = loop.step(iterator, loading, computing, host)
        rows.append((row, list(loop.pairs)))
        loop.pairs.clear()
    loop.device.now = max(loop.device.now, *loop.device.free.values())
    for row, pairs in rows:
        for pair in pairs:
            pair.fill(row)
    return [row.get("device_wait") for row, _ in rows]


def test_a_wait_that_the_queue_hides_is_none() -> None:
    # The host loads for 40 ms and launches at once; the device computes for 60: it is always behind.
    assert waits(Loop(), 0.04, 0.06) == [None, *[pytest.approx(0.0)] * 4]


def test_a_device_that_runs_dry_waits_for_the_rest() -> None:
    # 60 ms of loading hide behind 25 ms of computation only in part.
    assert waits(Loop(), 0.06, 0.025) == [None, *[pytest.approx(0.035)] * 4]


def test_a_host_that_waits_for_the_device_hides_nothing() -> None:
    assert waits(Loop(), 0.06, 0.025, host=0.025) == [None, *[pytest.approx(0.06)] * 4]


def test_no_event_is_made_on_the_cpu_or_while_a_graph_is_captured() -> None:
    loop = Loop(on_cuda=False)
    assert waits(loop, 0.06, 0.025) == [None] * 5
    captured = Loop()
    captured.device.capturing = True
    assert waits(captured, 0.06, 0.025) == [None] * 5
    assert (loop.device.events, captured.device.events) == (0, 0)


def test_the_marks_stand_on_the_stream_of_the_step() -> None:
    """A loop that fetches ahead on a stream of its own: that stream is always empty, the one of the steps is not."""
    loop = Loop()
    iterator = loop.open()
    loop.step(iterator, 0.04, 0.5)
    loop.device.current = "side"
    loop.fetch(iterator, 0.04)
    loop.device.current = "main"
    row = loop.arrive(loop.update(0.5))
    assert row["device_wait"] == pytest.approx(0.0)


def test_waits_for_the_batches_of_a_validation_are_not_the_steps() -> None:
    loop = Loop()
    training, validation = loop.open(), loop.open()
    loop.step(training, 0.04, 0.06)
    loop.arrive({})
    before = loop.device.events
    for _ in range(3):
        loop.fetch(validation, 1.0)
    assert loop.device.events == before
    row = loop.arrive(loop.step(training, 0.04, 0.06))
    assert row["device_wait"] == pytest.approx(0.04)
    assert (row["loader_wait"], row["loader_batches"]) == (pytest.approx(0.04), 1)


def test_micro_batches_add_up() -> None:
    loop = Loop()
    iterator = loop.open()
    loop.step(iterator, 0.04, 0.01)
    loop.arrive({})
    loop.fetch(iterator, 0.03)
    loop.backward(0.01)
    row = loop.arrive(loop.step(iterator, 0.03, 0.01))
    assert row["device_wait"] == pytest.approx(0.03 + 0.02)
    assert row["loader_batches"] == 2


def test_a_long_evaluation_fills_no_memory() -> None:
    loop = Loop()
    iterator = loop.open()
    for _ in range(3 * MAX_UNUSED):
        loop.fetch(iterator, 0.001)
    assert len(loop.signal._waits) <= MAX_UNUSED


def test_starting_and_stopping_workers_belongs_to_the_wait_for_the_first_batch() -> None:
    loop = Loop(on_cuda=False)
    source = Source()
    iterator = loop.open(source)
    loop.signal.turned(iterator, 0.5)
    first = loop.step(iterator, 0.04, 0.01)
    second = loop.step(iterator, 0.04, 0.01)
    loop.signal.turned(iterator, 0.25)
    loop.signal.exhausted(iterator)
    again = loop.open(source)
    loop.signal.turned(again, 0.5)
    third = loop.step(again, 0.04, 0.01)
    assert [row["loader_wait"] for row in (first, second, third)] == pytest.approx([0.54, 0.04, 0.79])
    assert [row["loader_first"] for row in (first, second, third)] == [True, False, True]

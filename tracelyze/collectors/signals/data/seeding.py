"""Which of the global generators of random numbers a program has seeded, and which its steps draw from."""

from __future__ import annotations

import random
import sys
from typing import Any, ClassVar

from tracelyze.collectors.program import fetches
from tracelyze.collectors.program.optimizers import Tracked
from tracelyze.collectors.signals.context import SignalContext
from tracelyze.collectors.signals.signal import Signal

USUAL = (*range(12), 13, 17, 21, 23, 42, 99, 100, 123, 1234, 1337, 2020, 2021, 2022, 2023, 2024, 2025, 2026, 3407)
FRESH_KEY, FRESH_PLACE = 0x80000000, 623  # first word and place of a state that NumPy took from the system
UNUSED = 624  # the place of Python's generator before the first number
STEPS_READ = 12  # steps at whose ends the states of Python's and NumPy's generators are read


class _Process:
    """What is known of this process. Forked ones and threads begin with what was known of it before them."""

    first: int | None = None  # the seed that torch took from the system
    seeded: ClassVar[set[str]] = set()
    perhaps: ClassVar[set[str]] = set()  # used before torch was imported, or given a state: a seed would not show


class Seeding(Signal):
    """Python's and NumPy's by the calls that seed them. What a script did before torch was imported shows in their
    states. Where it cannot show there, the generator counts as seeded, so that nobody is accused without evidence."""

    name = "seeding"
    columns = ("events.kind", "events.name", "events.value")
    about = (
        "Which of the global generators of random numbers (Python, NumPy, torch) the program has seeded, and which of "
        "the first two it draws from between its first steps."
    )
    cost = "1 ms at the start"
    copied_columns = ()
    pausable = ("after_step",)

    def __init__(self, context: SignalContext) -> None:
        super().__init__(context)
        self._recorded: set[str] = set()
        self._read = 0
        self._states: dict[str, int] = {}
        self._drawn = {"python": 0, "numpy": 0}  # steps that moved the generator
        if _Process.first is None:
            _Process.first = self.torch.initial_seed()
            if _python_may_be_seeded():
                _Process.perhaps.add("python")
            if _numpy_may_be_seeded():
                _Process.perhaps.add("numpy")

    def seeded(self, name: str, is_seed: bool) -> None:
        (_Process.seeded if is_seed else _Process.perhaps).add(name)

    def opened(self) -> None:
        self._ask()

    def after_step(self, tracked: Tracked, row: dict[str, Any]) -> None:
        if self._read < STEPS_READ:
            states = _states()
            for name, state in states.items():
                self._drawn[name] += state != self._states.get(name, state)
            self._states = states
            self._read += 1
        else:
            self.pause()

    def finished(self) -> None:
        self._ask()
        for name, steps in self._drawn.items():
            if steps:
                self.context.record_event("drawn", name, value=float(steps))

    def _ask(self) -> None:
        if self.torch.initial_seed() != _Process.first:
            _Process.seeded.add("torch")
        for name in sorted((_Process.seeded | _Process.perhaps) - self._recorded):
            self._recorded.add(name)
            self.context.record_event("seeded", name, value=float(name in _Process.seeded))


def _states() -> dict[str, int]:
    """Digests of the states of Python's and NumPy's global generators."""
    numpy = sys.modules.get("numpy.random")
    found = {"python": fetches.python_state()}
    return found if numpy is None else {**found, "numpy": fetches.numpy_state(numpy)}


def _python_may_be_seeded() -> bool:
    """Whether Python's generator was used already, or is in the state of a usual seed."""
    state: tuple[Any, ...] = random.getstate()[1]
    if state[-1] != UNUSED:
        return True
    return any(random.Random(seed).getstate()[1] == state for seed in USUAL)  # noqa: S311


def _numpy_may_be_seeded() -> bool:
    """Whether NumPy's generator is in another state than the one that it took from the system."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return False
    kind, key, place, *_ = numpy.get_state()
    return kind != "MT19937" or int(key[0]) != FRESH_KEY or int(place) != FRESH_PLACE

"""Examples that seed the generators which samples are drawn from: once for all, or in each worker of a loader."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.script import edits, recorded_text
from tracelyze.analyzers.script.datasets import held_generators
from tracelyze.analyzers.script.editing import own_statement
from tracelyze.diagnosis import Location

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process
    from tracelyze.diagnosis import Diff

_ONCE: Final = {"numpy": "np.random.seed(0)", "python": "random.seed(0)", "torch": "torch.manual_seed(0)"}
_IN_WORKER: Final = {
    "numpy": "np.random.seed(info.seed % 2**32)",
    "python": "random.seed(info.seed)",
    "torch": "torch.manual_seed(info.seed)",
}
_SEEDS: Final = {
    "numpy": ("np.random.seed", "numpy.random.seed"),
    "python": ("random.seed",),
    "torch": ("torch.manual_seed", "torch.random.manual_seed"),
}
_OWN: Final = "torch.utils.data.get_worker_info().seed"  # differs by worker, and each time that workers start
_OF_ANY_KIND: Final = (
    "    # rng: the generator that the dataset holds; of its kind, so that it has the same methods:\n"
    "    # np.random.RandomState(info.seed % 2**32), random.Random(info.seed), a torch.Generator, or\n"
    "    info.dataset.rng = np.random.default_rng(info.seed)\n"
)
"""Torch seeds random, numpy.random and its own generator in each worker; what a dataset holds is copied as it is."""
_HEAD: Final = "def worker_init_fn(worker_id):\n    info = torch.utils.data.get_worker_info()\n"


def once(generators: Iterable[str]) -> str:
    """These generators of the process, named as the table fetches does, seeded above the loop over epochs."""
    lines = [_ONCE[one] for one in generators if one in _ONCE]
    return "\n".join(["# once, above the loop over epochs, and nowhere below it:", *lines]) if lines else ""


def in_each_worker(process: Process, generators: Iterable[str]) -> str:
    """A worker_init_fn that seeds these with what differs by worker, and each time that workers start."""
    names = list(generators)
    lines = [
        f"    {_IN_WORKER[one]}  # differs by worker, and each time that they start\n"
        for one in names
        if one in _IN_WORKER
    ]
    if "own" in names:
        held = held_generators.seeded_by_worker(process)
        lines.append(f"    {held}\n" if held else _OF_ANY_KIND)
    return f"{_HEAD}{''.join(lines)}\n"


def in_place(process: Process, seeds: Location | None, generators: Iterable[str]) -> Diff | None:
    """The seeds that a worker_init_fn of the script gives these generators, each made the worker's own; None where one
    of them is not seeded in one line, or the file may not know torch."""
    if seeds is None or not recorded_text.names_torch(process, seeds.file):
        return None
    parts = [_own_seed(process, seeds, one) for one in generators]
    known = sorted((one for one in parts if one is not None), key=lambda one: one.line)
    return edits.together(process, seeds, known) if parts and len(known) == len(parts) else None


def _own_seed(process: Process, seeds: Location, generator: str) -> Diff | None:
    """The only line of the function that seeds this generator, with the worker's own seed."""
    lines, found = recorded_text.of_function(process, seeds), []
    for number, text in lines.items():
        own = own_statement.at(process, seeds.at(number, text))
        if own is None or own.line != number or not own.is_whole:
            continue
        calls = [one for one in ast.walk(own.parsed.tree) if isinstance(one, ast.Call)]
        found += [(own, one) for one in calls if ast.unparse(one.func) in _SEEDS.get(generator, ())]
    if len(found) != 1 or len(found[0][1].args) != 1 or found[0][1].keywords:
        return None
    ((own, call),) = found
    return own.changed(own.parsed.with_parts({call.args[0]: f"{_OWN} % 2**32" if generator == "numpy" else _OWN}))

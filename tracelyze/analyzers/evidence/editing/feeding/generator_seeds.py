"""Examples that seed the generators which samples are drawn from: once for all, or in each worker of a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.datasets import held_generators

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracelyze.analyzers.recorded.run import Process

_ONCE: Final = {"numpy": "np.random.seed(0)", "python": "random.seed(0)", "torch": "torch.manual_seed(0)"}
_IN_WORKER: Final = {
    "numpy": "np.random.seed(info.seed % 2**32)",
    "python": "random.seed(info.seed)",
    "torch": "torch.manual_seed(info.seed)",
}
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
    """A worker_init_fn that seeds these with what differs by worker and epoch."""
    names = list(generators)
    lines = [f"    {_IN_WORKER[one]}  # info.seed differs by worker and epoch\n" for one in names if one in _IN_WORKER]
    if "own" in names:
        held = held_generators.seeded_by_worker(process)
        lines.append(f"    {held}\n" if held else _OF_ANY_KIND)
    return f"{_HEAD}{''.join(lines)}\n"

"""Examples that seed the generators which samples are drawn from: once for all, or in each worker of a loader."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tracelyze.analyzers.evidence.editing import loader_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable

_ONCE: Final = {"numpy": "np.random.seed(0)", "python": "random.seed(0)", "torch": "torch.manual_seed(0)"}
_IN_WORKER: Final = {
    "numpy": "np.random.seed(info.seed % 2**32)",
    "python": "random.seed(info.seed)",
    "torch": "torch.manual_seed(info.seed)",
}
_HEAD: Final = "def worker_init_fn(worker_id):\n    info = torch.utils.data.get_worker_info()\n"


def once(generators: Iterable[str]) -> str:
    """These generators of the process, named as the table fetches does, seeded above the loop over epochs."""
    lines = [_ONCE[one] for one in generators if one in _ONCE]
    return "\n".join(["# once, above the loop over epochs, and nowhere below it:", *lines]) if lines else ""


def in_each_worker(generators: Iterable[str]) -> str:
    """A worker_init_fn that seeds these with what differs by worker and epoch."""
    names = list(generators)
    lines = [f"    {_IN_WORKER[one]}  # info.seed differs by worker and epoch\n" for one in names if one in _IN_WORKER]
    if "own" in names:
        return loader_arguments.SEED_OF_EACH_WORKER.replace(_HEAD, _HEAD + "".join(lines))
    return f"{_HEAD}{''.join(lines)}\n"

"""The call that makes a DataLoader, as an example: what the run's loader was given stays, and some is added. And the
loop over epochs, where a DistributedSampler is to be told the number of the epoch."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from tracelyze.analyzers.evidence import called, recorded_text
from tracelyze.diagnosis import Diff, Location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracelyze.analyzers.recorded.run import Process

_EPOCHS: Final = re.compile(r"(?P<indent>\s*)for (?P<epoch>[A-Za-z]\w*) in [^#]*:\s*")
_OVER: Final = re.compile(r"\s*for .+ in (?:\w+\()?(?P<loader>[A-Za-z_][\w.]*)[^\w.(].*")

SEED_OF_EACH_WORKER = (
    "def worker_init_fn(worker_id):\n"
    "    info = torch.utils.data.get_worker_info()\n"
    "    # rng: the generator that the dataset holds; of its kind, so that it has the same methods:\n"
    "    # np.random.RandomState(info.seed % 2**32), random.Random(info.seed), a torch.Generator, or\n"
    "    info.dataset.rng = np.random.default_rng(info.seed)\n\n"
)
"""Torch seeds random, numpy.random and its own generator in each worker; what a dataset holds is copied as it is."""
_EXCLUDES = {"batch_sampler": ("batch_size", "shuffle", "sampler", "drop_last"), "sampler": ("shuffle",)}
_DRAWN_BY_TORCH = ("RandomSampler", "SequentialSampler", "_InfiniteConstantSampler", "", None)


def example(loader: Mapping[str, Any], **given: object) -> str:
    """`loader = DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2)`, from a row of the table loaders.

    Whoever pastes it must not lose what the loader was told before: the size of a batch, the order, a sampler.
    """
    arguments: dict[str, object] = {}
    if isinstance(loader.get("batch_size"), int):
        arguments["batch_size"] = loader["batch_size"]
    if loader.get("sampler") == "RandomSampler":
        arguments["shuffle"] = True
    elif loader.get("sampler") not in _DRAWN_BY_TORCH:
        arguments["sampler"] = "sampler"
    if loader.get("num_workers"):
        arguments["num_workers"] = loader["num_workers"]
    arguments |= {name: True for name in ("pin_memory", "drop_last") if loader.get(name)}
    excluded = next((others for name, others in _EXCLUDES.items() if name in given), ())
    arguments = {name: value for name, value in arguments.items() if name not in excluded} | given
    said = ", ".join(f"{name}={value}" for name, value in arguments.items())
    return f"loader = DataLoader(dataset, {said})" if said else "loader = DataLoader(dataset)"


def epochs_of(process: Process, loader: Mapping[str, Any], holder: str) -> tuple[Location | None, Diff | None]:
    """The loop over epochs around the one over this loader, and the edit that tells its `holder`, a sampler of it, the
    epoch: only where that loop goes over the very variable that the line which makes the loader assigns."""
    loop, over, made = process.location("epochs"), process.site(loader.get("site")), process.site(loader.get("made_at"))
    if loop is None or over is None or loop.file_function != over.file_function:
        return None, None
    text = recorded_text.around(process, loop).get(loop.line, "")
    head, named = _EPOCHS.fullmatch(text), _OVER.fullmatch(over.source)
    if over.line <= loop.line or head is None:
        return None, None
    if named is None or made is None or called.assigned(made) != named["loader"] or made.function != loop.function:
        return loop, None
    told = f"{head['indent']}    {named['loader']}.{holder}.set_epoch({head['epoch']})"
    return loop, Diff(loop.file, loop.line, [text], [text, told])

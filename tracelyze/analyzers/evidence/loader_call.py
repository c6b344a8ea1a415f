"""The call that makes a DataLoader, as an example: what the run's loader was given stays, and some is added."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

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

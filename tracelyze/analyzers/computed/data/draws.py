"""Random numbers that are drawn while batches are made: by which process, in which pass, from which state on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tracelyze.analyzers.recorded.run import Process

Row = dict[str, Any]
GENERATORS = {
    "python": "Python's random",
    "numpy": "numpy.random",
    "torch": "torch's generator",
    "own": "a generator that the dataset holds",
}


class Part(NamedTuple):
    """What one worker, or the process itself (worker -1), did in one pass over a loader. `line`: loaders of one line of
    the script and one dataset class. States by generator, for those that moved."""

    line: tuple[Any, ...]
    loader: int
    epoch: int
    worker: int
    step: int
    source: int | None
    start: dict[str, str]
    second: dict[str, str]


def parts(process: Process) -> list[Part]:
    """All that was noted of map-style datasets, in order."""
    loaders = {int(row["loader"]): row for row in process.loaders.records()}
    found = []
    for row in process.tables["fetches"].records():
        loader = loaders.get(int(row["loader"] or 0))
        if loader is None or loader["iterable"]:
            continue
        made = loader["loader"] if loader["made_at"] is None else loader["made_at"]
        moved = str(row["moved"] or "").split()
        second = str(row["second"] or "").split()
        found.append(
            Part(
                (made, loader["dataset"], loader["num_workers"]),
                int(row["loader"] or 0),
                int(row["epoch"] or 0),
                -1 if row["worker"] is None else int(row["worker"]),
                int(row["step"] or 0),
                row["source"],
                dict(zip(moved, str(row["start"] or "").split(), strict=False)),
                dict(zip(moved, second, strict=False)),
            )
        )
    return sorted(found, key=lambda part: part.step)


def same(parts: list[Part], name: str) -> bool:
    """Whether a generator moved in all of these, from one and the same state on, or was put back into one."""
    starts = {part.start.get(name) for part in parts}
    seconds = {part.second.get(name) for part in parts}
    return (len(starts) == 1 and None not in starts) or (len(seconds) == 1 and None not in seconds)


def names(generators: list[str]) -> str:
    """The generators in words."""
    return " and ".join(GENERATORS.get(name, name) for name in generators)

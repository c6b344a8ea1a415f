"""A sampler that asked for its rank before there was a process group: what is said, and which line is to move."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tracelyze.analyzers.rules.distributed.same_data_on_every_rank import batches_of_ranks, early_ranks, unprepared
from tracelyze.collectors.program.loading.early_ranks import asked_by

MADE = {"site": 1, "role": "dataloader", "line": 40, "source": "return DataLoader(data, batch_sampler=buckets)"}
CALLED = {"site": 2, "role": "loader-call", "line": 60, "source": "loader = loaders()", "function": "main"}
READ = {"site": 3, "role": "loader", "line": 66, "source": "for x, y in loader:"}
GROUP = {"site": 4, "role": "group-text", "line": 50, "source": "dist.init_process_group()"}
LOADER = {"early_rank": "Buckets", "made_at": 1, "called_at": 2, "site": 3}


@pytest.mark.parametrize(
    ("made", "read", "group", "line"),
    [
        ("loaders", "main", "setup", 60),  # the function that trains calls what makes the loader
        ("loaders", "fit", "main", 60),  # that which makes the group does
        ("main", "main", "setup", 40),
        ("main", "fit", "main", 40),
        ("loaders", "fit", "setup", 40),  # no line of them is in the same function
    ],
)
def test_the_line_that_comes_too_early(make: Any, made: str, read: str, group: str, line: int) -> None:
    named = zip((MADE, CALLED, READ, GROUP), (made, "main", read, group), strict=True)
    process = make.process(sites=[row | {"file": "train.py", "function": function} for row, function in named])
    found = early_ranks.of(process, LOADER)
    assert found is not None
    assert found.line is not None
    assert found.line.line == line
    assert f"(line 50 does), and run line {line}" in found.fix
    assert early_ranks.of(process, LOADER | {"early_rank": None}) is None
    assert "init_process_group()  # once" not in found.code, "a second group raises"
    moved = (MADE if line == 40 else CALLED)["source"]
    assert found.code.endswith(f"\n{moved}")
    together = "dist.init_process_group()  # line 50, from where it stands today"
    assert found.code.startswith(together if group == "main" else f"# line {line}, below what calls setup(),")


def test_what_is_said_of_it() -> None:
    title, summary = batches_of_ranks.said("Both", 2, 8, {"sampler": "Buckets", "early_rank": "Buckets"}, True)
    assert title == "Both ranks train on the same samples: Buckets was made too early"
    assert "each took itself for the only rank" in summary
    assert "Nothing divides" not in summary
    title, _ = batches_of_ranks.said("Both", 2, 8, {"sampler": "RandomSampler"}, None)
    assert title.endswith("nothing divides them")
    title, summary = batches_of_ranks.said("Both", 2, 8, {"sampler": "Buckets"}, None)
    assert title.endswith("Buckets gives each the same"), "it may divide them, by wrong numbers"
    assert "Nothing divides" not in summary


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("load = DataLoader(data, batch_sampler=buckets)", "yield from batches[rank : len(batches) // ranks * ranks"),
        ("load = DataLoader(data, sampler=buckets)", "yield from indices[rank : len(indices) // ranks * ranks"),
    ],
)
def test_a_sampler_of_the_scripts_own_stays_and_divides(make: Any, line: str, example: str) -> None:
    """Another sampler in its place would lose what it does: batches of similar lengths, say."""
    site = MADE | {"source": line, "excerpt": line, "excerpt_line": 40, "file": "train.py", "function": "f"}
    place, fix, code = unprepared.divided(make.process(sites=[site]), {"made_at": 1, "sampler": "Buckets"}, False)
    assert place is None
    assert fix.startswith("Have Buckets give each rank")
    assert example in code
    plain = unprepared.divided(make.process(sites=[site]), {"made_at": 1, "sampler": "RandomSampler"}, False)
    assert "Buckets" not in plain[1]


class Told:
    def __init__(self, rank: int, world_size: int) -> None:
        self.rank, self.world_size = rank, world_size


class Asks:
    def __init__(self, comm: Any, world_size: int) -> None:
        self.rank, self.world_size = comm.get_rank(), world_size


@pytest.mark.parametrize(
    ("part", "group", "found"),
    [
        (Asks(SimpleNamespace(get_rank=lambda: 0), 1), False, "Asks"),
        (Asks(SimpleNamespace(get_rank=lambda: 0), 1), True, None),  # there is a group
        (Asks(SimpleNamespace(get_rank=lambda: 0), 2), False, None),  # it knows of the others
        (Told(0, 1), False, None),  # it asks nobody
        ([1, 2, 3], False, None),
    ],
)
def test_who_asked_too_early(part: Any, group: bool, found: str | None) -> None:
    distributed = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: group)
    torch = SimpleNamespace(distributed=distributed)
    for place in ("batch_sampler", "sampler", "dataset"):
        loader = SimpleNamespace(**{"batch_sampler": None, "sampler": None, "dataset": [], place: part})
        assert asked_by(torch, loader) == found

"""A pass over a loader that is dropped before it says that it ends, as Lightning does, is noted all the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect

PROGRAM = """
import itertools, random, torch
from torch.utils.data import DataLoader

class Noisy(torch.utils.data.Dataset):
    def __len__(self):
        return 24
    def __getitem__(self, index):
        return torch.full((3,), float(index)) + random.random()

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
loader = DataLoader(Noisy(), batch_size=8, num_workers={workers}, persistent_workers={stay})
for epoch in range(4):
    random.seed(3)
    for x in itertools.islice(loader, len(loader)):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
"""


@pytest.mark.parametrize(("workers", "stay"), [(0, False), (2, False), (2, True)])
def test_passes_of_which_the_batches_are_counted(collect: Collect, tmp_path: Path, workers: int, stay: bool) -> None:
    script = tmp_path / "counted.py"
    script.write_text(PROGRAM.format(workers=workers, stay=stay))
    (process,) = collect(sys.executable, str(script)).run.processes
    rows = list(process.tables["fetches"].records())
    assert sorted(row["epoch"] for row in rows) == sorted([0, 1, 2, 3] * max(1, workers))
    assert sum(row["batches"] for row in rows) == 4 * 3
    assert all("python" in row["moved"] for row in rows)
    assert (len({row["start"] for row in rows}) == 1) == (workers == 0), "each pass begins in the same state there"

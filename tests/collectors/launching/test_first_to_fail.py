"""Of the processes of a job the one that failed first is named; what the others say then is its consequence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.collectors.conftest import Collect, program, two_ranks
from tracelyze.analyzers import diagnose
from tracelyze.diagnosis import Diagnosis, Finding

TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
ENDING = ("crash", "killed")


def only(diagnosis: Diagnosis) -> Finding:
    (finding,) = [finding for finding in diagnosis.findings if finding.rule in ENDING]
    return finding


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        (*TORCHRUN, program("first_to_fail.py"), "connection"),
        two_ranks("first_to_fail.py", "connection"),
        two_ranks("first_to_fail.py", "sleep"),
    ],
    ids=["torchrun-connection", "connection", "sleep"],
)
def test_the_rank_that_raised_first_is_named(collect: Collect, command: tuple[str, ...]) -> None:
    diagnosis = diagnose(collect(*command).run)
    finding = only(diagnosis)
    assert (finding.rule, finding.ranks, finding.confidence) == ("crash", [1], "certain")
    assert finding.title.startswith("ValueError: sample 1234 has a negative label")
    assert finding.location is not None
    assert finding.location.source.startswith("raise ValueError")
    assert any(one.name == "then, on rank 0" for one in finding.evidence)
    assert diagnosis.run.exit.detail.startswith("ValueError")


@pytest.mark.slow
def test_a_rank_that_was_killed_is_named_and_not_the_one_that_lost_it(collect: Collect) -> None:
    finding = only(diagnose(collect(*two_ranks("first_to_fail.py", "kill")).run))
    assert (finding.rule, finding.ranks) == ("killed", [1])
    assert finding.title.startswith("Rank 1 was killed after step")


CHILD = """
import multiprocessing, torch

def train(number):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(10):
        if (number, step) == (1, 5):
            raise KeyError("price")
        model(torch.randn(4, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

if __name__ == "__main__":
    children = [multiprocessing.get_context("fork").Process(target=train, args=(n,)) for n in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()
"""


def test_an_exception_in_a_process_of_multiprocessing_is_no_good_end(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "children.py"
    script.write_text(CHILD)
    done = collect(sys.executable, str(script))
    assert "collectors" not in done.own_stderr, "its own traceback has none of our frames"
    finding = only(diagnose(done.run))
    assert finding.title == "KeyError: 'price' at children.py:9"
    assert finding.first_step == 5


WORKER = """
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        if index == 13:
            raise KeyError(f"row {index} has no price")
        return torch.randn(4)

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in DataLoader(Rows(), batch_size=4, num_workers=1):
        model(x).pow(2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
"""


def test_the_exception_of_a_loading_worker_points_at_the_dataset(collect: Collect, tmp_path: Path) -> None:
    script = tmp_path / "loading.py"
    script.write_text(WORKER)
    finding = only(diagnose(collect(sys.executable, str(script)).run))
    assert finding.location is not None
    assert (finding.location.line, finding.location.function) == (11, "__getitem__")
    assert finding.title == "KeyError: 'row 13 has no price' at loading.py:11"
    assert "the dataset could not load a sample. It raised in a loading worker" in finding.summary

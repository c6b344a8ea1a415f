"""Ranks whose batches differ in size or number, and those that may."""

from __future__ import annotations

import pytest

from tests.analyzers.rules.distributed.paced_ranks import named, rank, sizes
from tracelyze.diagnosis import Exit


def test_batches_of_different_sizes(make) -> None:
    _, _, finding = sizes(make, [32] * 200, [24] * 200)
    assert "24 on rank 1, 32 on rank 0" in finding.title
    varied = [20 + index % 17 for index in range(200)]
    assert "mean" in sizes(make, varied, [2 * size for size in varied])[2].title
    ranks = named(rank(make, 0, length=100), rank(make, 1, length=80))
    assert "batches per epoch" in make.check("uneven-batches", *ranks)[2].title
    unfinished = named(*(rank(make, number, length=length, count=50) for number, length in enumerate((100, 80))))
    assert "batches per epoch" in make.check("uneven-batches", *unfinished)[2].title


@pytest.mark.parametrize(("sampler", "own"), [("RandomSampler", True), ("DistributedSampler", False)])
def test_ranks_with_data_of_their_own_weigh_them(make, sampler: str, own: bool) -> None:
    """A DistributedSampler would take a part of each rank's, and fewer batches of the rank that has least."""
    ranks = [
        rank(make, number, batch_size=[size] * 200, loader={"batch_size": size, "sampler": sampler})
        for number, size in enumerate((60, 20))
    ]
    finding = make.check("uneven-batches", *named(*ranks))[2]
    assert ("all_reduce(samples)" in finding.fix_code) == own
    assert ("DistributedSampler(dataset" in finding.fix_code) != own
    assert ("Where you weight the losses, the sizes still differ" in finding.verify) == own


def test_a_record_that_was_cut_off_says_nothing_of_the_number_of_batches(make) -> None:
    whole = rank(make, 0, count=24, length=None)
    cut = rank(make, 1, count=15, length=None)
    cut.exit = Exit("signal", None, "Fatal Python error: Aborted")
    assert make.check("uneven-batches", *named(whole, cut))[0] == "skipped"


def test_batches_that_are_even_enough(make) -> None:
    last = [32 if index % 20 else 7 for index in range(200)]
    assert sizes(make, last, [32] * 200)[0] == "passed"  # the last of an epoch
    varied = [20 + index % 17 for index in range(200)]
    assert sizes(make, varied, varied[::-1])[0] == "passed"  # sequences of varying length
    assert sizes(make, [32] * 200, [32] * 199)[0] == "passed"


def test_uneven_inputs_that_were_joined(make) -> None:
    """Without a Join context the longer rank's backward would wait for ever."""
    ranks = named(rank(make, 0, length=100, count=200), rank(make, 1, length=80, count=160))
    status, reason, _ = make.check("uneven-batches", *ranks)
    assert status == "passed"
    assert "joined" in reason


def test_a_rank_that_idles_for_most_of_each_epoch_under_join(make) -> None:
    ranks = named(rank(make, 0, length=100, count=200), rank(make, 1, length=40, count=80))
    finding = make.check("uneven-batches", *ranks)[2]
    assert "40 on rank 1, 100 on rank 0" in finding.title
    assert "idles for 60%" in finding.summary
    assert "ConcatDataset" in finding.fix_code
    alone = named(rank(make, 0, length=100, count=200), rank(make, 1, length=40, count=160))
    assert make.check("uneven-batches", *alone)[0] == "passed", "as many steps do not come from the loader"

"""Who is waited for: collectives of several ranks, with clocks that agree and clocks that do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kineto.made import Made
from tracelyze.analyzers.kineto import diagnose_traces

RANKS = 4
STEPS = 6


def job(folder, late, skew=(0.0,) * RANKS, seed=0, missing=None):
    """Traces of four ranks: each step computes for about 20 ms, rank r longer by late(step, r), then all meet."""
    random = np.random.default_rng(seed)
    work = np.array(
        [[20_000 + late(s, r) + float(random.integers(0, 200)) for r in range(RANKS)] for s in range(STEPS)]
    )
    start = 1_000_000.0
    made = [Made(rank=rank, world_size=RANKS) for rank in range(RANKS)]
    for step in range(STEPS):
        meet = start + work[step].max() + 300
        for rank, one in enumerate(made):
            begin = start + skew[rank]
            one.span("kernel", "gemm", begin, work[step, rank], pid=0, tid=7, stream=7, device=0)
            arrived = begin + work[step, rank]
            if missing != (step, rank):
                name = "ncclDevKernel_AllReduce_Sum_f32"
                one.span("kernel", name, arrived, meet + skew[rank] - arrived, pid=0, tid=20, stream=20, device=0)
            one.span("user_annotation", f"ProfilerStep#{step}", begin, meet - start)
        start = meet
    for rank, one in enumerate(made):
        one.write(folder / f"rank{rank}.json")
    return folder


def found(folder):
    return {finding.rule: finding for finding in diagnose_traces(folder).findings}


@pytest.mark.parametrize("skew", [(0.0,) * RANKS, (0.0, 7e5, -3e5, 4e3)])
@pytest.mark.parametrize("slow", range(RANKS))
def test_a_steady_straggler_is_named_whatever_the_clocks(tmp_path, slow, skew):
    finding = found(job(tmp_path, lambda _, rank: 5_000.0 * (rank == slow), skew))["straggler"]
    assert finding.ranks == [slow]
    assert finding.confidence == "likely"
    assert finding.cost is not None
    # 5 ms of about 25.4 ms; the jitter of 0.2 ms moves the middle of the others by less than one percent of the step.
    assert finding.cost.share == pytest.approx(5.0 / 25.4, abs=0.01)


def test_waiting_for_the_straggler_is_not_called_slow_communication(tmp_path):
    fired = found(job(tmp_path, lambda _, rank: 5_000.0 * (rank == 2)))
    assert "exposed-communication" not in fired


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_are_equally_slow_or_take_turns_have_no_straggler(tmp_path, seed):
    even, turns = tmp_path / "even", tmp_path / "turns"
    even.mkdir()
    turns.mkdir()
    random = np.random.default_rng(seed)
    noise = random.uniform(0, 6_000, (STEPS, RANKS))
    assert "straggler" not in found(job(even, lambda *_: 0.0, seed=seed))
    assert "straggler" not in found(job(turns, lambda step, rank: 5_000.0 * (step % RANKS == rank)))
    if len(set(noise.argmax(axis=1).tolist())) > 2:
        mixed = tmp_path / "mixed"
        mixed.mkdir()
        assert "straggler" not in found(job(mixed, lambda step, rank: float(noise[step, rank])))


def test_a_rank_that_misses_a_collective_is_said_and_not_matched(tmp_path):
    diagnosis = diagnose_traces(job(tmp_path, lambda *_: 0.0, missing=(5, 1)))
    assert any("not all ranks made equally often" in note for note in diagnosis.run.notes)
    check = next(check for check in diagnosis.checks if check.rule == "straggler")
    assert check.status == "skipped"


def test_ranks_come_from_the_file_then_its_name_then_its_place(tmp_path):
    folder = job(tmp_path, lambda *_: 0.0)
    assert diagnose_traces(folder).run.ranks == RANKS
    assert diagnose_traces(sorted(folder.iterdir())).run.ranks == RANKS


def test_waiting_for_another_rank_is_told_apart_from_communication(tmp_path):
    """Rank 2 is 5 ms late in each step: the others wait 5 ms less than the random part, and it does not."""
    diagnosis = diagnose_traces(job(tmp_path, lambda step, rank: 5_000.0 * (rank == 2)))
    chart = diagnosis.charts[0]
    assert chart.x == [0, 1, 2, 3]
    waits = next(line.y for line in chart.lines if line.name == "waiting for other ranks")
    assert [round(value or 0) for value in waits] == [5, 5, 0, 5]
    talks = next(line.y for line in chart.lines if line.name == "communication, not hidden")
    assert talks == pytest.approx([0.3] * 4, abs=0.01)

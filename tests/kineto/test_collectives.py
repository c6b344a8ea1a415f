"""Who is waited for: collectives of several ranks, with clocks that agree and clocks that do not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.kineto.made import Made
from tracelyze.analyzers.kineto import diagnose_traces, summarise
from tracelyze.analyzers.kineto.diagnose import as_job

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


def status(folder):
    (check,) = diagnose_traces(folder, select=["straggler"]).checks
    return check.status


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
    assert status(job(even, lambda *_: 0.0, seed=seed)) == "passed"
    assert status(job(turns, lambda step, rank: 5_000.0 * (step % RANKS == rank))) == "passed"
    if len(set(noise.argmax(axis=1).tolist())) > 2:
        mixed = tmp_path / "mixed"
        mixed.mkdir()
        assert status(job(mixed, lambda step, rank: float(noise[step, rank]))) == "passed"


def test_a_rank_that_misses_a_collective_is_said_and_not_matched(tmp_path):
    diagnosis = diagnose_traces(job(tmp_path, lambda *_: 0.0, missing=(2, 1)))
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
    kinds = [line.kind for line in chart.lines]
    assert len(set(kinds)) == len(kinds), "two parts of a bar have one colour"


WINDOWS = {
    "one begins a step later": {1: (1, STEPS)},
    "one ends a step earlier": {3: (0, STEPS - 1)},
    "equally many, but not the same": {0: (1, STEPS), 1: (0, STEPS - 1), 2: (1, STEPS), 3: (0, STEPS - 1)},
}


@pytest.mark.parametrize("window", WINDOWS)
def test_windows_that_began_or_ended_apart_are_laid_against_each_other(tmp_path, window):
    cut(job(tmp_path, lambda _, rank: 5_000.0 * (rank == 2)), WINDOWS[window])
    assert found(tmp_path)["straggler"].ranks == [2]


def test_so_are_those_of_clocks_that_differ_where_steps_take_unequally_long(tmp_path):
    work = [0.0, 3_000.0, 500.0, 9_000.0, 1_000.0, 6_000.0]
    skew = (0.0, 7e5, -3e5, 4e3)
    cut(job(tmp_path, lambda step, rank: work[step] + 5_000.0 * (rank == 2), skew), {1: (0, STEPS - 1), 3: (1, STEPS)})
    assert found(tmp_path)["straggler"].ranks == [2]


def cut(folder, windows):
    """Leaves of some ranks' traces only the steps from the first to before the last."""
    for rank, (first, last) in windows.items():
        path = folder / f"rank{rank}.json"
        document = json.loads(path.read_text())
        marks = [one for one in document["traceEvents"] if one["name"].startswith("ProfilerStep")]
        begin, end = marks[first]["ts"], marks[last - 1]["ts"] + marks[last - 1]["dur"]
        document["traceEvents"] = [one for one in document["traceEvents"] if begin <= one["ts"] < end]
        path.write_text(json.dumps(document))


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_stages_of_a_pipeline_hold_nobody_up(tmp_path, stages, told):
    """All micro-batches forward, then all of them backward: each stage waits for the one beside it."""
    made = [Made(rank=rank, world_size=stages) for rank in range(stages)]
    free = [1e6] * stages
    names = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"

    def passed(source, target, ready):
        end = max(ready, free[target]) + 100
        for rank, start, name in ((source, ready, "send"), (target, free[target], "recv")):
            group = f"[{min(source, target)}, {max(source, target)}]"
            labels = {"Collective name": name, "Process Group Ranks": group} if told else {}
            made[rank].span("kernel", names, start, end - start, pid=0, tid=20, stream=20, device=0, **labels)
        return end

    for step in range(STEPS):
        begin = list(free)
        for name, length, order in (("forward", 5_000, range(stages)), ("backward", 10_000, range(stages)[::-1])):
            for _ in range(4):
                for rank, source in zip(order, [None, *order][:-1], strict=True):
                    start = free[rank] if source is None else passed(source, rank, free[source])
                    made[rank].span("kernel", name, start, length, pid=0, tid=7, stream=7, device=0)
                    free[rank] = start + length
        for rank, one in enumerate(made):
            one.span("user_annotation", f"ProfilerStep#{step}", begin[rank], free[rank] - begin[rank])
    for rank, one in enumerate(made):
        one.write(tmp_path / f"rank{rank}.json")
    diagnosis = diagnose_traces(tmp_path)
    assert "straggler" not in {finding.rule for finding in diagnosis.findings}
    assert not any("equally often" in note for note in diagnosis.run.notes)


def test_windows_of_a_rank_that_lacks_one_are_told_by_their_time(tmp_path):
    """The second of three windows is missing on rank 1: its third one belongs to the third of the others."""
    for window in range(3):
        folder = tmp_path / str(window)
        folder.mkdir()
        job(folder, lambda _, rank: 5_000.0 * (rank == 2), skew=(60e6 * window,) * RANKS, seed=window)
        for rank in range(RANKS):
            if (rank, window) != (1, 1):
                (folder / f"rank{rank}.json").rename(tmp_path / f"rank{rank}.{window}.json")
    matched = as_job(summarise([tmp_path])).arrivals
    assert [arrivals.ranks for arrivals in matched] == [[0, 1, 2, 3], [0, 2, 3], [0, 1, 2, 3]]
    assert not any(arrivals.realigned for arrivals in matched)
    assert found(tmp_path)["straggler"].ranks == [2]


@pytest.mark.parametrize("skew", [(0.0,) * RANKS, (0.0, 7e5, -3e5, 4e3)])
def test_all_ranks_are_shown_on_one_clock_around_the_late_collective(tmp_path, skew):
    diagnosis = diagnose_traces(
        job(tmp_path, lambda step, rank: (4_000.0 + 500.0 * step) * (rank == 2), skew), picture=True
    )
    assert diagnosis.picture is not None
    timeline = diagnosis.picture.timelines[0]
    assert timeline.title.startswith("Rank 2 arrives 6.")  # the last step: 6.5 ms later than the others
    assert [lane.name for lane in timeline.lanes] == ["rank 0", "rank 1", "rank 2, the last to arrive", "rank 3"]
    waits = {
        lane.name: sum(busy for busy, label in zip(lane.busy, lane.label, strict=True) if label == 0)
        for lane in timeline.lanes
    }
    assert waits.pop("rank 2, the last to arrive") == 0
    assert all(wait == pytest.approx(6_500, abs=250) for wait in waits.values())
    ends = [
        max(start + length for start, length in zip(lane.start, lane.length, strict=True)) for lane in timeline.lanes
    ]
    assert ends == pytest.approx([ends[0]] * RANKS, abs=60)


def test_without_a_straggler_no_ranks_are_shown(tmp_path):
    diagnosis = diagnose_traces(job(tmp_path, lambda *_: 0.0), picture=True)
    assert diagnosis.picture is not None
    assert not any("arrives" in timeline.title for timeline in diagnosis.picture.timelines)

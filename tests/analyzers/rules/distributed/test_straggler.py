"""Ranks that hold up the others, and ranks that do not."""

from __future__ import annotations

from typing import Any

import pytest

from tests.analyzers.rules.distributed.paced_ranks import COUNT, DDP, named, rank
from tracelyze.analyzers.rules.distributed.straggler import alone, own_work
from tracelyze.diagnosis import Location


def test_one_rank_that_holds_up_the_others(make) -> None:
    ranks = named(rank(make, 0, 0.02, 0.05), rank(make, 1, 0.05, 0.02), rank(make, 2, 0.02, 0.05))
    _, _, finding = make.check("straggler", *ranks)
    assert (finding.severity, finding.ranks) == ("warning", [1])
    assert "not waiting for batches" in finding.summary
    (chart,) = finding.charts
    assert (chart.x_label, chart.x) == ("rank", [0.0, 1.0, 2.0])
    assert [line.name for line in chart.lines] == ["own work", "backward, and waiting in it"]
    assert chart.lines[0].y == pytest.approx([20.0, 50.0, 20.0])
    assert finding.title == "Rank 1 is the slowest, and the others wait 30 ms a step for it"
    _, _, of_two = make.check("straggler", *ranks[:2])
    assert of_two.title == "Rank 1 is the slowest, and rank 0 waits 30 ms a step for it"
    assert "In backward, rank 0 waits 30 ms a step for rank 1. Rank 1 is not waiting for batches" in of_two.summary
    reader = [
        {"site": 7, "role": "reader", "file": "t.py", "line": 9, "function": "__getitem__", "source": "x = load()"}
    ]
    loading = rank(make, 1, 0.05, 0.02, loader_wait=[0.03] * COUNT, read_by=7, tables={"sites": reader})
    finding = make.check("straggler", *named(ranks[0], loading))[2]
    assert "waiting for batches" in finding.summary
    assert finding.location.line == 9, "the line of the dataset that makes the slow rank's samples"


def test_a_rank_that_needs_a_third_more_than_the_other(make) -> None:
    ranks = named(rank(make, 0, 0.039, 0.033), rank(make, 1, 0.052, 0.02))
    assert make.check("straggler", *ranks)[2].ranks == [1]


@pytest.mark.parametrize(
    ("own", "backward"),
    [
        ((0.05, 0.05), (0.02, 0.02)),  # equally slow
        ((0.02, 0.021), (0.02, 0.019)),  # noise
        ((0.02, 0.05), (0.02, 0.02)),  # nobody waits
        ((0.06, 0.0725), (0.015, 0.0025)),  # a fifth more, in steps of nothing but own work
    ],
)
def test_ranks_that_keep_pace(make, own, backward) -> None:
    ranks = named(*(rank(make, number, own[number], backward[number]) for number in (0, 1)))
    assert make.check("straggler", *ranks)[0] == "passed"


def test_stages_of_a_pipeline_differ_in_their_work(make) -> None:
    """What such ranks do outside of backward is in part waiting for each other, which nothing tells apart."""

    def of(sizes: tuple[int, int], messages: float, counted: str) -> Any:
        group = {"group": "0", "members": "0 1", "enqueued": 4, "completed": 4, "operation": None}
        group |= {"completed": 4 + messages} if counted == "completed" else {"unseen": messages}
        models = [[{"model": 0, "name": "Stage", "parameters": 4, "elements": size}] for size in sizes]
        tables = {"collectives": [group]}
        return named(
            rank(make, 0, 0.02, 0.05, models=models[0], tables=tables),
            rank(make, 1, 0.05, 0.02, models=models[1], tables=tables),
        )

    assert make.check("straggler", *of((100, 100), 0, "completed"))[0] == "fired"
    assert make.check("straggler", *of((100, 100), 0.1 * COUNT, "unseen"))[0] == "fired", "now and then"
    for counted in ("completed", "unseen"):
        state, reason, _ = make.check("straggler", *of((100, 100), 8 * COUNT, counted))
        assert (state, "sends and receives" in reason) == ("skipped", True)
    looks = {
        "time": [1.0, 2.0, 3.0, 4.0],
        "innermost": ["a.py:1 f"] * 2 + ["torch/distributed/distributed_c10d.py:9 recv"] * 2,
    }
    seen = named(rank(make, 0, 0.02, 0.05, samples=looks), rank(make, 1, 0.05, 0.02))
    assert make.check("straggler", *seen)[0] == "skipped", "a program that ended by os._exit has counted nothing"
    state, reason, _ = make.check("straggler", *of((100, 200), 0, "unseen"))
    assert (state, "different models" in reason) == ("skipped", True)


def test_paces_are_named_from_the_least_to_the_most(make) -> None:
    """What a slow rank was kept from by other programs is taken off its own work, which may then be the shorter one."""
    looks = [float(second) for second in range(10)]
    crowded = {"time": looks, "delayed": [0.5 * second for second in looks], "cpu_seconds": [0.4 * t for t in looks]}
    ranks = named(rank(make, 0, 0.02), rank(make, 1, 0.021, samples=crowded))
    assert make.check("straggler", *ranks)[1] == "The ranks' own work takes 10.5 ms to 20 ms a step."


def reduces(late: float) -> list[dict[str, Any]]:
    """The last collectives of a rank that comes so much later than the others, of a script that averages by itself."""
    return [
        {"group": "0", "operation": "all_reduce", "p2p": False, "sequence": step, "created": 100 + 0.07 * step + late}
        for step in range(20)
    ]


@pytest.mark.parametrize(("late", "status"), [((0.0, 0.05), "fired"), ((0.0, 0.0), "passed")])
def test_a_rank_that_comes_late_to_the_collectives_of_the_script(make, late: tuple[float, float], status: str) -> None:
    """Steps of all ranks take equally long, and none waits in its backward."""
    ranks = [rank(make, number, 0.069, 0.001, tables={"collectives": reduces(late[number])}) for number in (0, 1)]
    found, _, finding = make.check("straggler", *named(*ranks))
    assert found == status
    if finding is not None:
        assert (finding.ranks, finding.title.endswith("rank 0 waits 50 ms a step for it")) == ([1], True)
        assert "outside the script's collectives" in finding.summary.lower()


def forwards(late: float) -> list[dict[str, Any]]:
    """Broadcasts of buffers, for which the other ranks wait in the forward, and the average of the gradients."""
    return [
        {"group": "0", "operation": name, "p2p": False, "sequence": 2 * step + after}
        | {"created": 100 + 0.12 * step + 0.01 * after + late * (not after)}
        for step in range(20)
        for after, name in enumerate(("broadcast", "all_reduce"))
    ]


@pytest.mark.parametrize(("late", "ranks"), [((0.05, 0.0), [0]), ((0.0, 0.0), None), ((0.0, 0.05), None)])
def test_the_first_rank_comes_late_to_the_broadcast_of_buffers(make, late: tuple[float, ...], ranks: Any) -> None:
    """The others wait for it in the forward of DistributedDataParallel: steps take equally long outside of backward.
    It waits for none of them there."""
    two = [rank(make, number, 0.06, 0.06, tables={"collectives": forwards(late[number])}) for number in (0, 1)]
    found, _, finding = make.check("straggler", *named(*two))
    assert (finding.ranks if finding else None) == ranks, found
    if finding is not None:
        assert "Outside backward and the broadcast of buffers, rank 0 needs 60 ms a step" in finding.summary


def test_the_line_at_which_only_the_straggler_is_found(make) -> None:
    """Once a second the sampler notes the line; lines of backward are where ranks wait for each other."""

    def seen(*sites: int) -> dict[str, Any]:
        return {"samples": [{"time": float(second), "site": site} for second, site in enumerate(sites)]}

    usual = rank(make, 0, 0.02, 0.05, tables=seen(1, 1, 3, 1, 1))
    slow = rank(make, 1, 0.05, 0.02, tables=seen(4, 1, 4, 4, 3))
    _, _, finding = make.check("straggler", *named(usual, slow))
    assert finding.location.line == 40
    assert "seen in line 40 far more often" in finding.summary
    alike = rank(make, 0, 0.02, 0.05, tables=seen(1, 4, 4, 1, 1))
    assert make.check("straggler", *named(alike, slow))[2].location is None


def test_the_line_of_what_a_rank_does_beside_what_all_do(make) -> None:
    """It is found at that line in less than half of its time, and nobody else is."""

    def seen(*sites: int) -> dict[str, Any]:
        return {"samples": [{"time": float(second), "site": site} for second, site in enumerate(sites)]}

    usual = rank(make, 0, 0.03, 0.05, tables=seen(1, 1, 2, 2, 3))
    slow = rank(make, 1, 0.05, 0.03, tables=seen(4, 1, 4, 2, 2, 3, 3, 4))
    assert make.check("straggler", *named(usual, slow))[2].location.line == 40


def reading(make: Any, number: int, own: float, backward: float, *lines: tuple[int, str, float], **more: Any) -> Any:
    """A rank that reads values back in these lines of functions, so often in a step."""
    rows = [
        {"site": at, "role": "read", "file": "t.py", "line": line, "function": function, "per_step": count}
        | {"source": "row = p.norm().item()"}
        for at, (line, function, count) in enumerate(lines)
    ]
    loop = {"site": 20, "role": "backward", "file": "t.py", "line": 90, "function": "main", "source": "loss.backward()"}
    signals = [{"time": 1.0, "step": 9, "signal": "reads", "state": more.pop("state", "on")}]
    process = rank(make, number, own, backward, tables={"sites": [*rows, loop], "signals": signals})
    process.facts |= {"host": more.get("host", "one")}
    return process


@pytest.mark.parametrize(
    ("lines", "others", "more", "expected"),
    [
        ([(49, "update", 1.0), (53, "update", 6.0)], [], {}, 53),
        ([(49, "update", 1.0), (95, "main", 1.0)], [], {}, 49),  # the loop's own line may be cheap
        ([(95, "main", 1.0)], [], {}, None),
        ([(53, "update", 6.0)], [(53, "update", 6.0)], {}, None),
        ([(53, "update", 6.0), (12, "report", 1.0)], [], {}, None),
        ([(53, "update", 0.1)], [], {}, None),  # now and then
        ([(53, "update", 6.0)], [], {"state": "off"}, None),
        ([(53, "update", 6.0)], [], {"host": "other"}, None),  # its machine may be the slow one
    ],
)
def test_what_only_the_straggler_reads_back(make, lines: Any, others: Any, more: Any, expected: int | None) -> None:
    ranks = named(reading(make, 0, 0.05, 0.02, *lines), reading(make, 1, 0.02, 0.05, *others, **more))
    _, _, finding = make.check("straggler", *ranks)
    assert (finding.location.line if finding.location else None) == expected
    assert (f"it alone reads values back in line {expected}, in each step" in finding.summary) == bool(expected)


LOOP = """\
    for x, y in loader:
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()

        if dist.get_rank() == 0:
            # beside the run
            kept.append(spectrum(model.module))
        total += loss.item()"""


@pytest.mark.parametrize(
    ("text", "line", "fix"),
    [
        (LOOP, 17, "Line 15 decides by the rank who does what line 17 calls"),
        (LOOP.replace("dist.get_rank() == 0", "step % 10 == 0"), 17, "Do what line 17 calls less often"),
        (LOOP.replace("spectrum(", "spectrum_of("), None, ""),
        (LOOP.replace("total +=", "spectrum(model); total +="), None, ""),
    ],
)
def test_the_call_of_what_one_rank_alone_was_seen_in(make, text: str, line: int | None, fix: str) -> None:
    site = {"site": 7, "role": "backward", "file": "t.py", "line": 12, "function": "main", "source": "loss.backward()"}
    site |= {"excerpt": text, "excerpt_line": 10}
    process = make.process(sites=[site], optimizers=[{"optimizer": 0, "name": "Adam", "backward_site": 7}])
    called = alone.called(process, Location("t.py", 4, "spectrum", "s = torch.linalg.svdvals(p)"))
    assert (called.place.line if called else None) == line
    assert called is None or called.fix.startswith(fix)
    assert alone.called(process, Location("t.py", 17, "main", "kept.append(x)")) is None
    assert called is None or called.fix.endswith("share it out among all ranks.")


def test_two_ranks_are_both_and_each_other(make) -> None:
    paces = {0: own_work.of(rank(make, 0, 0.02, 0.05)), 1: own_work.of(rank(make, 1, 0.05, 0.02))}
    place = Location("t.py", 4, "spectrum", "s = svd(p)")
    paces[1] = paces[1]._replace(seen=((place, 0.9),))
    limits = {"line": 0.5, "elsewhere": 0.25, "reads": 0.9}
    assert own_work.doing(1, paces, limits)[1] == "it was seen in line 4 far more often than rank 0"
    third = {2: paces[0]}
    assert own_work.doing(1, paces | third, limits)[1] == "it was seen in line 4 far more often than any other rank"
    for ranks, words in ((2, "both ranks"), (4, "all ranks")):
        assert alone.everyone(make.process(facts={"world_size": ranks})) == words


def test_a_rank_that_others_took_the_processors_from_is_no_straggler(make) -> None:
    """Half of its time it was ready to run, and other programs ran."""
    looks = [float(second) for second in range(12)]
    crowded = {"time": looks, "delayed": [0.5 * second for second in looks], "cpu_seconds": [0.4 * t for t in looks]}
    usual, slow = rank(make, 0, 0.02, 0.05), rank(make, 1, 0.05, 0.02)
    held_up = make.process(
        make.steps(COUNT) | {"seconds": [0.07] * COUNT, "backward_seconds": [0.02] * COUNT},
        facts={"rank": 1},
        models=DDP,
        evals={},
        samples=crowded,
    )
    assert make.check("straggler", *named(usual, slow))[0] == "fired"
    assert make.check("straggler", *named(usual, held_up))[0] == "passed"


def test_a_rank_with_many_times_the_work_is_a_straggler_on_a_crowded_machine_too(make) -> None:
    """Three quarters of its time others ran; what is left is still far more than the work of the other rank."""
    looks = [float(second) for second in range(40)]
    samples = {"time": looks, "delayed": [0.75 * second for second in looks], "cpu_seconds": [0.2 * t for t in looks]}
    busy = make.process(
        make.steps(COUNT) | {"seconds": [0.15] * COUNT, "backward_seconds": [0.03] * COUNT},
        facts={"rank": 1},
        models=DDP,
        evals={},
        samples=samples,
    )
    ranks = named(rank(make, 0, 0.002, 0.148), busy)
    assert make.check("straggler", *ranks)[2].ranks == [1]


def crowd(delayed: float, used: float) -> dict[str, Any]:
    """Once a second: a main thread that waits so long for a processor, in a process that uses one for so long."""
    looks = [float(second) for second in range(12)]
    return {"time": looks, "delayed": [delayed * one for one in looks], "cpu_seconds": [used * one for one in looks]}


@pytest.mark.parametrize(("used", "status"), [(0.19, "fired"), (0.07, "passed"), (0.054, "passed")])
def test_work_within_backward_counts_where_processors_say_so(make, used: float, status: str) -> None:
    """Others ran for most of the time, and what is left outside of backward is a small part of a step."""
    usual = rank(make, 0, 0.0048, 0.1246, samples=crowd(0.156, 0.054))
    slow = rank(make, 1, 0.0346, 0.095, samples=crowd(0.78, used))
    assert make.check("straggler", *named(usual, slow))[0] == status


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("self.mine = order[rank * share:(rank + 1) * share]", "order[rank : len(order) // ranks * ranks : ranks]"),
        ("part = rows[self.rank * n : self.rank * n + n]", "rows[self.rank : len(rows) // ranks * ranks : ranks]"),
        ("self.mine = order[rank::world]", ""),
        ("val = order[rank * share:(rank + 1) * share]", ""),
        ("loss = x[rank * 2]", ""),
    ],
)
def test_the_line_that_gives_each_rank_a_block(make, line: str, example: str) -> None:
    def batches(length: int) -> list[dict[str, Any]]:
        row = {"field": "0", "trained": True, "dtype": "int64"}
        return [row | {"time": 0.1 * step, "step": step, "shape": f"24x{length}"} for step in range(8)]

    site = {"site": 30, "role": "shift", "file": "a.py", "line": 51, "function": "__init__", "source": line}
    site |= {"excerpt": f"        {line}", "excerpt_line": 51}
    usual = rank(make, 0, 0.02, 0.05, tables={"batches": batches(17), "sites": [site]})
    slow = rank(make, 1, 0.05, 0.02, tables={"batches": batches(58), "sites": [site]})
    finding = make.check("straggler", *named(usual, slow))[2]
    assert "Rank 1's batches hold more: 1,392 values in the median, 408 for rank 0." in finding.summary
    assert example in finding.fix_code
    assert (finding.location is not None and finding.location.line == 51) == bool(example)
    alike = rank(make, 0, 0.02, 0.05, tables={"batches": batches(58), "sites": [site]})
    assert make.check("straggler", *named(alike, slow))[2].fix_code == ""


def test_a_second_is_too_short_to_call_a_rank_slow(make) -> None:
    brief = [rank(make, 0, 0.002, 0.005, count=15), rank(make, 1, 0.005, 0.002, count=15)]
    for process in brief:
        assert process.steps["time"].max() < 1.0
    assert make.check("straggler", *named(*brief))[0] == "skipped"


def test_one_rank_has_nobody_to_hold_up(make) -> None:
    assert make.check("straggler", *named(rank(make, 0)))[0] == "skipped"
    assert make.check("uneven-batches", *named(rank(make, 0)))[0] == "skipped"
